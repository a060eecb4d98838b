"""Real Apache Cassandra nodes on loopback addresses, from a folder of jars."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import string
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.services.cassandra.jars import jars
from tests.support.waiting import wait_until

HERE: Final = Path(__file__).parent
PORT: Final = 9042
DATACENTER: Final = "datacenter1"
LONGEST_START: Final = 180.0
BATCH: Final = "commitlog_sync: batch\ncommitlog_sync_period: 0ms"
PERIODIC: Final = "commitlog_sync: periodic\ncommitlog_sync_period: 10s"
# What Cassandra's own options for Java 17 open to it.
EXPORTS: Final = """java.base/jdk.internal.misc java.base/java.lang.ref java.sql/java.sql jdk.unsupported/sun.misc
    java.rmi/sun.rmi.registry java.rmi/sun.rmi.server jdk.attach/sun.tools.attach
    java.management.rmi/com.sun.jmx.remote.internal.rmi jdk.compiler/com.sun.tools.javac.file"""
OPENS: Final = """java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect
    java.base/java.nio java.base/java.util java.base/jdk.internal.loader java.base/jdk.internal.math
    java.base/jdk.internal.module java.base/jdk.internal.ref java.base/jdk.internal.reflect
    java.base/jdk.internal.util.jar java.base/sun.nio.ch jdk.compiler/com.sun.tools.javac
    jdk.management/com.sun.management.internal"""
AUTHENTICATION: Final = "\nauthenticator:\n  class_name: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\n"
TLS: Final = """
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: false
  keystore: {}
  ssl_context_factory:
    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory
"""


@dataclass
class Node:
    """One node.

    Attributes:
        run: Its folder.
        network: The first three numbers of the ring's addresses; all of 127/8 is this machine.
        number: Which of the ring's nodes, from 1; the first is the seed.
        size: How many nodes the ring has.
        commitlog: `BATCH` or `PERIODIC`.
        authentication: Whether clients log in (cassandra/cassandra).
        tls: A PEM file with the key (PKCS#8) and the certificates, for clients that speak TLS only.
        yaml: More of it.
        outlives: Whether it goes on when the process that started it ends.
    """

    run: Path
    network: str
    number: int = 1
    size: int = 1
    commitlog: str = BATCH
    authentication: bool = False
    tls: Path | None = None
    yaml: str = ""
    outlives: bool = False
    local_datacenter: str = DATACENTER
    port: int = PORT

    @property
    def host(self) -> str:
        """Its address."""
        return f"{self.network}.{self.number}"

    def process_id(self) -> int | None:
        """Its process, if it runs: a number alone may be another's by now."""
        try:
            pid, birth = (self.run / "pid").read_text().split()
        except FileNotFoundError:
            return None
        return int(pid) if _born(int(pid)) == birth else None

    def url(self, keyspace: str = "") -> str:
        """The URL of a store on it."""
        return f"cassandra://{self.host}:{self.port}/{keyspace}?local_datacenter={self.local_datacenter}"

    def answers(self) -> bool:
        """Whether it answers a CQL OPTIONS request with SUPPORTED."""
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as link:
                if self.tls is not None:
                    context = ssl.create_default_context()
                    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                    with context.wrap_socket(link) as secure:
                        return _asked(secure)
                return _asked(link)
        except OSError:
            return False

    def start(self) -> None:
        """Start it, and wait until it answers. Unless it outlives them, it ends with the thread that calls this."""
        if self.process_id() is not None:
            raise RuntimeError(f"node {self.host} runs already")
        for folder in ("data", "logs", "tmp"):
            (self.run / folder).mkdir(parents=True, exist_ok=True)
        (self.run / "cassandra.yaml").write_text(self._yaml())
        with (self.run / "logs/output.log").open("ab") as output:
            process = subprocess.Popen(
                self._command(),
                cwd=self.run,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "MALLOC_ARENA_MAX": "4"},
            )
        (self.run / "pid").write_text(f"{process.pid} {_born(process.pid)}")
        # Not ours to wait for any more: `process_id` tells whether it lives.
        process.returncode = 0
        deadline = time.monotonic() + LONGEST_START
        while not self.answers():
            if time.monotonic() > deadline or self.process_id() is None:
                raise RuntimeError(f"node {self.host} did not start:\n{self._log()}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End it with SIGTERM."""
        self._end(signal.SIGTERM, 60)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._end(signal.SIGKILL, 10)

    def pause(self) -> None:
        """Stop it where it is."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)

    def wipe(self) -> None:
        """Delete its files."""
        shutil.rmtree(self.run, ignore_errors=True)

    def _end(self, number: signal.Signals, longest: float) -> None:
        self._send(number)
        self.resume()
        wait_until(lambda: self.process_id() is None, longest)

    def _send(self, number: signal.Signals) -> None:
        pid = self.process_id()
        if pid is not None:
            os.kill(pid, number)

    def _yaml(self) -> str:
        share = 2**64 // self.size
        text = string.Template((HERE / "cassandra.yaml.in").read_text()).substitute(
            address=self.host,
            seed=f"{self.network}.1",
            token=share * (self.number - 1) + share // 2 - 2**63,
            commitlog=self.commitlog,
        )
        text += AUTHENTICATION if self.authentication else ""
        text += TLS.format(self.tls) if self.tls is not None else ""
        return f"{text}\n{self.yaml}"

    def _command(self) -> list[str]:
        here, lib = self.run, jars()
        # A node that nobody will stop any more ends with what started it: for the kernel that is the thread.
        guard = [] if self.outlives else ["setpriv", "--pdeathsig", "KILL"]
        return [
            *guard,
            "java",
            *(f"-javaagent:{jar}" for jar in sorted(lib.glob("jamm-*.jar"))[:1]),
            *("-Xms512M", "-Xmx512M", "-ea", "-da:net.openhft...", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-XX:+PerfDisableSharedMem", "-XX:+ExitOnOutOfMemoryError"),
            *(f"--add-exports={name}=ALL-UNNAMED" for name in EXPORTS.split()),
            *(f"--add-opens={name}=ALL-UNNAMED" for name in OPENS.split()),
            *("-Djdk.attach.allowAttachSelf=true", "-Djava.net.preferIPv4Stack=true"),
            *(f"-Djava.io.tmpdir={here}/tmp", f"-Djna.tmpdir={here}/tmp"),
            *("-Dio.netty.tryReflectionSetAccessible=true", "-Dio.netty.allocator.maxOrder=11"),
            *(f"-Dcassandra.config=file://{here}/cassandra.yaml", f"-Dcassandra.storagedir={here}/data"),
            *(f"-Dcassandra.logdir={here}/logs", f"-Dlogback.configurationFile={HERE}/logback.xml"),
            *("-Dcassandra-foreground=yes", "-Dcassandra.skip_wait_for_gossip_to_settle=0"),
            *("-Dcassandra.ring_delay_ms=10000", "-Dcassandra.shutdown_announce_in_ms=500"),
            *("-Dcassandra.superuser_setup_delay_ms=500", f"-Dcassandra.system_auth.default_rf={min(self.size, 3)}"),
            # A kill while a table is dropped leaves half of it, with which Cassandra would never start again.
            "-Dcassandra.ignore_corrupted_schema_tables=true",
            *("-cp", f"{lib}/*", "org.apache.cassandra.service.CassandraDaemon"),
        ]

    def _log(self) -> str:
        log = self.run / "logs/output.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-40:])


def _asked(link: socket.socket) -> bool:
    link.sendall(b"\x04\x00\x00\x00\x05\x00\x00\x00\x00")
    reply = link.recv(9)
    return len(reply) > 4 and reply[4] == 6


def _born(pid: int) -> str | None:
    """When the kernel started this process, or None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]

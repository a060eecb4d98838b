"""A real PostgreSQL server on a loopback port."""

from __future__ import annotations

import getpass
import glob
import os
import pwd
import shutil
import signal
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pg8000.dbapi

from tests.support.ports import free_port
from tests.support.waiting import wait_until

USERNAME, PASSWORD = "stacksaga", "secret of a test"
LONGEST = 60


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs.

    Raises:
        FileNotFoundError: It is not installed.
    """
    found = shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), None)
    if found is None:
        raise FileNotFoundError(f"{name} is neither on PATH nor in /usr/lib/postgresql: install PostgreSQL's server")
    return found


@dataclass
class Server:
    """One server.

    Attributes:
        folder: Its folder, which the user it runs as owns.
        port: On 127.0.0.1.
    """

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @classmethod
    def create(cls, folder: Path) -> Server:
        """Make a new cluster of databases, and start it."""
        server = cls(folder, free_port())
        user = server._user()
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        options = ["-U", USERNAME, "-A", "scram-sha-256", "--pwfile", str(password), "-E", "UTF8", "--no-locale"]
        server._run("initdb", "-D", str(folder / "data"), *options)
        server.start()
        return server

    @property
    def data(self) -> str:
        """Its data directory."""
        return str(self.folder / "data")

    def start(self) -> None:
        """Start it, and wait until it answers. It ends with the thread that calls this."""
        settings = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200")
        options = [option for setting in settings for option in ("-c", setting)]
        # A server that nobody will stop any more ends at once and leaves no shared memory behind. Not by pg_ctl, which
        # goes and leaves it without whom to end with.
        guard = ["setpriv", "--pdeathsig", "QUIT"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, program("postgres"), "-D", self.data, "-p", str(self.port), *options],
                user=self._user(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._is_ready, LONGEST)

    def stop(self) -> None:
        """End it, and every connection to it, at once but in order."""
        process = self._running()
        process.send_signal(signal.SIGINT)
        process.wait(LONGEST)

    def restart(self) -> None:
        """Stop it and start it."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End it and its processes with SIGKILL, and wait until they are gone: a new one would wait for them."""
        process = self._running()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        process.wait(LONGEST)
        wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))

    def process_id(self) -> int:
        """The process that started all others of it."""
        return self._running().pid

    def use_tls(self, certificate: str, key: str) -> None:
        """Let new connections speak TLS with that certificate; its key must be without a password."""
        for name, text in (("server.crt", certificate), ("server.key", key)):
            file = Path(self.data, name)
            file.write_text(text)
            file.chmod(0o600)
            owner = os.stat(self.data)
            os.chown(file, owner.st_uid, owner.st_gid)
        self._set_tls("on")

    def use_no_tls(self) -> None:
        """Let new connections speak no TLS."""
        self._set_tls("off")

    def url(self, database: str) -> str:
        """The URL of a store in that database."""
        password = PASSWORD.replace(" ", "%20")
        return f"postgresql://{USERNAME}:{password}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """A new database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return name

    def sql(self, database: str, statement: str, values: Sequence[Any] = ()) -> Sequence[Any]:
        """Run one statement beside the library, and return its rows."""
        connection = pg8000.dbapi.connect(
            host="127.0.0.1", port=self.port, user=USERNAME, password=PASSWORD, database=database, ssl_context=False
        )
        try:
            connection.autocommit = True
            cursor = connection.cursor()
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the server was never started"
        return self._process

    def _is_ready(self) -> bool:
        """Whether it says in its own file that it takes connections."""
        process = self._running()
        assert process.poll() is None, (self.folder / "log").read_text()
        try:
            pid, *_, state = Path(self.data, "postmaster.pid").read_text().splitlines()
        except (FileNotFoundError, ValueError):
            return False
        # What a killed one left behind says so too.
        return int(pid) == process.pid and state.strip() == "ready"

    def _set_tls(self, state: str) -> None:
        self.sql("postgres", f"ALTER SYSTEM SET ssl = {state}")
        self.sql("postgres", "SELECT pg_reload_conf()")
        wait_until(lambda: self.sql("postgres", "SHOW ssl") == [[state]])

    def _run(self, name: str, *arguments: str) -> None:
        # Not a pipe, which the server would keep open.
        with (self.folder / "output").open("ab") as output:
            ran = subprocess.run(
                [program(name), *arguments],
                user=self._user(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        assert ran.returncode == 0, (self.folder / "output").read_text()

    def _user(self) -> str | None:
        """PostgreSQL refuses to run as root."""
        if getpass.getuser() != "root" and os.geteuid() != 0:
            return None
        return next(user.pw_name for user in pwd.getpwall() if user.pw_name in ("postgres", "nobody"))

"""Real web servers for `worker_shop`."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.support.ports import free_port
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
APP = "tests.support.worker_shop:app"


class Call(NamedTuple):
    """A call of a participant."""

    step: str
    name: str
    transaction_id: UUID


def command(server: str, port: int, *options: str) -> list[str]:
    """The command line of a server: a name and its variant, such as ``gunicorn-gevent-preload``."""
    kind, *variants = server.split("-")
    if kind == "gunicorn":
        variant = ["--preload"] if "preload" in variants else []
        # With more threads gunicorn takes gthread instead.
        variant += ["--threads", "1"] if variants[0] == "sync" else []
        bind = ["-b", f"127.0.0.1:{port}", "-k", variants[0], "--graceful-timeout", "20", *variant]
        return [sys.executable, "-m", "gunicorn", "-c", "etc/gunicorn.conf.py", *bind, *options, APP]
    if kind == "flask":
        reloader = "--reload" if "reload" in variants else "--no-reload"
        return [sys.executable, "-m", "flask", "--app", APP, "run", "--port", str(port), reloader, *options]
    lazy = ["--lazy-apps"] if "lazy" in variants else []
    graceful = ["--hook-master-start", "unix_signal:15 gracefully_kill_them_all"]
    served = ["--http-socket", f"127.0.0.1:{port}", "--master", "--processes", "2", "--enable-threads", "--need-app"]
    uwsgi = str(Path(sys.executable).with_name("uwsgi"))
    return [uwsgi, *served, *graceful, *lazy, *options, "--module", APP]


@dataclass
class Server:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    def get(self, path: str) -> str:
        """The body of an answer."""
        return self._ask("GET", path)[1]

    def order(self, name: str, *, waits: bool = False) -> int:
        """Place an order; the status of the answer."""
        return self._ask("POST", "/orders", {"name": name, "waits": waits})[0]

    def order_and_leave(self, name: str) -> None:
        """Place an order that waits, and be gone once its step runs."""
        body = json.dumps({"name": name, "waits": True}).encode()
        head = f"POST /orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", self.port)) as link:
            link.sendall(head.encode() + b"\r\n" + body)
            self.wait_for(f"inside-{name}")

    def let_go(self, *names: str) -> None:
        """Let the steps of these orders end."""
        for name in names:
            (self.folder / f"go-{name}").touch()

    def wait_for(self, *files: str) -> None:
        """Wait until steps have left these files."""
        wait_until(lambda: all((self.folder / file).exists() for file in files), 20)

    def calls(self, name: str) -> list[Call]:
        """What participants were asked for an order."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        calls = (line.split() for line in lines)
        return [Call(step, order, UUID(key)) for step, order, key in calls if order == name]

    def log(self) -> str:
        """What the server printed."""
        return (self.folder / "log").read_text()

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def serving(server: str, folder: Path, environment: dict[str, str], *options: str) -> Iterator[Server]:
    """A server that answers; it is killed in the end if it still runs."""
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command(server, port, *options),
            cwd=ROOT,
            env={**os.environ, "WORKER_FOLDER": str(folder), **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running = Server(process, port, folder)
    try:
        wait_until(lambda: _answers(running), 30)
        yield running
    except BaseException:
        print(running.log())
        raise
    finally:
        # Its own group, with workers that may have lost their master.
        if process.poll() is None or _group_lives(process.pid):
            os.killpg(process.pid, 9)
        process.wait()


def _answers(server: Server) -> bool:
    assert server.process.poll() is None, server.log()
    try:
        return server.get("/ready").isdecimal()
    except OSError:
        return False


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

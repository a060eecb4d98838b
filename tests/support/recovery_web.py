"""Real gunicorn servers for the recovery tests."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.support.ports import free_port
from tests.support.recovery_saga import Order
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
_CLIENTS: Final = 64


class Web:
    """A server.

    Attributes:
        process: Its master.
        log: What it printed.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path, clients: ThreadPoolExecutor) -> None:
        self.process = process
        self.log = log
        self._port = port
        self._clients = clients

    def answers(self) -> bool:
        """Whether it serves."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.ask("GET", "/ready")[1].isdecimal()
        except OSError:
            return False

    def order(self, name: str, **more: Any) -> Future[int]:
        """Place an order from a thread of its own; the status of the answer."""
        order: Order = {"name": name, **more}
        return self._clients.submit(lambda: self.ask("POST", "/orders", order)[0])

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Status and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def end(self) -> None:
        """Kill what runs of its group, which is its own, workers that lost their master too."""
        if self.process.poll() is None or _group_lives(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def serving(app: str, kind: str, folder: Path, environment: dict[str, str], *options: str) -> Iterator[Web]:
    """A server that answers; it is killed in the end if it still runs."""
    port, log = free_port(), folder / f"web-{len(list(folder.glob('web-*')))}"
    bind = ["-b", f"127.0.0.1:{port}", "-k", kind, "--graceful-timeout", "20", "--no-control-socket"]
    # With more threads gunicorn takes gthread instead.
    threads = ["--threads", "1"] if kind == "sync" else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", "-c", "etc/gunicorn.conf.py", *bind, *threads, *options, app],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with ThreadPoolExecutor(_CLIENTS) as clients:
            web = Web(process, port, log, clients)
            try:
                wait_until(web.answers, 40)
                yield web
            finally:
                # Clients that still wait for an answer get an error.
                web.end()
    except BaseException:
        print(log.read_text())
        raise

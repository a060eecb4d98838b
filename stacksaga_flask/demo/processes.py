"""Child processes that serve HTTP on loopback, none of which outlives the demo."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

import click

from stacksaga_flask.clock import SECOND, SystemTime
from stacksaga_flask.demo.client import Unanswered, ask

START_WITHIN = 30 * SECOND
STOP_WITHIN = 5
"""Seconds a process gets to stop before it is killed."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOWN_OF_LOG = 20


class Interrupted(SystemExit):
    """The demo was told to stop by a signal."""


def end_on_signals() -> None:
    """Turn signals that would end this process at once into an exception, so that it stops its children first."""

    def end(number: int, _: FrameType | None) -> None:
        # Stopping the children takes seconds at most, and a second Ctrl-C must not end that half way.
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(128 + number)

    for each in ENDING:
        # Under nohup it is ignored, and shall be.
        if each is not signal.SIGHUP or signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, end)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold signals back until the block ends, so that no child is started unnoticed or left half stopped."""
    held: list[int] = []
    before = {each: signal.signal(each, lambda number, _: held.append(number)) for each in ENDING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if held:
        signal.raise_signal(held[0])


@dataclass
class Service:
    """A running child process and where it answers."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait_until_it_answers(self) -> None:
        """Ask until there is an answer.

        Raises:
            ClickException: The process ended, did not answer in time, or said that it is not well.
        """
        source = SystemTime()
        deadline = source.boot() + START_WITHIN
        while source.boot() < deadline:
            if self._answers():
                return
            self._fail_if_ended()
        raise click.ClickException(f"{self.name} did not answer within {START_WITHIN // SECOND} s:\n{self.log_end()}")

    def log_end(self) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {self.name}: {line}" for line in lines[-_SHOWN_OF_LOG:])

    def stop(self) -> None:
        """Ask it to stop, and kill it with its own children if it does not."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                # It leads a process group of its own, so this reaches gunicorn's workers too.
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _answers(self) -> bool:
        try:
            status = ask(f"{self.url}/health", timeout=5).status
        except Unanswered:
            return False
        if status != 200:
            raise click.ClickException(f"{self.name} is not well, {self.url}/health is {status}:\n{self.log_end()}")
        return True

    def _fail_if_ended(self) -> None:
        try:
            code = self.process.wait(0.05)
        except subprocess.TimeoutExpired:
            return
        raise click.ClickException(f"{self.name} ended with {code} while it started:\n{self.log_end()}")


class Services:
    """The services that were started; all are stopped when the block ends, however it ends."""

    def __init__(self, logs: Path) -> None:
        self.running: list[Service] = []
        self._logs = logs

    def __enter__(self) -> Services:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with undisturbed():
            for service in reversed(self.running):
                service.stop()

    def start(
        self,
        name: str,
        command: Callable[[int], list[str]],
        *,
        environment: Mapping[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> Service:
        """Start a service.

        Args:
            name: What to call it, and its log.
            command: Makes the command line from the descriptor of the socket to serve. The socket listens before the
                process runs: the system chooses the port, and a request that comes early waits.
            environment: Added to this process's.
            pass_fds: Descriptors that it inherits.
        """
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            descriptors = (listener.fileno(), *pass_fds)
            return self.start_daemon(
                name, command(listener.fileno()), url=url, environment=environment, pass_fds=descriptors
            )

    def start_daemon(
        self,
        name: str,
        command: list[str],
        *,
        url: str = "",
        environment: Mapping[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
    ) -> Service:
        """Start a process; one without a URL serves nothing."""
        log = self._logs / f"{name}.log"
        with log.open("wb") as output, undisturbed():
            process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=pass_fds,
                # Ctrl-C at the terminal is for the demo alone, which then stops its children in order.
                start_new_session=True,
            )
            service = Service(name, url, process, log)
            self.running.append(service)
        return service

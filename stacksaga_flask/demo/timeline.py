"""What the shop announces while it runs a transaction, and how that is shown as it happens.

The shop's workers write one JSON line per signal into a pipe that the driver reads. A signal is sent once the change
is recorded and before the answer goes out, so when an answer arrives its whole timeline is in the pipe.
"""

from __future__ import annotations

import os
import select
import socket
from collections import Counter

import msgspec
from flask import Flask

from stacksaga_flask import (
    ExecutionType,
    RunningStatus,
    StateChange,
    Tryout,
    TryoutStatus,
    step_attempted,
    transaction_state_changed,
)
from stacksaga_flask.clock import SECOND
from stacksaga_flask.demo.client import TIMEOUT, Unanswered
from stacksaga_flask.demo.orders import SHOP
from stacksaga_flask.demo.screen import Screen

LONGEST_TEXT = 300
"""Characters of an error that are announced: a line must fit into one write to a pipe, which keeps it whole."""

# -- what is announced -----------------------------------------------------------------------------------------


class State(msgspec.Struct, tag="state", frozen=True, kw_only=True):
    """A transaction's new status. Times are microseconds since 1970, UTC."""

    transaction_id: str
    at: int
    started: bool
    status: RunningStatus
    reason: str | None
    swept_from: int | None
    """When the window of its retry pointer opens, if it has one."""
    process: str
    """The kind of process that recorded it."""
    pid: int


class Step(msgspec.Struct, tag="step", frozen=True, kw_only=True):
    """A recorded attempt at a step."""

    transaction_id: str
    step: str
    side: ExecutionType
    outcome: TryoutStatus
    began_at: int
    ended_at: int
    error: str | None
    process: str


def announce(app: Flask, descriptor: int) -> None:
    """Write what happens to the application's transactions into a pipe."""
    process = str(app.config.get("PROCESS", SHOP))

    def write(event: State | Step) -> None:
        os.write(descriptor, msgspec.json.encode(event) + b"\n")

    def state_changed(_: Flask, change: StateChange) -> None:
        row, grid = change.row, app.extensions["stacksaga"].engine.node().grid
        write(
            State(
                transaction_id=str(row.transaction_id),
                at=row.updated_at,
                started=change.before is None,
                status=change.after,
                reason=row.reason and row.reason[:LONGEST_TEXT],
                swept_from=None if row.retry is None else grid.opens(row.retry),
                process=process,
                pid=os.getpid(),
            )
        )

    def attempted(_: Flask, transaction_id: object, tryout: Tryout, **__: object) -> None:
        write(
            Step(
                transaction_id=str(transaction_id),
                step=tryout.executor,
                side=tryout.execution_type,
                outcome=tryout.status,
                began_at=tryout.created_at,
                ended_at=tryout.finished_at,
                error=tryout.error and tryout.error[:LONGEST_TEXT],
                process=process,
            )
        )

    transaction_state_changed.connect(state_changed, sender=app, weak=False)
    step_attempted.connect(attempted, sender=app, weak=False)


# -- how it is shown -------------------------------------------------------------------------------------------

_DONE, _UNDONE, _STATE = "+", "<", "="
_MARKS = {TryoutStatus.REJECTED: "x", TryoutStatus.RETRYABLE: "~", TryoutStatus.FAILED: "!"}
LEGEND = "= status   + done   < undone   x refused, nothing was done   ~ failed for now   ! failed, may be done"
_COLOURS = {_DONE: "green", _UNDONE: "yellow", _STATE: "cyan", "x": "red", "~": "yellow", "!": "red"}


class Timeline:
    """Shows what is announced on the reading end of a pipe."""

    def __init__(self, descriptor: int, screen: Screen) -> None:
        self.last: dict[str, State] = {}
        """The latest status of each transaction."""
        self.started: list[State] = []
        """The beginning of each transaction, in order."""
        self._descriptor = descriptor
        self._screen = screen
        self._rest = b""
        self._started_at: dict[str, int] = {}
        self._attempts: Counter[tuple[str, str, ExecutionType]] = Counter()

    def follow(self, answer: socket.socket) -> None:
        """Show what happens until an answer arrives, and all that was announced before it.

        Raises:
            Unanswered: There was no answer in time.
        """
        watched: list[int | socket.socket] = [self._descriptor, answer]
        while True:
            ready, _, _ = select.select(watched, [], [], TIMEOUT)
            if not ready:
                raise Unanswered(f"there was no answer within {TIMEOUT} s")
            if self._descriptor not in ready:
                return
            if not self._read():
                watched = [answer]

    def follow_for(self, seconds: float) -> None:
        """Show what happens in so many seconds, or until something does."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if ready:
            self._read()

    def _read(self) -> bool:
        data = os.read(self._descriptor, 65_536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._show(msgspec.json.decode(line, type=State | Step))
        return data != b""

    def _show(self, event: State | Step) -> None:
        if isinstance(event, State):
            self._show_state(event)
        else:
            self._show_step(event)

    def _show_state(self, event: State) -> None:
        if event.started:
            self._started_at[event.transaction_id] = event.at
            self.started.append(event)
        self.last[event.transaction_id] = event
        told = f"transaction {event.transaction_id}" if event.started else event.reason or ""
        text = f"{event.status.value:<26}{told}"
        self._line(event.transaction_id, event.at, _STATE, text, event.process)

    def _show_step(self, event: Step) -> None:
        side = (event.transaction_id, event.step, event.side)
        self._attempts[side] += 1
        succeeded = _DONE if event.side is ExecutionType.PROCESS else _UNDONE
        mark = _MARKS.get(event.outcome, succeeded)
        took = f"attempt {self._attempts[side]}, {(event.ended_at - event.began_at) // 1000} ms"
        text = f"{event.side.value.lower():<8}{event.step:<8} {event.outcome.value:<9} {took}"
        text = f"{text}, {event.error}" if event.error else text
        self._line(event.transaction_id, event.ended_at, mark, text, event.process)

    def _line(self, transaction_id: str, at: int, mark: str, text: str, process: str) -> None:
        elapsed = (at - self._started_at.get(transaction_id, at)) / SECOND
        if process != SHOP:
            text = f"{text.rstrip()}  [{process}, {transaction_id[:8]}]"
        self._screen.line(f"     {elapsed:6.3f} s  {self._screen.paint(f'{mark} {text}'.rstrip(), _COLOURS[mark])}")

"""A saga whose participants are a folder: what they did survives whoever asked them, and any process may ask.

They honour keys. Each call is a line of `calls`, and what was done for a key is one line of `effects`, however often
it was asked for. An order, which is a dict, says what happens to it:

* ``name``: files of the folder that are about the order have it in their names.
* ``halts``: by step, where the first call of it stops until the test lets it go: ``asked`` is before the participant
  has done anything, ``done`` is when it has and has not answered.
* ``down``: a step whose participant answers 503 until the file `up` is there.
* ``refused``: a step that is refused; one that halts when it is done is refused only when it is asked for again.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from stacksaga_flask import Rejected, Retryable, Saga, StepContext

Order: TypeAlias = dict[str, Any]
FORWARD = ("reserve", "charge", "ship", "confirm")
COMPENSATED = ("reserve", "charge", "refund", "release")
"""What is done for an order whose pivot is refused, or whose charge is after it was done."""


class Call(NamedTuple):
    """One call of a participant."""

    order: str
    action: str
    key: str
    transaction_id: UUID
    process_id: int
    at: float
    """When it came, in seconds since 1970."""


class Participants:
    """Stock, payments and shipping.

    Args:
        folder: Where they keep their files.
        stopping: Whether the process that asks is stopping, which a call that has halted notes in a file.
        during: What happens during the next call of an action, in this process.
    """

    def __init__(
        self,
        folder: Path,
        stopping: Callable[[], bool] = lambda: False,
        during: dict[str, Callable[[], None]] | None = None,
    ) -> None:
        self._folder = folder
        self._stopping = stopping
        self._during = {} if during is None else during

    def ask(self, action: str, order: Order, context: StepContext[Order]) -> None:
        """Ask the participant of a step."""
        call = Call(order["name"], action, context.idempotency_key, context.transaction_id, os.getpid(), time.time())
        self._note(call)
        self._during.pop(action, lambda: None)()
        if order.get("down") == action and not (self._folder / "up").exists():
            raise Retryable("HTTP 503")
        halts = order.get("halts", {}).get(action)
        is_asked_again = (self._folder / f"inside-{call.order}-{action}").exists()
        if halts == "asked":
            self._halt(call)
        if order.get("refused") == action and (halts != "done" or is_asked_again):
            raise Rejected("refused")
        self._do(call)
        if halts == "done":
            self._halt(call)

    def _note(self, call: Call) -> None:
        line = json.dumps({**call._asdict(), "transaction_id": str(call.transaction_id)}) + "\n"
        with open(self._folder / "calls", "ab", buffering=0) as file:
            file.write(line.encode())

    def _do(self, call: Call) -> None:
        """Do it, once for its key."""
        with open(self._folder / "effects", "a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if call.key not in (line.split()[2] for line in file.read().decode().splitlines()):
                file.write(f"{call.order} {call.action} {call.key}\n".encode())

    def _halt(self, call: Call) -> None:
        """Stop until the test lets the order's step go, if this is the first call that comes here."""
        place = f"{call.order}-{call.action}"
        try:
            with open(self._folder / f"inside-{place}", "x") as file:
                file.write(str(call.process_id))
        except FileExistsError:
            return
        while not (self._folder / f"go-{place}").exists():
            if self._stopping():
                (self._folder / f"stopping-{place}").touch()
            time.sleep(0.01)


def place_order_saga(participants: Participants) -> Saga[Order, None]:
    """Reserve and charge, which can be undone, then ship, the pivot, then confirm."""
    saga: Saga[Order, None] = Saga("place-order", payload=dict)

    @saga.step
    def reserve(order: Order, context: StepContext[Order]) -> None:
        participants.ask("reserve", order, context)

    @reserve.revert
    def release(order: Order, context: StepContext[Order]) -> None:
        participants.ask("release", order, context)

    @saga.step
    def charge(order: Order, context: StepContext[Order]) -> None:
        participants.ask("charge", order, context)

    @charge.revert
    def refund(order: Order, context: StepContext[Order]) -> None:
        participants.ask("refund", order, context)

    @saga.pivot
    def ship(order: Order, context: StepContext[Order]) -> None:
        participants.ask("ship", order, context)

    @saga.step
    def confirm(order: Order, context: StepContext[Order]) -> None:
        participants.ask("confirm", order, context)

    return saga


class Ledger:
    """What the participants of a folder were asked for and did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def calls(self, order: str) -> list[Call]:
        """The calls for an order, in order."""
        return [call for call in self.all_calls() if call.order == order]

    def all_calls(self) -> list[Call]:
        """Every call, in order."""
        told = [json.loads(line) for line in self._lines("calls")]
        return [Call(**{**one, "transaction_id": UUID(one["transaction_id"])}) for one in told]

    def actions(self, order: str) -> list[str]:
        """For which steps an order's participants were called, in order."""
        return [call.action for call in self.calls(order)]

    def effects(self, order: str) -> list[str]:
        """What was done for an order, in order: once for each key."""
        return [action for name, action, _ in map(str.split, self._lines("effects")) if name == order]

    def _lines(self, name: str) -> list[str]:
        file = self._folder / name
        return file.read_text().splitlines() if file.exists() else []

"""A shop whose participants are a file: what they did survives the death of whoever asked for it."""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacksaga_flask import Rejected, Retryable, Saga, StepContext, SystemTime
from stacksaga_flask.clock import SECOND
from tests.support.kill_evidence import Record, opens
from tests.support.kill_points import Points


@dataclass
class Order:
    sku: str = "book"
    payment: str = ""


class Participant(enum.Enum):
    """What a participant does when it is asked. Unless told otherwise it does its work and says so."""

    WORKS = "does it"
    REFUSES = "refuses, having done nothing"
    FAILS_AFTERWARDS = "does it and fails in a way that nobody expects"
    IS_UNAVAILABLE = "says that it is unavailable, having done nothing"
    BECOMES_UNAVAILABLE = "does it, and its answer is lost"
    IS_MAINTAINED = "asks to be left alone for an hour"
    IS_SLOW = "does it, and 15 s are left to the owner when it answers"
    IS_VERY_SLOW = "does it, and the owner's right has ended when it answers"

    @property
    def works(self) -> bool:
        """Whether there is an effect."""
        return self not in (Participant.REFUSES, Participant.IS_UNAVAILABLE, Participant.IS_MAINTAINED)


class MovableTime(SystemTime):
    """The machine's clocks, put forward instead of waiting."""

    ahead = 0

    def wall(self) -> int:
        return super().wall() + self.ahead

    def boot(self) -> int:
        return super().boot() + self.ahead

    def sleep(self, microseconds: int) -> None:
        self.ahead += microseconds


class Shop:
    """The participants of one order.

    Args:
        folder: Where `effects.jsonl` is appended to, one line for each effect.
        points: Around each call.
        time: The clock of whoever calls.
        script: What a participant does if it is not its work.
        row: Reads the transaction's row, past the library.
    """

    def __init__(
        self,
        folder: Path,
        points: Points,
        time: MovableTime,
        script: dict[str, Participant],
        row: Callable[[], Record],
    ) -> None:
        self._folder = folder
        self._row = row
        self._points = points
        self._time = time
        self._script = script

    def ask(self, name: str, context: StepContext[Any]) -> None:
        """Ask a participant, and pass on what it answers."""
        participant = self._script.get(name, Participant.WORKS)
        with self._points.around(name):
            if participant.works:
                self._keep(name, context)
        self._answer(participant)

    def _keep(self, name: str, context: StepContext[Any]) -> None:
        effect = {
            "name": name,
            "step": context.step_name,
            "side": context.execution_type.value,
            "key": context.idempotency_key,
        }
        with open(self._folder / "effects.jsonl", "a") as file:
            file.write(json.dumps(effect) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _answer(self, participant: Participant) -> None:
        if participant is Participant.REFUSES:
            raise Rejected("refused")
        if participant is Participant.FAILS_AFTERWARDS:
            raise KeyError("the participant's answer has no 'id'")
        if participant in (Participant.IS_UNAVAILABLE, Participant.BECOMES_UNAVAILABLE):
            raise Retryable("HTTP 503")
        if participant is Participant.IS_MAINTAINED:
            raise Retryable("HTTP 503", retry_after=3600)
        if participant is Participant.IS_SLOW:
            self._time.ahead += self._until_fence() - 15 * SECOND
        if participant is Participant.IS_VERY_SLOW:
            self._time.ahead += self._until_fence() + SECOND

    def _until_fence(self) -> int:
        row = self._row()
        return opens(row["restore_date"], row["restore_window"]) - SECOND - self._time.wall()


def place_order_saga(shop: Shop) -> Saga[Order, dict[str, str]]:
    """Reserve, charge, ship; the last one is the pivot."""

    def receipt(order: Order) -> dict[str, str]:
        return {"payment": order.payment}

    saga = Saga("place-order", payload=Order, result=receipt)

    @saga.step
    def reserve(order: Order, context: StepContext[Order]) -> None:
        shop.ask("reserve", context)

    @reserve.revert
    def release(order: Order, context: StepContext[Order]) -> None:
        shop.ask("release", context)

    @saga.step
    def charge(order: Order, context: StepContext[Order]) -> None:
        shop.ask("charge", context)
        order.payment = "p-1"

    @charge.revert
    def refund(order: Order, context: StepContext[Order]) -> None:
        shop.ask("refund", context)

    @saga.pivot
    def ship(order: Order, context: StepContext[Order]) -> None:
        shop.ask("ship", context)

    return saga

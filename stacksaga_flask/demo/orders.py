"""What is placed, and what must come of it, written out by hand."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from stacksaga_flask import RunningStatus

RUNNING = RunningStatus.PROCESSING
COMPLETED = RunningStatus.PROCESS_COMPLETED
COMPENSATED = RunningStatus.REVERT_COMPLETED
PAUSED = RunningStatus.PROCESS_PAUSED

SHOP, NODE = "shop", "node"
"""The processes that run transactions: the shop's web workers, and the daemon's retry node."""
SOLD = ("reserve", "charge", "ship", "confirm")


@dataclass(frozen=True)
class Expected:
    """What must come of an order.

    Attributes:
        answer: HTTP status; 0 for no answer.
        status: Running status of the transaction then.
        effects: What the participants have done for that transaction in the end, in this order.
        headers: Headers that the answer must have.
        ending: Running status in the end, if it is another one.
        ended_by: Which process ended it.
    """

    answer: int
    status: RunningStatus
    effects: tuple[str, ...]
    headers: tuple[str, ...] = ()
    ending: RunningStatus | None = None
    ended_by: str = SHOP


@dataclass(frozen=True)
class Placed:
    """An order to place.

    Attributes:
        name: A name for the tables.
        story: What happens, in a sentence.
        body: What is sent to the shop.
        expected: What must come of it.
        key: Its ``Idempotency-Key``.
        same_as: Name of the order whose transaction the answer must name; otherwise it must be a new one.
        told: Participants that are told to behave in some way while it is placed.
        outage: For how many windows longer they go on behaving so.
        kill_in: The effect of the step in whose middle the web worker is killed.
    """

    name: str
    story: str
    body: dict[str, Any]
    expected: Expected
    key: str | None = None
    same_as: str | None = None
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    outage: int = 0
    kill_in: str | None = None


BEHAVING = {"refuse": None, "unavailable": False, "hold": False}
"""What a participant is told once an order that needed it otherwise was placed."""


def orders() -> list[Placed]:
    """The orders of one run. Its keys are new, as the event store may hold those of an earlier one."""
    key = f"order-{uuid.uuid4().hex[:8]}"
    mug, two_mugs, lamp = ({"item": item, "quantity": n} for item, n in (("mug", 1), ("mug", 2), ("lamp", 1)))
    return [
        Placed(
            "completes",
            "nothing goes wrong: every step is done, the customer gets the saga's result",
            mug,
            Expected(200, COMPLETED, SOLD),
        ),
        Placed(
            "card refused",
            "payments answer 402: what was reserved is released, the customer gets the reason",
            mug,
            Expected(422, COMPENSATED, ("reserve", "release")),
            told={"payments": {"refuse": "the card was refused"}},
        ),
        Placed(
            "no courier",
            "shipping answers 409 after the charge: both steps are undone, the last one first",
            lamp,
            Expected(422, COMPENSATED, ("reserve", "charge", "refund", "release")),
            told={"shipping": {"refuse": "no courier goes there"}},
        ),
        Placed(
            "out of stock",
            "stock answers 409: nothing was done, so nothing is undone",
            {"item": "lamp", "quantity": 5},
            Expected(422, COMPENSATED, ()),
        ),
        Placed(
            "with a key",
            "the customer's client sends an Idempotency-Key",
            two_mugs,
            Expected(200, COMPLETED, SOLD),
            key=key,
        ),
        Placed(
            "sent again",
            "the same request once more: it finds the same transaction and nothing runs twice",
            two_mugs,
            Expected(200, COMPLETED, SOLD),
            key=key,
            same_as="with a key",
        ),
        Placed(
            "key reused",
            "another order under that key: it is refused, and the first order stands as it was",
            mug,
            Expected(409, COMPLETED, SOLD),
            key=key,
            same_as="with a key",
        ),
        Placed(
            "worker killed",
            "the card is charged and the web worker is killed with kill -9 before it hears of it",
            mug,
            Expected(0, RUNNING, SOLD, ending=COMPLETED, ended_by=NODE),
            told={"payments": {"hold": True}},
            kill_in="charge",
        ),
        Placed(
            "payments away",
            "payments answer 503 for two windows: the transaction is paused, not lost and not undone",
            lamp,
            Expected(202, PAUSED, SOLD, headers=("Retry-After", "Location"), ending=COMPLETED, ended_by=NODE),
            told={"payments": {"unavailable": True}},
            outage=2,
        ),
    ]


# Four mugs and a lamp are sold.
LEFT_AFTER = {"mug": 6, "lamp": 2}
CHARGED = Decimal("148.00")
REFUNDED = Decimal("49.00")
PARCELS = 4

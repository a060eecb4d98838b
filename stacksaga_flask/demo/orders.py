"""What is placed, and what must come of it, written out by hand."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from stacksaga_flask import RunningStatus

COMPLETED = RunningStatus.PROCESS_COMPLETED
COMPENSATED = RunningStatus.REVERT_COMPLETED
PAUSED = RunningStatus.PROCESS_PAUSED

SOLD = ("reserve", "charge", "ship", "confirm")


@dataclass(frozen=True)
class Expected:
    """What must come of an order.

    Attributes:
        answer: HTTP status.
        status: Running status of the transaction that the answer names.
        effects: What the participants have done for that transaction in the end, in this order.
        headers: Headers that the answer must have.
    """

    answer: int
    status: RunningStatus
    effects: tuple[str, ...]
    headers: tuple[str, ...] = ()


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
    """

    name: str
    story: str
    body: dict[str, Any]
    expected: Expected
    key: str | None = None
    same_as: str | None = None
    told: dict[str, dict[str, Any]] = field(default_factory=dict)


BEHAVING = {"refuse": None, "unavailable": False}
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
            "payments away",
            "payments answer 503, which passes: the transaction is paused, not lost and not undone",
            lamp,
            Expected(202, PAUSED, ("reserve",), headers=("Retry-After", "Location")),
            told={"payments": {"unavailable": True}},
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
    ]


# Three mugs are sold; a lamp is held for the paused order.
LEFT_AFTER = {"mug": 7, "lamp": 2}
CHARGED = Decimal("86.50")
REFUNDED = Decimal("49.00")
PARCELS = 2

"""Whether every order ended as it should. The participants are asked what they really did; the shop is not believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from stacksaga_flask.demo.orders import CHARGED, LEFT_AFTER, PARCELS, REFUNDED, Placed


@dataclass(frozen=True)
class Happened:
    """What came of an order.

    Attributes:
        placed: The order.
        answer: HTTP status; 0 for none.
        lacking: Expected headers that the answer has not.
        transaction_id: The transaction that the answer names, or that was announced; or nothing.
        status: That transaction's running status then, as the status endpoint tells it.
    """

    placed: Placed
    answer: int
    lacking: tuple[str, ...]
    transaction_id: str
    status: str


@dataclass(frozen=True)
class Check:
    """One line of a table: what was checked, what should be and what is."""

    what: str
    expected: str
    got: str

    @property
    def passed(self) -> bool:
        """Whether it is as it should be."""
        return self.expected == self.got


def effects_of(listings: Mapping[str, Mapping[str, Any]], transaction_id: str) -> tuple[str, ...]:
    """What the participants did for a transaction, in the order in which they did it."""
    effects = sorted(_all(listings), key=lambda effect: int(effect["at"]))
    return tuple(effect["effect"] for effect in effects if effect["order"] == transaction_id)


def check_answers(happened: Iterable[Happened]) -> list[Check]:
    """Each order's answer and the status of its transaction."""
    checks = []
    ids: dict[str, str] = {}
    for each in happened:
        placed, expected = each.placed, each.placed.expected
        faults = [f"without {name}" for name in each.lacking]
        if placed.same_as is not None and ids.get(placed.same_as) != each.transaction_id:
            faults.append(f"not the transaction of {placed.same_as!r}")
        if placed.same_as is None and each.transaction_id and each.transaction_id in ids.values():
            faults.append("not a transaction of its own")
        ids[placed.name] = each.transaction_id
        got = ", ".join([f"{_told(each.answer)} {each.status}", *faults])
        checks.append(Check(placed.name, f"{_told(expected.answer)} {expected.status.value}", got))
    return checks


def check_endings(happened: Iterable[Happened], endings: Mapping[str, tuple[str, str]]) -> list[Check]:
    """What became of each order in the end, and which process ended it.

    Args:
        happened: What came of the orders.
        endings: By transaction the running status now, and the kind of process that recorded it.
    """
    checks = []
    for each in happened:
        expected = each.placed.expected
        ending = (expected.ending or expected.status).value
        status, process = endings.get(each.transaction_id, ("no transaction", "nobody"))
        checks.append(Check(each.placed.name, f"{ending} by the {expected.ended_by}", f"{status} by the {process}"))
    return checks


def check_effects(happened: Iterable[Happened], listings: Mapping[str, Mapping[str, Any]]) -> list[Check]:
    """What was done for each order."""
    return [
        Check(
            each.placed.name,
            _shown(each.placed.expected.effects),
            _shown(effects_of(listings, each.transaction_id)),
        )
        for each in happened
    ]


def check_sums(listings: Mapping[str, Mapping[str, Any]], *, told_to_strangers: int) -> list[Check]:
    """What is left, what was earned and sent over all orders, and what the status endpoint told a stranger."""
    counts = Counter((effect["effect"], effect["key"]) for effect in _all(listings))
    twice = sum(1 for times in counts.values() if times > 1)
    return [
        *(
            Check(f"stock left: {item}", str(left), str(listings["stock"]["left"][item]))
            for item, left in LEFT_AFTER.items()
        ),
        Check("charged", str(CHARGED), str(_money(listings, "charge"))),
        Check("refunded", str(REFUNDED), str(_money(listings, "refund"))),
        Check("parcels", str(PARCELS), str(sum(effect["effect"] == "ship" for effect in _all(listings)))),
        Check("keys with two effects", "0", str(twice)),
        Check("an order's status, asked by a stranger", "404", str(told_to_strangers)),
    ]


def _all(listings: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [effect for listing in listings.values() for effect in listing["effects"]]


def _money(listings: Mapping[str, Mapping[str, Any]], name: str) -> Decimal:
    amounts = (Decimal(effect["amount"]) for effect in _all(listings) if effect["effect"] == name)
    return sum(amounts, Decimal("0.00"))


def _told(answer: int) -> str:
    return str(answer) if answer else "no answer"


def _shown(effects: Iterable[str]) -> str:
    return " ".join(effects) or "nothing"

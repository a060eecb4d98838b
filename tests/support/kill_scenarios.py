"""The sagas that are killed, and what each does when it is left alone, worked out by hand from the design."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.support.kill_shop import Participant

GRID: Final = "record_grid"
OPEN: Final = ("read_grid", GRID, "now")
START: Final = "watchdog + row PROCESSING"
STEP: Final = "row PROCESSING"
TURN: Final = "row REVERTING"
COMPLETED: Final = "row PROCESS_COMPLETED + delete watchdog"
COMPENSATED: Final = "row REVERT_COMPLETED + delete watchdog"
KEYED: Final = ("read", "insert_marker", "watchdog", "read", STEP)
"""A keyed start, whose row goes last (R17)."""


@dataclass(frozen=True)
class Scenario:
    """A saga and what becomes of it.

    Attributes:
        name: What happens, in words.
        operations: Every operation of the store and every call of a participant, in order.
        status: The status at the end.
        effects: What the participants have done by then.
        script: Participants that do something else than their work.
        settings: What differs from the defaults.
        key: The `Idempotency-Key`, if it is started with one.
        requests: How often the same request is made.
        left: Whether it is started and left to the daemon.
        each_statement: Kill before each SQL statement instead of around each operation.
        takes_over: Whether its owner has to take it over itself. If there is no answer to that, its watchdog has it.
    """

    name: str
    operations: tuple[str, ...]
    status: str
    effects: tuple[str, ...]
    script: dict[str, Participant] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    key: str | None = None
    requests: int = 1
    left: bool = False
    each_statement: bool = False
    takes_over: bool = False


_FORWARD = (*OPEN, START, "reserve", STEP, "charge", STEP, "ship", COMPLETED)
_CHARGE_FAILS = (*OPEN, START, "reserve", STEP, "charge", TURN, "refund", TURN, "release", COMPENSATED)
_EVERYTHING = ("reserve", "charge", "ship")
_CHARGE_UNDONE = ("reserve", "charge", "refund", "release")

_FORWARDS = (
    Scenario("every step succeeds", _FORWARD, "PROCESS_COMPLETED", _EVERYTHING),
    Scenario(
        "every step succeeds, killed at each statement",
        _FORWARD,
        "PROCESS_COMPLETED",
        _EVERYTHING,
        each_statement=True,
    ),
    Scenario(
        "the owner arms again before the second step",
        (*OPEN, START, "reserve", STEP, "now", START, "delete watchdog", "charge", STEP, "ship", COMPLETED),
        "PROCESS_COMPLETED",
        _EVERYTHING,
        {"reserve": Participant.IS_SLOW},
        # Three windows, so that the clock is put forward by more than the minute after which it is compared again.
        {"restore_delay_windows": 3},
    ),
    Scenario(
        "the second step returns after the owner's right has ended",
        (
            *(*OPEN, START, "reserve", STEP, "charge", "now", "insert_marker", "read"),
            *(START, "delete watchdog", STEP, "ship", COMPLETED),
        ),
        "PROCESS_COMPLETED",
        _EVERYTHING,
        {"charge": Participant.IS_VERY_SLOW},
        # Three windows, so that the clock is put forward by more than the minute after which it is compared again.
        {"restore_delay_windows": 3},
        takes_over=True,
    ),
)

_BACKWARDS = (
    Scenario(
        "the last step is refused",
        (
            *(*OPEN, START, "reserve", STEP, "charge", STEP, "ship"),
            *(TURN, "refund", TURN, "release", COMPENSATED),
        ),
        "REVERT_COMPLETED",
        _CHARGE_UNDONE,
        {"ship": Participant.REFUSES},
    ),
    Scenario(
        "the charge is refused",
        (*OPEN, START, "reserve", STEP, "charge", TURN, "release", COMPENSATED),
        "REVERT_COMPLETED",
        ("reserve", "release"),
        {"charge": Participant.REFUSES},
    ),
    Scenario(
        "the first step is refused",
        (*OPEN, START, "reserve", COMPENSATED),
        "REVERT_COMPLETED",
        (),
        {"reserve": Participant.REFUSES},
    ),
    Scenario(
        "the charge succeeds and raises",
        _CHARGE_FAILS,
        "REVERT_COMPLETED",
        _CHARGE_UNDONE,
        {"charge": Participant.FAILS_AFTERWARDS},
    ),
    Scenario(
        "the charge succeeds and raises, killed at each statement",
        _CHARGE_FAILS,
        "REVERT_COMPLETED",
        _CHARGE_UNDONE,
        {"charge": Participant.FAILS_AFTERWARDS},
        each_statement=True,
    ),
    Scenario(
        "the charge is refused and so is its release, which freezes",
        (
            *(*OPEN, START, "reserve", STEP, "charge", TURN, "release"),
            *("insert_marker", "read", "row FROZEN", "delete_marker"),
        ),
        "FROZEN",
        ("reserve",),
        {"charge": Participant.REFUSES, "release": Participant.REFUSES},
    ),
)

_PAUSES = (
    Scenario(
        "the charge is unavailable",
        (*OPEN, START, "reserve", STEP, "charge", "retry + row PROCESS_PAUSED"),
        "PROCESS_PAUSED",
        ("reserve",),
        {"charge": Participant.IS_UNAVAILABLE},
    ),
    Scenario(
        "the charge succeeds and its answer is lost",
        (*OPEN, START, "reserve", STEP, "charge", "retry + row PROCESS_PAUSED"),
        "PROCESS_PAUSED",
        ("reserve", "charge"),
        {"charge": Participant.BECOMES_UNAVAILABLE},
    ),
    Scenario(
        "the charge is maintained for longer than the watchdog waits",
        (*OPEN, START, "reserve", STEP, "charge", "retry + watchdog + row PROCESS_PAUSED"),
        "PROCESS_PAUSED",
        ("reserve",),
        {"charge": Participant.IS_MAINTAINED},
        {"restore_delay_windows": 3},
    ),
    Scenario(
        "the pivot succeeds and raises, so it is tried again later",
        (*OPEN, START, "reserve", STEP, "charge", STEP, "ship", "retry + row PROCESS_PAUSED"),
        "PROCESS_PAUSED",
        _EVERYTHING,
        {"ship": Participant.FAILS_AFTERWARDS},
    ),
    Scenario(
        "the release of the reservation becomes unavailable",
        (*OPEN, START, "reserve", STEP, "charge", TURN, "release", "retry + row REVERT_PAUSED"),
        "REVERT_PAUSED",
        ("reserve", "release"),
        {"charge": Participant.REFUSES, "release": Participant.BECOMES_UNAVAILABLE},
    ),
)

_STARTS = (
    Scenario(
        "it is left to the daemon",
        (*OPEN, "watchdog + retry + row PROCESS_PAUSED"),
        "PROCESS_PAUSED",
        (),
        left=True,
    ),
    Scenario(
        "it is started with a key and left to the daemon",
        (*OPEN, "read", "insert_marker", "watchdog + retry", "read", "row PROCESS_PAUSED"),
        "PROCESS_PAUSED",
        (),
        key="k",
        left=True,
    ),
    Scenario(
        "it is started twice with one key and completes",
        (*OPEN, *KEYED, "reserve", STEP, "charge", STEP, "ship", COMPLETED, "read", "has_pointer"),
        "PROCESS_COMPLETED",
        _EVERYTHING,
        key="k",
        requests=2,
    ),
    Scenario(
        "it is started with a key and the charge succeeds and raises",
        (*OPEN, *KEYED, "reserve", STEP, "charge", TURN, "refund", TURN, "release", COMPENSATED),
        "REVERT_COMPLETED",
        _CHARGE_UNDONE,
        {"charge": Participant.FAILS_AFTERWARDS},
        key="k",
    ),
    Scenario(
        "it is started with a key and the charge is unavailable",
        (*OPEN, *KEYED, "reserve", STEP, "charge", "retry + row PROCESS_PAUSED"),
        "PROCESS_PAUSED",
        ("reserve",),
        {"charge": Participant.IS_UNAVAILABLE},
        key="k",
    ),
)

SCENARIOS: Final = (*_FORWARDS, *_BACKWARDS, *_PAUSES, *_STARTS)
NAMED: Final = {scenario.name: scenario for scenario in SCENARIOS}


def operations_on(scenario: Scenario, *, transactional: bool, embedded: bool) -> tuple[str, ...]:
    """The scenario's operations on a store that may not write them together, or knows the grid already."""
    operations = scenario.operations if embedded else tuple(each for each in scenario.operations if each != GRID)
    if transactional:
        return operations
    # A start sends everything at once, and everything else registers first and deletes last (design, section 5).
    start = next(n for n, each in enumerate(operations) if "watchdog" in each)
    return tuple(part for n, each in enumerate(operations) for part in ([each] if n == start else _apart(each)))


def _apart(operation: str) -> list[str]:
    """A row apart from the registrations before it and from the delete behind it."""
    parts = operation.split(" + ")
    at = next((n for n, part in enumerate(parts) if part.startswith("row ")), None)
    if at is None:
        return [operation]
    return [" + ".join(some) for some in (parts[:at], parts[at : at + 1], parts[at + 1 :]) if some]

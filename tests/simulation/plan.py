"""What is decided about a world beforehand: its grid, its processes, its requests and what befalls them."""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import NamedTuple

from stacksaga_flask.clock import SECOND
from stacksaga_flask.config import Settings, read_settings
from stacksaga_flask.store.contract import ExecutionType
from stacksagad.recovery.sweep import WHOLE_RING, Sector
from tests.simulation.clients import Hand, Request
from tests.simulation.participants import Answer
from tests.simulation.script import On
from tests.simulation.weather import Weather

PROCESS, REVERT = ExecutionType.PROCESS, ExecutionType.REVERT
BEGINS = tuple(
    int(datetime.datetime.fromisoformat(f"{text}+00:00").timestamp()) * SECOND
    for text in ("2026-03-11T10:20:01", "2026-03-11T23:59:41", "2026-12-31T23:59:41", "2028-02-28T23:59:52")
)


class Jump(NamedTuple):
    """Somebody sets a process's clock.

    Attributes:
        process: The process, by its number.
        at: After how many microseconds.
        by: By how many.
        lasts: After how many it is set right.
    """

    process: int
    at: int
    by: int
    lasts: int


class Ring(NamedTuple):
    """Which sectors the retry nodes hold.

    Attributes:
        sectors: By the number in the node's name; the whole ring where there are no more.
        flaps: From when until when nodes have a sector and none by turns.
        every: How long each turn lasts, in microseconds.
    """

    sectors: tuple[Sector, ...] = ()
    flaps: tuple[int, int] = (0, 0)
    every: int = SECOND

    def sector(self, name: str, now: int) -> Sector | None:
        """The sector of the node of that name."""
        number = int(name.removeprefix("retry"))
        if self.flaps[0] <= now < self.flaps[1] and (now // self.every + number) % 2:
            return None
        return self.sectors[number % len(self.sectors)] if self.sectors else WHOLE_RING


class Plan(NamedTuple):
    """Everything about a world that is decided beforehand."""

    begins: int
    settings: Settings
    standard_nodes: int
    retry_nodes: int
    skews: tuple[int, ...]
    requests: tuple[Request, ...]
    behaviour: dict[tuple[int, str, ExecutionType], tuple[Answer, ...]]
    script: tuple[On, ...]
    jumps: tuple[Jump, ...]
    weather: Weather
    faults_end: int
    hands: tuple[Hand, ...] = ()
    slowness: int = 100_000
    """The longest that a participant takes, as a rule, in microseconds."""
    ring: Ring = Ring()
    finds_dead: bool = False
    """Whether a retry node stands on the same host and notices that a process is dead (R18)."""
    found_after: tuple[int, int] = (0, SECOND)
    """How long that takes at least and at most, in microseconds."""

    @property
    def hands_end(self) -> int:
        """When everything that people do by hand has begun, and a while later."""
        return self.begins + max((hand.at for hand in self.hands), default=0) + 5 * SECOND


@lru_cache(maxsize=256)
def settings_of(
    interval: int, restore: int, bucket_size: int, attempts: int, lifetime: int, try_after: bool
) -> Settings:
    """Settings of a small world: short windows, short time-outs."""
    return read_settings(
        {
            "STACKSAGA_STORE": "memory://",
            "STACKSAGA_WINDOW_INTERVAL": interval,
            "STACKSAGA_RESTORE_DELAY_WINDOWS": restore,
            "STACKSAGA_BUCKET_SIZE": bucket_size,
            "STACKSAGA_STEP_ATTEMPTS": attempts,
            "STACKSAGA_TRANSACTION_LIFETIME": lifetime,
            "STACKSAGA_TRY_AFTER_LIFETIME": try_after,
            "STACKSAGA_REQUEST_TIMEOUT": 1,
            "STACKSAGA_STEP_BUDGET": 2,
            "STACKSAGA_CLAIM_TTL": 10,
            "STACKSAGA_BACKOFF_CAP_WINDOWS": 3,
            "STACKSAGA_STOP_AT_SIGTERM": False,
            "STACKSAGA_START_INDEX": False,
        },
        application_name="simulation",
        environment={},
    )

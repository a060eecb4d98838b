"""What a seed does to the calls to the store."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from stacksaga_flask.clock import SECOND
from tests.simulation.network import Call, Fate

_FOCUS = ("", "", "row", "row", "row", "COMPLETED", "retry", "watchdog", "#claim", "drop")
_FAST = 10_000
"""The longest that a call takes on either way in fine weather, in microseconds."""


class Weather(NamedTuple):
    """How often calls go wrong.

    Attributes:
        refused: The store cannot be reached for this call.
        lost: A write, or its answer, is lost.
        late: A write lands long after its caller gave up.
        apart: The statements of a write arrive at different times, some late or never.
        slow: The call takes up to the time-out.
        focus: Calls with this word in their name are late more often, by `more`.
        until: When it clears up.
        away: From when until when the store is away altogether.
    """

    refused: float
    lost: float
    late: float
    apart: float
    slow: float
    focus: str
    more: float
    until: int
    away: tuple[int, int]

    @classmethod
    def drawn(cls, random: Random, begins: int, until: int) -> Weather:
        """The weather of a seed."""
        level = random.choice((0.0, 0.01, 0.03, 0.03, 0.08, 0.15))
        away = (0, 0)
        if random.random() < 0.15:
            from_ = random.randrange(begins, until)
            away = (from_, min(until, from_ + random.choice((3, 10, 40)) * SECOND))
        return cls(
            refused=random.random() * level,
            lost=random.random() * level,
            late=random.random() * level,
            apart=random.random() * level,
            slow=random.random() * level,
            focus=random.choice(_FOCUS),
            more=random.choice((0.05, 0.15, 0.35)),
            until=until,
            away=away,
        )

    def fate(self, random: Random, call: Call, now: int, timeout: int) -> Fate:
        """What becomes of a call that is made now."""
        if self.away[0] <= now < self.away[1]:
            return Fate(None, random.randrange(_FAST), refused=True)
        quick = random.randrange(500, _FAST)
        fine = Fate(quick, quick + random.randrange(500, _FAST))
        if now >= self.until:
            return fine
        more = self.more if self.focus and self.focus in call.name else 0.0
        writes = call.kind == "write"
        drawn = random.random()
        if (drawn := drawn - self.refused) < 0:
            return Fate(None, random.randrange(_FAST), refused=True)
        if (drawn := drawn - self.slow - more / 4) < 0:
            return self._slow(random, timeout)
        if (drawn := drawn - self.lost) < 0:
            return Fate(random.choice((None, quick)), None)
        if writes and (drawn := drawn - self.late - more) < 0:
            return Fate(self._late(random, timeout), None)
        if writes and drawn - self.apart < 0:
            choices = (quick, quick, None, self._late(random, timeout))
            return Fate(None, None, parts=tuple(random.choice(choices) for _ in range(6)))
        return fine

    @staticmethod
    def _slow(random: Random, timeout: int) -> Fate:
        answers = random.randrange(1, timeout * 5 // 4)
        return Fate(random.randrange(min(answers, timeout)), answers)

    @staticmethod
    def _late(random: Random, timeout: int) -> int:
        return timeout + random.choice((1, 5, 20, 120)) * random.randrange(SECOND)


FINE = Weather(0.0, 0.0, 0.0, 0.0, 0.0, focus="", more=0.0, until=0, away=(0, 0))

"""The figures of `recovery`, and what people are told of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from tests.benchmarks.recovery_idle import Idle
from tests.benchmarks.recovery_place import STEPS
from tests.benchmarks.recovery_sweep import Swept
from tests.benchmarks.registry import Report
from tests.benchmarks.step_cost_report import MIB

AIM_SECONDS: Final = 2.0
"""For 500 killed sagas on SQLite."""
AIM_OF_TIME: Final = 1.3
"""Times the raw driver's, on Cassandra."""
AIM_OF_RAW: Final = 0.7
MOST_MEMORY: Final = 150
"""MiB above the start."""
OUTCOME: Final = "completed"


class KilledRound(NamedTuple):
    """Sagas that were killed in their second step.

    Attributes:
        sagas: How many.
        swept: What came of the sweep.
        raw_seconds: How long the raw driver needs for as many.
        twice: How many sagas had a step called more than once, by step.
        most_calls: The most calls of one step of one saga.
    """

    sagas: int
    swept: Swept
    raw_seconds: float
    twice: dict[str, int]
    most_calls: int


class PointersSwept(NamedTuple):
    """A bucket that was swept.

    Attributes:
        pointers: How many it held.
        swept: What came of the sweep.
        raw: Pointers a second of the raw driver, by its number of callers.
    """

    pointers: int
    swept: Swept
    raw: dict[int, float]


def report(
    store: str, killed: Sequence[KilledRound], *, finished: PointersSwept, live: PointersSwept, idle: Idle
) -> Report:
    """The report."""
    figures = {
        "store": store,
        "killed": _of_killed(killed),
        "finished": _of_pointers(finished),
        "live": _of_pointers(live),
        "idle": {
            "windows": idle.windows,
            **{
                name: {"queries": [one.queries for one in pair], "ms": [round(one.seconds * 1000, 2) for one in pair]}
                for name, pair in (("tick", idle.ticks), ("walk", idle.walks))
            },
        },
        "aims": {
            "seconds": AIM_SECONDS,
            "time_of_raw": AIM_OF_TIME,
            "of_raw": AIM_OF_RAW,
            "peak_memory_mib": MOST_MEMORY,
        },
    }
    broken = [
        *_broken_rounds(killed),
        *_broken_pointers("finished", finished),
        *_broken_pointers("live", live),
        *_broken_idle(idle),
    ]
    return Report(figures=figures, lines=list(_lines(figures)), summary=_summary(figures), broken=broken)


def _of_killed(rounds: Sequence[KilledRound]) -> dict[str, Any]:
    # Of the same round, since the machine's load changes from one to the next.
    ratios = [one.swept.seconds / one.raw_seconds for one in rounds]
    return {
        "sagas": rounds[0].sagas,
        "rounds": len(rounds),
        "seconds": round(median(one.swept.seconds for one in rounds), 3),
        "raw_seconds": round(median(one.raw_seconds for one in rounds), 3),
        "time_of_raw": round(median(ratios), 3),
        "time_of_raw_worst": round(max(ratios), 3),
        "steps_run_twice": rounds[0].twice,
    }


def _of_pointers(found: PointersSwept) -> dict[str, Any]:
    rate = found.pointers / found.swept.seconds
    return {
        "pointers": found.pointers,
        "a_second": round(rate, 1),
        "raw_a_second": {str(callers): round(raw, 1) for callers, raw in found.raw.items()},
        "of_raw": round(rate / max(found.raw.values()), 3),
        "peak_memory_mib": _memory(found.swept),
        "start_memory_mib": round(found.swept.start_memory / MIB, 2),
    }


def _memory(swept: Swept) -> float:
    return round((swept.peak_memory - swept.start_memory) / MIB, 2)


def _broken_rounds(rounds: Sequence[KilledRound]) -> Iterator[str]:
    for one in rounds:
        yield from _not_completed("killed", one.sagas, one.swept)
        expected = {STEPS[1]: one.sagas}
        if one.twice != expected or one.most_calls != 2:
            yield (
                f"killed: the steps {one.twice} were called more than once, at most {one.most_calls} times, and it "
                f"must be {expected} and twice: each saga was killed in that step"
            )


def _broken_pointers(name: str, found: PointersSwept) -> Iterator[str]:
    yield from _not_completed(name, found.pointers, found.swept)
    if _memory(found.swept) >= MOST_MEMORY:
        yield f"{name}: memory rose by {_memory(found.swept)} MiB and must stay under {MOST_MEMORY}"


def _not_completed(name: str, number: int, swept: Swept) -> Iterator[str]:
    if swept.outcomes != {OUTCOME: number} or swept.failures or swept.dropped != 1:
        yield (
            f"{name}: of {number} transactions {swept.outcomes} came, with failures {swept.failures}, and "
            f"{swept.dropped} buckets were dropped: all must be completed, and the one bucket dropped"
        )


def _broken_idle(idle: Idle) -> Iterator[str]:
    first, then = (tick.queries for tick in idle.ticks)
    if first != then:
        yield f"an idle tick is {first} queries at first and {then} after {idle.windows} windows: it must be as many"


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    killed, idle = figures["killed"], figures["idle"]
    yield (
        f"{killed['sagas']} sagas killed in their second step, on {figures['store']}; median of {killed['rounds']} "
        f"rounds: all done in {killed['seconds']} s, raw {killed['raw_seconds']} s, time of raw "
        f"{killed['time_of_raw']:.2f} (worst {killed['time_of_raw_worst']:.2f})"
    )
    yield "steps run twice: " + (", ".join(f"{step} {of}" for step, of in killed["steps_run_twice"].items()) or "none")
    yield f"{'pointers of':12} {'number':>7} {'a second':>9} {'raw':>9} {'of raw':>7} {'MiB':>7}"
    for name in ("finished", "live"):
        of = figures[name]
        yield (
            f"{name:12} {of['pointers']:>7} {of['a_second']:>9} {max(of['raw_a_second'].values()):>9} "
            f"{of['of_raw']:>7.2f} {of['peak_memory_mib']:>7.1f}"
        )
    for name in ("tick", "walk"):
        queries, ms = idle[name]["queries"], idle[name]["ms"]
        yield (
            f"an idle {name}: {queries[0]} queries ({ms[0]} ms), and after {idle['windows']} windows {queries[1]} "
            f"({ms[1]} ms)"
        )


def _summary(figures: Mapping[str, Any]) -> str:
    killed, finished, live = figures["killed"], figures["finished"], figures["live"]
    ticks = figures["idle"]["tick"]["queries"]
    memory = max(finished["peak_memory_mib"], live["peak_memory_mib"])
    return (
        f"recovery on {figures['store']}: {killed['sagas']} killed sagas done in {killed['seconds']} s, "
        f"{killed['time_of_raw']:.2f} times raw (aims {AIM_SECONDS:g} s on sqlite, {AIM_OF_TIME} times on cassandra); "
        f"finished {finished['of_raw']:.2f} and live {live['of_raw']:.2f} of raw (aim {AIM_OF_RAW}); at most "
        f"{memory:.0f} MiB (aim {MOST_MEMORY}); an idle tick is {ticks[0]} queries, and {ticks[1]} after "
        f"{figures['idle']['windows']} windows"
    )

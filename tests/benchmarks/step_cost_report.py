"""The figures of `step_cost`, and what people are told of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, TypeAlias

from tests.benchmarks.contender import Measured, Memory
from tests.benchmarks.registry import Report

WORKERS: Final = ("threads", "gevent")
RAW: Final = "raw"
ONE, MANY = CALLERS = (1, 16)
COMMITS: Final = 4
"""n + 1 for three steps (design, section 3)."""
AIM_OF_RAW: Final = 0.7
AIM_OF_MANY: Final = 2.0
MIB: Final = 1024 * 1024

Rounds: TypeAlias = Sequence[Mapping[str, Mapping[int, Measured]]]
"""For each round what came of the turns, by contender and by number of callers."""


def report(store: str, seconds: float, rounds: Rounds, memory: Mapping[str, Memory], fsync: float) -> Report:
    """The report.

    Args:
        store: The event store.
        seconds: Length of a turn.
        rounds: What was measured.
        memory: Of each contender.
        fsync: Seconds of one fsync.
    """
    figures = {
        "store": store,
        "rounds": len(rounds),
        "seconds": seconds,
        "fsync_ms": round(fsync * 1000, 3),
        **{name: {str(callers): _of_turn(rounds, name, callers) for callers in CALLERS} for name in (*WORKERS, RAW)},
        "many_to_one": {name: round(_many_to_one(rounds, name), 3) for name in (*WORKERS, RAW)},
        "peak_memory_mib": {name: round((of.peak - of.start) / MIB, 2) for name, of in memory.items()},
        "start_memory_mib": {name: round(of.start / MIB, 2) for name, of in memory.items()},
        "aims": {"of_raw": AIM_OF_RAW, "many_to_one": AIM_OF_MANY, "commits_a_saga": COMMITS},
    }
    return Report(figures=figures, lines=list(_lines(figures)), summary=_summary(figures), broken=list(_broken(rounds)))


def _of_turn(rounds: Rounds, name: str, callers: int) -> dict[str, float]:
    turns = [turn[name][callers] for turn in rounds]
    found = {
        "sagas_a_second": round(median(turn.rate for turn in turns), 1),
        "commits_a_saga": round(sum(turn.commits for turn in turns) / sum(turn.sagas for turn in turns), 3),
    }
    if name != RAW:
        # Of the same round, since the machine's load changes from one to the next.
        ratios = [turn[name][callers].rate / turn[RAW][callers].rate for turn in rounds]
        found |= {"of_raw": round(median(ratios), 3), "of_raw_worst": round(min(ratios), 3)}
    return found


def _many_to_one(rounds: Rounds, name: str) -> float:
    return median(turn[name][MANY].rate / turn[name][ONE].rate for turn in rounds)


def _broken(rounds: Rounds) -> Iterator[str]:
    for name in (*WORKERS, RAW):
        wrong = [turn[name][ONE] for turn in rounds if turn[name][ONE].commits != COMMITS * turn[name][ONE].sagas]
        for turn in wrong:
            yield (
                f"{name}: {turn.commits} commits for {turn.sagas} sagas of one caller, which is "
                f"{turn.commits / turn.sagas:.3f} a saga and must be {COMMITS}"
            )


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"sagas of three empty steps on {figures['store']}, synchronous=FULL; median of {figures['rounds']} rounds, "
        f"{figures['seconds']:g} s a turn; one fsync takes {figures['fsync_ms']} ms"
    )
    yield f"{'':8} {'callers':>7} {'sagas/s':>9} {'raw/s':>9} {'of raw':>7} {'worst':>6} {'commits/saga':>13}"
    for name in WORKERS:
        for callers in map(str, CALLERS):
            of, raw = figures[name][callers], figures[RAW][callers]
            yield (
                f"{name:8} {callers:>7} {of['sagas_a_second']:>9} {raw['sagas_a_second']:>9} {of['of_raw']:>7.2f} "
                f"{of['of_raw_worst']:>6.2f} {of['commits_a_saga']:>13.3f}"
            )
    yield f"{MANY} callers to one: " + ", ".join(f"{name} {of:.2f}" for name, of in figures["many_to_one"].items())
    yield "peak memory above start: " + ", ".join(
        f"{name} {of:.1f} MiB" for name, of in figures["peak_memory_mib"].items()
    )


def _summary(figures: Mapping[str, Any]) -> str:
    one, many = str(ONE), figures["many_to_one"]
    of_raw = " and ".join(f"{figures[name][one]['of_raw']:.2f} ({name})" for name in WORKERS)
    gain = " and ".join(f"{many[name]:.2f} ({name})" for name in WORKERS)
    return (
        f"step-cost: {figures['threads'][one]['sagas_a_second']:.0f} sagas a second, "
        f"{figures['threads'][one]['commits_a_saga']:g} commits each; {of_raw} of raw sqlite3 (aim {AIM_OF_RAW}); "
        f"{MANY} callers are {gain} times one (aim {AIM_OF_MANY:g})"
    )

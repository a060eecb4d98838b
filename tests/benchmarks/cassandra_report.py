"""The figures of `cassandra_step_cost`, and what people are told of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from tests.benchmarks.cassandra_recording import Observed
from tests.benchmarks.contender import Memory
from tests.benchmarks.registry import Report
from tests.benchmarks.step_cost_report import MIB, WORKERS, Rounds

CALLERS: Final = (1, 16, 100)
PAIRS: Final = {workers: f"raw {workers}" for workers in WORKERS}
"""The engine's contenders, and what each is compared with."""
ROUND_TRIPS: Final = 5
"""n + 2 for three steps (design, section 3)."""
AIM: Final = 1.25


def report(log: str, seconds: float, rounds: Rounds, memory: Mapping[str, Memory], observed: Observed) -> Report:
    """The report.

    Args:
        log: When the server writes its commit log to the disk.
        seconds: Length of a turn.
        rounds: What was measured.
        memory: Of each contender.
        observed: What was counted at the wire.
    """
    figures = {
        "store": "cassandra",
        "commit_log": log,
        "rounds": len(rounds),
        "seconds": seconds,
        **{name: {str(callers): _of_turn(rounds, name, callers) for callers in CALLERS} for name in memory},
        "round_trips_a_saga": round(observed.rounds / observed.sagas, 3),
        "requests_a_saga": round(observed.requests / observed.sagas, 3),
        "peak_memory_mib": {name: round((of.peak - of.start) / MIB, 2) for name, of in memory.items()},
        "start_memory_mib": {name: round(of.start / MIB, 2) for name, of in memory.items()},
        "aims": {"time_of_raw": AIM, "round_trips_a_saga": ROUND_TRIPS},
    }
    broken = list(_broken(observed))
    return Report(figures=figures, lines=list(_lines(figures)), summary=_summary(figures), broken=broken)


def _of_turn(rounds: Rounds, name: str, callers: int) -> dict[str, float]:
    found = {"sagas_a_second": round(median(turn[name][callers].rate for turn in rounds), 1)}
    if name in PAIRS:
        # Of the same round, since the machine's load changes from one to the next.
        ratios = [turn[PAIRS[name]][callers].rate / turn[name][callers].rate for turn in rounds]
        found |= {"time_of_raw": round(median(ratios), 3), "time_of_raw_worst": round(max(ratios), 3)}
    return found


def _broken(observed: Observed) -> Iterator[str]:
    if observed.rounds != ROUND_TRIPS * observed.sagas:
        yield (
            f"{observed.rounds} sequential round trips at the wire for {observed.sagas} sagas of one caller, which is "
            f"{observed.rounds / observed.sagas:.3f} a saga and must be {ROUND_TRIPS}"
        )
    if len(observed.recording.rounds) != ROUND_TRIPS:
        yield f"raw makes {len(observed.recording.rounds)} round trips a saga and must make {ROUND_TRIPS}"


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"sagas of three empty steps on Cassandra, commit log {figures['commit_log']}; median of {figures['rounds']} "
        f"rounds, {figures['seconds']:g} s a turn"
    )
    yield f"{'':8} {'callers':>7} {'sagas/s':>9} {'raw/s':>9} {'time of raw':>12} {'worst':>6}"
    for name, raw_name in PAIRS.items():
        for callers in map(str, CALLERS):
            of, raw = figures[name][callers], figures[raw_name][callers]
            yield (
                f"{name:8} {callers:>7} {of['sagas_a_second']:>9} {raw['sagas_a_second']:>9} "
                f"{of['time_of_raw']:>12.2f} {of['time_of_raw_worst']:>6.2f}"
            )
    yield (
        f"a saga at the wire: {figures['round_trips_a_saga']:g} sequential round trips, "
        f"{figures['requests_a_saga']:g} requests"
    )
    yield "peak memory above start: " + ", ".join(
        f"{name} {of:.1f} MiB" for name, of in figures["peak_memory_mib"].items()
    )


def _summary(figures: Mapping[str, Any]) -> str:
    callers = ", ".join(map(str, CALLERS))
    of_raw = " and ".join(
        f"{', '.join(format(figures[name][str(number)]['time_of_raw'], '.2f') for number in CALLERS)} ({name})"
        for name in PAIRS
    )
    return (
        f"step-cost on Cassandra: {figures['round_trips_a_saga']:g} sequential round trips a saga; {callers} callers "
        f"take {of_raw} times the raw driver's time (aim {AIM})"
    )

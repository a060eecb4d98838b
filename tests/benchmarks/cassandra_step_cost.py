"""What a step costs on Cassandra: the engine against plain cassandra-driver making the same requests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from tests.benchmarks.cassandra_recording import Observed, observe
from tests.benchmarks.cassandra_report import CALLERS, PAIRS, report
from tests.benchmarks.cassandra_server import benchmark_node, commit_log, keyspace_on
from tests.benchmarks.contender import Measured
from tests.benchmarks.process import ContenderProcess, contender_process
from tests.benchmarks.registry import Report


def cassandra_step_cost(rounds: int, seconds: float, directory: Path | None) -> Report:
    """See `tests.benchmarks.step_cost.step_cost`."""
    with (
        tempfile.TemporaryDirectory(prefix="step-cost-", dir=directory) as folder,
        benchmark_node(Path(folder)) as node,
        keyspace_on(node) as keyspace,
    ):
        observed = observe(node, keyspace)
        with _contenders(Path(folder), observed, node.url(keyspace)) as found:
            # Nobody's first turn counts: the server compiles what it runs often.
            _round(found, seconds, raw_first=True)
            turns = [_round(found, seconds, raw_first=bool(number % 2)) for number in range(rounds)]
            memory = {name: process.memory for name, process in found.items()}
        return report(commit_log(node), seconds, turns, memory, observed)


@contextmanager
def _contenders(folder: Path, observed: Observed, url: str) -> Iterator[Mapping[str, ContenderProcess]]:
    recording = folder / "recording"
    recording.write_bytes(msgspec.msgpack.encode(observed.recording))
    with ExitStack() as processes:
        started = {}
        for workers, raw in PAIRS.items():
            engine = contender_process("cassandra_engine_contender", workers, url)
            started[workers] = processes.enter_context(engine)
            plain = contender_process("cassandra_raw_contender", workers, str(recording), url)
            started[raw] = processes.enter_context(plain)
        yield started


def _round(
    processes: Mapping[str, ContenderProcess], seconds: float, *, raw_first: bool
) -> dict[str, dict[int, Measured]]:
    """One turn for each contender and number of callers. Those that are compared follow one another."""
    turns: dict[str, dict[int, Measured]] = {name: {} for name in processes}
    for callers in CALLERS:
        for workers, raw in PAIRS.items():
            for name in (raw, workers) if raw_first else (workers, raw):
                turns[name][callers] = processes[name].take_turn(callers, seconds)
    return turns

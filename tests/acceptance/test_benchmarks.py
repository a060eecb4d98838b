"""The benchmarks run and count right. What they measure is the machine's business, so no speed is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.benchmarks.cassandra_recording import Observed
from tests.benchmarks.cassandra_replay import Recording
from tests.benchmarks.cassandra_report import report as cassandra_report
from tests.benchmarks.contender import Measured, Memory
from tests.benchmarks.recovery_idle import Idle, Tick
from tests.benchmarks.recovery_report import KilledRound, PointersSwept
from tests.benchmarks.recovery_report import report as recovery_report
from tests.benchmarks.recovery_sweep import Swept
from tests.benchmarks.step_cost_report import report
from tests.services.cassandra.node import Node

ROOT = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "tests.benchmarks", *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, env=variables)


def test_the_help_names_each_benchmark() -> None:
    result = run("--help")
    assert result.returncode == 0
    for name in ("counter", "recovery", "step-cost"):
        assert name in result.stdout


def test_the_cost_of_a_step_is_four_commits_a_saga_and_ends_with_one_line_that_sums_it_up(tmp_path: Path) -> None:
    file, files = tmp_path / "figures.json", tmp_path / "files"
    files.mkdir()
    result = run(
        *("step-cost", "--store", "sqlite", "--rounds", "1", "--seconds", "0.2"),
        *("--directory", str(files), "--json", str(file)),
    )
    assert (result.returncode, result.stderr) == (0, "")
    figures = json.loads(file.read_text())
    assert result.stdout.splitlines()[-1] == figures["summary"]
    assert figures["summary"].startswith("step-cost: ")
    assert figures["broken"] == []
    assert figures["fsync_ms"] >= 0
    for contender in ("threads", "gevent", "raw"):
        assert figures[contender]["1"]["commits_a_saga"] == 4
        assert 0 < figures[contender]["16"]["commits_a_saga"] <= 4
        assert figures[contender]["16"]["sagas_a_second"] > 0
        assert figures["many_to_one"][contender] > 0
        assert figures["peak_memory_mib"][contender] >= 0
    for workers in ("threads", "gevent"):
        assert figures[workers]["1"]["of_raw"] > 0
    assert list(files.iterdir()) == []


def test_a_commit_too_many_is_told_as_broken() -> None:
    right = {callers: Measured(sagas=10, seconds=1.0, commits=40) for callers in (1, 16)}
    wrong = {**right, 1: Measured(sagas=10, seconds=1.0, commits=41)}
    memory = {name: Memory(start=0, peak=0) for name in ("threads", "gevent", "raw")}
    rounds = [{"threads": wrong, "gevent": right, "raw": right}]
    broken = report("sqlite", 1.0, rounds, memory, 0.001).broken
    assert len(broken) == 1
    assert "threads: 41 commits for 10 sagas of one caller" in broken[0]


def test_the_cost_of_a_step_on_cassandra_is_five_round_trips_and_seven_requests_a_saga(
    cassandra: Node, tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    result = run(
        *("step-cost", "--store", "cassandra", "--rounds", "1", "--seconds", "0.2", "--json", str(file)),
        STACKSAGA_TEST_CASSANDRA=f"{cassandra.host}:{cassandra.port}",
    )
    assert (result.returncode, result.stderr) == (0, "")
    figures = json.loads(file.read_text())
    assert result.stdout.splitlines()[-1] == figures["summary"]
    assert figures["broken"] == []
    assert figures["round_trips_a_saga"] == 5
    # Pointer, row and start index; three steps; the watchdog. Where a window begins, some upper tiers too.
    assert 7 <= figures["requests_a_saga"] <= 7.5
    for contender in ("threads", "gevent", "raw threads", "raw gevent"):
        for callers in ("1", "16", "100"):
            assert figures[contender][callers]["sagas_a_second"] > 0
        assert figures["peak_memory_mib"][contender] > 0
    for workers in ("threads", "gevent"):
        assert figures[workers]["100"]["time_of_raw"] > 0


def test_a_round_trip_too_many_is_told_as_broken() -> None:
    turns = {callers: Measured(sagas=10, seconds=1.0, commits=0) for callers in (1, 16, 100)}
    names = ("threads", "gevent", "raw threads", "raw gevent")
    memory = {name: Memory(start=0, peak=0) for name in names}
    observed = Observed(Recording(uuid.uuid4(), [[]] * 5), sagas=10, rounds=51, requests=70)
    broken = cassandra_report("periodic", 1.0, [dict.fromkeys(names, turns)], memory, observed).broken
    assert len(broken) == 1
    assert "51 sequential round trips at the wire for 10 sagas" in broken[0]


def test_a_cassandra_that_is_not_an_address_is_refused() -> None:
    result = run("step-cost", "--store", "cassandra", STACKSAGA_TEST_CASSANDRA="somewhere")
    assert result.returncode == 1
    assert "STACKSAGA_TEST_CASSANDRA is 'somewhere': write the node's IPv4 address and port" in result.stderr


TINY = ("--killed", "3", "--rounds", "1", "--pointers", "4", "--windows", "3")


def assert_that_everything_was_recovered(result: subprocess.CompletedProcess[str], file: Path) -> None:
    assert (result.returncode, result.stderr) == (0, "")
    figures = json.loads(file.read_text())
    assert result.stdout.splitlines()[-1] == figures["summary"]
    assert figures["summary"].startswith("recovery on ")
    assert figures["broken"] == []
    assert figures["killed"]["sagas"] == 3
    # Each was killed in its second step, after one and before another that ran once.
    assert figures["killed"]["steps_run_twice"] == {"charge": 3}
    assert figures["killed"]["time_of_raw"] > 0
    for kind in ("finished", "live"):
        assert figures[kind]["pointers"] == 4
        assert figures[kind]["of_raw"] > 0
        assert 0 < figures[kind]["peak_memory_mib"] < 150
    # One range of tier 2; four years of tier 1.
    assert figures["idle"]["tick"]["queries"] == [1, 1]
    assert figures["idle"]["walk"]["queries"] == [4, 4]


def test_what_was_killed_is_recovered_with_one_step_run_twice_and_an_idle_tick_is_one_query(tmp_path: Path) -> None:
    file, files = tmp_path / "figures.json", tmp_path / "files"
    files.mkdir()
    result = run("recovery", "--store", "sqlite", *TINY, "--directory", str(files), "--json", str(file))
    assert_that_everything_was_recovered(result, file)
    assert list(files.iterdir()) == []


def test_what_was_killed_is_recovered_on_cassandra_too(cassandra: Node, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    server = f"{cassandra.host}:{cassandra.port}"
    result = run("recovery", "--store", "cassandra", *TINY, "--json", str(file), STACKSAGA_TEST_CASSANDRA=server)
    assert_that_everything_was_recovered(result, file)


def swept(number: int, **more: Any) -> Swept:
    given = {
        "outcomes": {"completed": number},
        "failures": {},
        "dropped": 1,
        "start_memory": 0,
        "peak_memory": 1,
        **more,
    }
    return Swept(seconds=1.0, **given)


def broken_recovery(
    *, killed: KilledRound | None = None, live: PointersSwept | None = None, queries: int = 1
) -> list[str]:
    good = PointersSwept(5, swept(5), {1: 2.0})
    return recovery_report(
        "sqlite",
        [killed or KilledRound(5, swept(5), 1.0, {"charge": 5}, most_calls=2)],
        finished=good,
        live=live or good,
        idle=Idle(windows=3, ticks=(Tick(1, 0.1), Tick(queries, 0.1)), walks=(Tick(4, 0.1), Tick(4, 0.1))),
    ).broken


def test_a_recovery_as_it_must_be_is_not_told_as_broken() -> None:
    assert broken_recovery() == []


def test_another_step_that_ran_twice_is_told_as_broken() -> None:
    twice = KilledRound(5, swept(5), 1.0, {"reserve": 1, "charge": 5}, most_calls=2)
    (broken,) = broken_recovery(killed=twice)
    assert "{'reserve': 1, 'charge': 5}" in broken


def test_a_third_call_of_a_step_is_told_as_broken() -> None:
    (broken,) = broken_recovery(killed=KilledRound(5, swept(5), 1.0, {"charge": 5}, most_calls=3))
    assert "at most 3 times" in broken


def test_a_transaction_that_is_not_completed_is_told_as_broken() -> None:
    left = swept(5, outcomes={"completed": 4, "claimed by another": 1})
    (broken,) = broken_recovery(live=PointersSwept(5, left, {1: 2.0}))
    assert "live: of 5 transactions {'completed': 4, 'claimed by another': 1} came" in broken


def test_memory_over_the_bound_is_told_as_broken() -> None:
    (broken,) = broken_recovery(live=PointersSwept(5, swept(5, peak_memory=150 * 1024 * 1024), {1: 2.0}))
    assert "live: memory rose by 150.0 MiB" in broken


def test_a_query_more_after_many_windows_is_told_as_broken() -> None:
    (broken,) = broken_recovery(queries=2)
    assert "an idle tick is 1 queries at first and 2 after 3 windows" in broken


def test_the_counter_fills_every_bucket_and_ends_with_one_line_that_sums_it_up(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    result = run("counter", "--rounds", "1", "--calls", "4000", "--json", str(file))
    assert (result.returncode, result.stderr) == (0, "")
    figures = json.loads(file.read_text())
    assert result.stdout.splitlines()[-1] == figures["summary"]
    assert figures["summary"].startswith("counter: ")
    assert figures["broken"] == []
    for threads in ("1", "16"):
        assert figures[threads]["ns"] > 0
        assert figures[threads]["of_floor"] > 0

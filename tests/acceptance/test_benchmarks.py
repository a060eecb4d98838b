"""The benchmarks run and count right. What they measure is the machine's business, so no speed is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

from tests.benchmarks.cassandra_recording import Observed
from tests.benchmarks.cassandra_replay import Recording
from tests.benchmarks.cassandra_report import report as cassandra_report
from tests.benchmarks.contender import Measured, Memory
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
    assert "step-cost" in result.stdout


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

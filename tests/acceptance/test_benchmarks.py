"""The benchmarks run and count right. What they measure is the machine's business, so no speed is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.contender import Measured, Memory
from tests.benchmarks.step_cost_report import report

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "tests.benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


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

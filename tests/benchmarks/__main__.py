"""The command line of the benchmarks."""

from __future__ import annotations

import tests.benchmarks.counter
import tests.benchmarks.recovery
import tests.benchmarks.step_cost  # noqa: F401 - registers them
from tests.benchmarks.registry import benchmarks

if __name__ == "__main__":
    benchmarks(prog_name="python -m tests.benchmarks")

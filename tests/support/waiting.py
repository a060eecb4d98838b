"""Waiting for a thing itself."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], longest: float = 30.0, every: float = 0.02) -> None:
    """Return once it holds; fail after so many seconds."""
    deadline = time.monotonic() + longest
    while not holds():
        assert time.monotonic() < deadline, f"it did not come within {longest:g} s"
        time.sleep(every)

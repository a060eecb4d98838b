"""Real servers for the tests. A fixture starts what a test needs, once; see `tests.services.plugin`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """A service cannot be had: a failure in CI, where nothing may be missing, and a skipped test elsewhere."""
    if "CI" in os.environ:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def cache() -> Path:
    """A folder outside the checkout for what is slow to get; checkouts and environments share it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stacksaga-tests"

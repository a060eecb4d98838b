"""What all tests share: the store of the matrix, and engines that are closed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stacksaga_flask import Engine

pytest_plugins = ["tests.services.plugin"]

STORE = os.environ.get("STACKSAGA_TEST_STORE", "memory")
STORES = ("memory", "sqlite", "postgresql", "cassandra")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In the matrix an environment runs the conformance suite of its own store only."""
    if "STACKSAGA_TEST_STORE" not in os.environ:
        return
    others = {f"test_{store}.py" for store in STORES if store != STORE}
    other = [item for item in items if item.path.name in others and item.path.parent.name == "conformance"]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if item not in set(other)]


@pytest.fixture(autouse=True)
def engines_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every engine that a test made, so that an open file is a defect of the code and not of the test."""
    made: list[Engine] = []
    original = Engine.__init__

    def remember(self: Engine, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(Engine, "__init__", remember)
    yield
    for engine in made:
        engine.close()

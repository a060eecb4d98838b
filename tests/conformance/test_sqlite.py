from __future__ import annotations

from pathlib import Path

import pytest

from stacksaga_flask.testing.conformance import StoreConformance, StoreHarness
from tests.conformance.sqlite_harness import SqliteHarness

pytestmark = pytest.mark.varies


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sqlite")


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def harness(self, folder: Path) -> StoreHarness:
        return SqliteHarness(folder)

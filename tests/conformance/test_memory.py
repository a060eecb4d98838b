from __future__ import annotations

import pytest

from stacksaga_flask.testing.conformance import StoreConformance, StoreHarness
from tests.conformance.memory_harness import MemoryHarness

pytestmark = pytest.mark.varies


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return MemoryHarness()

"""The conformance suite for event stores: what `stacksaga_flask.store.contract` says, as tests.

To test a store of your own, write a `StoreHarness` for it and a class in a test file::

    from stacksaga_flask.testing.conformance import StoreConformance, StoreHarness

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def harness(self, tmp_path: Path) -> Iterator[StoreHarness]:
            yield MyHarness(tmp_path)

Nothing is skipped. Where stores may differ, the store's own flags (`transactional`, `fences_by_epoch`,
`first_in_first_out`) say what it does, and the suite asserts the one or the other.
"""

from __future__ import annotations

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from stacksaga_flask.testing.conformance.batches import BatchConformance  # noqa: E402
from stacksaga_flask.testing.conformance.directory import DirectoryConformance  # noqa: E402
from stacksaga_flask.testing.conformance.drops import DropConformance  # noqa: E402
from stacksaga_flask.testing.conformance.fencing import FencingConformance  # noqa: E402
from stacksaga_flask.testing.conformance.frozen import FrozenConformance  # noqa: E402
from stacksaga_flask.testing.conformance.harness import Conformance, StoreHarness  # noqa: E402
from stacksaga_flask.testing.conformance.markers import LifetimeConformance, MarkerConformance  # noqa: E402
from stacksaga_flask.testing.conformance.markers_in_batches import MarkersInBatchesConformance  # noqa: E402
from stacksaga_flask.testing.conformance.outcomes import OutcomeConformance  # noqa: E402
from stacksaga_flask.testing.conformance.settings import SettingsConformance  # noqa: E402
from stacksaga_flask.testing.conformance.tiers import TierConformance  # noqa: E402
from stacksaga_flask.testing.conformance.transactions import TransactionConformance  # noqa: E402

__all__ = [
    "BatchConformance",
    "Conformance",
    "DirectoryConformance",
    "DropConformance",
    "FencingConformance",
    "FrozenConformance",
    "LifetimeConformance",
    "MarkerConformance",
    "MarkersInBatchesConformance",
    "OutcomeConformance",
    "SettingsConformance",
    "StoreConformance",
    "StoreHarness",
    "TierConformance",
    "TransactionConformance",
]


class StoreConformance(
    TransactionConformance,
    FrozenConformance,
    BatchConformance,
    FencingConformance,
    MarkerConformance,
    LifetimeConformance,
    MarkersInBatchesConformance,
    TierConformance,
    DirectoryConformance,
    DropConformance,
    OutcomeConformance,
    SettingsConformance,
):
    """Every part of the suite. Inherit from it and give a fixture named ``harness``."""

"""The suite against wrong stores. Its name keeps pytest from collecting it; see `test_suite_fails_on_wrong_stores`."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from stacksaga_flask.store.sql.store import SqlStore
from stacksaga_flask.testing.conformance import (
    Conformance,
    DirectoryConformance,
    DropConformance,
    FencingConformance,
    FrozenConformance,
    StoreConformance,
    StoreHarness,
)
from tests.conformance import nothing, wrong_drops, wrong_sqlite_stores, wrong_stores
from tests.conformance.memory_harness import FaultyStore, MemoryHarness
from tests.conformance.sqlite_harness import SqliteHarness

DO_NOTHING: tuple[type[FaultyStore], ...] = (
    nothing.DoesNothing,
    nothing.DoesNothingAndSaysItDid,
    nothing.DoesNothingByEpoch,
    nothing.DoesNothingByEpochAndSaysItDid,
)
WRONG: tuple[type[FaultyStore], ...] = (
    wrong_drops.DropsEveryToken,
    wrong_drops.DropsInEveryScope,
    wrong_drops.DropsThePointersItSees,
    wrong_drops.ForgetsTheHigherDrop,
    wrong_drops.KnowsWindowsOfFiveSecondsOnly,
    wrong_drops.LeavesOutTheMaximum,
    wrong_drops.LetsARegistrationWinATie,
    wrong_stores.DropsATier,
    wrong_stores.DropsByTheClock,
    wrong_stores.DropsNothing,
    wrong_stores.ForgetsAField,
    wrong_stores.ForgetsTheFence,
    wrong_stores.ForgetsTimesToLive,
    wrong_stores.LeavesClaimsBehind,
    wrong_stores.LetsTheLaterDeletionWin,
    wrong_stores.LetsTheLaterWriteWin,
    wrong_stores.LooksBeforeItClaims,
    wrong_stores.ReadsTheWholeDay,
    wrong_stores.RecordsTheLastGrid,
    wrong_stores.RenewsNothing,
    wrong_stores.ReplacesWhateverIsThere,
    wrong_stores.ReturnsOnePage,
    wrong_stores.SplitsABatch,
    wrong_stores.TakesRefusalForUnknown,
    wrong_stores.TakesUnknownForFailure,
    wrong_stores.TakesUnknownForSuccess,
    wrong_stores.WithdrawsALosingBatch,
)


# Opening a SQLite store takes its time, so each meets only the part that concerns it.
WRONG_IN_SQLITE: dict[type[SqlStore], type[Conformance]] = {
    wrong_drops.EmptiesItsBuckets: DropConformance,
    wrong_drops.KeepsAnInstanceForAnother: DropConformance,
    wrong_sqlite_stores.CommitsEachOperation: FencingConformance,
    wrong_sqlite_stores.DeletesNoRowAndFencesNone: FencingConformance,
    wrong_sqlite_stores.DropsWhatIsNotEmpty: DropConformance,
    wrong_sqlite_stores.NeverFences: FencingConformance,
    wrong_sqlite_stores.SortsItsPointers: DirectoryConformance,
    wrong_sqlite_stores.StopsAtACorruptRow: FrozenConformance,
}
MORE_THAN_A_PAGE = 2 * wrong_stores.PAGE + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sqlite")


def suite_in_memory(kind: type[FaultyStore]) -> type[StoreConformance]:
    """The suite for one store, as a class that pytest collects."""

    class Suite(StoreConformance):
        @pytest.fixture
        def harness(self) -> StoreHarness:
            return MemoryHarness(kind, more_than_a_page=MORE_THAN_A_PAGE)

    return Suite


def suite_in_sqlite(kind: type[SqlStore], part: type[Conformance]) -> type[Conformance]:
    """A part of the suite for a SQLite store."""

    @pytest.fixture
    def harness(_: Conformance, folder: Path) -> StoreHarness:
        return SqliteHarness(folder, kind, more_than_a_page=MORE_THAN_A_PAGE)

    return cast("type[Conformance]", type("Suite", (part,), {"harness": harness}))


globals().update({f"Test{kind.__name__}": suite_in_memory(kind) for kind in DO_NOTHING + WRONG})
globals().update({f"Test{kind.__name__}": suite_in_sqlite(kind, part) for kind, part in WRONG_IN_SQLITE.items()})

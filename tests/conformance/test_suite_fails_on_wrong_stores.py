from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from tests.conformance.wrong_suite import DO_NOTHING, WRONG, WRONG_IN_SQLITE

SUITE = Path(__file__).with_name("wrong_suite.py")

CAUGHT_BY = {
    "CommitsEachOperation": {
        "test_a_fenced_row_undoes_the_pointer_of_the_same_call_and_a_losing_one_does_not",
        "test_a_fenced_row_undoes_the_other_transaction_of_the_same_call_and_a_losing_one_does_not",
    },
    "DeletesNoRowAndFencesNone": {"test_deleting_a_row_that_is_there_is_fenced_or_hides_what_is_not_above_it"},
    "DropsATier": {
        "test_a_registration_of_one_tier_writes_that_tier_only",
        "test_instances_rise_by_token_and_id_and_are_those_of_the_window",
    },
    "DropsByTheClock": {"test_what_was_pruned_can_be_put_back"},
    "DropsEveryToken": {"test_an_instance_is_dropped_by_its_token_and_id"},
    "DropsInEveryScope": {"test_a_drop_touches_its_own_scope_only"},
    "DropsNothing": {
        "test_dropping_from_below_leaves_the_tiers_above",
        "test_a_bucket_is_dropped_whole_only_where_timestamps_decide",
    },
    "DropsThePointersItSees": {"test_a_late_registration_in_a_dropped_bucket_shows_only_where_epochs_fence"},
    "DropsWhatIsNotEmpty": {"test_a_place_with_something_below_is_dropped_only_where_timestamps_decide"},
    "EmptiesItsBuckets": {"test_a_bucket_is_dropped_whole_only_where_timestamps_decide"},
    "ForgetsAField": {"test_a_row_with_something_in_every_field_is_read_as_written"},
    "ForgetsTheFence": {"test_a_row_deleted_at_the_fence_hides_a_late_start_and_not_a_new_one"},
    "ForgetsTheHigherDrop": {"test_only_a_registration_above_the_highest_drop_shows_where_timestamps_decide"},
    "ForgetsTimesToLive": {"test_a_marker_is_gone_after_its_time_to_live_and_not_long_before"},
    "KeepsAnInstanceForAnother": {"test_what_lies_below_a_neighbour_does_not_keep_a_place"},
    "KnowsWindowsOfFiveSecondsOnly": {"test_windows_are_read_from_one_to_another_both_included"},
    "LeavesClaimsBehind": {"test_deleting_the_markers_takes_claims_as_well_and_those_of_no_other"},
    "LeavesOutTheMaximum": {"test_windows_are_read_from_one_to_another_both_included"},
    "LetsARegistrationWinATie": {"test_only_a_registration_above_the_highest_drop_shows_where_timestamps_decide"},
    "LetsTheLaterDeletionWin": {
        "test_a_deletion_below_the_registration_has_no_effect_unless_the_store_fences_by_epoch"
    },
    "LetsTheLaterWriteWin": {
        "test_of_two_writes_the_higher_timestamp_stands_or_by_epoch_the_later",
        "test_a_former_owner_is_fenced_or_loses_by_its_timestamp",
        "test_a_late_registration_stays_gone_unless_the_store_fences_by_epoch",
    },
    "LooksBeforeItClaims": {"test_of_inserts_at_the_same_time_one_is_applied_and_all_learn_which"},
    "NeverFences": {
        "test_a_former_owner_is_fenced_or_loses_by_its_timestamp",
        "test_a_start_of_a_row_that_exists_is_fenced_or_wins_by_its_timestamp",
    },
    "ReadsTheWholeDay": {"test_windows_are_read_from_one_to_another_both_included"},
    "RecordsTheLastGrid": {"test_a_grid_is_recorded_once"},
    "RenewsNothing": {
        "test_replacing_a_marker_with_itself_renews_it",
        "test_a_lease_replaced_without_a_time_to_live_stays",
    },
    "ReplacesWhateverIsThere": {"test_a_marker_of_another_state_is_not_replaced_but_told"},
    "ReturnsOnePage": {
        "test_tryouts_of_more_than_a_page_are_all_read",
        "test_more_frozen_rows_than_a_page_are_all_listed",
        "test_days_are_all_read_to_the_end_of_the_year",
        "test_windows_of_more_than_a_page_are_all_read",
        "test_instances_of_more_than_a_page_are_all_read",
        "test_buckets_of_more_than_a_page_are_all_read",
        "test_pointers_of_more_than_a_page_are_all_read_once",
    },
    "SortsItsPointers": {"test_pointers_come_by_rising_id_or_in_order_of_registration"},
    "SplitsABatch": {"test_a_batch_whose_acknowledgement_is_lost_is_there_whole"},
    "StopsAtACorruptRow": {"test_a_corrupt_frozen_row_is_told_and_stops_the_listing_of_no_other"},
    "TakesRefusalForUnknown": {
        "test_a_refused_write_leaves_the_row_that_was_there",
        "test_a_refused_claim_is_not_there",
    },
    "TakesUnknownForFailure": {
        "test_a_row_whose_acknowledgement_is_lost_is_unknown_and_there",
        "test_a_claim_whose_answer_is_lost_is_read_back_by_its_holder",
    },
    "TakesUnknownForSuccess": {"test_a_row_whose_acknowledgement_is_lost_is_unknown_and_there"},
    "WithdrawsALosingBatch": {"test_a_batch_that_is_too_late_leaves_nothing_or_only_its_tryouts_and_markers"},
}


class Outcome(NamedTuple):
    """How the suite went on one store: tests with their parameters."""

    passed: set[str]
    failed: set[str]
    skipped: set[str]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """How the suite goes on each wrong store."""
    report = tmp_path_factory.mktemp("wrong") / "report.xml"
    options = ["-p", "no:cacheprovider", "-q", "--tb=no", "--assert=plain", f"--junitxml={report}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(SUITE)],
        cwd=SUITE.parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    found: defaultdict[str, Outcome] = defaultdict(lambda: Outcome(set(), set(), set()))
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        store = case.attrib["classname"].rpartition(".Test")[2]
        tags = {child.tag for child in case}
        outcome = found[store]
        into = (
            outcome.failed if tags & {"failure", "error"} else outcome.skipped if "skipped" in tags else outcome.passed
        )
        into.add(case.attrib["name"])
    return found


@pytest.mark.parametrize("store", [kind.__name__ for kind in DO_NOTHING])
def test_no_test_of_the_suite_passes_on_a_store_that_does_nothing(outcomes: dict[str, Outcome], store: str) -> None:
    passed, failed, skipped = outcomes[store]
    assert (passed, skipped) == (set(), set())
    assert len(failed) > 100


@pytest.mark.parametrize("store", CAUGHT_BY)
def test_the_suite_fails_on_a_wrong_store(outcomes: dict[str, Outcome], store: str) -> None:
    passed, failed, skipped = outcomes[store]
    assert {name.partition("[")[0] for name in failed} >= CAUGHT_BY[store]
    assert passed, "a store with one fault should pass what does not concern the fault"
    assert skipped == set()


def test_it_is_known_for_every_wrong_store_which_test_catches_it() -> None:
    assert set(CAUGHT_BY) == {kind.__name__ for kind in (*WRONG, *WRONG_IN_SQLITE)}

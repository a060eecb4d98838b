"""Outages and clocks by injected time: nobody runs for a weekend, and clocks are set by an hour."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from stacksaga_flask import RunningStatus
from stacksaga_flask.clock import SECOND
from stacksaga_flask.errors import ClockSkew
from stacksagad.recovery.observed import Ended
from tests.support.recovery_saga import COMPENSATED, FORWARD
from tests.support.recovery_time import HOUR, MINUTE, TimedSite

COMPLETED, REVERTED, PAUSED, FROZEN = (
    RunningStatus.PROCESS_COMPLETED,
    RunningStatus.REVERT_COMPLETED,
    RunningStatus.PROCESS_PAUSED,
    RunningStatus.FROZEN,
)
FRIDAY = int(datetime.datetime(2024, 3, 1, 18, tzinfo=datetime.timezone.utc).timestamp()) * SECOND
MONDAY = FRIDAY + (2 * 24 + 14) * HOUR
"""At eight in the morning."""
IN_A_WINDOW = 10
BEFORE_THE_PIVOT = [f"forward-{n}" for n in range(15 * (IN_A_WINDOW - 2))]
COMPENSATING = [f"backward-{n}" for n in range(15)]
PAST_THE_PIVOT = [f"past-{n}" for n in range(15)]


def friday_evening(folder: Path, *, lookback_days: int = 2) -> TimedSite:
    """For 15 windows every order is parked: payments, refunds and confirmations are down. Then nobody runs."""
    site = TimedSite(folder, began=FRIDAY, lookback_days=lookback_days)
    forward = iter(BEFORE_THE_PIVOT)
    for backward, past in zip(COMPENSATING, PAST_THE_PIVOT, strict=True):
        for _ in range(IN_A_WINDOW - 2):
            assert site.order(next(forward), down="charge") is PAUSED
        assert site.order(backward, refused="ship", down="refund") is RunningStatus.REVERT_PAUSED
        assert site.order(past, down="confirm") is PAUSED
        site.advance(MINUTE)
    site.web.close()
    site.web = site.process()
    site.advance(MONDAY - site.time.wall())
    (folder / "up").touch()
    return site


def goes_on(site: TimedSite, windows: int = 3) -> None:
    """A retry node runs for some windows."""
    node = site.node()
    for _ in range(windows):
        assert node.tick().ended is Ended.THROUGH
        site.advance(MINUTE)
    node.end()


def each_did_its_work_once(site: TimedSite) -> None:
    for name in BEFORE_THE_PIVOT:
        assert site.ledger.actions(name) == ["reserve", "charge", "charge", "ship", "confirm"], name
        assert site.ledger.effects(name) == list(FORWARD), name
    for name in COMPENSATING:
        assert site.ledger.actions(name) == ["reserve", "charge", "ship", "refund", "refund", "release"], name
        assert site.ledger.effects(name) == list(COMPENSATED), name
    for name in PAST_THE_PIVOT:
        assert site.ledger.actions(name) == [*FORWARD, "confirm"], name
        assert site.ledger.effects(name) == list(FORWARD), name


def test_after_a_weekend_what_is_over_its_lifetime_is_frozen_and_one_command_restores_it(tmp_path: Path) -> None:
    site = friday_evening(tmp_path, lookback_days=4)
    goes_on(site)
    # What is compensating or past its pivot does not age.
    assert site.statuses() == {FROZEN: len(BEFORE_THE_PIVOT), REVERTED: 15, COMPLETED: 15}
    reasons = {site.row(name).reason for name in BEFORE_THE_PIVOT}
    for reason in reasons:
        assert reason is not None
        assert "over the lifetime of 24h (transaction_lifetime)" in reason
        assert "restore it" in reason
    listed = site.command("list", "--frozen", "--json").output.splitlines()
    assert len(listed) == len(BEFORE_THE_PIVOT)

    restored = site.command("restore", "--reason", "over the lifetime", "--yes")
    assert restored.exit_code == 0, restored.output
    assert f"restored {len(BEFORE_THE_PIVOT)}," in restored.output
    goes_on(site)
    assert site.statuses() == {COMPLETED: len(BEFORE_THE_PIVOT) + 15, REVERTED: 15}
    each_did_its_work_once(site)
    assert site.command("list").output.strip() == "There are none."


def test_after_a_weekend_what_is_over_the_lookback_days_is_frozen_and_one_command_restores_all(tmp_path: Path) -> None:
    site = friday_evening(tmp_path)
    goes_on(site)
    assert site.statuses() == {FROZEN: len(BEFORE_THE_PIVOT), REVERTED: 15, COMPLETED: 15}
    assert all("more than 2 days (STACKSAGA_LOOKBACK_DAYS)" in str(site.row(name).reason) for name in BEFORE_THE_PIVOT)

    restored = site.command("restore", "--all", "--yes")
    assert restored.exit_code == 0, restored.output
    assert f"restored {len(BEFORE_THE_PIVOT)}," in restored.output
    goes_on(site)
    assert site.statuses() == {COMPLETED: len(BEFORE_THE_PIVOT) + 15, REVERTED: 15}
    each_did_its_work_once(site)


def test_what_was_over_and_is_pruned_leaves_an_empty_directory(tmp_path: Path) -> None:
    site = friday_evening(tmp_path, lookback_days=4)
    goes_on(site)
    assert site.command("restore", "--all", "--yes").exit_code == 0
    # Watchdogs of the restored ones are gone with them; a date is pruned a day later.
    for _ in range(3):
        goes_on(site, 12)
        site.advance(24 * HOUR)
    store = site.web.node().store
    days = [date for year in (2023, 2024, 2025) for date in store.days(year)]
    assert days == []


# -- clocks ----------------------------------------------------------------------------------------------------

BEGAN = FRIDAY


@pytest.mark.parametrize("hours", [-1, 1], ids=["back", "forward"])
def test_a_clock_that_is_set_by_an_hour_changes_nothing_until_it_is_compared_and_then_nothing_is_swept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hours: int
) -> None:
    site = TimedSite(tmp_path, began=BEGAN, elsewhere=True)
    node = site.node()
    assert node.tick().ended is Ended.THROUGH
    for name in ("one", "two"):
        assert site.order(name, down="charge") is PAUSED
    (tmp_path / "up").touch()

    site.during["charge"] = lambda: site.time.set_wall(site.time.wall() + hours * HOUR)
    assert site.order("live") is COMPLETED
    # Within a minute of the last comparison: the elapsed time counts, so nothing is early or late.
    site.advance(30 * SECOND)
    assert node.tick().ended is Ended.THROUGH
    assert site.statuses() == {PAUSED: 2, COMPLETED: 1}
    for _ in range(5):
        site.advance(MINUTE)
        assert node.tick().ended is Ended.CLOCK
    assert site.statuses() == {PAUSED: 2, COMPLETED: 1}
    assert [record.message for record in caplog.records if "nothing is swept" in record.message] != []
    with pytest.raises(ClockSkew):
        site.order("three")

    site.time.set_wall(site.true.wall())
    site.advance(MINUTE)
    assert node.tick().ended is Ended.THROUGH
    assert site.statuses() == {COMPLETED: 3}
    assert site.order("four") is COMPLETED
    for name in ("one", "two"):
        assert site.ledger.actions(name) == ["reserve", "charge", "charge", "ship", "confirm"]
        assert site.ledger.effects(name) == list(FORWARD)
    assert site.ledger.actions("live") == list(FORWARD)
    assert "three" not in site.transaction_ids


@pytest.mark.parametrize("hours", [-1, 1], ids=["back", "forward"])
def test_a_clock_that_is_set_by_an_hour_together_with_its_store_loses_nothing(tmp_path: Path, hours: int) -> None:
    """An embedded store has the machine's clock, so there is nothing to compare it with."""
    site = TimedSite(tmp_path, began=BEGAN)
    node = site.node()
    for name in ("one", "two"):
        assert site.order(name, down="charge") is PAUSED
    (tmp_path / "up").touch()
    site.during["charge"] = lambda: site.time.set_wall(site.time.wall() + hours * HOUR)
    assert site.order("live") is COMPLETED
    for _ in range(3 + 60 * (hours < 0)):
        site.advance(MINUTE)
        assert node.tick().ended is Ended.THROUGH
        assert site.order(f"later-{site.time.wall()}") is COMPLETED
    for name in ("one", "two"):
        assert site.row(name).running_status is COMPLETED
        assert site.ledger.actions(name) == ["reserve", "charge", "charge", "ship", "confirm"]
        assert site.ledger.effects(name) == list(FORWARD)
    assert site.ledger.actions("live") == list(FORWARD)

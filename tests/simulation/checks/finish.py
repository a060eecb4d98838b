"""What must be so once everything has come to rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacksaga_flask.directory.windows import DAY, Window
from stacksaga_flask.store.contract import ExecutionType, RunningStatus, TransactionRow
from stacksaga_flask.store.last_write import live
from tests.simulation.checks.rule import Rule
from tests.simulation.checks.story import Story
from tests.simulation.participants import Answer

if TYPE_CHECKING:
    from tests.simulation.world import World


def unfinished(world: World) -> list[Story]:
    """The transactions that are neither terminal nor frozen, and were more than a start that nobody acknowledged."""
    return [story for story in world.watch.stories.values() if _is_unfinished(world, story)]


def _is_unfinished(world: World, story: Story) -> bool:
    row = world.watch.shown.row(story.transaction_id)
    if row is None:
        return story.started
    if row.running_status.terminal or row.running_status is RunningStatus.FROZEN:
        return False
    reachable = any(world.watch.shown.is_reachable(path, story.transaction_id) for path in story.paths)
    if row.start_hash is not None:
        return True  # its client has sent the request again since
    # Half a start that no sweep can find ran no step, and waits for its key or for `doctor --scan`.
    return reachable or story.started or bool(world.participants.calls_of(story.transaction_id))


class Finished(Rule):
    """R1: everything that was started is terminal or frozen."""

    name = "R1"

    def ends(self) -> None:
        for story in unfinished(self.world):
            row = self.shown.row(story.transaction_id)
            status = "without a row" if row is None else row.running_status.value
            self.object(f"{self.world.short(story.transaction_id)} is {status} when all has come to rest")


_REFUSALS = (Answer.REFUSED, Answer.UNASKED)


class FrozenForAReason(Rule):
    """R12: what is frozen says why, and there was cause."""

    name = "R12"

    def ends(self) -> None:
        for story in self.watch.stories.values():
            row = self.shown.row(story.transaction_id)
            if row is None or row.running_status is not RunningStatus.FROZEN:
                continue
            if not row.reason or not (story.by_hand or self._over_its_lifetime(row) or self._revert_refused(row)):
                self.object(f"{self.world.short(story.transaction_id)} is frozen without cause: {row.reason}")

    def _over_its_lifetime(self, row: TransactionRow) -> bool:
        lifetime = min(self.world.settings.domain(row.saga_name).transaction_lifetime, 2 * DAY)
        return row.updated_at - row.created_at > lifetime

    def _revert_refused(self, row: TransactionRow) -> bool:
        calls = self.world.participants.calls_of(row.transaction_id)
        return any(call.side is ExecutionType.REVERT and call.answer in _REFUSALS for call in calls)


def left_over(world: World) -> list[Window]:
    """The windows that a walk of the directory still finds."""
    tables = world.watch.shown.tables
    dates = sorted(date for year in tables.days.values() for date in live(year))
    return [Window(date, window) for date in dates for window in sorted(live(tables.windows.get(date)))]


class NothingLeft(Rule):
    """R5: once all is done, the directory holds no window."""

    name = "R5"

    def ends(self) -> None:
        for window in left_over(self.world):
            self.object(f"the window {window.window} of {window.date} is still there when all has come to rest")

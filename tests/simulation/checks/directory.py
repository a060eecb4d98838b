"""R4, R5, R10: what is dropped from the directory, and how large its partitions are."""

from __future__ import annotations

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import DAY, start_of_date
from stacksaga_flask.store.contract import Drop, Operation, Path, Register, TransactionRow, WriteTransaction
from stacksaga_flask.store.last_write import Slot, live
from tests.simulation.checks.rule import By, Rule
from tests.simulation.checks.story import PAUSED, Story


class DispatchedIsDurable(Rule):
    """R4: a bucket goes only when each pointer in it has led to a durable outcome."""

    name = "R4"

    def drops(self, by: By, drop: Drop) -> None:
        if drop.tier != 5:
            return
        for transaction_id in live(self.shown.tables.pointers.get(drop.path)):
            story = self.watch.story(transaction_id)
            why = self._not_durable(story, drop.path)
            if why is not None:
                self.object(f"{by.task} drops {drop.path}: {self.world.short(transaction_id)} {why}")

    def row_lands(self, by: By, write: WriteTransaction, before: Slot[TransactionRow] | None, story: Story) -> None:
        was = None if before is None else before.row
        if (
            before is None
            or was is None
            or not write.row.running_status.running
            or write.row.epoch <= was.epoch
            or story.by_hand
        ):
            return
        # What landed while the takeover was under way was not what it read.
        if by.task is story.landed[before.timestamp][1] or self.is_news(story, before.timestamp):
            return
        if was.running_status in PAUSED and was.retry is not None:
            early = self.shown.grid.opens(was.retry) - self.world.scheduler.now
            if early > by.process.engine_settings.clock_skew_margin:
                self.object(
                    f"{by.task} runs {self.world.short(story.transaction_id)} before its retry pointer's window"
                )

    def _not_durable(self, story: Story, path: Path) -> str | None:
        row = self.shown.row(story.transaction_id)
        if row is None:
            fenced = story.fenced_at >= self.shown.grid.fence(path)
            return None if fenced or not story.started else "has no row, and was not deleted at the fence"
        if row.running_status.terminal or row.running_status.value == "FROZEN":
            return None
        if not story.started and not self.world.participants.calls_of(story.transaction_id):
            return None  # a start that was never acknowledged, whose pointer came too late
        if self._elsewhere(row, path):
            return None
        return f"is {row.running_status.value}, and nothing else leads to it"

    def _elsewhere(self, row: TransactionRow, path: Path) -> bool:
        others = [named for named in self.shown.named(row) if named != path]
        return any(self.shown.is_reachable(other, row.transaction_id) for other in others)


class BottomUp(Rule):
    """R5: nothing is dropped while something that came in time lies below it, and tiers 2 and 1 by Node-0 alone."""

    name = "R5"

    def __init__(self, watch: object) -> None:
        super().__init__(watch)  # type: ignore[arg-type]
        self._in_time: set[tuple[object, ...]] = set()

    def pointer_lands(self, by: By, register: Register, story: Story) -> None:
        path = register.path
        if self.world.scheduler.now >= self.shown.grid.opens(path):
            return
        for tier in register.tiers:
            self._in_time.add(_place(tier, path) if tier < 5 else (5, path, register.transaction_id))

    def sent(self, by: By, operation: Operation) -> None:
        if not isinstance(operation, Drop) or operation.tier > 2 or by.process.stood_still(by.task.answered_at):
            return
        sector = self.world.sector(by.process)
        if sector is None or not sector.lowest:
            self.object(f"{by.task} drops tier {operation.tier} and is not Node-0")

    def drops(self, by: By, drop: Drop) -> None:
        below = self._below(drop)
        if below:
            self.object(f"{by.task} drops tier {drop.tier} at {drop.path} while {below[0]} lies below it")
        if drop.tier < 3:
            self._check_gates(by, drop)

    def _below(self, drop: Drop) -> list[tuple[object, ...]]:
        tables, path = self.shown.tables, drop.path
        if drop.tier == 4:
            found = [(5, path, pointer) for pointer in live(tables.pointers.get(path))]
        elif drop.tier == 3:
            buckets = live(tables.buckets.get(path[:3]))
            found = [_place(4, path._replace(bucket=bucket)) for bucket in buckets]  # type: ignore[misc]
        elif drop.tier == 2:
            instances = live(tables.instances.get(path[:2]))
            found = [_place(3, path._replace(instance_id=instance)) for _, instance in instances]  # type: ignore[misc]
        elif drop.tier == 1:
            windows = live(tables.windows.get(path.date))
            found = [_place(2, path._replace(window=window)) for window in windows]  # type: ignore[misc]
        else:
            found = []
        return [place for place in found if place in self._in_time]

    def _check_gates(self, by: By, drop: Drop) -> None:
        grid, settings = self.shown.grid, by.process.engine_settings
        end = start_of_date(drop.path.date) + DAY
        if drop.tier == 2:
            end = grid.opens(drop.path) + grid.interval
        grace = 2 * settings.request_timeout + settings.clock_skew_margin
        if self.world.scheduler.now < end + grace:
            left = (end + grace - self.world.scheduler.now) / SECOND
            self.object(f"{by.task} drops tier {drop.tier} at {drop.path} {left:.3f} s before its grace is over")


def _place(tier: int, path: Path) -> tuple[object, ...]:
    return (tier, *path[:tier]) if tier > 1 else (tier, path.date)


class LeaseAsked(Rule):
    """R7: a sweep asks the directory only while it holds a sector."""

    name = "R7"

    def asked(self, by: By, what: str) -> None:
        if by.task.name != "sweep" or not what.startswith("read tier") or by.process.stood_still(by.task.answered_at):
            return
        if self.world.sector(by.process) is None:
            self.object(f"{by.task} goes on ({what}) and has no sector")


class BoundedBuckets(Rule):
    """R10: no bucket holds more pointers than its size."""

    name = "R10"

    def pointer_lands(self, by: By, register: Register, story: Story) -> None:
        if 5 in register.tiers:
            held = len(live(self.shown.tables.pointers.get(register.path)))
            if held > by.process.engine_settings.bucket_size:
                self.object(f"the bucket {register.path} holds {held} pointers")

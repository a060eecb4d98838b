"""Tells every rule what happens, and keeps the first objection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from stacksaga_flask.directory.windows import WindowGrid
from stacksaga_flask.engine.node import StateChange
from stacksaga_flask.store.contract import (
    DeletePointer,
    DeleteTransaction,
    Drop,
    Operation,
    Register,
    RunningStatus,
    WriteTransaction,
)
from stacksaga_flask.store.last_write import Tables
from tests.simulation.checks.rule import Broken, By, Rule
from tests.simulation.checks.story import Shown, Story, Written

if TYPE_CHECKING:
    from tests.simulation.participants import Asked
    from tests.simulation.processes import Process
    from tests.simulation.scheduler import Task
    from tests.simulation.world import World


class Watch:
    """Everything that is checked in one world.

    Attributes:
        first: The first objection.
        stories: What is known of each transaction.
    """

    def __init__(self, world: World, tables: Tables, grid: WindowGrid, rules: tuple[type[Rule], ...]) -> None:
        self.world = world
        self.grid = grid
        self.shown = Shown(tables, grid)
        self.first: Broken | None = None
        self.stories: dict[UUID, Story] = {}
        self._rules = [rule(self) for rule in rules]

    def broken(self, rule: str, how: str) -> None:
        """Keep the first objection and end the world."""
        if self.first is None:
            self.first = Broken(rule, how)
            self.world.trace.add(None, f"BROKEN {rule}: {how}")
            self.world.scheduler.stop = True

    def story(self, transaction_id: UUID) -> Story:
        """The story of a transaction."""
        story = self.stories.get(transaction_id)
        if story is None:
            story = self.stories[transaction_id] = Story(transaction_id)
        return story

    # -- what happens ------------------------------------------------------------------------------------------

    def sent(self, process: Process, task: Task, operation: Operation) -> None:
        """A process sends an operation."""
        for rule in self._rules:
            rule.sent(By(process, task), operation)

    def asked(self, process: Process, task: Task, what: str) -> None:
        """A process asks the store."""
        for rule in self._rules:
            rule.asked(By(process, task), what)

    def lands(self, process: Process, task: Task, piece: Operation, apply: Callable[[], None]) -> None:
        """A statement reaches the store, which `apply` makes it do."""
        by = By(process, task)
        if isinstance(piece, WriteTransaction):
            self._row_lands(by, piece, apply)
        elif isinstance(piece, Register):
            self._pointer_lands(by, piece, apply)
        elif isinstance(piece, DeletePointer):
            apply()
            story = self.story(piece.transaction_id)
            for rule in self._rules:
                rule.pointer_is_deleted(by, piece, story)
        elif isinstance(piece, Drop):
            for rule in self._rules:
                rule.drops(by, piece)
            apply()
            for rule in self._rules:
                rule.dropped(by, piece)
        elif isinstance(piece, DeleteTransaction):
            apply()
            story = self.story(piece.transaction_id)
            story.fenced_at = max(story.fenced_at, piece.timestamp)
            for rule in self._rules:
                rule.row_is_deleted(by, story)

    def _row_lands(self, by: By, write: WriteTransaction, apply: Callable[[], None]) -> None:
        before = self.shown.slot(write.row.transaction_id)
        apply()
        story = self.story(write.row.transaction_id)
        story.landed.setdefault(write.timestamp, (self.world.scheduler.now, by.task))
        if self.shown.row(story.transaction_id) is write.row:
            story.shown.append(write.row)
        for rule in self._rules:
            rule.row_lands(by, write, before, story)

    def _pointer_lands(self, by: By, register: Register, apply: Callable[[], None]) -> None:
        apply()
        if not register.path.instance_id:
            return  # a row of tier 1 or 2 that Node-0 puts back
        story = self.story(register.transaction_id)
        if register.path not in story.paths:
            story.paths.append(register.path)
        # The upper tiers are shared, so this may be what another one's pointer lacked.
        for other in self.stories.values():
            if not other.armed:
                other.armed = any(self.shown.is_reachable(path, other.transaction_id) for path in other.paths)
        for rule in self._rules:
            rule.pointer_lands(by, register, story)

    def acknowledged(self, process: Process, task: Task, operation: Operation) -> None:
        """A process has the acknowledgement of an operation."""
        if not isinstance(operation, WriteTransaction):
            return
        story = self.story(operation.row.transaction_id)
        last, now = story.written.get(task), self.world.scheduler.now
        # After a pause it was found anew; otherwise a takeover was only to record what had been done.
        took_over = last.took_over if last is not None and last.row.running_status.running else now
        story.written[task] = Written(operation.row, operation.timestamp, took_over)

    def recorded(self, process: Process, change: StateChange) -> None:
        """The engine says that a state was recorded."""
        story = self.story(change.transaction_id)
        if change.before is None:
            story.started = True
            self.world.started(change.transaction_id)
        for rule in self._rules:
            rule.recorded(By(process, self.world.scheduler.task()), change, story)

    def call_begins(self, call: Asked) -> None:
        """A step calls its participant."""
        story = self.story(call.transaction_id)
        for rule in self._rules:
            rule.call_begins(call, story)

    def answered(self, transaction_id: UUID, number: int) -> None:
        """A request with a payload of that number was answered with a transaction."""
        story = self.story(transaction_id)
        story.answered.add(number)
        for rule in self._rules:
            rule.answered(story)

    def told(self, transaction_id: UUID, status: RunningStatus) -> None:
        """A client was told how a transaction stands."""
        if not status.terminal:
            return
        story = self.story(transaction_id)
        if status not in story.told:
            story.told.append(status)
        for rule in self._rules:
            rule.told(story, status)

    def ends(self) -> None:
        """Everything has come to rest."""
        for rule in self._rules:
            rule.ends()

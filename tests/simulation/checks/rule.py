"""What a rule's check is: it is told what happens, and objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stacksaga_flask.engine.node import StateChange
from stacksaga_flask.store.contract import (
    DeletePointer,
    Drop,
    Operation,
    Register,
    RunningStatus,
    TransactionRow,
    WriteTransaction,
)
from stacksaga_flask.store.last_write import Slot
from tests.simulation.checks.story import Story

if TYPE_CHECKING:
    from tests.simulation.checks.watch import Watch
    from tests.simulation.participants import Asked
    from tests.simulation.processes import Process
    from tests.simulation.scheduler import Task


_UNDER_WAY = 4
"""How many time-outs may lie between what a takeover reads and its landing."""


class Broken(NamedTuple):
    """A rule was broken."""

    rule: str
    how: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.how}"


class By(NamedTuple):
    """Who does something."""

    process: Process
    task: Task


class Rule:
    """Checks one rule. By default it objects to nothing."""

    name = ""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.world = watch.world
        self.shown = watch.shown

    def object(self, how: str) -> None:
        """Say that the rule is broken; the first objection ends the world."""
        self.watch.broken(self.name, how)

    def is_news(self, story: Story, timestamp: int) -> bool:
        """Whether a row has landed only since what lands now may have read what is shown, unless that is late."""
        return self.world.scheduler.now - story.landed[timestamp][0] < _UNDER_WAY * self.world.settings.request_timeout

    def sent(self, by: By, operation: Operation) -> None:
        """A process sends an operation."""

    def asked(self, by: By, what: str) -> None:
        """A process asks the store, by a read or a conditional write."""

    def row_lands(self, by: By, write: WriteTransaction, before: Slot[TransactionRow] | None, story: Story) -> None:
        """A batch has reached the store. What was shown before it is `before`."""

    def row_is_deleted(self, by: By, story: Story) -> None:
        """A row was deleted at a fence."""

    def pointer_lands(self, by: By, register: Register, story: Story) -> None:
        """One tier of a pointer has reached the store."""

    def pointer_is_deleted(self, by: By, delete: DeletePointer, story: Story) -> None:
        """A pointer was deleted."""

    def drops(self, by: By, drop: Drop) -> None:
        """Something of the directory is about to be dropped."""

    def dropped(self, by: By, drop: Drop) -> None:
        """Something of the directory was dropped."""

    def recorded(self, by: By, change: StateChange, story: Story) -> None:
        """The engine says that a state was recorded."""

    def call_begins(self, call: Asked, story: Story) -> None:
        """A step calls its participant."""

    def answered(self, story: Story) -> None:
        """A request was answered with the transaction."""

    def told(self, story: Story, status: RunningStatus) -> None:
        """A client was told a terminal status."""

    def ends(self) -> None:
        """Everything has come to rest."""

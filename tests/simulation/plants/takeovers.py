"""Faults planted in takeovers, re-invocations and confirmations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from stacksaga_flask.engine import reinvoke, takeover
from stacksaga_flask.engine.claims import CLAIM
from stacksaga_flask.store.contract import Operation, Register, WriteTransaction
from tests.simulation.plants.plant import Plant, says


def _without_writing(right: Any) -> Any:
    def take_over(node: Any, claim: Any, stored: Any, *, above: int = 0, resume: bool = False, **options: Any) -> Any:
        row = stored.row
        if resume:
            row = replace(row, running_status=takeover._RESUMED.get(row.running_status, row.running_status))
        return takeover.Taken(row, takeover.claimed_right(node, claim, stored, above=above))

    return take_over


class _Changing:
    """A store that changes what is written before it is sent."""

    def __init__(self, store: Any, change: Callable[[Operation], Operation | None]) -> None:
        self._store = store
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(self, *operations: Operation) -> None:
        changed = (self._change(operation) for operation in operations)
        self._store.apply(*(operation for operation in changed if operation is not None))


def _written_as(change: Callable[[Operation], Operation | None]) -> Any:
    """A takeover whose batch is changed."""

    def wrong(right: Any) -> Any:
        def take_over(node: Any, claim: Any, stored: Any, **options: Any) -> Any:
            return right(dataclasses.replace(node, store=_Changing(node.store, change)), claim, stored, **options)

        return take_over

    return wrong


def _unarmed(operation: Operation) -> Operation | None:
    return None if isinstance(operation, Register) else operation


def _leaving_the_frozen_row(operation: Operation) -> Operation:
    return replace(operation, delete_frozen=False) if isinstance(operation, WriteTransaction) else operation


def _certainly_not_done(right: Any) -> Any:
    def take_over(node: Any, claim: Any, stored: Any, **options: Any) -> Any:
        def change(operation: Operation) -> Operation:
            if not isinstance(operation, WriteTransaction):
                return operation
            return replace(operation, row=replace(operation.row, possibly_done=False))

        store = _Changing(node.store, change)
        taken = right(dataclasses.replace(node, store=store), claim, stored, **options)
        return taken._replace(row=replace(taken.row, possibly_done=False))

    return take_over


def _by_markers(right: Any) -> Any:
    def take_over(node: Any, claim: Any, stored: Any, **options: Any) -> Any:
        marked = [marker.step_id for marker in node.store.markers(stored.row.transaction_id)]
        more = tuple(name for name in marked if name != CLAIM and name not in stored.row.committed_steps)
        row = replace(stored.row, committed_steps=(*stored.row.committed_steps, *more))
        return right(node, claim, stored._replace(row=row), **options)

    return take_over


def _unwritten(right: Any) -> Any:
    def confirm(node: Any, claim: Any, stored: Any, *, above: int = 0) -> None:
        row = stored.row
        if row.running_status.terminal and row.watchdog is not None:
            node.store.apply(node.writer.delete(row.watchdog, row.transaction_id))
        node.claims.give_back(claim)

    return confirm


def _not_fenced(right: Any) -> Any:
    def _without_a_row(node: Any, claim: Any, found: Any) -> Any:
        node.claims.give_back(claim)
        return reinvoke.Reinvocation(True, reinvoke.NO_ROW)

    return _without_a_row


PLANTS = (
    Plant("no-takeover-write", "R6", takeover, "take_over", _without_writing),
    Plant("committed-by-markers", "C3", takeover, "take_over", _by_markers),
    Plant("takeover-not-armed", "V4", takeover, "take_over", _written_as(_unarmed)),
    Plant("takeover-not-possibly-done", "C8", takeover, "take_over", _certainly_not_done),
    Plant("takeover-leaves-frozen-row", "V3", takeover, "take_over", _written_as(_leaving_the_frozen_row)),
    Plant("not-confirmed", "V6", takeover, "confirm", _unwritten),
    Plant("told-before-it-counts", "V6", takeover, "as_it_may_be_told", lambda right: lambda node, row: row),
    Plant("superseded-runs", "H4", reinvoke, "_is_superseded", says(False)),
    Plant("starter-not-spared", "H8", reinvoke, "_is_its_starters", says(False)),
    Plant("lifetime-forgotten", "R12", reinvoke, "_is_over_its_lifetime", says(False)),
    Plant("not-fenced", "H5", reinvoke, "_without_a_row", _not_fenced),
    Plant("all-of-the-dead", "R18", reinvoke, "_was_of_the_dead", says(True)),
)

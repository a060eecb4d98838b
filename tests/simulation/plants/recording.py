"""Faults planted in starts, steps and what is recorded of them."""

from __future__ import annotations

import contextlib
from typing import Any

from msgspec.structs import replace

from stacksaga_flask import transitions
from stacksaga_flask.engine import record, start, takeover
from stacksaga_flask.engine.owned import Owned
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.errors import OutcomeUnknown, RightEnded, StartUnknown, StoreError
from stacksaga_flask.saga.outcome import Succeeded
from stacksaga_flask.store.contract import WriteTransaction
from stacksaga_flask.transitions import Plan
from tests.simulation.plants.plant import Plant, says


def _markers_stay(right: Any) -> Any:
    def batch(self: Owned, *args: Any, delete_markers: bool = False, **options: Any) -> WriteTransaction:
        write: WriteTransaction = right(self, *args, delete_markers=False, **options)
        return write

    return batch


def _watchdog_first(right: Any) -> Any:
    def _end(owned: Owned, row: Any, result: Any) -> None:
        if row.watchdog is not None:
            takeover.drop_pointer(owned.node, row.watchdog, row.transaction_id)
        right(owned, row, result)

    return _end


def _unknown_counts(right: Any) -> Any:
    def _write(owned: Owned, row: Any, result: Any) -> None:
        batch = owned.batch(row, result)
        with contextlib.suppress(OutcomeUnknown):
            takeover.apply_checked(owned.node, owned.right, batch)
        owned.acknowledged(row, result)

    return _write


def _without_the_possibly_done(right: Any) -> Any:
    def _compensate(self: Plan, progress: Any, reason: str, *, also: Any) -> Any:
        return right(self, progress, reason, also=None)

    return _compensate


def _in_order(right: Any) -> Any:
    def _compensate(self: Plan, progress: Any, reason: str, *, also: Any) -> Any:
        decision = right(self, progress, reason, also=also)
        after = replace(decision.progress, reverts=decision.progress.reverts[::-1])
        return decision._replace(progress=after)

    return _compensate


def _tried_again(right: Any) -> Any:
    def decide(self: Plan, progress: Any, outcome: Any, *, attempts_left: bool, **options: Any) -> Any:
        if isinstance(outcome, Succeeded) and attempts_left:
            return transitions._retry(progress, outcome, attempts_left)
        return right(self, progress, outcome, attempts_left=attempts_left, **options)

    return decide


def _not_read_again(right: Any) -> Any:
    def _claimed_start(node: Any, saga: Any, data: bytes, claim: Any, start_hash: str, leave: bool) -> Any:
        prepared = start.prepare(node, saga, data, claim.transaction_id, start_hash=start_hash, leave=leave)
        held = Right(node.clock, ends_at=min(claim.trusted_until, prepared.fence))
        try:
            takeover.apply_checked(node, held, *prepared.registrations)
            start._write_row(node, held, prepared.row)
            held.extend(prepared.fence)
        except (StoreError, RightEnded) as error:
            raise StartUnknown(transaction_id=claim.transaction_id, keyed=True) from error
        node.recorded(None, prepared.row)
        return start.Started(prepared.row, None if leave else held, claim)

    return _claimed_start


def _not_closed(right: Any) -> Any:
    def _close(node: Any, held: Any, row: Any, error: Exception) -> None:
        raise start._not_started(row.transaction_id, error) from error

    return _close


PLANTS = (
    Plant("markers-stay", "H1", Owned, "batch", _markers_stay),
    Plant("watchdog-first", "H12", record, "_end", _watchdog_first),
    Plant("unknown-counts", "V9", record, "_write", _unknown_counts),
    Plant("possibly-done-kept", "C8", Plan, "_compensate", _without_the_possibly_done),
    Plant("reverted-in-order", "R8", Plan, "_compensate", _in_order),
    Plant("success-tried-again", "a call too many", Plan, "decide", _tried_again),
    Plant("not-read-again", "C4", start, "_claimed_start", _not_read_again),
    Plant("key-shared", "R17", start, "_differs", says(False)),
    Plant("start-not-closed", "R2", start, "_close", _not_closed),
)

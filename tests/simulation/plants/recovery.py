"""Faults planted in the sweep, the compaction and the finder."""

from __future__ import annotations

from typing import Any

from stacksaga_flask.engine import reinvoke
from stacksagad.recovery import compaction, drops, sweep
from stacksagad.recovery.bucket import Bucket
from stacksagad.recovery.compactor import Compactor
from stacksagad.recovery.sweeper import Sweeper
from tests.simulation.plants.plant import Plant, says


def _over_once_read(right: Any) -> Any:
    return property(lambda self: self._is_read)


def _durable_anyhow(right: Any) -> Any:
    def ended(self: Bucket, transaction_id: Any, *, durable: bool) -> None:
        right(self, transaction_id, durable=True)

    return ended


def _top_down(right: Any) -> Any:
    def drop_bucket(node: Any, path: Any, token: int, gone: Any) -> None:
        node.store.apply(drops._drop(node, 4, path, token))
        right(node, path, token, gone)

    return drop_bucket


def _instance_unread(right: Any) -> Any:
    def drop_bucket(node: Any, path: Any, token: int, gone: Any) -> None:
        right(node, path, token, gone)
        drops.drop_instance(node, path, token)

    return drop_bucket


def _unopened(right: Any) -> Any:
    def horizon(grid: Any, *, now: int, seal_delay: int) -> Any:
        return right(grid, now=now + 2 * grid.interval, seal_delay=seal_delay)

    return horizon


def _never_walks(right: Any) -> Any:
    return lambda cursor, seen: cursor.seen_until is None


PLANTS = (
    Plant("dropped-before-the-last-dispatch", "R4", Bucket, "_is_over", _over_once_read),
    Plant("not-durable-counts", "R4", Bucket, "ended", _durable_anyhow),
    Plant("dropped-top-down", "R5", drops, "drop_bucket", _top_down),
    Plant("instance-dropped-unread", "R5", drops, "drop_bucket", _instance_unread),
    Plant("tier-2-by-any-node", "R5", Compactor, "_why_not", says(None)),
    Plant("no-grace", "R5", compaction, "grace", says(0)),
    Plant("unopened-windows-swept", "M2", sweep, "horizon", _unopened),
    Plant("lookback-forgotten", "R12", reinvoke, "_is_overdue", says(False)),
    Plant("sector-not-asked", "R7", Sweeper, "_why_not", says(None)),
    Plant("cursor-never-walks", "H11", sweep, "_is_walk_due", _never_walks),
)

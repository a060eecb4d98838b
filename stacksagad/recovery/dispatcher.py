"""From a pointer that was found to a bucket that is dropped (R4, R5).

The sweep's thread reads pages and hands pointers over; workers re-invoke, and whoever ends the last re-invocation in a
bucket drops it. Dropping is not gated by the ring lease: what is durable is so whoever holds the sector.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from stacksaga_flask.directory.windows import Window
from stacksaga_flask.engine.circuit import Circuit
from stacksaga_flask.engine.node import Node
from stacksaga_flask.engine.reinvoke import Found, Reinvocation
from stacksaga_flask.errors import ClockSkew, NotStarted, OutcomeUnknown, RightEnded, StoreError, StoreUnavailable
from stacksaga_flask.store.contract import Path
from stacksagad.recovery.bucket import PAGE, Bucket, PassEnd
from stacksagad.recovery.drops import delete_pointers, drop_bucket
from stacksagad.recovery.observed import RecoveryObserver, TickSummary
from stacksagad.recovery.requests import Dispatch, Page
from stacksagad.recovery.said import Said
from stacksagad.recovery.workers import Workers

Reinvoke: TypeAlias = Callable[[UUID, Found], Reinvocation]

_FORESEEN = (StoreError, RightEnded, ClockSkew)
_AWAY: Final = 10
"""After so many re-invocations in a row that the store did not answer it counts as away."""
_REMEMBERED: Final = 200
"""The most buckets of which it is remembered what was left in them."""


class Tick(NamedTuple):
    """What one tick's re-invocations share."""

    summary: TickSummary
    circuit: Circuit


class Dispatcher:
    """Knows the buckets that were begun and are not dropped, and the transactions in flight.

    Args:
        node: This process.
        reinvoke: Goes on with a transaction that was found, as `Engine.reinvoke` does.
        workers: Run the re-invocations.
        observer: Is told what happens.
        said: Says what went wrong.
    """

    def __init__(
        self, node: Node, reinvoke: Reinvoke, workers: Workers, observer: RecoveryObserver, said: Said
    ) -> None:
        self._node = node
        self._reinvoke = reinvoke
        self._workers = workers
        self._observer = observer
        self._said = said
        # Of what follows. Never held over a call to the store.
        self._lock = threading.Lock()
        self._buckets: dict[Path, Bucket] = {}
        self._reading: Bucket | None = None
        self._running: set[UUID] = set()
        self._unanswered = 0
        self._refused = False

    @property
    def in_flight(self) -> int:
        """How many re-invocations are running or about to."""
        return len(self._running)

    @property
    def buckets(self) -> int:
        """How many buckets were begun and are not dropped."""
        return len(self._buckets)

    @property
    def windows(self) -> set[Window]:
        """Where they lie."""
        with self._lock:
            return {Window(path.date, path.window) for path in self._buckets}

    @property
    def is_refused(self) -> bool:
        """Whether the workers take nothing any more."""
        return self._refused

    @property
    def is_store_away(self) -> bool:
        """Whether so many re-invocations in a row got no answer from the store that others need not be tried now."""
        return self._unanswered >= _AWAY

    # -- what the sweep's thread does --------------------------------------------------------------------------

    def tick_begins(self) -> None:
        """The store is tried anew."""
        self._unanswered = 0

    def next_page(self, path: Path, token: int) -> Page | None:
        """The next pointers of a bucket, or None while an earlier tick's pass over it goes on.

        Raises:
            StoreError: They could not be read.
        """
        with self._lock:
            bucket = self._buckets.get(path)
            if bucket is None:
                bucket = self._buckets[path] = Bucket(path, token, by_id=self._node.store.fences_by_epoch)
            if bucket.pages is None:
                if bucket.is_under_way:
                    return None
                bucket.begin(self._pages(path, bucket.left))
                self._reading = bucket
            pages = bucket.pages
        return None if pages is None else next(pages)

    def _pages(self, path: Path, left: list[UUID] | None) -> Iterator[Page]:
        if left is not None:
            yield Page(tuple(left), last=True)
            return
        pointers = self._node.store.pointers(path)
        while True:
            page = tuple(islice(pointers, PAGE))
            yield Page(page, last=len(page) < PAGE)

    def dispatch(self, tick: Tick, dispatch: Dispatch) -> None:
        """Hand a pointer of the bucket that is being read to a worker; waits for a free one."""
        bucket, transaction_id = self._being_read(), dispatch.transaction_id
        with self._lock:
            if transaction_id in self._running:
                bucket.skipped(transaction_id)
                tick.summary.skipped += 1
                return
            self._running.add(transaction_id)
            bucket.dispatched()
            tick.summary.dispatched += 1
        self._observer.dispatched(dispatch.path)
        is_taken = False
        try:
            is_taken = self._workers.submit(partial(self._run, tick, bucket, dispatch))
            self._refused = not is_taken
        finally:
            if not is_taken:
                self._settle(tick.summary, bucket, transaction_id, durable=False)

    def bucket_read(self, summary: TickSummary) -> None:
        """Every pointer of the bucket was dispatched. One that is empty is dropped by a worker, too."""
        bucket = self._being_read()
        summary.buckets += 1
        with self._lock:
            self._reading = None
            bucket.read(whole=True)
            gone, end = bucket.take_gone(), bucket.end()
        if end is PassEnd.GOES_ON and not gone:
            return
        if not self._workers.submit(partial(self._clear, summary, bucket, gone, end)):
            with self._lock:
                bucket.not_cleared(end)

    def cut(self, summary: TickSummary) -> Callable[[], None]:
        """End the pass over the bucket that is being read, as its tick goes on no further.

        Returns:
            What is to be done when nothing else has to be.
        """
        with self._lock:
            bucket, self._reading = self._reading, None
            if bucket is None:
                return lambda: None
            bucket.read(whole=False)
            return partial(self._clear, summary, bucket, bucket.take_gone(), bucket.end())

    def forget_all_but(self, windows: set[Window]) -> None:
        """Forget buckets that lie elsewhere, since other nodes have finished them."""
        with self._lock:
            for path, bucket in list(self._buckets.items()):
                if not bucket.is_under_way and Window(path.date, path.window) not in windows:
                    del self._buckets[path]

    def _being_read(self) -> Bucket:
        assert self._reading is not None
        return self._reading

    # -- what workers do ---------------------------------------------------------------------------------------

    def _run(self, tick: Tick, bucket: Bucket, dispatch: Dispatch) -> None:
        durable = False
        found = Found(path=dispatch.path, circuit=tick.circuit)
        try:
            done = self._reinvoke(dispatch.transaction_id, found)
            durable = done.durable
            self._led_to(tick.summary, done.outcome, durable=durable)
        except NotStarted:
            self._led_to(tick.summary, "not started", durable=False)
        except Exception as error:  # noqa: BLE001 - it is logged, and the others go on
            self._failed(tick.summary, dispatch.transaction_id, error)
        finally:
            self._settle(tick.summary, bucket, dispatch.transaction_id, durable=durable)

    def _led_to(self, summary: TickSummary, outcome: str, *, durable: bool) -> None:
        with self._lock:
            self._unanswered = 0
            summary.outcomes[outcome] += 1
        self._observer.ended(outcome, durable=durable)

    def _failed(self, summary: TickSummary, transaction_id: UUID, error: Exception) -> None:
        name = type(error).__name__
        with self._lock:
            summary.failures[name] += 1
            if isinstance(error, StoreUnavailable | OutcomeUnknown):
                self._unanswered += 1
        is_foreseen = isinstance(error, _FORESEEN)
        self._said.say(
            f"re-invocation {name}",
            f"transaction_id={transaction_id} could not be recovered now and stays to be: {name}: {error}",
            level=logging.WARNING if is_foreseen else logging.ERROR,
            error=None if is_foreseen else error,
        )
        self._observer.failed(error)

    def _settle(self, summary: TickSummary, bucket: Bucket, transaction_id: UUID, *, durable: bool) -> None:
        with self._lock:
            self._running.discard(transaction_id)
            bucket.ended(transaction_id, durable=durable)
            gone, end = bucket.take_gone(), bucket.end()
        self._clear(summary, bucket, gone, end)

    def _clear(self, summary: TickSummary, bucket: Bucket, gone: list[UUID], end: PassEnd) -> None:
        """Delete what is durable; what fails is left to the next pass."""
        try:
            if end is PassEnd.DROP:
                drop_bucket(self._node, bucket.path, bucket.token, gone)
                self._dropped(summary, bucket)
            elif gone:
                delete_pointers(self._node, bucket.path, gone)
        except Exception as error:  # noqa: BLE001 - it is logged, and the bucket stays
            with self._lock:
                bucket.not_cleared(end)
            name = type(error).__name__
            self._said.say(
                f"drop {name}",
                f"bucket {bucket.path} stays until the next sweep: {name}: {error}",
                error=None if isinstance(error, StoreError) else error,
            )
            end = PassEnd.GOES_ON if end is PassEnd.GOES_ON else PassEnd.KEEP
        if end is PassEnd.KEEP:
            with self._lock:
                summary.kept += 1
                if len(self._buckets) > _REMEMBERED:
                    bucket.forget()

    def _dropped(self, summary: TickSummary, bucket: Bucket) -> None:
        with self._lock:
            del self._buckets[bucket.path]
            summary.dropped += 1
        self._observer.bucket_dropped(bucket.path)

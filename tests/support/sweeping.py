"""What tests of the sweep share: a directory filled by hand or by a real engine, and re-invocations made up."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

from stacksaga_flask import Engine, ManualTime, Settings
from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import Window, start_of_date
from stacksaga_flask.engine.node import Node
from stacksaga_flask.engine.reinvoke import Found, Reinvocation
from stacksaga_flask.errors import StoreUnavailable
from stacksaga_flask.identity import token
from stacksaga_flask.store.contract import Path, Register, Store
from stacksagad.recovery.sweep import WHOLE_RING

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
COMPLETED = Reinvocation(True, "completed")
CLAIMED = Reinvocation(False, "claimed by another")


class WatchedStore:
    """Wraps a store: counts calls by name, and lets a test fail them.

    Args:
        inner: The store.
        time: Its clock; the store's own unless given.

    Attributes:
        calls: How often each was called.
        before: Is called before each with its name and arguments.
        instead: What is called in place of the store, by name.
    """

    def __init__(self, inner: Store, time: ManualTime | None = None) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()
        self.before: Callable[[str, tuple[Any, ...]], None] = lambda name, arguments: None
        self.instead: dict[str, Callable[..., Any]] = {} if time is None else {"now": time.wall}

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if not callable(inner):
            return inner

        def called(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            self.before(name, arguments)
            return self.instead.get(name, inner)(*arguments, **options)

        return called

    def fail(self, *names: str, times: int = 1) -> None:
        """Let the next calls of these names fail."""
        left = [times]

        def fault(name: str, arguments: tuple[Any, ...]) -> None:
            if name in names and left[0]:
                left[0] -= 1
                raise StoreUnavailable("the store is not there")

        self.before = fault

    def mend(self) -> None:
        """Fail no more, and let every call through."""
        self.before = lambda name, arguments: None
        self.instead.clear()


class MadeUp:
    """Re-invocations that run no saga: `says` holds what each leads to, else it is completed."""

    def __init__(self) -> None:
        self.says: dict[UUID, Reinvocation | Exception | Callable[[], Reinvocation]] = {}
        self.order: list[UUID] = []
        self.found: dict[UUID, Found] = {}
        self.running: Counter[UUID] = Counter()
        self.twice_at_once: list[UUID] = []
        self._lock = threading.Lock()

    def __call__(self, transaction_id: UUID, found: Found) -> Reinvocation:
        with self._lock:
            self.order.append(transaction_id)
            self.found[transaction_id] = found
            self.running[transaction_id] += 1
            if self.running[transaction_id] > 1:
                self.twice_at_once.append(transaction_id)
        try:
            said = self.says.get(transaction_id, COMPLETED)
            if isinstance(said, Exception):
                raise said
            return said if isinstance(said, Reinvocation) else said()
        finally:
            with self._lock:
                self.running[transaction_id] -= 1


class Directory:
    """A node and its directory, filled by hand."""

    def __init__(self, engine: Engine, store: Any, time: ManualTime) -> None:
        self.engine = engine
        self.store = store
        self.time = time
        self.node: Node = engine.node()

    @property
    def settings(self) -> Settings:
        return self.node.settings

    def window(self, ago: int) -> Window:
        """The window that began so many windows before the last one that is sealed."""
        return self.node.grid.ahead(self.node.clock.now() - self.settings.seal_delay, -ago)

    def add(
        self, window: Window, *, instance_id: str = "web-1", bucket: int = 0, pointers: int = 1, tiers: int = 5
    ) -> list[UUID]:
        """Register pointers as a writer does; `tiers` is how many from the top, 5 for all."""
        ids = [uuid4() for _ in range(pointers)]
        for one in ids:
            self.add_pointer(Path(*window, instance_id, bucket), one, tiers=tiers)
        return ids

    def add_pointer(self, path: Path, transaction_id: UUID, *, tiers: int = 5) -> None:
        self.store.apply(
            Register(
                path=path,
                transaction_id=transaction_id,
                instance_token=token(path.instance_id),
                tiers=frozenset(range(1, tiers + 1)),
                timestamp=self.node.grid.insert_timestamp(path),
                day_timestamp=start_of_date(path.date),
            )
        )

    def tier_1(self) -> list[str]:
        return [date for year in (2021, 2022, 2023, 2024, 2025, 2026) for date in self.store.days(year)]

    def tier_2(self) -> list[Window]:
        return [Window(date, window) for date in self.tier_1() for window in self.store.windows(date)]

    def tier_3(self) -> list[str]:
        return [
            instance_id
            for window in self.tier_2()
            for _, instance_id in self.store.instances(*window, minimum=WHOLE_RING.minimum, maximum=WHOLE_RING.maximum)
        ]

    def pointers(self) -> Iterator[tuple[Path, UUID]]:
        """What a walk from the top finds."""
        for window in self.tier_2():
            for _, instance_id in self.store.instances(*window, minimum=-(2**63), maximum=2**63 - 1):
                for bucket in self.store.buckets(*window, instance_id):
                    path = Path(*window, instance_id, bucket)
                    for transaction_id in self.store.pointers(path):
                        yield path, transaction_id

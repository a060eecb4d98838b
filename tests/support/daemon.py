"""Real retry nodes for the application in `worker_shop`, and transactions that they find."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from stacksaga_flask import Engine, ManualTime, Saga, Settings, StepContext, SystemTime
from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import RunningStatus, Store, TransactionRow
from stacksaga_flask.store.opening import open_store
from tests.support.opening import SHOP, open_url, settings_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
APP = "tests.support.worker_shop:app"
_MINUTE = 60 * SECOND

twin: Saga[dict[str, Any], None] = Saga("place-order", payload=dict)
"""Named like the saga of `worker_shop`, with the same steps; it is only started here."""


@twin.step
def reserve(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """The first step."""


@reserve.revert
def release(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """What undoes it."""


@twin.step
def charge(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """The second step."""


@charge.revert
def refund(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """What undoes it."""


@twin.pivot
def ship(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """The last step."""


class _Earlier:
    """A store whose clock is the test's."""

    def __init__(self, store: Store, time: ManualTime) -> None:
        self._store = store
        self.now = time.wall

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def engine_of_earlier(settings: Settings, saga: Saga[Any, Any], *, minutes: int) -> Engine:
    """An engine for which it is so many minutes ago, so that what it starts lies in windows that are sealed by now."""
    time = ManualTime(SystemTime().wall() - minutes * _MINUTE)

    def open_store_of_earlier() -> Any:
        return _Earlier(open_store(settings, time), time)

    return Engine(settings, sagas=[saga], open_store=open_store_of_earlier, time_source=time)


@dataclass
class Site:
    """A folder with a SQLite file, and what participants note there."""

    folder: Path

    @property
    def url(self) -> str:
        """Of the event store."""
        return f"sqlite:///{self.folder}/shop.db"

    def leave(self, *names: str, waits: bool = False, minutes: int = 10, **settings: object) -> dict[str, UUID]:
        """Start transactions some minutes ago and leave their runs to the daemon; their ids by name."""
        engine = engine_of_earlier(
            settings_of(self.url, SHOP, stop_at_sigterm=False, **settings), twin, minutes=minutes
        )
        with closing(engine):
            payloads = {name: {"name": name, "waits": waits} for name in names}
            return {name: engine.start(twin, payload).transaction_id for name, payload in payloads.items()}

    def row(self, transaction_id: UUID) -> TransactionRow:
        """A transaction as it is recorded now."""
        with closing(open_url(self.url, SHOP)) as store:
            stored = store.read(transaction_id)
            assert stored is not None
            return stored.row

    def statuses(self, ids: dict[str, UUID]) -> set[RunningStatus]:
        """How these transactions stand."""
        return {self.row(transaction_id).running_status for transaction_id in ids.values()}

    def calls(self, step: str) -> list[str]:
        """For which orders a step was called, in order."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split()[1] for line in lines if line.split()[0] == step]

    def let_go(self, *names: str) -> None:
        """Let the steps of these orders end."""
        for name in names:
            (self.folder / f"go-{name}").touch()

    def wait_for(self, *files: str) -> None:
        """Wait until steps have left these files."""
        wait_until(lambda: all((self.folder / file).exists() for file in files), 30)

    def sealed_pointers(self, transaction_ids: set[UUID]) -> set[UUID]:
        """Which of these can be reached through tiers 1 to 5 in windows that have opened by now."""
        with closing(open_url(self.url, SHOP)) as store:
            return {found for found in _reachable(store) if found in transaction_ids}


def _reachable(store: Store) -> Iterator[UUID]:
    from stacksaga_flask.directory.windows import WindowGrid, recovery_years
    from stacksaga_flask.store.contract import Path as Pointer

    now, grid = SystemTime().wall(), WindowGrid(interval=60, skew_margin=SECOND)
    for year in recovery_years(now):
        for date in store.days(year):
            for window in store.windows(date):
                if grid.opens(Pointer(date, window, "", 0)) > now:
                    continue
                for _, instance in store.instances(date, window, minimum=-(2**63), maximum=2**63 - 1):
                    for bucket in store.buckets(date, window, instance):
                        yield from store.pointers(Pointer(date, window, instance, bucket))


@dataclass
class Daemon:
    """A process of ``stacksagad``."""

    process: subprocess.Popen[str]
    stderr: Path

    @property
    def log(self) -> str:
        """What it logged so far."""
        return self.stderr.read_text()

    def wait_for(self, *texts: str) -> None:
        """Wait until its log holds these."""

        def holds() -> bool:
            assert self.process.poll() is None or all(text in self.log for text in texts), self.log
            return all(text in self.log for text in texts)

        wait_until(holds, 30)

    def ends(self, longest: float = 30.0) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(longest)


@contextmanager
def daemon(folder: Path, *options: str, app: str = APP, cwd: Path = ROOT, **environment: str) -> Iterator[Daemon]:
    """A retry node; it is killed in the end if it still runs."""
    log = folder / f"log-{len(list(folder.glob('log-*')))}"
    place = {"WORKER_FOLDER": str(folder), "WORKER_STORE": f"sqlite:///{folder}/shop.db", "WORKER_SERVICE": "shop"}
    # Where the lock files are.
    place["TMPDIR"] = str(folder)
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-W", "error::ResourceWarning", "-m", "stacksagad", "node", "--app", app, *options],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), **place, **environment},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    running = Daemon(process, log)
    try:
        yield running
    except BaseException:
        print(running.log)
        raise
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()

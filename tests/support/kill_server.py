"""A process that has imported everything and opened nothing, and forks children that may kill themselves.

It reads a line of JSON, a list of jobs for each child, and answers with a line that tells how the children ended.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sqlite3
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict
from uuid import UUID

from stacksaga_flask import Engine, NotStarted, StartUnknown, SystemTime, read_settings
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.opening import open_store
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend
from stacksaga_flask.store.sql.statements import statements_for
from stacksaga_flask.store.sql.store import SqlStore
from tests.support.kill_places import row_at
from tests.support.kill_points import KillingConnection, KillingStore, Points
from tests.support.kill_scenarios import NAMED, Scenario
from tests.support.kill_shop import MovableTime, Order, Shop, place_order_saga

AT_ONCE = 2
LONGEST = 60
"""Seconds that a child may take before it is ended, which its death then tells."""


class Job(TypedDict):
    """What a child is to do.

    Attributes:
        scenario: Its name.
        folder: Where the child leaves its files.
        url: Of its store.
        service: The name of its service.
        settings: What differs from the defaults for this store.
        kill_at: The number of the point to die at, or None.
        lose_at: The number of the write whose answer is lost, or None.
        find: Find this transaction instead of making the scenario's requests; empty finds none.
    """

    scenario: str
    folder: str
    url: str
    service: str
    settings: dict[str, object]
    kill_at: int | None
    lose_at: int | None
    find: str | None


class End(TypedDict):
    """How a child ended: by which signal (0 for none), with which code, and when in microseconds since 1970."""

    signal: int
    code: int
    at: int


class Child:
    """One child's work."""

    def __init__(self, job: Job) -> None:
        # What a step raises or freezes on purpose is no news here; everything else that is logged is.
        logging.getLogger("stacksaga_flask.step").disabled = True
        logging.getLogger("stacksaga_flask").addFilter(lambda record: " is frozen: " not in str(record.msg))
        self._folder = Path(job["folder"])
        self._scenario: Scenario = NAMED[job["scenario"]]
        self._job = job
        self._time = MovableTime()
        self._points = Points(self._folder / "points.txt", job["kill_at"])
        self._saga = place_order_saga(
            Shop(
                self._folder,
                self._points,
                self._time,
                self._scenario.script,
                lambda: row_at(job["url"], self._folder),
            )
        )

    def work(self) -> None:
        """Do the job, and leave the last answer in ``answer.json``."""
        given = {**self._job["settings"], **self._scenario.settings}
        settings = {f"STACKSAGA_{name.upper()}": value for name, value in given.items()}
        engine = Engine(
            read_settings({"STACKSAGA_STORE": self._job["url"], **settings}, application_name=self._job["service"]),
            sagas=[self._saga],
            open_store=lambda: self._open(engine),
            time_source=self._time,
        )
        answer = self._found(engine) if self._job["find"] is not None else self._requested(engine)
        (self._folder / "answer.json").write_text(json.dumps(answer))
        engine.close()
        self._points.close()

    def _open(self, engine: Engine) -> Store:
        if self._scenario.each_statement:
            return self._open_file(engine)
        store = open_store(engine.settings, SystemTime())
        return KillingStore(store, self._points, lambda: self._time.ahead, lose_at=self._job["lose_at"])

    def _open_file(self, engine: Engine) -> Store:
        backend = sqlite_backend(self._folder / "shop.db", timeout=10.0, time_source=self._time, connect=self._connect)
        ensure_tables(backend)
        return SqlStore(backend, engine.scope, time_source=self._time)

    def _connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = sqlite3.connect(*args, factory=KillingConnection, **kwargs)
        connection.points = self._points
        return connection

    def _requested(self, engine: Engine) -> dict[str, str]:
        request = engine.start if self._scenario.left else engine.run
        try:
            for _ in range(self._scenario.requests):
                transaction = request(self._saga, Order(), key=self._scenario.key)
        except (NotStarted, StartUnknown) as error:
            return {"error": type(error).__name__, "id": str(error.transaction_id)}
        return {"status": transaction.status.value, "id": str(transaction.transaction_id)}

    def _found(self, engine: Engine) -> dict[str, str]:
        engine.node()
        transaction = engine.find(UUID(self._job["find"])) if self._job["find"] else None
        return {"status": transaction.status.value, "id": str(transaction.transaction_id)} if transaction else {}


def _be_child(jobs: list[Job]) -> None:
    """Do the jobs one after the other and end the process, which is a copy of the server."""
    code = 1
    try:
        signal.alarm(LONGEST)
        for job in jobs:
            _print_to(Path(job["folder"]) / "errors.txt")
            Child(job).work()
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not go on as a second server
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _print_to(file: Path) -> None:
    sys.stderr.flush()
    errors = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    os.close(errors)


def carry_out(shifts: list[list[Job]]) -> list[End]:
    """Let one child do each list of jobs, a few children at once, and tell how each ended."""
    ends: dict[int, End] = {}
    running: dict[int, int] = {}
    waiting = list(enumerate(shifts))
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            number, jobs = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                _be_child(jobs)
            running[pid] = number
        pid, status = os.wait()
        killed = os.WIFSIGNALED(status)
        ends[running.pop(pid)] = End(
            signal=os.WTERMSIG(status) if killed else 0,
            code=0 if killed else os.WEXITSTATUS(status),
            at=SystemTime().wall(),
        )
    return [ends[number] for number in range(len(shifts))]


def main() -> None:
    """Serve until the input ends."""
    # Imported and compiled before the first fork, so that each child has it already. Nothing is opened for it.
    import_module("stacksaga_flask.store.cassandra.store")
    import_module("stacksaga_flask.store.sql.opening_postgresql")
    statements_for(sqlite_backend(Path("unused"), timeout=1.0, time_source=SystemTime()))
    # A collection in a child would touch, and so copy, every page.
    gc.disable()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(carry_out(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

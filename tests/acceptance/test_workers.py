"""Real web servers with real requests on every store."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from stacksaga_flask import RunningStatus
from stacksaga_flask.store.contract import Scope, Store, TransactionRow
from tests.services.cassandra.node import Node
from tests.services.plugin import network, started
from tests.services.postgresql import Server as PostgresqlServer
from tests.support.opening import DEVELOPMENT, init_url, open_url
from tests.support.waiting import wait_until
from tests.support.worker_server import Server, serving

GUNICORN = [f"gunicorn-{kind}{preload}" for kind in ("sync", "gthread", "gevent") for preload in ("", "-preload")]
SERVERS = [*GUNICORN, "flask", "flask-reload", "uwsgi", "uwsgi-lazy"]
STORES = ["sqlite", "postgresql", "cassandra"]


@dataclass
class Place:
    """A store that is set up for a service of its own."""

    url: str
    scope: Scope

    @property
    def environment(self) -> dict[str, str]:
        return {"WORKER_STORE": self.url, "WORKER_SERVICE": self.scope.service_name}

    def row(self, server: Server, name: str) -> TransactionRow:
        """The row of an order's transaction."""
        with closing(open_url(self.url, self.scope)) as store:
            return _row(store, server, name)

    def is_parked(self, server: Server, name: str) -> bool:
        """Whether an order's transaction is paused, with a retry pointer in the directory."""
        with closing(open_url(self.url, self.scope)) as store:
            row = _row(store, server, name)
            return (
                row.running_status is RunningStatus.PROCESS_PAUSED
                and row.retry is not None
                and store.has_pointer(row.retry, row.transaction_id)
            )


def _row(store: Store, server: Server, name: str) -> TransactionRow:
    stored = store.read(server.calls(name)[0].transaction_id)
    assert stored is not None
    return stored.row


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    scope = Scope("default", "default", f"shop-{uuid.uuid4().hex[:8]}")
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/shop.db"
    elif request.param == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        url = server.url(server.create_database())
    else:
        node: Node = request.getfixturevalue("cassandra")
        url = node.url(request.getfixturevalue("cassandra_keyspace"))
    init_url(url, scope, setup=DEVELOPMENT)
    return Place(url, scope)


Ask = Callable[..., "Future[int]"]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Places an order from a thread of its own."""
    with ThreadPoolExecutor() as pool:
        yield lambda server, name, **options: pool.submit(server.order, name, **options)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_serves_goes_on_without_the_client_and_parks_what_it_runs_when_it_is_told_to_stop(
    kind: str, place: Place, ask: Ask, tmp_path: Path
) -> None:
    with serving(kind, tmp_path, place.environment) as server:
        orders = [ask(server, f"order-{number}") for number in range(4)]
        assert [order.result() for order in orders] == [200] * 4

        server.order_and_leave("left")
        server.let_go("left")
        wait_until(lambda: len(server.calls("left")) == 3)
        wait_until(lambda: place.row(server, "left").running_status is RunningStatus.PROCESS_COMPLETED)

        names = ("one", "two")
        answers = [ask(server, name, waits=True) for name in names]
        server.wait_for(*(f"inside-{name}" for name in names))
        _stop(server, kind)
        if kind.startswith("uwsgi"):
            # It handles signals in C and lets a request end, so the runs do.
            server.let_go(*names)
            assert [answer.result() for answer in answers] == [200, 200]
            assert server.process.wait(20) == 0
            return
        server.wait_for(*(f"stopping-{name}" for name in names))
        server.let_go(*names)
        if kind.startswith("gunicorn"):
            assert [answer.result() for answer in answers] == [202, 202]
            assert server.process.wait(20) == 0
        else:
            for answer in answers:
                answer.exception()
            assert server.process.wait(20) == (-signal.SIGTERM if kind == "flask" else 0)
        for name in names:
            assert place.is_parked(server, name)
            assert [call.step for call in server.calls(name)] == ["reserve", "charge"]


def _stop(server: Server, kind: str) -> None:
    """Send SIGTERM to the process that serves, or to its master."""
    if kind == "flask-reload":
        # The one that watches the files only waits for the one that serves.
        os.kill(int(server.get("/ready")), signal.SIGTERM)
    else:
        server.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("kind", ["gunicorn-sync", "gunicorn-sync-preload"])
def test_a_worker_that_takes_too_long_is_replaced_and_its_run_is_parked(
    kind: str, place: Place, ask: Ask, tmp_path: Path
) -> None:
    with serving(kind, tmp_path, place.environment, "--timeout", "2", "--workers", "1") as server:
        first = server.get("/ready")
        lost = ask(server, "slow", waits=True)
        server.wait_for("inside-slow")
        assert lost.exception() is not None or lost.result() >= 500
        wait_until(lambda: place.is_parked(server, "slow"))
        row = place.row(server, "slow")
        assert (row.committed_steps, row.possibly_done) == (("reserve",), True)
        assert server.order("next") == 200
        assert server.get("/ready") != first


def test_a_gevent_worker_whose_grace_ends_parks_the_step_that_it_interrupts(
    place: Place, ask: Ask, tmp_path: Path
) -> None:
    options = ("--graceful-timeout", "0", "--workers", "1")
    with serving("gunicorn-gevent", tmp_path, place.environment, *options) as server:
        first = int(server.get("/ready"))
        lost = ask(server, "slow", waits=True)
        server.wait_for("inside-slow")
        # Not the master, which kills its workers at the same moment as they end what they run.
        os.kill(first, signal.SIGTERM)
        assert lost.exception() is not None or lost.result() >= 500
        wait_until(lambda: place.is_parked(server, "slow"))
        row = place.row(server, "slow")
        assert (row.committed_steps, row.possibly_done) == (("reserve",), True)
        assert server.order("next") == 200
        assert int(server.get("/ready")) != first


def test_the_reloader_lets_a_run_be_parked_before_it_replaces_the_process(ask: Ask, tmp_path: Path) -> None:
    scope = Scope("default", "default", "shop")
    place = Place(f"sqlite:///{tmp_path}/shop.db", scope)
    source = tmp_path / "source"
    source.touch()
    with serving("flask-reload", tmp_path, place.environment, "--extra-files", str(source)) as server:
        first = server.get("/ready")
        lost = ask(server, "one", waits=True)
        server.wait_for("inside-one")
        wait_until(lambda: _is_stopping(server, source))
        server.let_go("one")
        lost.exception()
        wait_until(lambda: place.is_parked(server, "one"))
        wait_until(lambda: _serves_anew(server, first))
        assert server.order("next") == 200
        assert [call.step for call in server.calls("one")] == ["reserve", "charge"]


def _is_stopping(server: Server, source: Path) -> bool:
    """Whether the process is stopping, as the reloader, once it has looked at a source, finds it changed."""
    source.touch()
    return (server.folder / "stopping-one").exists()


def _serves_anew(server: Server, first: str) -> bool:
    try:
        return server.get("/ready") != first
    except OSError:
        return False


@pytest.mark.parametrize("kind", ["gunicorn-sync-preload", "gunicorn-gthread-preload", "gunicorn-gevent-preload"])
def test_an_application_that_connects_before_the_fork_works_or_says_why_not(
    kind: str, place: Place, tmp_path: Path
) -> None:
    environment = {**place.environment, "WORKER_CONNECTS_EARLY": "1"}
    with serving(kind, tmp_path, environment) as server:
        status = server.order("early")
        if kind == "gunicorn-gevent-preload" and place.url.startswith("cassandra"):
            assert status == 503
            assert "cassandra-driver was imported before gevent patched this process" in server.log()
        else:
            assert status == 200


@pytest.fixture(scope="module")
def node_to_kill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Not the node that others use at the same time."""
    node = started(Node(run=tmp_path_factory.mktemp("node"), network=network(3)))
    yield node
    node.kill()
    node.wipe()


@pytest.mark.parametrize("kind", ["gunicorn-gthread", "gunicorn-gevent"])
def test_no_worker_needs_a_restart_when_cassandra_is_killed_and_comes_back(
    kind: str, node_to_kill: Node, ask: Ask, tmp_path: Path
) -> None:
    scope = Scope("default", "default", f"shop-{uuid.uuid4().hex[:8]}")
    place = Place(node_to_kill.url("shop"), scope)
    init_url(place.url, scope, setup=DEVELOPMENT)
    # A view waits for two request time-outs before it leaves a step that it could not record to the watchdog.
    settings = {"STACKSAGA_REQUEST_TIMEOUT": "4s", "STACKSAGA_STEP_BUDGET": "30s"}
    with serving(kind, tmp_path, {**place.environment, "WORKER_SETTINGS": json.dumps(settings)}) as server:
        workers = _workers(server)
        waiting = {name: ask(server, name, waits=True) for name in ("short", "long")}
        server.wait_for("inside-short", "inside-long")
        node_to_kill.kill()
        try:
            # Recorded never, as far as the view can tell, while the store is away.
            server.let_go("long")
            assert waiting["long"].result() == 202
            assert server.order("refused") == 503
        finally:
            node_to_kill.start()
        # Recorded once the store is there again.
        server.let_go("short")
        assert waiting["short"].result() == 200
        # Each worker's driver comes back by itself.
        wait_until(lambda: all(server.order(f"later-{uuid.uuid4()}") == 200 for _ in range(16)), 90)
        assert _workers(server) == workers

        assert server.calls("refused") == []
        assert place.row(server, "short").running_status is RunningStatus.PROCESS_COMPLETED
        with closing(open_url(place.url, scope)) as store:
            row = _row(store, server, "long")
            assert row.running_status in (RunningStatus.PROCESSING, RunningStatus.PROCESS_PAUSED)
            assert row.watchdog is not None
            assert store.has_pointer(row.watchdog, row.transaction_id), "it can be found (R1)"
        assert [call.step for call in server.calls("long")] == ["reserve", "charge"]


def _workers(server: Server) -> set[int]:
    """The processes that serve, of which there are two."""
    found: set[int] = set()

    def both() -> bool:
        found.add(int(server.get("/ready")))
        return len(found) == 2

    wait_until(both)
    return found


def test_settings_reach_the_application(tmp_path: Path) -> None:
    environment = {
        "WORKER_STORE": f"sqlite:///{tmp_path}/shop.db",
        "WORKER_SERVICE": "shop",
        "WORKER_SETTINGS": json.dumps({"STACKSAGA_STOP_AT_SIGTERM": False}),
    }
    with serving("gunicorn-sync", tmp_path, environment) as server:
        assert server.order("one") == 200

"""Opening and closing a Cassandra store while callers wait, hosts are silent or nobody knows them."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from cassandra.cluster import _clusters_for_shutdown

from stacksaga_flask import Engine, StoreError, StoreUnavailable
from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.cassandra import link, timeouts
from stacksaga_flask.store.cassandra.connection import CONNECT_TIMEOUT, connect
from stacksaga_flask.store.cassandra.failed import LastFailure
from stacksaga_flask.store.cassandra.place import Place, read_place
from stacksaga_flask.store.cassandra.store import CassandraStore
from tests.services.cassandra.node import Node
from tests.support.cql_proxy import CqlProxy, cql_proxy
from tests.support.opening import SHOP, open_url, settings_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
CALLERS = 16


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a store whose port accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=4 * CALLERS) as listening:
        yield f"cassandra://127.0.0.1:{listening.getsockname()[1]}/shop?local_datacenter=datacenter1"


@pytest.fixture
def proxy(cassandra: Node) -> Iterator[CqlProxy]:
    with cql_proxy(cassandra) as started:
        yield started


def place_of(url: str) -> Place:
    return read_place(settings_of(url, SHOP))


def opened(url: str, **settings: object) -> CassandraStore:
    store = open_url(url, SHOP, **settings)
    assert isinstance(store, CassandraStore)
    return store


def took_together(call: Callable[[], object]) -> float:
    """Seconds until the last of sixteen callers has been told that the store is unavailable."""

    def told(_: int) -> str:
        with pytest.raises(StoreUnavailable) as failure:
            call()
        return str(failure.value)

    began = time.monotonic()
    with ThreadPoolExecutor(CALLERS) as callers:
        texts = set(callers.map(told, range(CALLERS)))
    assert len(texts) == 1, texts
    return time.monotonic() - began


# -- hosts -------------------------------------------------------------------------------------------------------


def test_hosts_that_nobody_knows_are_named_with_the_remedy() -> None:
    with pytest.raises(StoreUnavailable) as failure:
        open_url("cassandra://one.invalid,two.invalid/shop?local_datacenter=dc1", SHOP).close()
    told = str(failure.value)
    assert "no host of STACKSAGA_STORE has an address (one.invalid: [Errno -" in told
    assert "; two.invalid: [Errno -" in told
    assert "see that the names are right and that this machine can resolve them" in told


def test_a_host_that_could_not_be_a_name_is_one_error_too() -> None:
    with pytest.raises(StoreUnavailable, match=r"no host of STACKSAGA_STORE has an address \(x{70}: "):
        open_url(f"cassandra://{'x' * 70}/shop?local_datacenter=dc1", SHOP).close()


def test_one_of_two_hosts_is_enough_if_nobody_knows_the_other(
    cassandra: Node, cassandra_keyspace: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(open_url(cassandra.url(cassandra_keyspace).replace("//", "//one.invalid,"), SHOP)) as store:
        assert store.now() > 0
    assert "some hosts of STACKSAGA_STORE have no address (one.invalid: " in caplog.text


# -- callers that wait for each other ----------------------------------------------------------------------------


def test_sixteen_callers_of_an_engine_before_a_silent_port_are_told_after_one_time_out(silent: str) -> None:
    engine = Engine(settings_of(silent, SHOP))
    assert took_together(lambda: engine.find(uuid4())) < 1.5 * CONNECT_TIMEOUT


def test_sixteen_callers_of_a_store_that_has_to_connect_again_are_told_after_one_time_out(
    cassandra: Node, cassandra_keyspace: str, silent: str
) -> None:
    there = connect(place_of(cassandra.url(cassandra_keyspace)))
    with closing(CassandraStore(place_of(silent), SHOP, there)) as store:
        store.before_fork(5)
        store.after_fork_in_parent()
        assert took_together(store.now) < 1.5 * CONNECT_TIMEOUT


def test_a_failure_counts_for_those_who_want_the_same_and_for_a_second() -> None:
    failure, tried = LastFailure(), []

    def attempt(wanted: str) -> None:
        with failure.attempt(wanted):
            tried.append(wanted)
            raise StoreUnavailable("nobody is there")

    for wanted in ("one", "one", "two"):
        with pytest.raises(StoreUnavailable, match="nobody is there"):
            attempt(wanted)
    assert tried == ["one", "two"]

    def tried_again() -> bool:
        with pytest.raises(StoreUnavailable, match="nobody is there"):
            attempt("two")
        return tried == ["one", "two", "two"]

    began = time.monotonic()
    wait_until(tried_again, 5)
    assert 0.5 < time.monotonic() - began < 2


# -- a driver that has given up ----------------------------------------------------------------------------------


def usable(store: CassandraStore) -> bool:
    """Whether the store answers; if not, it says that nothing was written."""
    try:
        store.now()
    except StoreUnavailable:
        return False
    return True


def lose(store: CassandraStore, proxy: CqlProxy) -> None:
    """Take the node away for so long that the next call connects anew."""
    proxy.accept(False)
    proxy.close_all()
    wait_until(lambda: not usable(store) and store._link._given_up)


def test_a_node_that_answers_that_it_is_overloaded_is_not_lost(proxy: CqlProxy, cassandra_keyspace: str) -> None:
    with closing(opened(proxy.url(cassandra_keyspace))) as store:
        proxy.rule("answer", error="Overloaded", times=100)
        assert not usable(store)
        assert store._link._lost_at is None
        proxy.accept(False)
        proxy.close_all()
        wait_until(lambda: not usable(store) and store._link._lost_at is not None)
        proxy.accept(True)
        proxy.forget_rules()
        wait_until(lambda: usable(store))
        assert store._link._lost_at is None


def test_one_caller_at_most_connects_anew_and_the_others_are_told_at_once(
    proxy: CqlProxy, cassandra_keyspace: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PATIENCE", SECOND)

    def took(_: int = 0) -> float:
        began = time.monotonic()
        assert not usable(store)
        return time.monotonic() - began

    with closing(CassandraStore(place_of(silent), SHOP, connect(place_of(proxy.url(cassandra_keyspace))))) as store:
        lose(store, proxy)
        with ThreadPoolExecutor(CALLERS) as callers:
            *others, last = sorted(callers.map(took, range(CALLERS)))
        assert others[-1] < 1, "nobody waited for the one that connected"
        assert CONNECT_TIMEOUT * 0.9 < last < CONNECT_TIMEOUT * 1.5
        assert took() < 0.5, "it was tried a moment ago"


def test_a_store_that_connects_anew_stays_with_its_connection_if_the_driver_was_quicker(
    cassandra: Node, proxy: CqlProxy, cassandra_keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PATIENCE", SECOND)
    before = set(_clusters_for_shutdown)
    first = connect(place_of(proxy.url(cassandra_keyspace)))
    with cql_proxy(cassandra) as other, ThreadPoolExecutor(1) as pool:
        with closing(CassandraStore(place_of(other.url(cassandra_keyspace)), SHOP, first)) as store:
            lose(store, proxy)
            other.rule("hold", opcode="PREPARE")
            connecting = pool.submit(usable, store)
            wait_until(lambda: other.counts().hits == [1])
            proxy.accept(True)
            wait_until(lambda: usable(store))
            other.release()
            assert connecting.result(30)
            assert store._connection() is first
            assert set(_clusters_for_shutdown) - before == {first.cluster}
        assert set(_clusters_for_shutdown) == before


# -- closing and forking -----------------------------------------------------------------------------------------


def test_a_store_that_is_closed_while_it_connects_leaves_no_connection(
    proxy: CqlProxy, cassandra_keyspace: str
) -> None:
    before = set(_clusters_for_shutdown)
    store = opened(proxy.url(cassandra_keyspace), request_timeout="2500ms")
    store.before_fork(5)
    store.after_fork_in_parent()
    assert set(_clusters_for_shutdown) == before
    proxy.rule("hold", opcode="PREPARE")
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(store.now)
        wait_until(lambda: proxy.counts().hits == [1])
        closed = pool.submit(store.close)
        # It closes now, or it waits for the one that connects.
        wait_until(lambda: closed.done() or store._link._opening.locked())
        proxy.release()
        closed.result(30)
        with suppress(StoreError):
            assert reading.result(30) > 0
    assert not store._link.is_open
    assert set(_clusters_for_shutdown) == before


def test_calls_go_on_after_a_fork_that_failed_to_close_the_connection(
    cassandra: Node, cassandra_keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(cassandra.url(cassandra_keyspace))) as store:
        cluster = store._connection().cluster

        def interrupted() -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(cluster, "shutdown", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.before_fork(5)
        cluster.shutdown()
        told: list[object] = []
        reader = threading.Thread(target=lambda: told.append(store.read(uuid4())), daemon=True)
        reader.start()
        reader.join(20)
        assert told == [None]


# -- the server's time-outs --------------------------------------------------------------------------------------


def test_a_server_that_does_not_tell_a_time_out_is_warned_of(
    cassandra: Node, cassandra_keyspace: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(cassandra.url(cassandra_keyspace)).close()
    assert "the server does not tell" not in caplog.text
    monkeypatch.setattr(timeouts, "COMPARED", (*timeouts.COMPARED, "of_no_server"))
    opened(cassandra.url(cassandra_keyspace)).close()
    assert "the server does not tell its of_no_server, so nobody knows whether STACKSAGA_REQUEST_TIMEOUT" in caplog.text


# -- gevent ------------------------------------------------------------------------------------------------------

GREENLETS = """
from gevent import monkey; monkey.patch_all()
import gc, sys, uuid
import gevent
from tests.support.opening import SHOP, open_url

def serving_timers():
    found = 0
    for each in gc.get_objects():
        if isinstance(each, gevent.Greenlet):
            frame, names = each.gr_frame, set()
            while frame is not None:
                names.add(frame.f_code.co_name)
                frame = frame.f_back
            found += "service_timeouts" in names
    return found

for turn in range(3):
    store = open_url(sys.argv[1], SHOP)
    assert store.read(uuid.uuid4()) is None
    store.close()
print(serving_timers())
"""


def test_opening_again_and_again_under_gevent_leaves_one_greenlet_for_timers(
    cassandra: Node, cassandra_keyspace: str
) -> None:
    command = [sys.executable, "-c", GREENLETS, cassandra.url(cassandra_keyspace)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "1\n", ran.stderr

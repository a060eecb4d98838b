"""Fixtures for real servers, each started when the first test asks for it and stopped at the end of the run."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services import cache, missing
from tests.services.cassandra.jars import jars
from tests.services.cassandra.node import Node
from tests.services.postgresql import Server, program
from tests.support.opening import DEVELOPMENT, SHOP, init_url
from tests.support.plain_cql import drop_keyspace, plain_session
from tests.support.waiting import wait_until

SLOW_TO_START = {"cassandra", "cassandra_ring", "postgresql"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A server that a test is the first to need has a time limit of its own, so the test's is not spent on it."""
    for item in items:
        if SLOW_TO_START.intersection(getattr(item, "fixturenames", ())) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(func_only=True))


def network(which: int) -> str:
    """Loopback addresses that no other process's nodes have: one network for each number from 0 to 3."""
    number = os.getpid() * 4 + which
    return f"127.{number // 250 % 250 + 1}.{number % 250 + 1}"


def lasting_node() -> Node:
    """The node that ``python -m tests.services start`` leaves running."""
    return Node(run=cache() / "cassandra-node", network="127.0.77", outlives=True)


@contextmanager
def sole_use(node: Node) -> Iterator[bool]:
    """Whether no other test run uses the node, which tests restart; within the block none will."""
    node.run.parent.mkdir(parents=True, exist_ok=True)
    with node.run.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def started(node: Node) -> Node:
    """Start a node for a test, or say what is missing."""
    try:
        jars()
    except (FileNotFoundError, subprocess.SubprocessError) as error:
        missing(f"Cassandra cannot be started: {error}")
    node.start()
    return node


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One Cassandra node, which loses nothing acknowledged when it is killed. Tests share it and take turns."""
    lasting = lasting_node()
    with sole_use(lasting) as ours:
        # Not any server that answers there: one that listens on all addresses is somebody else's.
        if ours and lasting.process_id() is not None and lasting.answers():
            yield lasting
            return
    node = started(Node(run=tmp_path_factory.mktemp("cassandra"), network=network(0)))
    yield node
    node.kill()
    node.wipe()


@pytest.fixture(scope="session")
def cassandra_keyspace(cassandra: Node) -> Iterator[str]:
    """A keyspace with all tables on that node, which tests share: each has a scope of its own."""
    keyspace = f"test_{uuid.uuid4().hex[:12]}"
    init_url(cassandra.url(keyspace), SHOP, setup=DEVELOPMENT)
    yield keyspace
    drop_keyspace(cassandra, keyspace)


@pytest.fixture(scope="module")
def cassandra_ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    """Three Cassandra nodes in one data centre, on other addresses than the one of `cassandra`."""
    nodes = [
        Node(run=tmp_path_factory.mktemp(f"ring-{number}"), network=network(1), number=number, size=3)
        for number in (1, 2, 3)
    ]
    for node in nodes:
        started(node)
    wait_until(lambda: all(map(_knows_all, nodes)), 60)
    yield nodes
    for node in nodes:
        node.kill()
        node.wipe()


def _knows_all(node: Node) -> bool:
    """Whether a node of three knows the other two."""
    with plain_session(node) as session:
        return len(list(session.execute("SELECT peer FROM system.peers_v2"))) == 2


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server; tests make databases of their own in it."""
    try:
        program("initdb")
    except FileNotFoundError as error:
        missing(f"PostgreSQL cannot be started: {error}")
    # Not pytest's folder, which another user may not enter.
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        server = Server.create(Path(folder))
        yield server
        server.stop()

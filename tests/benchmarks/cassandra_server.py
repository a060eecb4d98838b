"""The node and the keyspace that the Cassandra benchmark runs on."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from stacksaga_flask.store.contract import Scope
from tests.services.cassandra.node import PERIODIC, Node
from tests.services.plugin import lasting_node, network, sole_use
from tests.support.opening import DEVELOPMENT, init_url
from tests.support.plain_cql import drop_keyspace, plain_session

NAMED: Final = "STACKSAGA_TEST_CASSANDRA"
SCOPE: Final = Scope("default", "default", "benchmark")


@contextmanager
def benchmark_node(folder: Path) -> Iterator[Node]:
    """The node of this machine that STACKSAGA_TEST_CASSANDRA names, else one that lasts, else a new one in the folder.

    Raises:
        ClickException: None runs, and none can be started.
    """
    named = os.environ.get(NAMED)
    if named:
        yield _named(named, folder)
        return
    lasting = lasting_node()
    with sole_use(lasting) as ours:
        if ours and lasting.process_id() is not None and lasting.answers():
            yield lasting
            return
    # As in production: the server answers before the commit log is on the disk, so no disk hides what a client costs.
    node = Node(run=folder / "node", network=network(0), commitlog=PERIODIC)
    try:
        node.start()
    except (FileNotFoundError, subprocess.SubprocessError) as error:
        raise click.ClickException(f"no Cassandra runs, and none can be started: {error}") from error
    try:
        yield node
    finally:
        node.kill()
        node.wipe()


@contextmanager
def keyspace_on(node: Node) -> Iterator[str]:
    """A keyspace with all tables, dropped afterwards."""
    keyspace = f"benchmark_{uuid.uuid4().hex[:12]}"
    init_url(node.url(keyspace), SCOPE, setup=DEVELOPMENT)
    try:
        yield keyspace
    finally:
        drop_keyspace(node, keyspace)


def commit_log(node: Node) -> str:
    """When the node writes its commit log to the disk: periodic or batch."""
    query = "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'"
    with plain_session(node) as session:
        return str(session.execute(query).one()["value"])


def _named(named: str, folder: Path) -> Node:
    host, _, port = named.partition(":")
    numbers = host.split(".")
    if len(numbers) != 4 or not all(map(str.isdecimal, (*numbers, port))):
        raise click.ClickException(f"{NAMED} is {named!r}: write the node's IPv4 address and port, as 127.0.0.1:9042")
    return Node(run=folder / "node", network=".".join(numbers[:3]), number=int(numbers[3]), port=int(port))

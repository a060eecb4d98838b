"""A fork beside an open Cassandra store: parent and child go on, each with connections of its own (R11).

If something does not come to rest in time the fork is made all the same. Then the child leaves alone what it inherited.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stacksaga_flask.testing.conformance.samples import fresh_scope
from tests.services.cassandra.node import Node
from tests.support.cql_proxy import cql_proxy
from tests.support.opening import init_url

PATCHED = "from gevent import monkey; monkey.patch_all()\n"
prefixes = pytest.mark.parametrize("prefix", ["", PATCHED], ids=["threads", "gevent"])

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys
from stacksaga_flask import Engine, Saga, read_settings
saga = Saga("one", payload=dict)

@saga.step
def only(order, context): ...

@only.revert
def undo(order, context): ...

region, cluster, service = sys.argv[2:5]
settings = {"STACKSAGA_STORE": sys.argv[1], "STACKSAGA_REGION": region, "STACKSAGA_CLUSTER": cluster}
engine = Engine(read_settings(settings, application_name=service), sagas=[saga])
first = engine.run(saga, {})
instance = engine.node().instance_id
inherited = engine.node().store
child = os.fork()
if child == 0:
    try:
        assert engine.find(first.transaction_id).completed
        assert engine.run(saga, {}).completed
        assert engine.node().instance_id != instance
        try:
            inherited.read(first.transaction_id)
        except Exception as error:
            print(type(error).__name__, flush=True)
        engine.close()
    except BaseException as error:
        print(repr(error), flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert engine.run(saga, {}).completed
assert engine.node().instance_id == instance
print("parent", status, flush=True)
engine.close()
"""


@prefixes
def test_parent_and_child_go_on_and_the_parents_store_is_refused_in_the_child(
    cassandra: Node, cassandra_keyspace: str, prefix: str
) -> None:
    url, scope = cassandra.url(cassandra_keyspace), fresh_scope()
    init_url(url, scope)
    ran = subprocess.run(
        [sys.executable, "-c", prefix + SCRIPT, url, *scope], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.returncode) == ("StoreRefused\nparent 0\n", 0), ran.stdout + ran.stderr


BUSY = """
import os, sys, threading, time, uuid
from cassandra.cluster import _clusters_for_shutdown
from stacksaga_flask import Engine, StoreRefused, read_settings
from tests.integration.test_cassandra_fork import links_to

url, port, (region, cluster, service) = sys.argv[1], int(sys.argv[2]), sys.argv[3:6]
settings = {"STACKSAGA_STORE": url, "STACKSAGA_REGION": region, "STACKSAGA_CLUSTER": cluster}
engine = Engine(read_settings({**settings, "STACKSAGA_REQUEST_TIMEOUT": "2500ms"}, application_name=service))
parent = os.getpid()
told = []

def call():
    found = engine.find(uuid.uuid4())
    told.append((os.getpid() == parent, found))

caller = threading.Thread(target=call)
caller.start()
while not _clusters_for_shutdown:
    time.sleep(0.01)
child = os.fork()
if child == 0:
    time.sleep(1)
    try:
        engine.find(uuid.uuid4())
    except StoreRefused:
        print("child", links_to(port), told, flush=True)
    sys.exit(3)
assert not told, "the call has ended before the fork"
caller.join()
_, status = os.waitpid(child, 0)
print("parent", links_to(port), told, os.waitstatus_to_exitcode(status), flush=True)
engine.close()
"""


def links_to(port: int) -> int:
    """How many connections to this port the process has."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if int(row[2].partition(":")[2], 16) == port}
    # The descriptor that lists them is gone by then.
    found = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum(target.removeprefix("socket:[").removesuffix("]") in inodes for target in found)


@prefixes
def test_a_child_that_was_forked_while_a_call_was_under_way_takes_no_answer_and_ends(
    cassandra: Node, cassandra_keyspace: str, prefix: str
) -> None:
    scope = fresh_scope()
    init_url(cassandra.url(cassandra_keyspace), scope)
    with cql_proxy(cassandra) as proxy:
        # Each answer comes late enough for connecting to take longer than a fork waits, and early enough to succeed.
        proxy.delay(0.15)
        ran = subprocess.run(
            [sys.executable, "-c", prefix + BUSY, proxy.url(cassandra_keyspace), str(proxy.port), *scope],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ran.stdout == "child 0 []\nparent 2 [(True, None)] 3\n", ran.stdout + ran.stderr
    assert "forks although its event store did not come to rest" in ran.stderr
    assert ran.returncode == 0

"""A fork beside an open Cassandra store: parent and child go on, each with connections of its own (R11)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stacksaga_flask.testing.conformance.samples import fresh_scope
from tests.services.cassandra.node import Node
from tests.support.opening import init_url

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


@pytest.mark.parametrize("prefix", ["", "from gevent import monkey; monkey.patch_all()\n"], ids=["threads", "gevent"])
def test_parent_and_child_go_on_and_the_parents_store_is_refused_in_the_child(
    cassandra: Node, cassandra_keyspace: str, prefix: str
) -> None:
    url, scope = cassandra.url(cassandra_keyspace), fresh_scope()
    init_url(url, scope)
    ran = subprocess.run(
        [sys.executable, "-c", prefix + SCRIPT, url, *scope], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.returncode) == ("StoreRefused\nparent 0\n", 0), ran.stdout + ran.stderr

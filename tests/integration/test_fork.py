"""Processes that fork with the event store open: nothing acknowledged is lost (R2), nobody is held up (R11).

The forks are made in processes of their own; the process of the tests is the third one, which reads the file.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from stacksaga_flask import Engine, Saga, read_settings
from stacksaga_flask.clock import SystemTime
from stacksaga_flask.store.calls import CallsUnderWay
from stacksaga_flask.store.sql.forking import HeldWriter
from stacksaga_flask.store.sql.group import Call
from stacksaga_flask.store.sql.sqlite import sqlite_backend

pytestmark = pytest.mark.varies_by_python

ROOT = Path(__file__).parents[2]
PATCHED = "import gevent.monkey; gevent.monkey.patch_all()\n"
IMPORTS = """
import gc, json, os, sys, threading, time
from tests.integration.test_fork import children_done, inherited, service, write_down, written_down
file = sys.argv[1]
"""
Service: TypeAlias = tuple[Callable[[], str], Engine]


def service(file: str, name: str = "shop", **settings: object) -> Service:
    """What runs a transaction of a service and returns its id once it is acknowledged, and its engine."""
    saga: Saga[dict[str, object], None] = Saga("plain", payload=dict)
    saga.pivot(name="only")(lambda payload, context: None)
    config = {"STACKSAGA_STORE": f"sqlite:///{file}", **settings}
    engine = Engine(read_settings(config, application_name=name), sagas=[saga])

    def run() -> str:
        transaction = engine.run(saga, {})
        assert transaction.completed, transaction
        return str(transaction.transaction_id)

    return run, engine


def inherited(file: str) -> list[str]:
    """Files of the database that this process has open."""
    descriptors = Path("/proc/self/fd")
    # The one that lists them is gone by then.
    targets = [os.readlink(descriptor) for descriptor in descriptors.iterdir() if descriptor.is_symlink()]
    return [target for target in targets if target.startswith(file)]


def status_of(file: str, *transaction_ids: str) -> set[str | None]:
    """What a process that has nothing to do with the others finds in the file."""
    with closing(sqlite3.connect(file)) as connection:
        found = dict(connection.execute("SELECT transaction_id, running_status FROM es_transaction"))
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return {found.get(transaction_id) for transaction_id in transaction_ids}


def write_down(file: str, told: object) -> None:
    """Tell the parent something."""
    with open(f"{file}-told", "a") as notes:
        notes.write(f"{json.dumps(told)}\n")


def written_down(file: str) -> list[Any]:
    """What the children told."""
    with open(f"{file}-told") as notes:
        return [json.loads(line) for line in notes]


def children_done(children: list[int]) -> None:
    """Wait for them to end well."""
    for child in children:
        assert os.waitpid(child, 0)[1] == 0, f"child {child} failed"


Run: TypeAlias = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def run_python() -> Iterator[Run]:
    """Starts processes of their own."""
    with ExitStack() as stack:

        def run(script: str, *arguments: object) -> subprocess.Popen[str]:
            # Python 3.12 warns of every fork beside threads, and 3.13 of a file that is open when a process ends: both
            # are what is tested.
            options = ["-W", "error", "-W", "ignore::DeprecationWarning", "-W", "ignore:unclosed database"]
            process = subprocess.Popen(
                [sys.executable, *options, "-c", script, *map(str, arguments)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield run


def answer_of(process: subprocess.Popen[str]) -> Any:
    """What the process printed as JSON, once it has ended well and without a word of complaint."""
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    return json.loads(output)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that the process, or a child of it, prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    """Let whoever reads the process's standard input go on."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


# -- the parent leaves -----------------------------------------------------------------------------------------


PARENT_LEAVES = """
how = sys.argv[2]
run, engine = service(file)
run()
ready, acknowledged = os.pipe()
child = os.fork()
if child == 0:
    assert inherited(file) == []
    print(run(), flush=True)
    os.write(acknowledged, b"1")
    sys.stdin.readline()
    print(run(), flush=True)
    sys.stdin.readline()
    sys.exit()
os.read(ready, 1)
if how == "closes":
    engine.close()
    print("left", flush=True)
    children_done([child])
"""


@pytest.mark.parametrize("how", ["closes", "exits"])
@pytest.mark.parametrize("prefix", ["", PATCHED], ids=["threads", "gevent"])
def test_what_a_child_acknowledges_after_its_parent_left_is_in_the_file(
    tmp_path: Path, run_python: Run, prefix: str, how: str
) -> None:
    file = str(tmp_path / "shop.db")
    process = run_python(prefix + IMPORTS + PARENT_LEAVES, file, how)
    first = line_of(process)
    if how == "closes":
        assert line_of(process) == "left"
    else:
        assert process.wait(timeout=30) == 0
    # A third process comes and goes, which removes the log if it believes to be the last.
    assert status_of(file, first) == {"PROCESS_COMPLETED"}
    tell(process)
    second = line_of(process)
    assert status_of(file, first, second) == {"PROCESS_COMPLETED"}
    tell(process)
    assert process.communicate(timeout=30) == ("", "")
    assert status_of(file, first, second) == {"PROCESS_COMPLETED"}


PRELOADED = """
run, engine = service(file)
engine.tryouts(__import__("uuid").uuid4())   # as a health check at import does, under gunicorn --preload
children = []
for _ in range(2):
    children.append(os.fork())
    if children[-1] == 0:
        print(run(), flush=True)
        sys.stdin.readline()
        print(run(), flush=True)
        sys.exit()
children_done(children)
"""


def test_workers_of_a_master_that_used_the_store_keep_what_they_acknowledged(tmp_path: Path, run_python: Run) -> None:
    file = str(tmp_path / "shop.db")
    process = run_python(IMPORTS + PRELOADED, file)
    told = [line_of(process), line_of(process)]
    assert status_of(file, *told) == {"PROCESS_COMPLETED"}
    tell(process)
    tell(process)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert len(output.split()) == 2
    assert status_of(file, *told, *output.split()) == {"PROCESS_COMPLETED"}


# -- the parent goes on ----------------------------------------------------------------------------------------


BUSY = """
run, engine = service(file)
told, failed, going = [run()], [], True

def busy(once):
    try:
        while going:
            once()
            time.sleep(0)   # a greenlet that reads lets nobody else run
    except BaseException as error:
        failed.append(repr(error))
        raise

def write():
    told.append(run())

def read():
    assert engine.find(__import__("uuid").UUID(told[-1])).completed

threads = [threading.Thread(target=busy, args=(once,)) for once in (write, write, write, write, read, read)]
for thread in threads:
    thread.start()
children = []
for _ in range(10):
    before = len(told)
    child = os.fork()
    if child == 0:
        # gevent gives the child copies of the busy greenlets; they are refused, and say so.
        sys.stderr = open(os.devnull, "w")
        status = 1
        try:
            assert inherited(file) == []
            mine = [run(), run()]
            write_down(file, mine)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    children.append(child)
    while len(told) == before and not failed:
        threading.Event().wait(0.001)
going = False
for thread in threads:
    thread.join()
children_done(children)
theirs = [transaction_id for mine in written_down(file) for transaction_id in mine]
engine.close()
print(json.dumps([failed, told, theirs]))
"""


@pytest.mark.parametrize("prefix", ["", PATCHED], ids=["threads", "gevent"])
def test_forks_beside_threads_that_write_and_read_lose_nothing(tmp_path: Path, run_python: Run, prefix: str) -> None:
    file = str(tmp_path / "shop.db")
    failed, told, theirs = answer_of(run_python(prefix + IMPORTS + BUSY, file))
    assert failed == []
    assert len(told) > 10
    assert len(set(theirs)) == 20
    assert status_of(file, *told, *theirs) == {"PROCESS_COMPLETED"}


SEVERAL_ENGINES = """
shop, shops = service(file)
stock, stocks = service(sys.argv[2], "stock")
other, others = service(file, "other")
unused, never_opened = service(file, "unused")
told = [[shop(), other()], [stock()]]

def fork_and_wait():
    for _ in range(5):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert inherited(file) == inherited(sys.argv[2]) == []
                mine = [[shop(), other(), unused()], [stock()]]
                write_down(file, mine)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        children_done([child])

threads = [threading.Thread(target=fork_and_wait) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
told[0] += [shop(), other()]
told[1] += [stock()]
for engine in (shops, stocks, others):
    engine.close()
for first, second in written_down(file):
    told[0] += first
    told[1] += second
print(json.dumps(told))
"""


def test_all_engines_of_a_process_come_to_rest_even_for_forks_at_the_same_time(tmp_path: Path, run_python: Run) -> None:
    files = [str(tmp_path / name) for name in ("shop.db", "stock.db")]
    told = answer_of(run_python(IMPORTS + SEVERAL_ENGINES, *files))
    assert [len(ids) for ids in told] == [4 + 30, 2 + 10]
    for file, ids in zip(files, told, strict=True):
        assert status_of(file, *ids) == {"PROCESS_COMPLETED"}


NEVER_OPENED = """
run, engine = service(file)
child = os.fork()
if child == 0:
    print(json.dumps(run()), flush=True)
    engine.close()
    sys.exit()
children_done([child])
assert not os.path.exists(file + "-wal")
"""


def test_an_engine_that_was_never_opened_costs_a_fork_nothing(tmp_path: Path, run_python: Run) -> None:
    file = str(tmp_path / "shop.db")
    assert status_of(file, answer_of(run_python(IMPORTS + NEVER_OPENED, file))) == {"PROCESS_COMPLETED"}


ENGINES_COME_AND_GO = """
from weakref import ref
from stacksaga_flask.engine.process import _NODES
run, engine = service(file)
run()
engine.close()
known = ref(engine)
del run, engine
gc.collect()
print(json.dumps([known() is None, len(_NODES)]))
"""


def test_an_engine_that_is_given_up_is_forgotten(tmp_path: Path, run_python: Run) -> None:
    assert answer_of(run_python(IMPORTS + ENGINES_COME_AND_GO, tmp_path / "shop.db")) == [True, 0]


# -- what cannot be waited for ---------------------------------------------------------------------------------


WRITING = """
run, engine = service(file, STACKSAGA_REQUEST_TIMEOUT="200ms")
run()
inside, finish = threading.Event(), threading.Event()

def work(cursor):
    inside.set()
    finish.wait()

thread = threading.Thread(target=lambda: engine.node().store._submit(work))
thread.start()
inside.wait()
"""
OPENING = """
from stacksaga_flask import Engine
run, engine = service(file, STACKSAGA_REQUEST_TIMEOUT="200ms")
inside, finish = threading.Event(), threading.Event()

def open_slowly():
    inside.set()
    finish.wait()
    return engine._open_named_store()

engine._open_store = open_slowly
thread = threading.Thread(target=engine.node)
thread.start()
inside.wait()
"""
REFUSED = """
child = os.fork()
if child == 0:
    status = 1
    try:
        try:
            run()
        except Exception as error:
            print(error, flush=True)
        if os.fork() == 0:
            try:
                run()
            except Exception as error:
                print(error, flush=True)
        else:
            os.wait()
        status = 0
    finally:
        os._exit(status)
finish.set()
thread.join()
children_done([child])
print(run(), flush=True)
engine.close()
"""


@pytest.mark.parametrize("script", [WRITING, OPENING], ids=["writing", "opening"])
def test_a_fork_that_waited_in_vain_is_logged_and_its_children_refuse_to_use_the_store(
    tmp_path: Path, run_python: Run, script: str
) -> None:
    file = str(tmp_path / "shop.db")
    process = run_python(IMPORTS + script + REFUSED, file)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    child, grandchild, transaction_id = output.splitlines()
    assert f"inherited the event store from process {process.pid}" in child
    assert f"inherited the event store from process {process.pid}" in grandchild
    assert "do not fork a process that is running transactions" in child
    assert f"process {process.pid} forks although its event store did not come to rest" in errors
    assert status_of(file, transaction_id) == {"PROCESS_COMPLETED"}, "the parent goes on"


UNTOLD = """
import ctypes
run, engine = service(file)
run()
if len(sys.argv) > 2:
    engine.close()
sys.stdout.flush()
child = ctypes.PyDLL(None).fork()
if child == 0:
    status = 1
    try:
        try:
            print(json.dumps(run()), flush=True)
        except Exception as error:
            print(json.dumps(str(error)), flush=True)
        status = 0
    finally:
        os._exit(status)
children_done([child])
engine.close()
"""


def test_a_child_of_a_fork_that_python_was_not_told_of_refuses_an_open_store(tmp_path: Path, run_python: Run) -> None:
    file = str(tmp_path / "shop.db")
    assert "uWSGI: set lazy-apps" in answer_of(run_python(IMPORTS + UNTOLD, file))
    assert status_of(file, answer_of(run_python(IMPORTS + UNTOLD, file, "closed"))) == {"PROCESS_COMPLETED"}


INHERITED_STORE = """
run, engine = service(file)
run()
store = engine.node().store
child = os.fork()
if child == 0:
    try:
        store.now()
    except Exception as error:
        print(json.dumps(str(error)), flush=True)
    os._exit(0)
children_done([child])
assert store.now()
engine.close()
"""


def test_a_child_that_uses_its_parents_store_is_told(tmp_path: Path, run_python: Run) -> None:
    told = answer_of(run_python(IMPORTS + INHERITED_STORE, tmp_path / "shop.db"))
    assert told == "a forked child may not use the store of its parent (R11); nothing was written"


KILLED_GREENLET = """
import gevent, sqlite3
from stacksaga_flask.errors import StoreUnavailable
run, engine = service(file)
run()
store = engine.node().store
other = sqlite3.connect(file, isolation_level=None)
other.execute("BEGIN IMMEDIATE")
greenlet = gevent.spawn(run)
while not store._writes._writer._in_use.locked():
    gevent.sleep(0.001)
greenlet.kill()
said = []
try:
    store.before_fork(0.1)
except StoreUnavailable as error:
    said.append(str(error))
other.execute("ROLLBACK")
other.close()
store.before_fork(5)
said.append(inherited(file))
store.after_fork_in_parent()
said.append(run())
engine.close()
print(json.dumps(said))
"""


def test_a_fork_waits_for_the_write_of_a_greenlet_that_was_killed(tmp_path: Path, run_python: Run) -> None:
    file = str(tmp_path / "shop.db")
    refused, left, transaction_id = answer_of(run_python(PATCHED + IMPORTS + KILLED_GREENLET, file))
    assert refused == f"{file}: a write was still under way after 0.1 s"
    assert left == []
    assert status_of(file, transaction_id) == {"PROCESS_COMPLETED"}


# -- one store -------------------------------------------------------------------------------------------------


def test_a_store_at_rest_has_no_file_open_and_opens_it_when_it_is_used(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.db")
    run, engine = service(file)
    run()
    store = engine.node().store
    assert inherited(file)
    store.before_fork(5)
    assert inherited(file) == []
    store.after_fork_in_parent()
    assert status_of(file, run()) == {"PROCESS_COMPLETED"}
    assert store.read(uuid4()) is None


def test_a_call_begins_after_a_fork_that_waited_for_the_one_before() -> None:
    calls, order = CallsUnderWay(), []
    inside, held_up, leave = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with calls:
            inside.set()
            leave.wait()
            order.append("first")

    def second() -> None:
        held_up.wait()
        with calls:
            order.append("second")

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert not calls.hold_up(0.05), "one is under way"
    leave.set()
    assert calls.hold_up(5)
    held_up.set()
    order.append("fork")
    calls.go_on()
    for thread in threads:
        thread.join()
    assert order == ["first", "fork", "second"]


def test_a_writer_in_use_is_not_held_up(tmp_path: Path) -> None:
    backend = sqlite_backend(tmp_path / "shop.db", timeout=5, time_source=SystemTime())
    writer = HeldWriter(backend)
    inside, leave = threading.Event(), threading.Event()

    def work(_: object) -> None:
        inside.set()
        leave.wait()

    thread = threading.Thread(target=writer.run, args=([Call(work)],))
    thread.start()
    inside.wait()
    assert not writer.hold_up(0.05)
    leave.set()
    thread.join()
    assert writer.hold_up(5)
    assert not writer.connected
    writer.go_on()
    assert writer.run([Call(lambda _: None)])
    writer.close()
    backend.engine.dispose()

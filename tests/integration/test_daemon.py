"""The retry node as a real process: how it starts, what it finishes, how it ends under real signals."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stacksaga_flask import RunningStatus, SystemTime
from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import WindowGrid
from stacksaga_flask.store.contract import Marker
from stacksagad.exits import Exit
from tests.support.daemon import APP, ROOT, Site, daemon
from tests.support.opening import SHOP, init_url, open_url
from tests.support.waiting import wait_until

COMPLETED = {RunningStatus.PROCESS_COMPLETED}
PAUSED = {RunningStatus.PROCESS_PAUSED}
WORKERS = ["threads", "gevent"]
NAMES = [f"order-{number}" for number in range(8)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def settings(**values: object) -> str:
    """The settings of `worker_shop`."""
    return json.dumps({f"STACKSAGA_{name.upper()}": value for name, value in values.items()})


# -- what it finishes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS)
def test_one_sweep_finishes_everything_and_says_so(site: Site, workers: str) -> None:
    ids = site.leave(*NAMES)
    with daemon(site.folder, "--once", "--workers", workers) as node:
        table, _ = node.process.communicate(timeout=60)
        assert node.process.returncode == Exit.DONE, node.log
    assert [line.split() for line in table.splitlines()] == [
        ["completed", "8"],
        ["found", "8"],
        ["everything", "is", "durable"],
    ]
    assert site.statuses(ids) == COMPLETED
    assert [sorted(site.calls(step)) for step in ("reserve", "charge", "ship")] == [NAMES] * 3
    assert site.sealed_pointers(set(ids.values())) == set()
    with daemon(site.folder, "--once") as node:
        table, _ = node.process.communicate(timeout=60)
        assert node.process.returncode == Exit.DONE, node.log
    assert [line.split() for line in table.splitlines()] == [["found", "0"], ["everything", "is", "durable"]]


def test_one_sweep_ends_with_a_status_of_its_own_if_something_is_left(site: Site) -> None:
    ids = site.leave(*NAMES)
    claimed = ids[NAMES[3]]
    with closing(open_url(site.url, SHOP)) as store:
        store.insert_marker(claimed, Marker(step_id="#claim", execution_state="another"), ttl=600)
    with daemon(site.folder, "--once") as node:
        table, _ = node.process.communicate(timeout=60)
        assert node.process.returncode == Exit.LEFT, node.log
    rows = [line.split("  ") for line in table.splitlines()]
    assert ["claimed by another", "1"] in [[row[0], row[-1].strip()] for row in rows]
    assert table.splitlines()[-1] == "something was left: run it again"
    assert site.statuses({"": claimed}) == PAUSED
    assert site.statuses({name: ids[name] for name in NAMES if ids[name] != claimed}) == COMPLETED
    assert site.sealed_pointers({claimed}) == {claimed}


def test_one_sweep_on_a_terminal_shows_a_bar(site: Site) -> None:
    site.leave(*NAMES)
    mine, theirs = pty.openpty()
    place = {"WORKER_FOLDER": str(site.folder), "WORKER_STORE": site.url, "WORKER_SERVICE": "shop"}
    command = [sys.executable, "-m", "stacksagad", "node", "--app", "tests.support.worker_shop:app", "--once"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "TERM": "xterm", **place}, stdout=theirs, stderr=subprocess.DEVNULL
    ) as process:
        os.close(theirs)
        shown = _all_of(mine)
        assert process.wait(60) == Exit.DONE
    assert "windows swept" in shown
    assert "100%" in shown
    assert shown.rstrip().endswith("everything is durable")


def _all_of(terminal: int) -> str:
    """What is written to a terminal until the other side is closed."""
    parts = []
    try:
        while part := os.read(terminal, 65_536):
            parts.append(part)
    except OSError:  # what Linux says once the other side is closed
        pass
    finally:
        os.close(terminal)
    return b"".join(parts).decode()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_node_finishes_what_was_left_and_ends_at_once_when_it_is_told_to(site: Site, workers: str) -> None:
    ids = site.leave(*NAMES)
    with daemon(site.folder, "--workers", workers) as node:
        wait_until(lambda: site.statuses(ids) == COMPLETED, 30)
        node.process.send_signal(signal.SIGTERM)
        assert node.ends(2.0) == Exit.DONE, node.log
        assert "retry node" in node.log
        assert "Traceback" not in node.log


def test_gevent_patches_before_the_application_is_imported(site: Site) -> None:
    (site.folder / "greenlets.py").write_text(
        "from gevent import monkey\n"
        "print('patched', monkey.is_module_patched('threading'), monkey.is_module_patched('socket'))\n"
        "from tests.support.worker_shop import app\n"
    )
    with daemon(site.folder, "--once", "--workers", "gevent", app="greenlets", cwd=site.folder) as node:
        printed, _ = node.process.communicate(timeout=60)
        assert node.process.returncode == Exit.DONE, node.log
    assert printed.splitlines()[0] == "patched True True"


def test_two_nodes_with_the_whole_ring_run_each_transaction_once(site: Site) -> None:
    ids = site.leave(*(f"order-{number}" for number in range(40)))
    with daemon(site.folder) as one, daemon(site.folder) as other:
        wait_until(lambda: site.statuses(ids) == COMPLETED, 60)
        for node in (one, other):
            node.process.send_signal(signal.SIGTERM)
        assert [node.ends() for node in (one, other)] == [Exit.DONE] * 2
    assert sorted(site.calls("ship")) == sorted(ids)


def test_a_node_that_is_killed_in_the_middle_loses_nothing(site: Site) -> None:
    ids = site.leave("waiting", waits=True) | site.leave(*NAMES, minutes=8)
    short = settings(claim_ttl=7, step_budget=1, request_timeout=1)
    with daemon(site.folder, WORKER_SETTINGS=short) as node:
        site.wait_for("inside-waiting")
        node.process.kill()
        assert node.ends() == -signal.SIGKILL
    site.let_go("waiting")
    ends = []

    def sweep() -> bool:
        with daemon(site.folder, "--once", WORKER_SETTINGS=short) as node:
            ends.append(node.ends())
        return ends[-1] == Exit.DONE

    wait_until(sweep, 60)
    assert set(ends[:-1]) == {Exit.LEFT}, "the claim of the one that was killed was respected"
    assert site.statuses(ids) == COMPLETED
    assert site.sealed_pointers(set(ids.values())) == set()
    assert site.calls("charge").count("waiting") == 2, "the step that was interrupted ran again"
    for name in ids:
        calls = [site.calls(step).count(name) for step in ("reserve", "charge", "ship")]
        assert sum(calls) in (3, 4), "at most the one call that the kill interrupted is made again"
        assert min(calls) == 1


@pytest.mark.parametrize("workers", WORKERS)
def test_what_a_process_ran_that_was_killed_goes_on_elsewhere_at_once(site: Site, workers: str) -> None:
    ids = site.leave("waiting", waits=True)
    with daemon(site.folder) as node:
        site.wait_for("inside-waiting")
        with daemon(site.folder, "--workers", workers) as other:
            other.wait_for("retry node")
            node.process.kill()
            killed_at = SystemTime().boot()
            site.let_go("waiting")
            wait_until(lambda: site.statuses(ids) == COMPLETED, 30)
            assert SystemTime().boot() - killed_at < 5 * SECOND
            other.process.send_signal(signal.SIGTERM)
            assert other.ends() == Exit.DONE, other.log
        assert "died and left 1 transaction" in other.log
    assert site.calls("charge") == ["waiting", "waiting"]


def test_what_is_parked_is_gone_on_with_at_the_seal_of_its_window(site: Site) -> None:
    short: dict[str, Any] = {"window_interval": 5, "request_timeout": 1, "step_budget": 1, "claim_ttl": 10}
    with daemon(site.folder, WORKER_SETTINGS=settings(**short)) as node:
        node.wait_for("retry node")
        (transaction_id,) = site.leave("order", minutes=0, **short).values()
        row = site.row(transaction_id)
        assert row.retry is not None
        sealed = WindowGrid(interval=5, skew_margin=SECOND).opens(row.retry) + 2 * SECOND
        wait_until(lambda: site.statuses({"": transaction_id}) == COMPLETED, 30)
        node.process.send_signal(signal.SIGTERM)
        assert node.ends() == Exit.DONE
    assert sealed <= site.row(transaction_id).updated_at < sealed + 3 * SECOND


def test_while_its_clock_is_off_a_node_sweeps_nothing_and_says_so(site: Site) -> None:
    ids = site.leave("order", window_interval=5)
    (site.folder / "off.py").write_text(
        "from tests.support.worker_shop import FOLDER, app\n"
        "store = app.extensions['stacksaga'].engine.node().store\n"
        "true = store.now\n"
        "store.now = lambda: true() + (0 if (FOLDER / 'mended').exists() else 3_600_000_000)\n"
    )
    with daemon(site.folder, app="off", cwd=site.folder, WORKER_SETTINGS=settings(window_interval=5)) as node:
        node.wait_for("nothing is swept: this machine's clock is -3")
        assert site.statuses(ids) == PAUSED
        (site.folder / "mended").touch()
        wait_until(lambda: site.statuses(ids) == COMPLETED, 30)
        node.process.send_signal(signal.SIGTERM)
        assert node.ends(2.0) == Exit.DONE
        assert node.log.count("nothing is swept") == 1, "said once in five minutes"


# -- how it ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS)
def test_a_running_step_may_end_before_the_node_does(site: Site, workers: str) -> None:
    ids = site.leave("slow", waits=True)
    with daemon(site.folder, "--workers", workers) as node:
        site.wait_for("inside-slow")
        node.process.send_signal(signal.SIGTERM)
        node.wait_for("SIGTERM: waiting at most")
        site.wait_for("stopping-slow")
        node.process.send_signal(signal.SIGINT)
        node.wait_for("SIGINT: waiting at most", str(ids["slow"]))
        assert node.process.poll() is None
        site.let_go("slow")
        assert node.ends() == Exit.DONE, node.log
    row = site.row(ids["slow"])
    assert (row.running_status, row.committed_steps) == (RunningStatus.PROCESS_PAUSED, ("reserve", "charge"))
    assert site.calls("ship") == []


def test_what_outlasts_the_grace_time_keeps_its_bucket(site: Site) -> None:
    ids = site.leave("slow", waits=True)
    with daemon(site.folder, WORKER_SETTINGS=settings(shutdown_grace=1)) as node:
        site.wait_for("inside-slow")
        node.process.send_signal(signal.SIGTERM)
        assert node.ends(20) == Exit.DONE, node.log
        assert "1s are over" in node.log
        assert str(ids["slow"]) in node.log
    assert site.sealed_pointers(set(ids.values())) == set(ids.values())


def test_a_store_that_does_not_answer_does_not_keep_an_idle_node_from_ending(site: Site) -> None:
    site.leave("order")
    (site.folder / "stuck.py").write_text(
        "import time\n"
        "from tests.support.worker_shop import FOLDER, app\n"
        "def days(year):\n"
        "    (FOLDER / 'asked').touch()\n"
        "    time.sleep(1000)\n"
        "app.extensions['stacksaga'].engine.node().store.days = days\n"
    )
    with daemon(site.folder, app="stuck", cwd=site.folder) as node:
        site.wait_for("asked")
        node.process.send_signal(signal.SIGTERM)
        assert node.ends(2.0) == Exit.DONE, node.log
        assert "SIGTERM: waiting at most 30s for the tick 'sweep'" in node.log


def test_a_signal_ends_one_sweep_with_something_left(site: Site) -> None:
    ids = site.leave("slow", waits=True)
    with daemon(site.folder, "--once") as node:
        site.wait_for("inside-slow")
        node.process.send_signal(signal.SIGTERM)
        site.wait_for("stopping-slow")
        site.let_go("slow")
        table, _ = node.process.communicate(timeout=30)
        assert node.process.returncode == Exit.LEFT, node.log
    assert table.splitlines()[0].split() == ["paused", "1"]
    assert "left: SIGTERM came before the end" in table
    assert site.statuses(ids) == PAUSED


# -- how it starts ---------------------------------------------------------------------------------------------


def test_a_store_that_is_away_is_waited_for(site: Site) -> None:
    away = site.folder / "disk"
    there = Site(away)
    with daemon(site.folder, WORKER_STORE=there.url) as node:
        node.wait_for("waiting for the event store:", "does not exist: create it")
        away.mkdir()
        node.wait_for("the event store answers", "retry node")
        ids = there.leave("order")
        assert there.statuses(ids) == PAUSED
        node.process.send_signal(signal.SIGTERM)
        assert node.ends(2.0) == Exit.DONE, node.log
        assert node.log.count("waiting for the event store") == 1


@pytest.mark.parametrize("workers", WORKERS)
def test_a_node_that_waits_for_its_store_can_be_told_to_end(site: Site, workers: str) -> None:
    with daemon(site.folder, "--workers", workers, WORKER_STORE=f"sqlite:///{site.folder}/nowhere/shop.db") as node:
        node.wait_for("waiting for the event store:")
        node.process.send_signal(signal.SIGTERM)
        assert node.ends(2.0) == Exit.DONE, node.log


def test_a_node_whose_application_is_still_being_imported_can_be_told_to_end(site: Site) -> None:
    (site.folder / "slow.py").write_text("import pathlib, time\npathlib.Path('asked').touch()\ntime.sleep(1000)\n")
    with daemon(site.folder, app="slow", cwd=site.folder) as node:
        site.wait_for("asked")
        node.process.send_signal(signal.SIGTERM)
        assert node.ends(2.0) == Exit.DONE, node.log
        assert node.log == ""


def test_an_application_that_cannot_be_imported_shows_its_own_traceback(site: Site) -> None:
    (site.folder / "broken.py").write_text("def connect():\n    raise OSError('no licence server')\n\n\nconnect()\n")
    with daemon(site.folder, app="broken:app", cwd=site.folder) as node:
        assert node.ends() == Exit.APPLICATION
        lines = node.log.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith('broken.py", line 5, in <module>')
    assert "OSError: no licence server" in lines
    assert "the module 'broken' cannot be imported" in lines[-1]


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("from flask import Flask\napp = Flask('bare')", Exit.APPLICATION, "has no sagas: call StackSaga(app"),
        ("from flask import Flask", Exit.APPLICATION, "has no 'app'"),
        ("STORE = 'memory://'", Exit.CONFIGURATION, "of which every process has one of its own"),
        ("STORE = 'oracle://shop'", Exit.CONFIGURATION, "which names no known store"),
    ],
)
def test_what_starting_again_does_not_help_ends_at_once(site: Site, text: str, status: Exit, said: str) -> None:
    if text.startswith("STORE"):
        text += (
            "\nfrom flask import Flask\nfrom stacksaga_flask import StackSaga\napp = Flask('shop')\n"
            "app.config['STACKSAGA_STORE'] = STORE\nStackSaga(app)"
        )
    (site.folder / "other.py").write_text(text)
    with daemon(site.folder, app="other:app", cwd=site.folder) as node:
        assert node.ends() == status, node.log
        assert said in node.log
        assert "Traceback" not in node.log


def test_another_grid_than_the_stores_ends_at_once(site: Site) -> None:
    init_url(site.url, SHOP, window_interval=30)
    with daemon(site.folder) as node:
        assert node.ends() == Exit.CONFIGURATION, node.log
        assert "window_interval is 60 here and 30 in the store" in node.log


@pytest.mark.parametrize("options", [("--workers", "processes"), ("--twice",)])
def test_a_wrong_command_line_is_told_by_click(site: Site, options: tuple[str, ...]) -> None:
    with daemon(site.folder, *options) as node:
        assert node.ends() == Exit.USAGE


# -- its log ---------------------------------------------------------------------------------------------------


def test_every_line_of_the_log_has_one_form_whatever_the_application_does_to_logging(site: Site) -> None:
    ids = site.leave("order")
    (site.folder / "logged.py").write_text(
        "import logging.config\n"
        "logging.config.dictConfig({'version': 1, 'loggers': {'shop': {'level': 'INFO'}}})\n"
        "from tests.support.worker_shop import app\n"
        "logging.config.dictConfig({'version': 1, 'loggers': {'shop': {'level': 'INFO'}}})\n"
    )
    with daemon(site.folder, app="logged:app", cwd=site.folder) as node:
        wait_until(lambda: site.statuses(ids) == COMPLETED, 30)
        node.process.send_signal(signal.SIGTERM)
        assert node.ends() == Exit.DONE
        lines = node.log.splitlines()
    assert lines
    for line in lines:
        moment, level, process, name, _ = line.split(" ", 4)
        assert moment.endswith("Z")
        assert (level, process, name) == ("INFO", f"[{node.process.pid}]", "stacksagad:")


def test_the_level_of_the_log_can_be_set(site: Site) -> None:
    ids = site.leave("order")
    with daemon(site.folder, "--log-level", "error") as node:
        wait_until(lambda: site.statuses(ids) == COMPLETED, 30)
        node.process.send_signal(signal.SIGINT)
        assert node.ends(2.0) == Exit.DONE
        assert node.log == ""


# -- by hand ---------------------------------------------------------------------------------------------------


def command(site: Site, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    place = {"WORKER_FOLDER": str(site.folder), "WORKER_STORE": site.url, "WORKER_SERVICE": "shop"}
    return subprocess.run(
        [sys.executable, "-m", "stacksagad", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **place},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_commands_for_a_person_take_the_application_too(site: Site) -> None:
    (transaction_id,) = site.leave("order").values()
    listed = command(site, "list", "--app", APP)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert str(transaction_id) in listed.stdout
    retried = command(site, "retry", str(transaction_id), "--app", APP)
    assert retried.returncode == 0, retried.stderr
    assert site.statuses({"": transaction_id}) == COMPLETED
    shown = command(site, "show", "--app", APP, str(transaction_id))
    assert shown.returncode == 0
    assert "PROCESS_COMPLETED" in shown.stdout


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("1 / 0", Exit.APPLICATION, "ZeroDivisionError"),
        ("app = 5", Exit.APPLICATION, "has no sagas"),
        ("from stacksaga_flask import ConfigurationError\nraise ConfigurationError('no')", Exit.CONFIGURATION, "no"),
    ],
)
def test_a_command_for_a_person_ends_as_a_node_does_if_there_is_no_application(
    site: Site, text: str, status: Exit, said: str
) -> None:
    (site.folder / "shop.py").write_text(text)
    done = command(site, "list", "--app", "shop", cwd=site.folder)
    assert done.returncode == status
    assert said in done.stderr


def test_help_names_every_command(site: Site) -> None:
    text = command(site, "--help").stdout
    for name in ("node", "show", "list", "retry", "restore"):
        assert f"\n  {name} " in text


def test_the_command_line_imports_nothing_that_gevent_would_have_to_patch() -> None:
    script = "import sys, stacksagad.cli; print('stacksaga_flask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

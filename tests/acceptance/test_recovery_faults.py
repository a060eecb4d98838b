"""Faults around real retry nodes and web servers: nothing is lost, the log says what is wrong, and nobody helps."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterable
from uuid import uuid4

from stacksaga_flask import RunningStatus
from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import WindowGrid
from stacksaga_flask.identity import token
from stacksaga_flask.store.contract import DeletePointer, Path, Register
from stacksagad.exits import Exit
from tests.support.beside import beside, each
from tests.support.daemon import Daemon
from tests.support.recovery_places import (
    CASSANDRA,
    CASSANDRA_AWAY,
    POSTGRESQL_AWAY,
    SQLITE,
    SQLITE_FULL,
    SQLITE_LIMITED,
)
from tests.support.recovery_saga import FORWARD
from tests.support.recovery_site import WINDOW, Site
from tests.support.waiting import wait_until

COMPLETED = RunningStatus.PROCESS_COMPLETED


WHY = {
    POSTGRESQL_AWAY: "PostgreSQL",
    CASSANDRA_AWAY: "no node could be used",
    SQLITE_FULL: "database or disk is full: free space on its disk",
    SQLITE_LIMITED: "disk I/O error",
}
"""What a node's log says about a store that is away."""


@beside(each(store=[POSTGRESQL_AWAY, CASSANDRA_AWAY, SQLITE_FULL, SQLITE_LIMITED]))
def test_a_store_that_is_away_in_the_middle_of_a_sweep_and_of_live_runs_is_outlasted(site: Site) -> None:
    # Four of the orders that halt are in the node's hands when the store goes, and others are not yet. Watchdogs are so
    # far off that nobody waits for them.
    site.with_settings(concurrency=4, step_budget=2, restore_delay_windows=24)
    orders = [f"order-{n}" for n in range(16)]
    live = ["live-1", "live-2"]
    with site.web("gthread", "--workers", "1", "--threads", "16") as web:
        placed = [web.order(order, down="charge", halts={"charge": "done"}) for order in orders]
        assert {answer.result() for answer in placed} == {202}
        site.bring_up()
        with site.node() as node:
            wait_until(lambda: sum(site.halted_in(order, "charge") is not None for order in orders) == 4, 40)
            held = [order for order in orders if site.halted_in(order, "charge")]
            answers = [web.order(order, halts={"charge": "done"}) for order in live]
            web_worker = {site.wait_inside(order, "charge") for order in live}.pop()
            site.outage.begin([node.process.pid, web_worker])
            began = time.monotonic()
            for order in [*orders, *live]:
                site.let_go(order, "charge")
            assert [answer.result() for answer in answers] == [202, 202]
            assert web.order("refused").result() == 503
            wait_until(lambda: time.monotonic() - began > 3 * WINDOW and "a sweep ended early" in node.log, 60)
            site.outage.end()
            wait_until(lambda: site.all_are([*orders, *live], COMPLETED), 60)
            wait_until(lambda: web.order(f"next-{uuid4()}").result() == 200, 30)

            assert WHY[site.place] in node.log
            assert _errors(node) == [], "that a store is away is no defect"
            assert "Traceback" not in node.log
            node.process.send_signal(signal.SIGTERM)
            assert node.ends() == Exit.DONE
    assert site.ledger.calls("refused") == []
    for order in orders:
        # At most the call whose answer nobody could record is made again.
        charged = [call for call in site.ledger.calls(order) if call.action == "charge"]
        assert len(charged) in ((2, 3) if order in held else (2,)), order
        assert site.ledger.actions(order) == ["reserve", *["charge"] * len(charged), "ship", "confirm"], order
        assert site.ledger.effects(order) == list(FORWARD), order
    for order in live:
        # What their step did was kept until the store took it.
        assert site.ledger.actions(order) == list(FORWARD), order
        assert site.ledger.effects(order) == list(FORWARD), order


# -- the directory ---------------------------------------------------------------------------------------------


@beside(each(store=[SQLITE, CASSANDRA]))
def test_rows_of_the_directory_that_lead_to_nothing_or_make_no_sense_stop_nobody_and_are_told_of(site: Site) -> None:
    grid = WindowGrid(interval=WINDOW, skew_margin=SECOND // 2)
    window = grid.ahead(site.store.now(), -3)
    for tier in range(1, 6):
        # Each tier written by a process of its own that got no further; the last one's transaction has no row.
        _register(site, Path(*window, f"web-{tier}", 0), range(1, tier + 1))
    year = window.date[:4]
    _register(site, Path(f"{year}-13-45", 0, "web-6", 0), [1])
    _register(site, Path(window.date, 86_399, "web-7", 0), [2])
    with site.node() as node:
        with site.web("gthread", "--workers", "1") as web:
            assert web.order("order", down="charge").result() == 202
            site.bring_up()
            wait_until(lambda: site.all_are(["order"], COMPLETED), 40)
        wait_until(lambda: site.pointers() == set(), 30)
        store = site.store
        wait_until(lambda: not list(store.instances(*window, minimum=-(2**63), maximum=2**63 - 1)), 30)
        assert _errors(node) == []
        node.process.send_signal(signal.SIGTERM)
        assert node.ends() == Exit.DONE
        for strange in (f"{year}-13-45", "86399"):
            told = [line for line in node.log.splitlines() if strange in line]
            assert len(told) == 1, "once in five minutes"
            assert "it is passed over" in told[0]
            assert "delete it" in told[0]


@beside(each(store=[SQLITE, CASSANDRA]))
def test_a_transaction_whose_retry_pointer_is_gone_is_found_by_its_watchdog(site: Site) -> None:
    with site.web("gthread", "--workers", "1", "--threads", "8") as web:
        placed = [web.order(order, down="charge") for order in ("one", "two")]
        assert [answer.result() for answer in placed] == [202, 202]
    grid = WindowGrid(interval=WINDOW, skew_margin=SECOND // 2)
    for order in ("one", "two"):
        retry = site.row(order).retry
        assert retry is not None
        gone = DeletePointer(
            path=retry, transaction_id=site.transaction_id(order), timestamp=grid.delete_timestamp(retry)
        )
        site.store.apply(gone)
    site.bring_up()
    with site.node() as node:
        wait_until(lambda: site.all_are(["one", "two"], COMPLETED), 40)
        node.process.send_signal(signal.SIGTERM)
        assert node.ends() == Exit.DONE
    for order in ("one", "two"):
        assert site.ledger.actions(order) == ["reserve", "charge", "charge", "ship", "confirm"]
        assert site.ledger.effects(order) == list(FORWARD)


def _register(site: Site, path: Path, tiers: Iterable[int]) -> None:
    # As in the grid, whatever the date and the window say.
    grid = WindowGrid(interval=WINDOW, skew_margin=SECOND // 2)
    opens = grid.opens(grid.ahead(site.store.now(), -3))
    site.store.apply(
        Register(
            path=path,
            transaction_id=uuid4(),
            instance_token=token(path.instance_id),
            tiers=frozenset(tiers),
            timestamp=opens - 2,
            day_timestamp=opens - 2,
        )
    )


# -- two nodes -------------------------------------------------------------------------------------------------


@beside(each(store=[SQLITE, CASSANDRA]))
def test_two_nodes_with_the_whole_ring_at_once_call_each_step_once(site: Site) -> None:
    site.with_settings(concurrency=4)
    # Each node stands still once it has four of those that halt, so that both have their share.
    halting = [f"halting-{n}" for n in range(12)]
    orders = [*halting, *(f"order-{n}" for n in range(28))]
    with site.web("gthread", "--workers", "2", "--threads", "16") as web:
        placed = [
            web.order(order, down="charge", halts={"charge": "asked"} if order in halting else {}) for order in orders
        ]
        assert {answer.result() for answer in placed} == {202}
    site.bring_up()
    with site.node() as one, site.node("--workers", "gevent") as other:
        wait_until(lambda: sum(site.halted_in(order, "charge") is not None for order in halting) == 8, 40)
        for order in halting:
            site.let_go(order, "charge")
        wait_until(lambda: site.all_are(orders, COMPLETED), 60)
        wait_until(lambda: site.pointers() == set(), 30)
        for node in (one, other):
            node.process.send_signal(signal.SIGTERM)
        assert [node.ends() for node in (one, other)] == [Exit.DONE] * 2
        assert [_errors(node) for node in (one, other)] == [[], []]
    for order in orders:
        assert site.ledger.actions(order) == ["reserve", "charge", "charge", "ship", "confirm"], order
        assert site.ledger.effects(order) == list(FORWARD), order
    nodes = {call.process_id for call in site.ledger.all_calls() if call.action == "ship"}
    assert nodes == {one.process.pid, other.process.pid}, "both had their share"


def _errors(node: Daemon) -> list[str]:
    """What a node told as a defect of its own or of the library."""
    return re.findall(r"^\S+ ERROR \S+ stacksaga.*", node.log, re.MULTILINE)

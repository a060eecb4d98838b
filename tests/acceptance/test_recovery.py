"""What killed and stopped processes left behind is finished by real retry nodes, without anybody doing anything."""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

from stacksaga_flask import RunningStatus
from stacksagad.exits import Exit
from tests.support.beside import beside, each
from tests.support.daemon import Daemon
from tests.support.recovery_saga import COMPENSATED, FORWARD
from tests.support.recovery_site import WINDOW, Site
from tests.support.waiting import wait_until

COMPLETED, REVERTED = RunningStatus.PROCESS_COMPLETED, RunningStatus.REVERT_COMPLETED
KINDS = ["sync", "gthread", "gevent"]
STORES = ["sqlite", "cassandra"]


# -- a web worker is killed ------------------------------------------------------------------------------------


class Finder(NamedTuple):
    """What notices that a worker was killed.

    Attributes:
        settings: It needs these.
        within: Seconds after the kill until the step runs again, at most.
    """

    settings: dict[str, object]
    within: float


FINDERS = {
    # In the fourth window after it was armed again, once that is sealed, with room for a busy machine.
    "watchdog": Finder({"restore_delay_windows": 4, "step_budget": 11, "run_directory": ""}, 5 * WINDOW + 1 + 5),
    # Under 5 s, with room for a busy machine; by their watchdogs they would be found after 50 minutes.
    "lock": Finder({"restore_delay_windows": 600, "step_budget": 30}, 15),
}


class Kill(NamedTuple):
    """Where an order's worker is killed."""

    step: str
    when: str
    """``asked``: the participant has done nothing yet. ``done``: it has, and has not answered."""
    refused: str | None = None
    """The step because of which the order is compensated."""

    @property
    def order(self) -> str:
        """The name of the order."""
        return f"{self.when}-{self.step}" + (f"-{self.refused}-refused" if self.refused else "")

    @property
    def effects(self) -> list[str]:
        """What is done for the order in the end."""
        return list(COMPENSATED if self.refused else FORWARD)

    @property
    def calls(self) -> list[str]:
        """What participants are asked for: the step of the kill twice, all others once."""
        steps: tuple[str, ...] = FORWARD
        if self.refused:
            steps = (*FORWARD[: FORWARD.index(self.refused) + 1], "refund", "release")
        return [step for step in steps for _ in range(2 if step == self.step else 1)]


KILLS = [
    *(Kill(step, when) for step in FORWARD for when in ("asked", "done")),
    *(Kill(step, when, refused="ship") for step in ("refund", "release") for when in ("asked", "done")),
    Kill("ship", "asked", refused="ship"),
    # What was begun before the kill may have been done, so that it is reverted though it is refused (R8).
    Kill("charge", "done", refused="charge"),
]


@beside(
    [
        *each(kind=KINDS, found_by=["lock"], store=STORES),
        *each(kind=["gthread"], found_by=["watchdog"], store=["sqlite"]),
        *each(kind=["gevent"], found_by=["watchdog"], store=["cassandra"]),
    ]
)
def test_whatever_step_a_worker_is_killed_in_each_order_ends_as_it_should(site: Site, kind: str, found_by: str) -> None:
    finder = FINDERS[found_by]
    site.with_settings(run_directory=str(site.folder / "run"))
    site.with_settings(**finder.settings)
    # One run a worker, or all in two of them. The first ones are not to wait until the last worker is there.
    workers = ["--workers", str(len(KILLS)), "--preload"] if kind == "sync" else ["--workers", "2", "--threads", "16"]
    with site.node() as node, site.web(kind, *workers) as web:
        for kill in KILLS:
            web.order(kill.order, halts={kill.step: kill.when}, refused=kill.refused)
        node.wait_for("retry node")
        victims = {site.wait_inside(kill.order, kill.step) for kill in KILLS}
        for process_id in victims:
            os.kill(process_id, signal.SIGKILL)
        killed = time.time()
        orders = [kill.order for kill in KILLS]
        wait_until(lambda: site.all_are(orders, COMPLETED, REVERTED), 60)

        for kill in KILLS:
            calls = site.ledger.calls(kill.order)
            assert [call.action for call in calls] == kill.calls, kill
            assert site.ledger.effects(kill.order) == kill.effects, kill
            first, second = [call for call in calls if call.action == kill.step]
            assert first.key == second.key
            assert first.process_id in victims
            assert second.process_id == node.process.pid
            assert second.at - killed < finder.within, kill
            assert site.row(kill.order).running_status is (REVERTED if kill.refused else COMPLETED), kill
        assert web.order("next").result() == 200, "the server replaced its workers"


@beside(each(store=STORES))
def test_a_worker_that_is_stopped_is_not_taken_for_dead_as_one_beside_it_is(site: Site) -> None:
    site.with_settings(run_directory=str(site.folder / "run"), restore_delay_windows=600)
    halts = {"charge": "asked"}
    with site.node() as node, site.web("sync", "--workers", "2") as web:
        node.wait_for("retry node")
        answers = {order: web.order(order, halts=halts) for order in ("stopped", "killed")}
        workers = {order: site.wait_inside(order, "charge") for order in answers}
        os.kill(workers["stopped"], signal.SIGSTOP)
        os.kill(workers["killed"], signal.SIGKILL)
        wait_until(lambda: site.all_are(["killed"], COMPLETED), 20)
        assert site.ledger.actions("stopped") == ["reserve", "charge"], "it was seen when the killed one was"
        os.kill(workers["stopped"], signal.SIGCONT)
        site.let_go("stopped", "charge")
        assert answers["stopped"].result() == 200
    assert site.ledger.actions("stopped") == list(FORWARD)
    assert site.ledger.actions("killed") == ["reserve", "charge", "charge", "ship", "confirm"]


# -- a retry node is killed ------------------------------------------------------------------------------------


@beside(
    [
        *each(successor=["another node beside it", "a restart"], found_by=["lock"], store=STORES),
        *each(successor=["a restart"], found_by=["claim"], store=STORES),
    ]
)
def test_a_node_that_is_killed_in_the_middle_of_a_bucket_loses_nothing_and_does_nothing_twice(
    site: Site, successor: str, found_by: str
) -> None:
    site.with_settings(concurrency=4, step_budget=2, run_directory=str(site.folder / "run"))
    if found_by == "claim":
        # What it claimed is left until that expires: after the longest step and two writes.
        site.with_settings(run_directory="")
    # Most are swept before and after; the node stands still once four of those that halt are in its hands.
    orders = {f"order-{n}": "asked" if n % 6 == 0 else "done" if n % 3 == 0 else "" for n in range(36)}
    halting = [order for order, when in orders.items() if when]
    with site.web("gthread", "--workers", "1", "--threads", "16") as web:
        placed = [
            web.order(order, down="charge", halts={"charge": when} if when else {}) for order, when in orders.items()
        ]
        assert {answer.result() for answer in placed} == {202}
    site.bring_up()

    def held_by(node: Daemon) -> list[str]:
        return [order for order in halting if site.halted_in(order, "charge") == node.process.pid]

    def kill(node: Daemon) -> list[str]:
        held = held_by(node)
        assert not site.all_are(set(orders) - set(held), COMPLETED), "it is in the middle of it"
        node.process.kill()
        assert node.ends() == -signal.SIGKILL
        return held

    with site.node() as first:
        wait_until(lambda: len(held_by(first)) == 4, 40)
        if successor == "a restart":
            killed_in = kill(first)
        with site.node() as second:
            if successor == "another node beside it":
                # It has taken from the same bucket before the first one goes.
                wait_until(lambda: len(held_by(second)) == 4, 40)
                killed_in = kill(first)
            for order in halting:
                site.let_go(order, "charge")
            wait_until(lambda: site.all_are(orders, COMPLETED), 60)
            transaction_ids = {site.transaction_id(order) for order in orders}
            wait_until(lambda: not transaction_ids & site.pointers(), 30)
            second.process.send_signal(signal.SIGTERM)
            assert second.ends() == Exit.DONE

    for order in orders:
        # While payments were down, then the call that the kill interrupted, if it did, and the one that counts.
        charged = 3 if order in killed_in else 2
        assert site.ledger.actions(order) == ["reserve", *["charge"] * charged, "ship", "confirm"], order
        assert site.ledger.effects(order) == list(FORWARD), order
        assert len({call.key for call in site.ledger.calls(order) if call.action == "charge"}) == 1
    assert len(killed_in) == 4


# -- workers and nodes are told to stop ------------------------------------------------------------------------

GRACE = 3


@beside([*each(kind=KINDS, store=["sqlite"]), *each(kind=["gevent"], store=["cassandra"])])
def test_what_is_in_flight_when_workers_and_nodes_are_told_to_stop_is_parked_and_finished_by_the_next_ones(
    site: Site, kind: str
) -> None:
    site.with_settings(shutdown_grace=GRACE)
    options = ("--workers", "gevent" if kind == "gevent" else "threads")
    halts = {"charge": "asked", "ship": "asked"}
    patient, stubborn = "patient", "stubborn"
    orders = [patient, stubborn]
    with site.web(kind, "--workers", "2") as web:
        answers = [web.order(order, halts=halts) for order in orders]
        for order in orders:
            site.wait_inside(order, "charge")
        web.process.send_signal(signal.SIGTERM)
        for order in orders:
            site.wait_for(f"stopping-{order}-charge")
            site.let_go(order, "charge")
        assert [answer.result() for answer in answers] == [202, 202]
        assert web.process.wait(20) == 0
    for order in orders:
        assert site.parked(order)
        assert site.row(order).committed_steps == FORWARD[:2]

    with site.node(*options) as first:
        for order in orders:
            site.wait_inside(order, "ship")
        first.process.send_signal(signal.SIGTERM)
        told = time.monotonic()
        site.wait_for(f"stopping-{patient}-ship")
        site.let_go(patient, "ship")
        wait_until(lambda: site.parked(patient))
        assert first.process.poll() is None, "it waits for the one that does not end"
        assert first.ends() == Exit.DONE
        assert GRACE <= time.monotonic() - told < GRACE + 10
        assert f"{GRACE}s are over" in first.log
        assert str(site.transaction_id(stubborn)) in first.log.splitlines()[-1]
    assert site.row(patient).committed_steps == FORWARD[:3]
    assert site.transaction_id(stubborn) in site.pointers()

    with site.node(*options) as second:
        wait_until(lambda: site.all_are(orders, COMPLETED), 60)
        second.process.send_signal(signal.SIGTERM)
        assert second.ends() == Exit.DONE
    assert site.ledger.actions(patient) == list(FORWARD)
    assert site.ledger.actions(stubborn) == ["reserve", "charge", "ship", "ship", "confirm"]
    assert [site.ledger.effects(order) for order in orders] == [list(FORWARD)] * 2

"""Starts the shop, places the orders, and looks at what came of them."""

from __future__ import annotations

import datetime
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from stacksaga_flask.clock import SECOND, SystemTime
from stacksaga_flask.config_values import without_password
from stacksaga_flask.demo.checks import Happened, check_answers, check_effects, check_endings, check_sums, effects_of
from stacksaga_flask.demo.client import Reply, Unanswered, ask
from stacksaga_flask.demo.orders import BEHAVING, NODE, Placed, orders
from stacksaga_flask.demo.participants import PARTICIPANTS
from stacksaga_flask.demo.processes import Services
from stacksaga_flask.demo.report import show_table, show_verdict
from stacksaga_flask.demo.screen import Screen
from stacksaga_flask.demo.timeline import LEGEND, Timeline

WINDOW = 5 * SECOND
"""Length of a window: short, so that a retry comes after seconds."""
PATIENCE = 60 * SECOND

SABOTAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "double-charge": ("payments", {"twice": True}),
    "no-stock": ("stock", {"refuse": "sabotaged"}),
}
"""Ways to break a participant, to see that the demo notices: whom to tell what."""


def run_demo(screen: Screen, *, store: str, service_name: str, directory: Path, sabotage: str | None = None) -> bool:
    """Run the demo and tell whether every order ended as it should.

    Args:
        screen: Where it is shown.
        store: URL of the shop's event store.
        service_name: The shop's name in it.
        directory: Where the services' logs go.
        sabotage: One of `SABOTAGES`, or None.

    Raises:
        ClickException: A service did not start or did not answer.
    """
    reading, writing = os.pipe()
    try:
        with Services(directory) as services:
            shop = Shop(
                screen, services, Timeline(reading, screen), settings_for(store, service_name, directory), writing
            )
            if sabotage is not None:
                shop.tell(*SABOTAGES[sabotage])
            try:
                happened = [shop.place(n, each) for n, each in enumerate(orders(), 1)]
                shop.watch([each.transaction_id for each in happened])
                return _judged(screen, shop, happened)
            except Unanswered as error:
                raise click.ClickException(f"{error.message}\n{shop.log_end()}") from error
    finally:
        os.close(reading)
        os.close(writing)


def settings_for(store: str, service_name: str, directory: Path) -> dict[str, str]:
    """The settings of the shop and its node, by their keys."""
    settings = {
        "STACKSAGA_STORE": store,
        "STACKSAGA_SERVICE_NAME": service_name,
        "STACKSAGA_WINDOW_INTERVAL": f"{WINDOW // SECOND}s",
        "STACKSAGA_RUN_DIRECTORY": str(directory / "run"),
    }
    if store.startswith("sqlite"):
        # A retry pointer lies where a write certainly ends before its window opens.
        settings["STACKSAGA_REQUEST_TIMEOUT"] = "2s"
    return settings


def _judged(screen: Screen, shop: Shop, happened: list[Happened]) -> bool:
    listings = shop.listings()
    answers, effects = check_answers(happened), check_effects(happened, listings)
    endings = check_endings(happened, {each.transaction_id: shop.ending(each.transaction_id) for each in happened})
    sums = check_sums(listings, told_to_strangers=shop.told_to_a_stranger(happened[0].transaction_id))
    show_table(screen, "What the shop answered, and the status of the transaction it named", answers)
    show_table(screen, "What stock, payments and shipping say they did for it", effects)
    show_table(screen, "All in all", sums)
    show_table(screen, "What became of every order, and which process ended it", endings)
    right = show_verdict(screen, [*answers, *effects, *sums, *endings])
    if not right and (log := shop.log_end()):
        screen.line(f"The end of the logs:\n{log}")
    return right


class Shop:
    """The running shop and its participants.

    Args:
        screen: Where things are shown.
        services: Where its processes are started.
        timeline: Shows what the shop and the node announce.
        settings: The settings of both.
        announcements: The pipe that it announces into.
    """

    def __init__(
        self,
        screen: Screen,
        services: Services,
        timeline: Timeline,
        settings: Mapping[str, str],
        announcements: int,
    ) -> None:
        self._screen = screen
        self._timeline = timeline
        self._clock = SystemTime()
        self._token = f"demo-{secrets.token_hex(8)}"
        screen.heading("Starting a shop on this machine")
        self._participants = {name: services.start(name, _participant(name)) for name in PARTICIPANTS}
        addresses = {f"SHOP_{name.upper()}_URL": each.url for name, each in self._participants.items()}
        environment = {
            **addresses,
            **{f"SHOP_{key}": value for key, value in settings.items()},
            "SHOP_TIMELINE": str(announcements),
            "SHOP_TOKEN": self._token,
            # A user's own options for gunicorn are not for this one.
            "GUNICORN_CMD_ARGS": "",
        }
        self._web = services.start("shop", _gunicorn, environment=environment, pass_fds=(announcements,))
        self._settings = settings
        self._introduce_services()
        self._node = services.start_daemon(
            NODE,
            [sys.executable, "-m", "stacksagad", "node", "--app", "stacksaga_flask.demo.shop:create_app"],
            environment={**environment, "SHOP_PROCESS": NODE},
            pass_fds=(announcements,),
        )
        self._introduce_store()

    def place(self, number: int, placed: Placed) -> Happened:
        """Place an order and show what happens."""
        self._screen.heading(f"{number}. {placed.name}: {placed.story}")
        headers = {"Idempotency-Key": placed.key} if placed.key else {}
        sent = "".join(f", {name}: {value}" for name, value in headers.items())
        self._screen.line(f"     -> POST /orders {json.dumps(placed.body)}{sent}")
        with self._told(placed):
            reply = self._asked(placed, headers)
            transaction_id = self._timeline.started[-1].transaction_id if reply is None else _named_by(reply)
            status = self._status(transaction_id) if transaction_id else "no transaction"
            self._tell_who_finishes(placed, transaction_id)
            self._watch_for(placed.outage * WINDOW)
        if placed.outage:
            self._screen.line("     Now they answer again.")
        if placed.kill_in:
            self._follow_to_the_end([transaction_id])
        lacking = tuple(name for name in placed.expected.headers if reply is None or name not in reply.headers)
        return Happened(placed, 0 if reply is None else reply.status, lacking, transaction_id, status)

    def watch(self, transaction_ids: Iterable[str]) -> None:
        """Show what the node does until every transaction has ended, or for a minute."""
        self._screen.heading("What is left is finished by the retry node (the daemon `stacksagad node`)")
        if self._follow_to_the_end(transaction_ids):
            self._screen.line("     Every transaction has ended.")

    def _follow_to_the_end(self, transaction_ids: Iterable[str]) -> bool:
        """Show what happens until the transactions have ended, and tell whether they have."""
        deadline = self._clock.boot() + PATIENCE
        left = {transaction_id for transaction_id in transaction_ids if transaction_id}
        while left := {each for each in left if not self._timeline.last[each].status.terminal}:
            if self._clock.boot() >= deadline:
                self._screen.line(f"     after a minute {len(left)} transactions have not ended")
                return False
            self._timeline.follow_for(0.2)
        return True

    def ending(self, transaction_id: str) -> tuple[str, str]:
        """The transaction's status now, as the status endpoint tells it, and the process that recorded its last one."""
        last = self._timeline.last.get(transaction_id)
        return self._status(transaction_id), "nobody" if last is None else last.process

    def tell(self, name: str, behaviour: dict[str, Any]) -> None:
        """Tell a participant how to behave."""
        ask(f"{self._participants[name].url}/told", "PATCH", body=behaviour)

    def listings(self) -> dict[str, Any]:
        """What each participant says it did."""
        return {name: ask(f"{each.url}/effects").body for name, each in self._participants.items()}

    def told_to_a_stranger(self, transaction_id: str) -> int:
        """What the status endpoint answers to someone without the token."""
        return ask(f"{self._web.url}/orders/{transaction_id}").status

    def log_end(self) -> str:
        """The last lines of the shop's and the node's log."""
        return "\n".join(filter(None, (self._web.log_end(), self._node.log_end())))

    def _asked(self, placed: Placed, headers: Mapping[str, str]) -> Reply | None:
        """Send the order and show what happens; None if the worker was killed before it answered."""
        url = f"{self._web.url}/orders"
        kill_in, meanwhile = placed.kill_in, self._timeline.follow
        if kill_in is not None:
            meanwhile = partial(self._kill_in, kill_in)
        try:
            reply = ask(url, "POST", body=placed.body, headers=headers, meanwhile=meanwhile)
        except Unanswered:
            if kill_in is None:
                raise
            self._screen.line("     <- no answer: the connection was lost")
            return None
        self._show_answer(reply)
        return reply

    def _kill_in(self, effect: str, _: socket.socket) -> None:
        """Kill the worker that runs the newest transaction, once the effect of its step is there."""
        known = len(self._timeline.started)
        deadline = self._clock.boot() + PATIENCE
        while self._clock.boot() < deadline:
            self._timeline.follow_for(0.05)
            if len(self._timeline.started) == known:
                continue
            started = self._timeline.started[-1]
            if self._timeline.last[started.transaction_id].status.terminal:
                return
            if effect in effects_of(self.listings(), started.transaction_id):
                os.kill(started.pid, signal.SIGKILL)
                self._screen.line(f"     the {effect} is done and not recorded: kill -9 {started.pid} (the web worker)")
                return
        raise click.ClickException(f"the effect {effect!r} did not come")

    def _watch_for(self, microseconds: int) -> None:
        """Show what happens in this time."""
        deadline = self._clock.boot() + microseconds
        while (left := deadline - self._clock.boot()) > 0:
            self._timeline.follow_for(left / SECOND)

    @contextmanager
    def _told(self, placed: Placed) -> Iterator[None]:
        for name, behaviour in placed.told.items():
            self.tell(name, behaviour)
        yield
        for name in placed.told:
            self.tell(name, BEHAVING)

    def _status(self, transaction_id: str) -> str:
        headers = {"Authorization": f"Bearer {self._token}"}
        reply = ask(f"{self._web.url}/orders/{transaction_id}", headers=headers)
        return str(reply.body["status"]) if reply.status == 200 else f"status endpoint: {reply.status}"

    def _introduce_services(self) -> None:
        for service in (*self._participants.values(), self._web):
            service.wait_until_it_answers()
            self._screen.line(f"  {service.name:<9} {service.url}  {_DESCRIPTIONS[service.name]}")

    def _introduce_store(self) -> None:
        store, service_name = self._settings["STACKSAGA_STORE"], self._settings["STACKSAGA_SERVICE_NAME"]
        self._screen.line(f"  {NODE:<9} stacksagad, which finishes what a crash or an outage leaves behind")
        self._screen.line(f"  {'store':<9} {without_password(store)}")
        self._screen.line(f"  {'':<9} the shop is its service {service_name}; every run has a name of its own")
        self._screen.line(f"  {'':<9} windows of {WINDOW // SECOND} s instead of a minute, so that retries come soon")
        self._screen.line()
        self._screen.line("Each order is a transaction of the saga place-order: reserve, charge, ship (the pivot: the")
        self._screen.line("point of no return), confirm. Each step calls a service and is recorded. In the timelines:")
        self._screen.line(f"  {LEGEND}")

    def _show_answer(self, reply: Reply) -> None:
        told = reply.body if isinstance(reply.body, dict) else {}
        text = told.get("detail") or told.get("status") or (json.dumps(told) if told else "without a JSON object")
        headers = [f", {name}: {reply.headers[name]}" for name in ("Location", "Retry-After") if name in reply.headers]
        self._screen.line(f"     <- {reply.status} {text}{''.join(headers)}")

    def _tell_who_finishes(self, placed: Placed, transaction_id: str) -> None:
        state = self._timeline.last.get(transaction_id)
        if state is None or placed.expected.ended_by != NODE:
            return
        if state.swept_from is None:
            self._screen.line(
                "     The node on this machine sees at once that the process is gone, and goes on for it."
            )
            return
        opens = datetime.datetime.fromtimestamp(state.swept_from // SECOND, datetime.timezone.utc)
        self._screen.line(f"     It waits in the recovery directory, in the window that opens at {opens:%H:%M:%S} UTC.")
        self._screen.line(
            f"     Payments stay away for {placed.outage} windows ({placed.outage * WINDOW // SECOND} s)."
        )


_DESCRIPTIONS = {
    "stock": "holds 10 mugs and 3 lamps",
    "payments": "charges cards",
    "shipping": "sends parcels",
    "shop": "gunicorn with 2 workers",
}


def _named_by(reply: Reply) -> str:
    return reply.headers.get("Transaction-Id", "")


def _participant(name: str) -> Callable[[int], list[str]]:
    return lambda listener: [sys.executable, "-m", "stacksaga_flask.demo.participants", name, str(listener)]


def _gunicorn(listener: int) -> list[str]:
    options = ["--config", "python:stacksaga_flask.demo.server", "--bind", f"fd://{listener}"]
    return [sys.executable, "-m", "gunicorn", *options, "stacksaga_flask.demo.shop:create_app()"]

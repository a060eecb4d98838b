"""Starts the shop, places the orders, and looks at what came of them."""

from __future__ import annotations

import datetime
import json
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from stacksaga_flask.clock import SECOND
from stacksaga_flask.config_values import without_password
from stacksaga_flask.demo.checks import Happened, check_answers, check_effects, check_sums
from stacksaga_flask.demo.client import Reply, Unanswered, ask
from stacksaga_flask.demo.orders import BEHAVING, PAUSED, Placed, orders
from stacksaga_flask.demo.participants import PARTICIPANTS
from stacksaga_flask.demo.processes import Services
from stacksaga_flask.demo.report import show_table, show_verdict
from stacksaga_flask.demo.screen import Screen
from stacksaga_flask.demo.timeline import LEGEND, Timeline

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
            shop = Shop(screen, services, Timeline(reading, screen), store, service_name, writing)
            if sabotage is not None:
                shop.tell(*SABOTAGES[sabotage])
            try:
                return _judged(screen, shop, [shop.place(n, each) for n, each in enumerate(orders(), 1)])
            except Unanswered as error:
                raise click.ClickException(f"{error.message}\n{shop.log_end()}") from error
    finally:
        os.close(reading)
        os.close(writing)


def _judged(screen: Screen, shop: Shop, happened: list[Happened]) -> bool:
    listings = shop.listings()
    answers, effects = check_answers(happened), check_effects(happened, listings)
    sums = check_sums(listings, told_to_strangers=shop.told_to_a_stranger(happened[0].transaction_id))
    show_table(screen, "What the shop answered, and the status of the transaction it named", answers)
    show_table(screen, "What stock, payments and shipping say they did for it", effects)
    show_table(screen, "All in all", sums)
    right = show_verdict(screen, [*answers, *effects, *sums])
    if not right and (log := shop.log_end()):
        screen.line(f"The end of the shop's log:\n{log}")
    return right


class Shop:
    """The running shop and its participants.

    Args:
        screen: Where things are shown.
        services: Where its processes are started.
        timeline: Shows what the shop announces.
        store: URL of its event store.
        service_name: Its name there.
        announcements: The pipe that it announces into.
    """

    def __init__(
        self,
        screen: Screen,
        services: Services,
        timeline: Timeline,
        store: str,
        service_name: str,
        announcements: int,
    ) -> None:
        self._screen = screen
        self._timeline = timeline
        self._token = f"demo-{secrets.token_hex(8)}"
        screen.heading("Starting a shop on this machine")
        self._participants = {name: services.start(name, _participant(name)) for name in PARTICIPANTS}
        addresses = {f"SHOP_{name.upper()}_URL": each.url for name, each in self._participants.items()}
        self._web = services.start(
            "shop",
            _gunicorn,
            environment={
                **addresses,
                "SHOP_STACKSAGA_STORE": store,
                "SHOP_STACKSAGA_SERVICE_NAME": service_name,
                "SHOP_TIMELINE": str(announcements),
                "SHOP_TOKEN": self._token,
                # A user's own options for gunicorn are not for this one.
                "GUNICORN_CMD_ARGS": "",
            },
            pass_fds=(announcements,),
        )
        self._introduce(store, service_name)

    def place(self, number: int, placed: Placed) -> Happened:
        """Place an order and show what happens."""
        self._screen.heading(f"{number}. {placed.name}: {placed.story}")
        headers = {"Idempotency-Key": placed.key} if placed.key else {}
        sent = "".join(f", {name}: {value}" for name, value in headers.items())
        self._screen.line(f"     -> POST /orders {json.dumps(placed.body)}{sent}")
        with self._told(placed):
            reply = ask(
                f"{self._web.url}/orders", "POST", body=placed.body, headers=headers, meanwhile=self._timeline.follow
            )
        self._show_answer(reply)
        transaction_id = reply.headers.get("Transaction-Id", "")
        status = self._status(transaction_id) if transaction_id else "no transaction"
        if status == PAUSED.value:
            self._tell_who_finishes(transaction_id)
        lacking = tuple(name for name in placed.expected.headers if name not in reply.headers)
        return Happened(placed, reply.status, lacking, transaction_id, status)

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
        """The last lines of the shop's log."""
        return self._web.log_end()

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

    def _introduce(self, store: str, service_name: str) -> None:
        for service in (*self._participants.values(), self._web):
            service.wait_until_it_answers()
            self._screen.line(f"  {service.name:<9} {service.url}  {_DESCRIPTIONS[service.name]}")
        self._screen.line(f"  {'store':<9} {without_password(store)}")
        self._screen.line(f"  {'':<9} the shop is its service {service_name}; every run has a name of its own")
        self._screen.line()
        self._screen.line("Each order is a transaction of the saga place-order: reserve, charge, ship (the pivot: the")
        self._screen.line("point of no return), confirm. Each step calls a service and is recorded. In the timelines:")
        self._screen.line(f"  {LEGEND}")

    def _show_answer(self, reply: Reply) -> None:
        told = reply.body if isinstance(reply.body, dict) else {}
        text = told.get("detail") or told.get("status") or (json.dumps(told) if told else "without a JSON object")
        headers = [f", {name}: {reply.headers[name]}" for name in ("Location", "Retry-After") if name in reply.headers]
        self._screen.line(f"     <- {reply.status} {text}{''.join(headers)}")

    def _tell_who_finishes(self, transaction_id: str) -> None:
        state = self._timeline.last.get(transaction_id)
        if state is None or state.swept_from is None:
            return
        opens = datetime.datetime.fromtimestamp(state.swept_from // SECOND, datetime.timezone.utc)
        for line in (
            f"It waits in the recovery directory, in the window that opens at {opens:%H:%M:%S} UTC. From then on",
            "a retry node picks it up and finishes it without anyone's help: the daemon `stacksagad node`.",
            "This version has no daemon yet. It records what there is to do, so here the order stays paused.",
        ):
            self._screen.line(f"     {line}")


_DESCRIPTIONS = {
    "stock": "holds 10 mugs and 3 lamps",
    "payments": "charges cards",
    "shipping": "sends parcels",
    "shop": "gunicorn with 2 workers",
}


def _participant(name: str) -> Callable[[int], list[str]]:
    return lambda listener: [sys.executable, "-m", "stacksaga_flask.demo.participants", name, str(listener)]


def _gunicorn(listener: int) -> list[str]:
    options = ["--config", "python:stacksaga_flask.demo.server", "--bind", f"fd://{listener}"]
    return [sys.executable, "-m", "gunicorn", *options, "stacksaga_flask.demo.shop:create_app()"]

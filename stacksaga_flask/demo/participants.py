"""Stock, payments and shipping: three services that a saga calls, each of which acts once per idempotency key.

``POST /<action>`` acts, ``GET /effects`` tells what was really done, ``PATCH /told`` tells the service how to behave.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from flask import Flask, Response, jsonify, request
from werkzeug.serving import make_server

from stacksaga_flask.clock import SECOND, SystemTime

WORK = SECOND // 10
"""How long an action takes in microseconds, so that the eye can follow."""
RETRY_AFTER = 5
"""Seconds that an unavailable service asks its clients to wait."""
STOCK = {"mug": 10, "lamp": 3}

Body = dict[str, Any]


class Answer(NamedTuple):
    """An HTTP status and what the body says."""

    status: int
    body: Body


@dataclass(frozen=True)
class Told:
    """How a service was told to behave.

    Attributes:
        refuse: Refuse every action that can be refused, for this reason.
        unavailable: Answer 503 and do nothing.
        twice: Have every effect twice: a broken service, so that the demo can be seen to notice.
        hold: Act, and keep the answer back until told otherwise.
    """

    refuse: str | None = None
    unavailable: bool = False
    twice: bool = False
    hold: bool = False


class Participant:
    """A service that has one effect and one answer per idempotency key."""

    refusal = 409
    """HTTP status of a refusal."""

    def __init__(self) -> None:
        self.told = Told()
        self.effects: list[Body] = []
        self.actions: dict[str, Callable[[Body], Answer]] = {}
        self._answers: dict[str, Answer] = {}
        self._undone: set[str] = set()
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._released.set()

    def tell(self, behaviour: Body) -> None:
        """Change how it behaves."""
        self.told = replace(self.told, **behaviour)
        if self.told.hold:
            self._released.clear()
        else:
            self._released.set()

    def wait_to_answer(self) -> None:
        """Return once answers are not kept back."""
        self._released.wait()

    def act(self, action: str, key: str, body: Body) -> Answer:
        """Act, or give the answer that the key got before, be it a refusal."""
        with self._lock:
            if self.told.unavailable:
                # Not remembered: nothing was done, and the same key shall do it later.
                return Answer(503, {"reason": "the service is unavailable"})
            if key not in self._answers:
                self._answers[key] = self.actions[action]({**body, "key": key})
            return self._answers[key]

    def listing(self) -> Body:
        """What was really done."""
        with self._lock:
            return {"effects": list(self.effects)}

    def _effect(self, name: str, body: Body) -> Answer:
        # One clock for all services of the machine, so that their effects can be put in order.
        effect = {**body, "effect": name, "at": SystemTime().boot()}
        self.effects.extend([effect, effect] if self.told.twice else [effect])
        return Answer(200, {"number": f"{name}-{len(self.effects)}"})

    def _refused(self, body: Body) -> Answer | None:
        if body["order"] in self._undone:
            return Answer(self.refusal, {"reason": "it was undone before it was done"})
        return Answer(self.refusal, {"reason": self.told.refuse}) if self.told.refuse else None

    def _undo(self, name: str, body: Body, done: Body | None) -> Answer:
        # Requests can overtake each other: one whose caller gave up waiting may arrive after the request that undoes
        # it. So also what is not known is remembered as undone, and the late one is refused.
        self._undone.add(body["order"])
        return Answer(200, {}) if done is None else self._effect(name, {**done, "key": body["key"]})


class Stock(Participant):
    """Reserves goods, releases them, and confirms that they have left."""

    def __init__(self) -> None:
        super().__init__()
        self.left = dict(STOCK)
        self.actions = {"reserve": self._reserve, "release": self._release, "confirm": self._confirm}
        self._held: dict[str, Body] = {}

    def listing(self) -> Body:
        return {**super().listing(), "left": self.left}

    def _reserve(self, body: Body) -> Answer:
        if (refused := self._refused(body)) is not None:
            return refused
        item, quantity = body["item"], body["quantity"]
        if self.left.get(item, 0) < quantity:
            return Answer(
                self.refusal, {"reason": f"out of stock: {quantity} of {item} wanted, {self.left[item]} left"}
            )
        self.left[item] -= quantity
        self._held[body["order"]] = body
        return self._effect("reserve", body)

    def _release(self, body: Body) -> Answer:
        held = self._held.pop(body["order"], None)
        if held is not None:
            self.left[held["item"]] += held["quantity"]
        return self._undo("release", body, held)

    def _confirm(self, body: Body) -> Answer:
        del self._held[body["order"]]
        return self._effect("confirm", body)


class Payments(Participant):
    """Charges a card and refunds it."""

    refusal = 402

    def __init__(self) -> None:
        super().__init__()
        self.actions = {"charge": self._charge, "refund": self._refund}
        self._charged: dict[str, Body] = {}

    def _charge(self, body: Body) -> Answer:
        if (refused := self._refused(body)) is not None:
            return refused
        self._charged[body["order"]] = body
        return self._effect("charge", body)

    def _refund(self, body: Body) -> Answer:
        return self._undo("refund", body, self._charged.pop(body["order"], None))


class Shipping(Participant):
    """Hands parcels to a courier, which cannot be undone."""

    def __init__(self) -> None:
        super().__init__()
        self.actions = {"ship": self._ship}

    def _ship(self, body: Body) -> Answer:
        return self._refused(body) or self._effect("ship", body)


PARTICIPANTS: dict[str, type[Participant]] = {"stock": Stock, "payments": Payments, "shipping": Shipping}


def create_app(participant: Participant, *, work: int = WORK) -> Flask:
    """The service of one participant; an action takes `work` microseconds."""
    app = Flask(__name__)

    @app.post("/<action>")
    def act(action: str) -> tuple[Response, int]:
        if action not in participant.actions:
            return jsonify(reason=f"there is no action {action!r}"), 404
        SystemTime().sleep(work)
        answer = participant.act(action, request.headers["Idempotency-Key"], request.get_json())
        participant.wait_to_answer()
        response = jsonify(answer.body)
        if answer.status == 503:
            response.headers["Retry-After"] = str(RETRY_AFTER)
        return response, answer.status

    @app.patch("/told")
    def tell() -> Response:
        participant.tell(request.get_json())
        return jsonify(participant.told)

    @app.get("/effects")
    def effects() -> Response:
        return jsonify(participant.listing())

    @app.get("/health")
    def health() -> Response:
        return jsonify(status="ok")

    return app


def main() -> None:
    """Serve one participant on a socket that the parent has opened: ``NAME FILE-DESCRIPTOR``."""
    name, descriptor = sys.argv[1:]
    app = create_app(PARTICIPANTS[name]())
    make_server("127.0.0.1", 0, app, threaded=True, fd=int(descriptor)).serve_forever()


if __name__ == "__main__":
    main()

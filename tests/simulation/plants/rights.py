"""Faults planted in rights to write, timestamps, clocks and claims."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.engine import room, takeover
from stacksaga_flask.engine.claims import Claim, ClaimAttempt, Claims
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.store.contract import Register, WriteTransaction
from tests.simulation.plants.plant import Plant, does_nothing


def _stamped_at_send(right: Any) -> Any:
    def apply_checked(node: Any, held: Any, *operations: Any) -> None:
        if operations:
            node.clock.sleep(0)
        now = node.clock.now()
        stamped = [
            replace(one, timestamp=max(one.timestamp, now)) if isinstance(one, WriteTransaction) else one
            for one in operations
        ]
        right(node, held, *stamped)

    return apply_checked


def _late_counts(right: Any) -> Any:
    def apply_checked(node: Any, held: Any, *operations: Any) -> None:
        if operations:
            node.store.apply(*operations)
        for operation in operations:
            if isinstance(operation, Register):
                node.writer.acknowledged(operation, node.clock.now())

    return apply_checked


def _of_the_coordinators(right: Any) -> Any:
    def timestamp(self: Right) -> int:
        given: int = right(self)
        return given + (-20_000 if given % 2 else 20_000)

    return timestamp


def _wall_clock(right: Any) -> Any:
    def at(self: Clock, boot: int) -> int:
        return self._source.wall() - self._source.boot() + boot

    return at


def _always_granted(right: Any) -> Any:
    def take(self: Claims, *args: Any, **kwargs: Any) -> ClaimAttempt:
        attempt: ClaimAttempt = right(self, *args, **kwargs)
        if attempt.claim is not None:
            return attempt
        ttl = self._ttl_for(kwargs.get("trust", 0))
        return ClaimAttempt(Claim(args[0], "granted", ttl, self._clock.now() + ttl * SECOND - self._lost))

    return take


def _renewed_by_itself(right: Any) -> Any:
    def renew(self: Claims, claim: Any, *, trust: int = 0) -> Any:
        ttl = max(claim.ttl, self._ttl_for(trust))
        return claim._replace(ttl=ttl, trusted_until=self._clock.now() + ttl * SECOND - self._lost)

    return renew


PLANTS = (
    Plant("stamped-at-send", "C1", takeover, "apply_checked", _stamped_at_send),
    Plant("late-acknowledgement-counts", "C2", takeover, "apply_checked", _late_counts),
    Plant("coordinators-timestamps", "C9", Right, "timestamp", _of_the_coordinators),
    Plant("wall-clock", "C6, V8", Clock, "at", _wall_clock),
    Plant("clock-not-compared", "R14", Clock, "compare", does_nothing),
    Plant("right-not-shrunk", "C7", Right, "shrink", does_nothing),
    Plant("claim-always-granted", "R6", Claims, "take", _always_granted),
    Plant("claim-not-renewed", "H6", Claims, "renew", _renewed_by_itself),
    Plant("not-armed-again", "H6", room, "make_room", does_nothing),
)

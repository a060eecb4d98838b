"""Claims: the right of everyone but the starter to run one transaction (R6, R16, R17).

A claim is the conditional marker ``#claim``. Its execution state names a holder that is new for each attempt, so that
an answer that was lost can be told from somebody else's claim, and the hash of a keyed start.
"""

from __future__ import annotations

import math
import uuid
from typing import NamedTuple
from uuid import UUID

from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.errors import OutcomeUnknown
from stacksaga_flask.store.contract import Marker, MarkerOutcome, Store

CLAIM = "#claim"


class Claim(NamedTuple):
    """A claim that was granted.

    Attributes:
        transaction_id: The transaction.
        state: The marker's execution state, which only this claim has.
        ttl: Seconds.
        trusted_until: In microseconds: sent + TTL - 1 s - 2δ, as TTLs are cut to whole seconds.
    """

    transaction_id: UUID
    state: str
    ttl: int
    trusted_until: int


class ClaimAttempt(NamedTuple):
    """The answer to an attempt to claim.

    Attributes:
        claim: The claim, if it was granted.
        holder_hash: Otherwise the start hash in the claim that stands in the way, if it has one.
        from_dead: Whether it was taken from an instance that is known to be dead.
    """

    claim: Claim | None
    holder_hash: str | None = None
    from_dead: bool = False


class Claims:
    """Takes, renews and gives back claims for one process.

    Args:
        store: The event store.
        clock: The process's clock.
        instance_id: This process.
        ttl: Shortest time to live in microseconds.
        skew_margin: δ in microseconds.
    """

    def __init__(self, store: Store, clock: Clock, instance_id: str, *, ttl: int, skew_margin: int) -> None:
        self._store = store
        self._clock = clock
        self._instance_id = instance_id
        self._ttl = ttl
        self._lost = SECOND + 2 * skew_margin

    def take(
        self,
        transaction_id: UUID,
        *,
        trust: int = 0,
        start_hash: str | None = None,
        dead_instance: str | None = None,
    ) -> ClaimAttempt:
        """Try to claim the transaction.

        Args:
            transaction_id: The transaction.
            trust: For how many microseconds the claim must be trusted at least.
            start_hash: Of a keyed start.
            dead_instance: An instance that is known to be dead (R18): its claim is taken by comparing its value.

        Raises:
            StoreError: Whether it was granted could not be found out. If it was, its time to live ends it.
            ClockSkew: This machine's clock is off, so that nothing may rest on its idea of trust (R14).
        """
        self._clock.compare(self._store.now)
        state = f"{self._instance_id}/{uuid.uuid4().hex} {start_hash or '-'}"
        ttl = self._ttl_for(trust)
        sent = self._clock.now()
        try:
            outcome = self._store.insert_marker(transaction_id, Marker(step_id=CLAIM, execution_state=state), ttl=ttl)
        except OutcomeUnknown:
            outcome = self._find_out(transaction_id, state)
        if outcome.applied:
            return ClaimAttempt(Claim(transaction_id, state, ttl, sent + ttl * SECOND - self._lost))
        if outcome.current is not None and dead_instance is not None and _holder(outcome.current) == dead_instance:
            return self._take_from(outcome.current, transaction_id, state, ttl)
        return ClaimAttempt(None, _hash_in(outcome.current))

    def _take_from(self, current: Marker, transaction_id: UUID, state: str, ttl: int) -> ClaimAttempt:
        marker, sent = Marker(step_id=CLAIM, execution_state=state), self._clock.now()
        try:
            outcome = self._store.replace_marker(
                transaction_id, marker, expected_state=current.execution_state, ttl=ttl
            )
        except OutcomeUnknown:
            outcome = self._find_out(transaction_id, state)
        if not outcome.applied:
            return ClaimAttempt(None, _hash_in(outcome.current))
        return ClaimAttempt(Claim(transaction_id, state, ttl, sent + ttl * SECOND - self._lost), from_dead=True)

    def renew(self, claim: Claim, *, trust: int = 0) -> Claim | None:
        """Let the claim live on, or learn that it is gone. Repeating it does no harm.

        Args:
            claim: A claim that was granted.
            trust: For how many microseconds it must be trusted at least.

        Raises:
            StoreError: Whether it was renewed is unknown.
            ClockSkew: See `take`.
        """
        self._clock.compare(self._store.now)
        claim = claim._replace(ttl=max(claim.ttl, self._ttl_for(trust)))
        sent = self._clock.now()
        marker = Marker(step_id=CLAIM, execution_state=claim.state)
        outcome = self._store.replace_marker(claim.transaction_id, marker, expected_state=claim.state, ttl=claim.ttl)
        return claim._replace(trusted_until=sent + claim.ttl * SECOND - self._lost) if outcome.applied else None

    def give_back(self, claim: Claim) -> None:
        """Delete the claim if it is still this one. The last thing an owner does, and only after an acknowledgement.

        Raises:
            StoreError: It may still be there; its time to live ends it.
        """
        self._store.delete_marker(claim.transaction_id, CLAIM, expected_state=claim.state)

    def _ttl_for(self, trust: int) -> int:
        """Seconds to live for a claim that must be trusted so many microseconds."""
        return math.ceil(max(self._ttl, trust + self._lost) / SECOND)

    def _find_out(self, transaction_id: UUID, state: str) -> MarkerOutcome:
        """What became of a conditional write that was not acknowledged, by holder id (R16)."""
        current = self._store.marker(transaction_id, CLAIM)
        return MarkerOutcome(current is not None and current.execution_state == state, current)


def _holder(marker: Marker) -> str:
    """The instance that holds the claim."""
    return marker.execution_state.partition("/")[0]


def _hash_in(marker: Marker | None) -> str | None:
    if marker is None:
        return None
    _, _, start_hash = marker.execution_state.partition(" ")
    return None if start_hash == "-" else start_hash

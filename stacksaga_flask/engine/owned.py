"""A transaction that this process owns: the row as last recorded, the right to write it, and how writes are built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.node import Node, logger
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.engine.repeat import repeatedly
from stacksaga_flask.engine.takeover import apply_checked
from stacksaga_flask.errors import OutcomeUnknown, StoreError, StoreUnavailable
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.store.contract import (
    FrozenRow,
    Marker,
    Operation,
    RunningStatus,
    TransactionRow,
    Tryout,
    WriteTransaction,
)
from stacksaga_flask.transitions import Decision

COMMITTED = "COMMITTED"
TRYOUTS_AN_EPOCH = 10_000
HARMLESS_TO_REPEAT = (StoreUnavailable, OutcomeUnknown)

T = TypeVar("T")


class Result(NamedTuple):
    """What there is to record.

    Attributes:
        decision: What follows.
        tryouts: The attempts made; their index is given when they are written.
        payload: The new payload, if the step succeeded.
        committed: The step to mark as committed, if one was.
        retry_after: Microseconds that a participant asked to be left alone.
        backs_off: Whether further tries come at growing intervals: of a revert, or of a step after the pivot.
        interrupted: What ended the step and is to end the process too, once the rest is recorded.
    """

    decision: Decision
    tryouts: tuple[Tryout, ...]
    payload: bytes | None
    committed: str | None
    retry_after: int
    backs_off: bool
    interrupted: BaseException | None = None


class Owned:
    """One owner's transaction.

    Attributes:
        node: This process.
        saga: The transaction's saga.
        row: The transaction as last recorded.
        right: The right to write it.
        claim: The claim that the right rests on; None for the starter.
        sent: The row of the last batch that was handed to the store with a result.
        taken_as: The row of the last takeover that was handed to the store for a result of a former epoch.
        last_try: Why a passing failure freezes it (R12); None if it is tried again later.
    """

    def __init__(
        self,
        node: Node,
        saga: Saga[Any, Any],
        row: TransactionRow,
        right: Right,
        *,
        claim: Claim | None = None,
        start_claim: Claim | None = None,
    ) -> None:
        self.node = node
        self.saga = saga
        self.row = row
        self.right = right
        self.claim = claim
        self.sent: TransactionRow | None = None
        self.taken_as: TransactionRow | None = None
        self.last_try: str | None = None
        # A claim of ours that may still be in the store, and then is in our own way unless it is used again. A keyed
        # start leaves its claim to the TTL.
        self._earlier_claim = start_claim
        self._tryouts = 0

    def take(self, row: TransactionRow, right: Right) -> None:
        """Go on with the row of another epoch."""
        self.row, self.right, self._tryouts = row, right, 0

    def is_taken_as(self, row: TransactionRow) -> None:
        """Remember a takeover that is about to be sent."""
        self.taken_as = row

    def drop_claim(self) -> None:
        """Rely on the claim no longer, though it may still be in the store."""
        self._earlier_claim, self.claim = self.claim or self._earlier_claim, None

    def claimed(self) -> Claim | None:
        """A claim of ours: the present one, an earlier one renewed, or a new one; None if another's is in the way.

        Raises:
            StoreError: It could not be found out.
        """
        if self.claim is None:
            earlier, claims, trust = self._earlier_claim, self.node.claims, self.trust()
            renewed = None if earlier is None else self.repeated(lambda: claims.renew(earlier, trust=trust))
            self.claim = renewed or claims.take(self.row.transaction_id, trust=trust).claim
            self._earlier_claim = None
        return self.claim

    def give_back(self) -> None:
        """Give the claim back, as the last thing an owner does.

        Raises:
            StoreError: It may still be there; its time to live ends it.
        """
        claim, self.claim = self.claim, None
        if claim is not None:
            self.node.claims.give_back(claim)

    def trust(self) -> int:
        """How long a claim must be trusted, in microseconds."""
        return longest_trust(self.node, self.saga)

    def repeated(self, call: Callable[[], T], errors: tuple[type[StoreError], ...] = HARMLESS_TO_REPEAT) -> T:
        """Call until it returns, as long as a view can wait for it; the right to write bounds it too (R6).

        Raises:
            StoreError: The last attempt's error.
        """
        return repeatedly(call, errors, self.node.clock, at_most=2 * self.node.write_timeout)

    def in_order(self, registrations: tuple[Operation, ...], batch: Callable[[], WriteTransaction]) -> None:
        """Registrations acknowledged first, then the row that names them; in one go where nothing comes between.

        Raises:
            RightEnded, StoreError: Not all of it was acknowledged in time.
        """
        if self.node.store.transactional:
            apply_checked(self.node, self.right, *registrations, batch())
        else:
            apply_checked(self.node, self.right, *registrations)
            apply_checked(self.node, self.right, batch())

    def batch(
        self,
        row: TransactionRow,
        result: Result | None = None,
        *,
        right: Right | None = None,
        delete_markers: bool = False,
        frozen: FrozenRow | None = None,
    ) -> WriteTransaction:
        """The batch that writes a row and what a result adds to it.

        Raises:
            RightEnded: It may not be sent (R6).
        """
        tryouts: tuple[Tryout, ...] = ()
        markers: tuple[Marker, ...] = ()
        if result is not None:
            self.sent = row
            first = row.epoch * TRYOUTS_AN_EPOCH + (self._tryouts if row.epoch == self.row.epoch else 0)
            tryouts = tuple(replace(tryout, tryout_index=first + n) for n, tryout in enumerate(result.tryouts))
            if result.committed is not None and not delete_markers:
                markers = (Marker(step_id=result.committed, execution_state=COMMITTED),)
        return WriteTransaction(
            row=row,
            timestamp=(right or self.right).timestamp(),
            expected_epoch=self.row.epoch,
            tryouts=tryouts,
            markers=markers,
            delete_markers=delete_markers,
            frozen=frozen,
        )

    def acknowledged(self, row: TransactionRow, result: Result) -> None:
        """Remember what was recorded."""
        self._tryouts = len(result.tryouts) + (self._tryouts if row.epoch == self.row.epoch else 0)
        self.row = row

    def after(self, result: Result) -> TransactionRow:
        """The row after a result: its progress, payload and, once completed, the public result."""
        progress, row = result.decision.progress, self.row
        reason, public_result = progress.reason, None
        payload = row.payload if result.payload is None else result.payload
        if progress.status is RunningStatus.PROCESS_COMPLETED:
            try:
                public_result = self.node.executor.outside(lambda: self.saga.public_result(payload))
            except Exception as error:  # noqa: BLE001
                # The transaction is done whatever its result function makes of it; the reason says what happened.
                logger.exception("no public result for transaction_id=%s", row.transaction_id)
                reason = f"completed, but its public result could not be made: {type(error).__name__}: {error}"
        return replace(
            row,
            running_status=progress.status,
            updated_at=self.node.clock.now(),
            payload=payload,
            payload_version=row.payload_version if result.payload is None else self.saga.codec.version,
            committed_steps=progress.committed_steps,
            possibly_done=progress.possibly_done,
            reverts=progress.reverts,
            attempt=progress.attempt,
            reason=reason,
            retry=None,
            public_result=public_result,
        )


def longest_trust(node: Node, saga: Saga[Any, Any]) -> int:
    """How long a claim must be trusted, in microseconds, so that the longest step and the writes around it fit."""
    longest = max(node.executor.budget(execution) for execution in saga.executions)
    return longest + 2 * node.write_timeout

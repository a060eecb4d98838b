"""Recording what became of a step: every write of a running transaction, in the design's order (section 5).

A `Recorder` holds a transaction's last recorded row and the right to write it. What may not be written under that
right goes through a claim: claim, read, take over if nobody else did, record (R6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.node import Node, logger
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.engine.repeat import repeatedly
from stacksaga_flask.engine.takeover import apply_checked, arm, claimed_right, confirm, drop_pointer, take_over
from stacksaga_flask.errors import Fenced, OutcomeUnknown, RightEnded, StoreError, StoreUnavailable
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.store.contract import (
    FrozenRow,
    Marker,
    Operation,
    RunningStatus,
    StoredTransaction,
    TransactionRow,
    Tryout,
    WriteTransaction,
)
from stacksaga_flask.transitions import Action, Decision

COMMITTED = "COMMITTED"
TRYOUTS_AN_EPOCH = 10_000


class Result(NamedTuple):
    """What there is to record.

    Attributes:
        decision: What follows.
        tryouts: The attempts made; their index is given when they are written.
        payload: The new payload, if the step succeeded.
        committed: The step to mark as committed, if one was.
        retry_after: Microseconds that a participant asked to be left alone.
    """

    decision: Decision
    tryouts: tuple[Tryout, ...]
    payload: bytes | None
    committed: str | None
    retry_after: int


class Recorder:
    """One owner's writes of one transaction.

    Attributes:
        row: The transaction as last recorded.
        right: The right to write it.
        claim: The claim that the right rests on; None for the starter.
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
        self._node = node
        self._saga = saga
        self.row = row
        self.right = right
        self.claim = claim
        # A keyed start leaves its claim to the TTL. Until then it is in our own way, so it is used if one is needed.
        self._start_claim = start_claim
        self._tryouts = 0

    # -- before a step -----------------------------------------------------------------------------------------

    def make_room(self, budget: int) -> None:
        """See that the step's budget and a write fit before the right ends; else arm again or renew the claim (R6).

        Raises:
            RightEnded: They do not fit. The step must not begin.
            StoreError: The store did not say so in time. The step must not begin.
        """
        needed = budget + self._node.write_timeout
        if self.right.left() >= needed:
            return
        if self.claim is not None:
            self._renew(self.claim)
        else:
            self._arm_again()
        if self.right.left() < needed:
            raise RightEnded(f"a step of {budget} µs does not fit before the right to write ends (R6)")

    def _renew(self, claim: Claim) -> None:
        renewed = self._node.claims.renew(claim)
        if renewed is None:
            raise RightEnded("the claim was lost (R6)")
        self.claim = renewed
        self.right.extend(renewed.trusted_until)

    def _arm_again(self) -> None:
        """New pointer → row naming it, both before the old fence → right extended → old pointer deleted."""
        node, old = self._node, self.row.watchdog
        path, registration = arm(node, self.row.transaction_id, self.row.saga_name)
        if old is None or node.grid.opens(path) <= node.grid.opens(old):
            return
        row = replace(self.row, watchdog=path, updated_at=node.clock.now())
        self._in_order((registration,), lambda: self._batch(row))
        self.row = row
        self.right.extend(node.grid.fence(path))
        drop_pointer(node, old, row.transaction_id)

    # -- after a step ------------------------------------------------------------------------------------------

    def record(self, result: Result) -> bool:
        """Record a result, and tell whether it stands. If not, somebody else goes on with the transaction.

        Raises:
            StoreError: The store did not acknowledge it. The watchdog finds the transaction.
        """
        before = self.row.running_status
        try:
            self._record(result)
        except (Fenced, RightEnded, OutcomeUnknown) as error:
            logger.info("transaction_id=%s is settled under a claim: %s", self.row.transaction_id, error)
            if not self._settle(result):
                return False
        self._node.recorded(before, self.row, result.tryouts)
        return True

    def give_back(self) -> None:
        """Give the claim back, as the last thing; the batch that ended the transaction has deleted it already."""
        if self.claim is not None and not self.row.running_status.terminal:
            self._node.claims.give_back(self.claim)
        self.claim = None

    def _record(self, result: Result) -> None:
        action = result.decision.action
        if action is Action.RECORD:
            row = self._after(result)
            # A plain step's write may be repeated with a higher timestamp while the right lasts.
            self._repeated((StoreUnavailable, OutcomeUnknown), lambda: self._write(row, result))
        elif action is Action.END:
            # Whether the end was written must be known before anything else is: it isn't repeated if it may have been.
            row = self._after(result)
            self._repeated((StoreUnavailable,), lambda: self._end(row, result))
        elif action is Action.PAUSE:
            self._repeated((StoreUnavailable,), lambda: self._pause(result))
        else:
            self._freeze(result)

    def _repeated(self, errors: tuple[type[StoreError], ...], write: Callable[[], None]) -> None:
        try:
            write()
        except errors:
            repeatedly(write, errors, self._node.clock)

    def _write(self, row: TransactionRow, result: Result) -> None:
        apply_checked(self._node, self.right, self._batch(row, result))
        self._recorded(row, result)

    def _end(self, row: TransactionRow, result: Result) -> None:
        """Terminal row, tryout and marker-partition delete in one batch → watchdog deleted (R9)."""
        node, watchdog = self._node, row.watchdog
        batch = self._batch(row, result, delete_markers=True)
        if node.store.transactional and watchdog is not None:
            apply_checked(node, self.right, batch, node.writer.delete(watchdog, row.transaction_id))
            self._recorded(row, result)
            return
        apply_checked(node, self.right, batch)
        self._recorded(row, result)
        self.right.end()
        if watchdog is not None:
            drop_pointer(node, watchdog, row.transaction_id)

    def _pause(self, result: Result) -> None:
        """Retry pointer ∥ a later watchdog if the present one does not lie after it → row naming both (R1, R3)."""
        node, old = self._node, self.row.watchdog
        domain = node.settings.domain(self.row.saga_name)
        now = node.clock.now()
        window = node.grid.write_window(
            now,
            delay_windows=domain.retry_delay_windows,
            not_before=now + min(result.retry_after, domain.transaction_lifetime),
            write_timeout=node.write_timeout,
        )
        retry = node.writer.path(window, PointerKind.RETRY)
        registrations = [node.writer.register(retry, self.row.transaction_id)]
        watchdog = old
        if old is None or node.grid.opens(old) <= node.grid.opens(retry):
            later = node.grid.ahead(node.grid.opens(retry), domain.restore_delay_windows)
            watchdog = node.writer.path(later, PointerKind.WATCHDOG)
            registrations.append(node.writer.register(watchdog, self.row.transaction_id))
        self.right.shrink(node.grid.fence(retry))
        row = replace(self._after(result), retry=retry, watchdog=watchdog)
        self._in_order(tuple(registrations), lambda: self._batch(row, result))
        self._recorded(row, result)
        if self.claim is None:
            self.right.end()
        if old is not None and old != watchdog:
            drop_pointer(node, old, row.transaction_id)

    def _freeze(self, result: Result) -> None:
        """Freezing is a takeover: claim → read → one batch of row and frozen row → claim given back."""
        held = self._claim_and_read(result)
        if held is None:
            raise RightEnded("another owner has the transaction (R6)")
        claim, stored = held
        right = claimed_right(self._node, claim, stored)
        row = replace(self._after(result), epoch=stored.row.epoch + 1, status_before_freezing=self.row.running_status)
        self.right, self.row, self._tryouts = right, replace(self.row, epoch=row.epoch), 0
        frozen = FrozenRow(
            transaction_id=row.transaction_id, frozen_at=row.updated_at, reason=row.reason or "no reason was given"
        )
        batch = self._batch(row, result, frozen=frozen, expected_epoch=stored.row.epoch)
        apply_checked(self._node, right, batch)
        self._recorded(row, result)

    # -- when the right has ended ------------------------------------------------------------------------------

    def _settle(self, result: Result) -> bool:
        """Record under a claim what could not be recorded, unless somebody else has gone on meanwhile (R6)."""
        if self.right.left() <= 0:
            self._node.clock.sleep(self._node.settings.clock_skew_margin)
        self.claim = None
        held = self._claim_and_read(result)
        if held is None:
            return False
        claim, stored = held
        if stored.row.running_status.terminal:
            confirm(self._node, claim, stored)
            self.row, self.claim = stored.row, None
            return True
        self.row, self.right = take_over(self._node, claim, stored)
        self._tryouts = 0
        self._record(result)
        return True

    def _claim_and_read(self, result: Result) -> tuple[Claim, StoredTransaction] | None:
        """The row as it stands under a claim of ours; None, after logging it, if it isn't ours to write any more."""
        node, transaction_id = self._node, self.row.transaction_id
        claim = self.claim = self.claim or self._claimed()
        if claim is None:
            self._late(result, "another owner holds the claim")
            return None
        stored = node.store.read(transaction_id)
        if stored is None or stored.row.epoch != self.row.epoch or stored.row.running_status is RunningStatus.FROZEN:
            self._late(result, "another owner has taken it over" if stored else "its row is gone")
            node.claims.give_back(claim)
            self.claim = None
            return None
        return claim, stored

    def _claimed(self) -> Claim | None:
        claims, start_claim = self._node.claims, self._start_claim
        self._start_claim = None
        renewed = None if start_claim is None else claims.renew(start_claim)
        return renewed or claims.take(self.row.transaction_id).claim

    def _late(self, result: Result, why: str) -> None:
        for tryout in result.tryouts:
            logger.warning(
                "late result not recorded, %s: transaction_id=%s %s %s %s %s",
                why,
                self.row.transaction_id,
                tryout.executor,
                tryout.execution_type.value,
                tryout.status.value,
                tryout.error or "",
            )

    # -- building batches --------------------------------------------------------------------------------------

    def _in_order(self, registrations: tuple[Operation, ...], batch: Callable[[], WriteTransaction]) -> None:
        """Registrations acknowledged first, then the row that names them; in one go where nothing comes between."""
        if self._node.store.transactional:
            apply_checked(self._node, self.right, *registrations, batch())
        else:
            apply_checked(self._node, self.right, *registrations)
            apply_checked(self._node, self.right, batch())

    def _batch(
        self,
        row: TransactionRow,
        result: Result | None = None,
        *,
        delete_markers: bool = False,
        frozen: FrozenRow | None = None,
        expected_epoch: int | None = None,
    ) -> WriteTransaction:
        tryouts: tuple[Tryout, ...] = ()
        markers: tuple[Marker, ...] = ()
        if result is not None:
            first = row.epoch * TRYOUTS_AN_EPOCH + self._tryouts
            tryouts = tuple(replace(tryout, tryout_index=first + n) for n, tryout in enumerate(result.tryouts))
            if result.committed is not None and not delete_markers:
                markers = (Marker(step_id=result.committed, execution_state=COMMITTED),)
        return WriteTransaction(
            row=row,
            timestamp=self.right.timestamp(),
            expected_epoch=row.epoch if expected_epoch is None else expected_epoch,
            tryouts=tryouts,
            markers=markers,
            delete_markers=delete_markers,
            frozen=frozen,
        )

    def _recorded(self, row: TransactionRow, result: Result) -> None:
        self.row = row
        self._tryouts += len(result.tryouts)

    def _after(self, result: Result) -> TransactionRow:
        """The row after a result: its progress, payload and, once completed, the public result."""
        progress, row = result.decision.progress, self.row
        reason, public_result = progress.reason, None
        payload = row.payload if result.payload is None else result.payload
        if progress.status is RunningStatus.PROCESS_COMPLETED:
            try:
                public_result = self._saga.public_result(payload)
            except Exception as error:  # noqa: BLE001
                # The transaction is done whatever its result function makes of it; the reason says what happened.
                logger.exception("no public result for transaction_id=%s", row.transaction_id)
                reason = f"completed, but its public result could not be made: {type(error).__name__}: {error}"
        return replace(
            row,
            running_status=progress.status,
            updated_at=self._node.clock.now(),
            payload=payload,
            payload_version=row.payload_version if result.payload is None else self._saga.codec.version,
            committed_steps=progress.committed_steps,
            possibly_done=progress.possibly_done,
            reverts=progress.reverts,
            attempt=progress.attempt,
            reason=reason,
            retry=None,
            public_result=public_result,
        )

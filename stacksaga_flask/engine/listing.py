"""What is in flight, paused or waiting, read from the directory, and what is frozen, read from its table.

A transaction that is not terminal or frozen has a pointer in the directory (R1), so a walk over tiers 1 to 5 finds them
all, the oldest windows first, without a scan of the transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from stacksaga_flask.directory.windows import recovery_years
from stacksaga_flask.engine.node import Node
from stacksaga_flask.errors import CorruptRow
from stacksaga_flask.store.contract import FrozenRow, Path, RunningStatus, StoredTransaction, TransactionRow

_LOWEST_TOKEN, _HIGHEST_TOKEN = -(2**63), 2**63 - 1


class Listed(NamedTuple):
    """A transaction that a pointer led to, neither terminal nor frozen.

    Attributes:
        transaction_id: Its id.
        row: Its row; None if that cannot be read.
        problem: Why it cannot be read.
    """

    transaction_id: UUID
    row: TransactionRow | None
    problem: str | None = None


class ListedFrozen(NamedTuple):
    """A frozen transaction.

    Attributes:
        transaction_id: Its id.
        frozen_at: Since when, in microseconds.
        reason: Why, and what to do.
        row: Its row; None if that cannot be read.
        problem: Why it cannot be read.
    """

    transaction_id: UUID
    frozen_at: int
    reason: str
    row: TransactionRow | None
    problem: str | None = None


def walk_pointers(node: Node) -> Iterator[tuple[Path, UUID]]:
    """Every pointer in the directory, the oldest windows first.

    Raises:
        StoreError: The store could not be asked.
    """
    store = node.store
    for year in recovery_years(node.clock.now()):
        for date in store.days(year):
            for window in store.windows(date):
                for _, instance in store.instances(date, window, minimum=_LOWEST_TOKEN, maximum=_HIGHEST_TOKEN):
                    for bucket in store.buckets(date, window, instance):
                        path = Path(date, window, instance, bucket)
                        for transaction_id in store.pointers(path):
                            yield path, transaction_id


def walk_transactions(node: Node) -> Iterator[Listed]:
    """Every transaction that is neither terminal nor frozen, each once, its row read once.

    Raises:
        StoreError: The store could not be asked.
    """
    seen: set[UUID] = set()
    for _, transaction_id in walk_pointers(node):
        if transaction_id in seen:
            continue
        seen.add(transaction_id)
        stored, problem = _read(node, transaction_id)
        if problem is not None:
            yield Listed(transaction_id, None, problem)
        elif stored is not None and not _has_ended(stored.row):
            yield Listed(transaction_id, stored.row)


def _has_ended(row: TransactionRow) -> bool:
    return row.running_status.terminal or row.running_status is RunningStatus.FROZEN


def walk_frozen(node: Node, *, reason: str | None = None, saga_name: str | None = None) -> Iterator[ListedFrozen]:
    """Every frozen transaction, in no order.

    Args:
        node: This process.
        reason: Only those whose reason has this text in it, in capitals or not.
        saga_name: Only those of this saga.

    Raises:
        StoreError: The store could not be asked.
    """
    for frozen in node.store.frozen():
        if reason is not None and reason.casefold() not in frozen.reason.casefold():
            continue
        listed = _with_its_row(node, frozen)
        if listed is None:
            continue
        if saga_name is None or (listed.row is not None and listed.row.saga_name == saga_name):
            yield listed


def _with_its_row(node: Node, frozen: FrozenRow) -> ListedFrozen | None:
    """None if the transaction is not frozen: its running status decides (R9)."""
    stored, problem = _read(node, frozen.transaction_id)
    if problem is None and (stored is None or stored.row.running_status is not RunningStatus.FROZEN):
        return None
    row = None if stored is None else stored.row
    return ListedFrozen(frozen.transaction_id, frozen.frozen_at, frozen.reason, row, problem)


def _read(node: Node, transaction_id: UUID) -> tuple[StoredTransaction | None, str | None]:
    """A row, or why it cannot be read: one that is damaged must not hide the others."""
    try:
        return node.store.read(transaction_id), None
    except CorruptRow as error:
        return None, str(error)

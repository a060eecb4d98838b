"""Between a process and the store: a call may be refused, slow, or lost on either way; a write may land long after.

What the server does happens by itself, whether or not the caller still lives. A write of several statements may land
in parts, as on a store that is not transactional; what is one mutation never does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from stacksaga_flask.store.contract import (
    DeletePointer,
    DeleteTransaction,
    Drop,
    Operation,
    Register,
    WriteTransaction,
)

if TYPE_CHECKING:
    from tests.simulation.world import World


class Fate(NamedTuple):
    """What becomes of one call.

    Attributes:
        arrives: After how many microseconds it reaches the store; None if it never does.
        answers: After how many, from sending, the caller has its answer; None if it never does.
        refused: Whether the store cannot be reached; nothing arrives then.
        parts: After how many microseconds the single statements of a write arrive, each as `arrives`.
    """

    arrives: int | None
    answers: int | None
    refused: bool = False
    parts: tuple[int | None, ...] = ()


class Call(NamedTuple):
    """A call to the store as scripts and the weather see it.

    Attributes:
        name: In a few words, as `described` puts it.
        kind: ``write``, ``conditional`` or ``read``.
        transaction_id: The transaction, if it is about one.
    """

    name: str
    kind: str
    transaction_id: UUID | None


def described(operation: Operation) -> str:
    """An operation in two or three words."""
    if isinstance(operation, WriteTransaction):
        return f"row {operation.row.running_status.value}"
    if isinstance(operation, Register):
        return "watchdog" if operation.path.bucket % 2 else "retry"
    if isinstance(operation, DeletePointer):
        return "delete watchdog" if operation.path.bucket % 2 else "delete retry"
    if isinstance(operation, Drop):
        return f"drop tier {operation.tier}"
    return "delete row" if isinstance(operation, DeleteTransaction) else "index"


def statements(operation: Operation) -> tuple[Operation, ...]:
    """An operation as the statements that arrive one by one."""
    if isinstance(operation, Register):
        return tuple(replace(operation, tiers=frozenset({tier})) for tier in sorted(operation.tiers))
    return (operation,)


def told(pieces: tuple[Operation, ...], world: World) -> str:
    """Writes as a trace tells of them when they land late."""
    ids = {one for piece in pieces if (one := transaction_of(piece)) is not None}
    whose = f" of {world.short(ids.pop())}" if len(ids) == 1 else ""
    return " + ".join(f"{described(piece)}{_where(piece)}" for piece in pieces) + whose


def _where(piece: Operation) -> str:
    if isinstance(piece, WriteTransaction):
        return f" (epoch {piece.row.epoch})"
    return f" (tier {min(piece.tiers)})" if isinstance(piece, Register) else ""


def transaction_of(operation: Operation) -> UUID | None:
    """The transaction that an operation is about."""
    if isinstance(operation, WriteTransaction):
        return operation.row.transaction_id
    return None if isinstance(operation, Drop) else operation.transaction_id

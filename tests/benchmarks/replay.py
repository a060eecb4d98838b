"""The statements of one saga as they were recorded, and doing them again for another transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import msgspec


class Statement(msgspec.Struct):
    """One statement and its parameters, cut where the transaction id stands in them."""

    sql: str
    before: tuple[Any, ...]
    after: tuple[Any, ...] | None
    """None if the statement does not name the transaction."""


class Recording(msgspec.Struct):
    """The statements of one saga in order, begins and commits among them."""

    statements: list[Statement]

    @property
    def commits(self) -> int:
        """How often it commits."""
        return sum(statement.sql == "COMMIT" for statement in self.statements)


def replayer(recording: Recording, execute: Callable[[str, tuple[Any, ...]], object]) -> Callable[[uuid.UUID], None]:
    """A function that does the statements once, for another transaction. What can be prepared is."""
    statements = [(statement.sql, statement.before, statement.after) for statement in recording.statements]

    def replay(transaction_id: uuid.UUID) -> None:
        key = (str(transaction_id),)
        for sql, before, after in statements:
            execute(sql, before if after is None else before + key + after)

    return replay

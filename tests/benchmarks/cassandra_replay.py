"""One saga's requests to Cassandra as they were recorded, and doing them again as an application would write it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import msgspec
from cassandra import ProtocolVersion
from cassandra.cluster import Session
from cassandra.cqltypes import DateType
from cassandra.query import BatchStatement, BoundStatement, PreparedStatement


class Statement(msgspec.Struct):
    """A prepared statement's text, and its values as they went over the wire."""

    text: str
    values: list[bytes | None]


class Request(msgspec.Struct):
    """One statement, or a logged batch of several."""

    statements: list[Statement]


class Recording(msgspec.Struct):
    """The requests of one saga. Those of a round go out together, and all answers are waited for."""

    transaction_id: uuid.UUID
    rounds: list[list[Request]]

    @property
    def requests(self) -> int:
        """How many there are."""
        return sum(map(len, self.rounds))


def replayer(recording: Recording, session: Session) -> Callable[[uuid.UUID], None]:
    """A function that makes the requests once, for another transaction. What can be prepared is."""
    prepared: dict[str, PreparedStatement] = {}

    def part(statement: Statement) -> _Part:
        if statement.text not in prepared:
            prepared[statement.text] = session.prepare(statement.text)
        return _Part(prepared[statement.text], statement.values, recording.transaction_id)

    rounds = [[_built([part(each) for each in one.statements]) for one in together] for together in recording.rounds]

    def replay(key: uuid.UUID) -> None:
        for together in rounds:
            futures = [session.execute_async(build(key)) for build in together]
            for future in futures:
                future.result()

    return replay


class _Part:
    """A prepared statement and its Python values, among them the transaction id at some places."""

    def __init__(self, prepared: PreparedStatement, values: list[bytes | None], transaction_id: uuid.UUID) -> None:
        self._prepared = prepared
        self._values = [
            _value(column.type, value) for column, value in zip(prepared.column_metadata, values, strict=True)
        ]
        self._places = [at for at, value in enumerate(values) if value == transaction_id.bytes]

    def bound(self, key: uuid.UUID) -> BoundStatement:
        """The statement for another transaction."""
        values = self._values.copy()
        for at in self._places:
            values[at] = key
        return self._prepared.bind(values)


def _built(parts: list[_Part]) -> Callable[[uuid.UUID], Any]:
    if len(parts) == 1:
        return parts[0].bound

    def batch(key: uuid.UUID) -> BatchStatement:
        batch = BatchStatement()
        for part in parts:
            batch.add(part.bound(key))
        return batch

    return batch


def _value(kind: Any, value: bytes | None) -> Any:
    if value is not None and issubclass(kind, DateType):
        # Milliseconds, which the driver takes as well and which cost it less than a datetime.
        return int.from_bytes(value, "big", signed=True)
    return kind.from_binary(value, ProtocolVersion.V4)

"""A store that fails as told, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from stacksaga_flask.errors import OutcomeUnknown, StoreUnavailable
from stacksaga_flask.store.contract import (
    DeletePointer,
    DeleteTransaction,
    IndexStart,
    Register,
    Store,
    WriteTransaction,
)

Fault: TypeAlias = Callable[[Callable[[], Any]], Any]


def lost(call: Callable[[], Any]) -> Any:
    """The write is applied and its answer is lost."""
    call()
    raise OutcomeUnknown("the answer was lost")


def unknown(call: Callable[[], Any]) -> Any:
    """The write is not applied, and nobody says so."""
    raise OutcomeUnknown("no answer came")


def unavailable(call: Callable[[], Any]) -> Any:
    """The store is not there."""
    raise StoreUnavailable("the store is not there")


def first(then: Callable[[], object]) -> Fault:
    """Something happens before the call."""

    def fault(call: Callable[[], Any]) -> Any:
        then()
        return call()

    return fault


def afterwards(then: Callable[[], object]) -> Fault:
    """Something happens between the call and its answer."""

    def fault(call: Callable[[], Any]) -> Any:
        answer = call()
        then()
        return answer

    return fault


def described(operation: object) -> str:
    """An operation in one word or two, as the tests' expectations write it."""
    if isinstance(operation, WriteTransaction):
        return f"row {operation.row.running_status.value}"
    if isinstance(operation, Register):
        return "watchdog" if operation.path.bucket % 2 else "retry"
    if isinstance(operation, DeletePointer):
        return "delete watchdog" if operation.path.bucket % 2 else "delete retry"
    return {IndexStart: "index", DeleteTransaction: "delete row"}[type(operation)]  # type: ignore[index]


class FaultyStore:
    """Wraps a store. `calls` lists every write and conditional write; faults are taken by what a call is."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.timestamps: list[int] = []
        """Of each row write, in order."""
        self._faults: list[tuple[str, Fault]] = []

    def fault(self, call: str, *faults: Fault) -> None:
        """Let the next calls so described (as in `calls`) go through these faults, one each."""
        self._faults.extend((call, fault) for fault in faults)

    def clear(self) -> None:
        """Fail no more."""
        self._faults.clear()

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if name in ("insert_marker", "replace_marker", "delete_marker", "marker", "read", "has_pointer"):
            return lambda *args, **kwargs: self._called(name, lambda: inner(*args, **kwargs))
        return inner

    def apply(self, *operations: Any) -> None:
        name = " + ".join(described(operation) for operation in operations if not isinstance(operation, IndexStart))
        self.timestamps += [one.timestamp for one in operations if isinstance(one, WriteTransaction)]
        self._called(name, lambda: self._inner.apply(*operations))

    def _called(self, name: str, call: Callable[[], Any]) -> Any:
        self.calls.append(name)
        found = next((entry for entry in self._faults if entry[0] == name), None)
        if found is None:
            return call()
        self._faults.remove(found)
        return found[1](call)

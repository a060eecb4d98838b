"""A circuit: after ten passing failures of one execution in one sweep the rest is parked without a call.

A participant that is down is not asked a thousand times; each transaction gets its next retry pointer all the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

from stacksaga_flask.store.contract import ExecutionType

FAILURES: Final = 10

Called: TypeAlias = tuple[str, str, ExecutionType]
"""A saga's name, a step's name, and which side of the step."""


class Circuit:
    """Counts the passing failures of one sweep. A success starts the count anew."""

    def __init__(self) -> None:
        self._failures: Counter[Called] = Counter()

    def is_open(self, called: Called) -> bool:
        """Whether the execution is not to be called again in this sweep."""
        return self._failures[called] >= FAILURES

    def failed(self, called: Called) -> None:
        """Count a passing failure."""
        self._failures[called] += 1

    def succeeded(self, called: Called) -> None:
        """Forget the failures so far, unless the circuit is open."""
        if not self.is_open(called):
            self._failures[called] = 0

    def open(self) -> list[Called]:
        """The executions that are not called any more in this sweep."""
        return [called for called in self._failures if self.is_open(called)]

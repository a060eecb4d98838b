"""What the suite needs to know of the store it tests, and the fixtures of every part of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias
from uuid import UUID

import pytest

from stacksaga_flask.store.contract import Scope, Store
from stacksaga_flask.testing.conformance.samples import fresh_scope

OpenStore: TypeAlias = Callable[[Scope], Store]


class StoreHarness(ABC):
    """One installation of the store under test. All stores that it opens share their data."""

    more_than_a_page: int = 1200
    """So many rows of one partition, or frozen rows of one scope, that the store must page to read them."""

    @abstractmethod
    def open(self, scope: Scope) -> Store:
        """A new store object of this scope; the suite closes it. The suite takes a fresh scope for each test."""

    @abstractmethod
    def lose_acknowledgement(self, store: Store) -> AbstractContextManager[None]:
        """Within it, the next write of the store object is applied and its acknowledgement is lost."""

    @abstractmethod
    def refuse(self, store: Store) -> AbstractContextManager[None]:
        """Within it, the next write of the store object is certainly not applied, as if it were unreachable."""

    def spoil_frozen(self, store: Store, transaction_id: UUID) -> bool:
        """Set the reason in this frozen row to NULL, past the store as somebody's hand would, and return True.

        Left as it is where no hand can: a store that keeps typed rows cannot keep a corrupt one.
        """
        return False

    @abstractmethod
    def advance(self, microseconds: int) -> None:
        """Let that much time pass on the store's clock. Where nobody can move it, wait."""

    @abstractmethod
    def now(self) -> int:
        """The time that the store's clock should show: the machine's, or that of an injected clock."""


class Conformance:
    """Fixtures of every part of the suite."""

    @pytest.fixture
    def harness(self) -> Iterator[StoreHarness]:
        """The harness of the store under test."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture named harness that gives a StoreHarness")

    @pytest.fixture
    def open_store(self, harness: StoreHarness) -> Iterator[OpenStore]:
        """Opens stores of the harness, and closes them after the test."""
        opened: list[Store] = []

        def open_one(scope: Scope) -> Store:
            store = harness.open(scope)
            opened.append(store)
            return store

        yield open_one
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Store:
        """A store of a fresh scope."""
        return open_store(fresh_scope())

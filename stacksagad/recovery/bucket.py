"""What is known of one bucket that has been begun: pure accounting, under the sweeper's lock (R4).

A *pass* over a bucket begins with its first page, and is over when every pointer was dispatched and has led to
something. What was not durable is remembered, if it is little: the next pass then tries that alone. Everything else is
forgotten as it happens, so that memory does not grow with the bucket.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from stacksaga_flask.store.contract import Path
from stacksagad.recovery.requests import Page

PAGE: Final = 500
"""Pointers that are read at once, deleted at once, or remembered."""


class PassEnd(enum.Enum):
    """How a pass stands."""

    GOES_ON = "something is still read or in flight"
    DROP = "all of it is durable"
    KEEP = "something is not"


class Bucket:
    """A bucket that was begun and is still in the directory.

    Args:
        path: The bucket.
        token: Token of its instance.
        by_id: Whether its pointers are deleted by the ids that were read, as where epochs fence (R13).

    Attributes:
        is_under_way: Whether a pass goes on.
        pages: What the pass still reads.
    """

    def __init__(self, path: Path, token: int, *, by_id: bool) -> None:
        self.path = path
        self.token = token
        self.is_under_way = False
        self.pages: Iterator[Page] | None = None
        self._by_id = by_id
        self._is_whole = False
        self._is_read = False
        self._in_flight = 0
        self._gone: list[UUID] = []
        self._left: list[UUID] | None = None

    @property
    def left(self) -> list[UUID] | None:
        """What the last pass left, if it is known: the next one needs to look at no more."""
        return self._left

    def begin(self, pages: Iterator[Page]) -> None:
        """A pass begins."""
        self.pages = pages
        self.is_under_way = True
        self._is_whole = self._is_read = False
        self._gone, self._left = [], []

    def dispatched(self) -> None:
        """A pointer is handed over."""
        self._in_flight += 1

    def read(self, *, whole: bool) -> None:
        """No more of it is handed over in this pass, since every pointer was or since the sweep ended."""
        self.pages = None
        self._is_read, self._is_whole = True, whole

    def ended(self, transaction_id: UUID, *, durable: bool) -> None:
        """What was handed over has led to something."""
        self._in_flight -= 1
        self.skipped(transaction_id) if not durable else self._went(transaction_id)

    def skipped(self, transaction_id: UUID) -> None:
        """A pointer stays."""
        if self._left is not None:
            self._left.append(transaction_id)
            if len(self._left) > PAGE:
                self._left = None

    def forget(self) -> None:
        """The next pass reads all of it again."""
        self._left = None

    def take_gone(self) -> list[UUID]:
        """The pointers that are to be deleted now: a page of them, or what there is once the pass is over."""
        if len(self._gone) < PAGE and not self._is_over:
            return []
        gone, self._gone = self._gone, []
        return gone

    def end(self) -> PassEnd:
        """End the pass if it is over. To be asked once after each change."""
        if not self._is_over:
            return PassEnd.GOES_ON
        if self._is_whole and self._left == []:
            # It stays under way until it is dropped, so that no other pass begins.
            return PassEnd.DROP
        if not self._is_whole:
            self._left = None
        self.is_under_way = False
        return PassEnd.KEEP

    def not_cleared(self, end: PassEnd) -> None:
        """What the end of the pass asked for could not be done: the next pass sees to it."""
        self._left = None
        if end is PassEnd.DROP:
            # Where whole buckets are dropped nothing in it is left to do, so it need not be read for that.
            self._left = None if self._by_id else []
            self.is_under_way = False

    @property
    def _is_over(self) -> bool:
        return self._is_read and not self._in_flight

    def _went(self, transaction_id: UUID) -> None:
        if self._by_id:
            self._gone.append(transaction_id)

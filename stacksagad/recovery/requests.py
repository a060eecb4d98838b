"""What a sweep asks for, and what it says, as it goes. See `stacksagad.recovery.sweep`."""

from __future__ import annotations

import datetime
from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from stacksaga_flask.directory.windows import Window
from stacksaga_flask.store.contract import Path


class ReadDays(NamedTuple):
    """Tier 1. Answer: the dates."""

    year: int


class ReadWindows(NamedTuple):
    """Tier 2. Answer: the windows from minimum to maximum, both included."""

    date: str
    minimum: int
    maximum: int


class WindowsFound(NamedTuple):
    """So many windows are going to be visited. No answer."""

    windows: int
    walked: bool
    """Whether tiers 1 and 2 were read whole."""


class ReadInstances(NamedTuple):
    """Tier 3: a visit to a window begins. Answer: tokens and ids, tokens from minimum to maximum, both included."""

    window: Window
    minimum: int
    maximum: int


class ReadBuckets(NamedTuple):
    """Tier 4. Answer: the instance's buckets."""

    window: Window
    instance_id: str


class DropInstance(NamedTuple):
    """The row of tier 3 has nothing below it. No answer."""

    window: Window
    token: int
    instance_id: str


class ReadPointers(NamedTuple):
    """Tier 5: the next page of a bucket. Answer: a `Page`, or None while an earlier sweep's pass over it goes on."""

    path: Path
    token: int


class Page(NamedTuple):
    """Some of a bucket's pointers."""

    transaction_ids: tuple[UUID, ...]
    last: bool


class Dispatch(NamedTuple):
    """Re-invoke a transaction. No answer.

    Attributes:
        path: Its pointer.
        transaction_id: The transaction.
    """

    path: Path
    transaction_id: UUID


class BucketRead(NamedTuple):
    """Every pointer of the bucket was dispatched. No answer."""

    path: Path


class Visited(NamedTuple):
    """A visit to a window has ended. No answer."""

    window: Window


class Strange(NamedTuple):
    """A row that no version of ours writes, and that is passed over. No answer."""

    what: str


Request: TypeAlias = (
    ReadDays
    | ReadWindows
    | WindowsFound
    | ReadInstances
    | ReadBuckets
    | DropInstance
    | ReadPointers
    | Dispatch
    | BucketRead
    | Visited
    | Strange
)
Steps: TypeAlias = Generator[Request, Any, None]


def is_date_of(year: int, text: str) -> bool:
    """Whether a text is a date of the year as we write it, ``YYYY-MM-DD``."""
    try:
        date = datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return date.year == year and date.isoformat() == text


def strange_date(year: int, text: str) -> Strange:
    """What to say of a row of tier 1 that is no date of its year."""
    return Strange(f"tier 1 has {text!r} for the year {year}, which is no date of it")


def strange_window(window: Window) -> Strange:
    """What to say of a row of tier 2 that is not on the grid."""
    return Strange(f"tier 2 of {window.date} has {window.window}, which is no window of a day on this grid (R15)")

"""How one attempt at a step ended, and what a step raises to say so (R8)."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from stacksaga_flask.errors import StackSagaError
from stacksaga_flask.saga.foreign import passing

LONGEST_REASON = 1000
"""Characters of a reason that are kept."""

# -- what a step raises ----------------------------------------------------------------------------------------


class Retryable(StackSagaError):
    """The step failed for a passing reason and shall run again."""

    retry_after: timedelta | None = None
    """How long to wait at least before the next attempt."""

    def __init__(self, message: str = "", *, retry_after: float | timedelta | None = None) -> None:
        """Say that the failure is passing: HTTP 503, a timeout, a connection that was reset.

        Args:
            message: For the history of the transaction; no client sees it.
            retry_after: How long to wait at least before the next attempt, in seconds or as a timedelta. A
                moment that has passed means "at once".
        """
        super().__init__(message)
        if retry_after is not None:
            wait = retry_after if isinstance(retry_after, timedelta) else timedelta(seconds=retry_after)
            self.retry_after = max(wait, timedelta(0))


class Rejected(StackSagaError):
    """A definite business refusal: the step did nothing, and will not do it later either (R8)."""

    reason: str = ""
    """Why, in words that the client may read."""

    def __init__(self, reason: str) -> None:
        """Refuse for good. Raise it only where it is certain that nothing was done.

        Args:
            reason: Why, in words that the client may read.
        """
        self.reason = _storable("" if reason is None else str(reason)) or "refused"
        super().__init__(self.reason)


# -- what the engine reads -------------------------------------------------------------------------------------


class Succeeded(Struct, frozen=True):
    """The step returned."""

    payload: bytes
    """The payload as it is to be stored."""


class WasRejected(Struct, frozen=True):
    """The step refused, and did nothing."""

    reason: str


class FailedForNow(Struct, frozen=True):
    """The step failed for a passing reason, which proves nothing about what it did (R8)."""

    reason: str
    retry_after: int | None
    """Microseconds to wait at least, if anyone said so."""


class FailedUnexpectedly(Struct, frozen=True):
    """The step failed with any other exception, which proves nothing about what it did (R8)."""

    reason: str


Outcome: TypeAlias = Succeeded | WasRejected | FailedForNow | FailedUnexpectedly


def outcome_of(error: BaseException, now: int) -> Outcome:
    """Classify what a step raised.

    Args:
        error: What the step raised.
        now: Microseconds since 1970, UTC: a server may have named a date to come back at.

    Raises:
        BaseException: The error itself, if it is no Exception (KeyboardInterrupt, SystemExit): then the process
            is to end, and how the step ended is not known.
    """
    try:
        found = _recognised(error, now)
    except Exception:  # noqa: BLE001 - an error that cannot even be read is as unexpected as any
        found = None
    if found is not None:
        return found
    if not isinstance(error, Exception):
        raise error
    return FailedUnexpectedly(described(error))


def _recognised(error: BaseException, now: int) -> Outcome | None:
    if isinstance(error, Rejected):
        return WasRejected(_storable(str(error.reason or error)))
    if isinstance(error, Retryable):
        wait = error.retry_after
        return FailedForNow(described(error), None if wait is None else wait // timedelta(microseconds=1))
    found = passing(error, now)
    return None if found is None else FailedForNow(described(error), found.retry_after)


def described(error: BaseException) -> str:
    """``TypeName: message``, or the name alone; never empty, and bounded."""
    name = type(error).__name__
    message = _message(error)
    return _storable(f"{name}: {message}" if message else name)


def _message(error: BaseException) -> str:
    try:
        return str(error).strip()
    except Exception:  # noqa: BLE001 - an error that cannot be printed must still be recorded as what it was
        return "its message cannot be shown"


def _storable(text: str) -> str:
    # A lone surrogate is not UTF-8, and PostgreSQL refuses NUL in a text: either would lose the record of the step.
    text = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 1] + "…"

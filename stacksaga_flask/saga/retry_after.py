"""When a server asked to be called again: the header ``Retry-After``, in seconds or as an HTTP date."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

from stacksaga_flask.clock import SECOND

LONGEST = 24 * 3600 * SECOND
"""A server that names a later moment is called after this time all the same, in microseconds."""

_SECONDS = re.compile(r"\d+(\.\d*)?", re.ASCII)
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def retry_after(error: BaseException, now: int) -> int | None:
    """Microseconds to wait, by the headers that the error or its response carries, or None.

    Args:
        error: An error of an HTTP client.
        now: Microseconds since 1970, UTC, which a date is counted from.
    """
    value = _header(error)
    return None if value is None else parse(value.strip(), now)


def parse(value: str, now: int) -> int | None:
    """Microseconds from now that the header's value names, at least 0 and at most `LONGEST`; None for nonsense."""
    if _SECONDS.fullmatch(value):
        # A number of this length is past the limit, and float would make it infinite.
        wait = LONGEST if len(value) > 20 else int(float(value) * SECOND)
    else:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, TypeError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        wait = (moment - _EPOCH) // _MICROSECOND - now
    return min(max(wait, 0), LONGEST)


def _header(error: BaseException) -> str | None:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        headers = (response.get("ResponseMetadata") or {}).get("HTTPHeaders")
    else:
        headers = getattr(response, "headers", None)
        if headers is None:
            headers = getattr(error, "headers", None)
    get = getattr(headers, "get", None)
    if get is None:
        return None
    # Only some clients' headers ignore case, and those of AWS come in lower case.
    value = get("Retry-After") or get("retry-after")
    return value if isinstance(value, str) else None

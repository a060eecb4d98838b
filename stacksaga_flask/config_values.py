"""How one value of a configuration is read: what it may be written as, and what it becomes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

import durationpy

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import ProtectionMode

Read: TypeAlias = Callable[[Any], Any]

# Cassandra refuses a longer time to live.
_LONGEST = 20 * 365 * 24 * 3600 * SECOND
_MICROSECOND = timedelta(microseconds=1)
# durationpy skips what stands between two parts, and reads "mm" as months.
_DURATION = re.compile(r"(\d+(\.\d+)?(ns|us|µs|μs|ms|s|m|h|d|w))+")
_KEYSPACE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
_PASSWORD = re.compile(r":.*@")
_PASSWORD_OPTION = re.compile(r"(pass\w*=)[^&]*", re.IGNORECASE)
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class BadValue(ValueError):
    """A value is refused; the message says by which rule, and the remedy."""


def duration(*, at_least: int = 0, whole_seconds: bool = False) -> Read:
    """What reads a duration, as `microseconds` does, that is not negative.

    Args:
        at_least: Microseconds.
        whole_seconds: Whether the store counts it in seconds.
    """

    def read(value: Any) -> int:
        read_as = microseconds(value)
        if read_as < at_least:
            raise BadValue(f"it must be at least {told(at_least)}; raise it")
        if read_as > _LONGEST:
            raise BadValue("it must be at most 20 years; lower it")
        if whole_seconds and read_as % SECOND:
            raise BadValue("it must be whole seconds, as stores count a time to live in them; round it")
        return read_as

    return read


def microseconds(value: Any) -> int:
    """Read a duration as microseconds: a text like ``24h``, a number of seconds, or a timedelta.

    Raises:
        BadValue: It is none of these.
    """
    remedy = 'write a text like "24h", "1h30m" or "500ms", a number of seconds, or a timedelta'
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return round(value * SECOND)
    if isinstance(value, str):
        text = value.replace(" ", "")
        if _DURATION.fullmatch(text):
            try:
                parsed: timedelta = durationpy.from_str(text)
            except durationpy.DurationError as error:
                raise BadValue(f"it is no duration ({error}); {remedy}") from error
            return parsed // _MICROSECOND
    raise BadValue(f"it is no duration; {remedy}")


def whole(*, at_least: int, at_most: int | None = None) -> Read:
    """What reads a whole number."""

    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadValue("it is no whole number; write one")
        if value < at_least:
            raise BadValue(f"it must be at least {at_least}; raise it")
        if at_most is not None and value > at_most:
            raise BadValue(f"it must be at most {at_most}; lower it")
        return value

    return read


def boolean(value: Any) -> bool:
    """Read True or False."""
    if isinstance(value, bool):
        return value
    text = str(value).lower() if isinstance(value, (str, int)) else ""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise BadValue("it is neither true nor false; write True or False")


def plain_name(value: Any) -> str:
    """Read a name that becomes part of keys: printable ASCII, as Cassandra's tokens and ours agree there only (R11)."""
    if isinstance(value, str) and value.strip() == value != "" and value.isascii() and value.isprintable():
        return value
    raise BadValue("it must be a text of printable ASCII characters without spaces around it; rename it")


def keyspace(value: Any) -> str:
    """Read the name of a keyspace, which becomes part of statements."""
    if isinstance(value, str) and _KEYSPACE.fullmatch(value):
        return value
    raise BadValue("a keyspace is named by a letter and up to 47 letters, digits and underscores; rename it")


def store_url(value: Any) -> str:
    """Read the URL of a store."""
    if isinstance(value, str) and "://" in value:
        return value
    raise BadValue(
        'it is no URL; write one like "sqlite:///shop.db", "memory://", "postgresql://host/stacksaga" or '
        '"cassandra://host1,host2/stacksaga_event_store?local_datacenter=dc1"'
    )


def text(value: Any) -> str:
    """Read a text that is not empty."""
    if isinstance(value, str) and value:
        return value
    raise BadValue("it must be a text; write one, or leave it out")


def directory(value: Any) -> str:
    """Read the path of a directory; an empty text stands for none."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise BadValue("it must be the path of a directory, or '' for none")


def consistency(value: Any) -> str:
    """Read a consistency level. Every read must see every acknowledged write, so no weaker one will do (R1)."""
    if value in ("LOCAL_QUORUM", "QUORUM"):
        return str(value)
    raise BadValue('R1 rests on reads and writes that overlap; write "LOCAL_QUORUM" or "QUORUM"')


def protection_mode(value: Any) -> ProtectionMode:
    """Read a write protection mode that this version has."""
    if value in (ProtectionMode.STRICT, ProtectionMode.STRICT.value):
        raise BadValue(
            'this mode is not in this version, and is never run as something weaker; write "RELAXED_WITH_DEDUP"'
        )
    if value in (ProtectionMode.RELAXED_WITH_DEDUP, ProtectionMode.RELAXED_WITH_DEDUP.value):
        return ProtectionMode.RELAXED_WITH_DEDUP
    raise BadValue('there is no such mode; write "RELAXED_WITH_DEDUP"')


def told(microseconds: int) -> str:
    """A duration as a message shows it, and as a configuration may write it."""
    text: str = durationpy.to_str(timedelta(microseconds=microseconds))
    return "0s" if text == "0" else text


def without_password(url: str) -> str:
    """A store's URL as it may be shown."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD.sub(":***@", url))

"""Plain dicts as payloads: what JSON lacks is tagged on the way.

``Decimal("1.0")`` is stored as ``{"$decimal": "1.0"}``. A key of the user's that begins with ``$`` gets another
``$`` in front, so that every key survives and no user's data is taken for a tag.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from stacksaga_flask.errors import PayloadError
from stacksaga_flask.saga.payload_typed import read_object

_encode = msgspec.json.Encoder().encode

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_WRITERS: dict[type, tuple[str, Callable[[Any], str]]] = {
    Decimal: ("$decimal", str),
    datetime: ("$datetime", datetime.isoformat),
    date: ("$date", date.isoformat),
    UUID: ("$uuid", str),
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode("ascii")),
}
_READERS: dict[str, Callable[[str], Any]] = {
    "$decimal": Decimal,
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$uuid": UUID,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
}


class DictForm:
    """Payloads that are a plain dict."""

    name = "dict"
    runtime_class: type = dict

    def write(self, value: Any) -> bytes:
        """The payload as JSON. Every type that is let through reads back as it was, so nothing is read to check it.

        Raises:
            PayloadError: It holds something else.
        """
        try:
            return _encode(_tagged(value))
        except _Refused as refused:
            raise PayloadError(refused.told()) from None
        except RecursionError as error:
            raise PayloadError("the payload dict contains itself, or is nested too deeply: flatten it") from error
        except UnicodeEncodeError as error:
            raise PayloadError(
                f"the payload dict holds a text that is not valid Unicode ({error}): decode it properly, or use bytes"
            ) from error

    def read(self, data: bytes) -> dict[str, Any]:
        """The payload that was written.

        Raises:
            PayloadError: The bytes are no payload.
        """
        raw = read_object(data)
        # Without this character there is neither a tag nor an escaped key.
        return raw if b"$" not in data else untagged(raw)

    def read_raw(self, data: bytes) -> dict[str, Any]:
        """The same as `read`: an upcaster is given what the steps saw."""
        return self.read(data)

    def from_raw(self, raw: dict[str, Any]) -> dict[str, Any]:
        """What the last upcaster returned."""
        return raw


def untagged(raw: Any) -> Any:
    """Stored JSON of a plain dict with its tags turned into values again.

    Raises:
        PayloadError: A tag is unknown or its value is damaged.
    """
    if type(raw) is list:
        return [untagged(item) for item in raw]
    if type(raw) is not dict:
        return raw
    if len(raw) == 1:
        ((key, text),) = raw.items()
        if key in _READERS:
            return _read(key, text)
    return {_unescaped(key): untagged(item) for key, item in raw.items()}


def _read(tag: str, text: Any) -> Any:
    try:
        return _READERS[tag](text)
    except (ValueError, TypeError, AttributeError, InvalidOperation) as error:
        _damaged(f"{tag} holds {text!r}", error)


def _unescaped(key: str) -> str:
    if not key.startswith("$"):
        return key
    if not key.startswith("$$"):
        _damaged(f"it has the unknown tag {key!r}", None)
    return key[1:]


def _damaged(what: str, error: Exception | None) -> NoReturn:
    raise PayloadError(
        f"the stored payload is damaged or of a newer release: {what}; read it with the release that wrote it"
    ) from error


class _Refused(Exception):
    """A value is refused; the path to it grows on the way out, so that the usual case pays nothing for it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.path: list[str] = []

    def told(self) -> str:
        return f"payload{''.join(reversed(self.path))} {self.what}, which a plain dict cannot store: {self.remedy}"


def _tagged(value: Any) -> Any:
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is dict:
        return _tagged_dict(value)
    if kind is list:
        return _tagged_list(value)
    if kind is float:
        if not math.isfinite(value):
            raise _Refused(f"is {value!r}", "JSON has no such number; use None or a Decimal")
        return value
    writer = _WRITERS.get(kind)
    if writer is None:
        raise _Refused(f"is a {kind.__name__}", _remedy(value))
    tag, write = writer
    return {tag: write(value)}


def _tagged_dict(value: dict[Any, Any]) -> dict[str, Any]:
    result = {}
    for key, item in value.items():
        if type(key) is not str:
            raise _Refused(f"has the key {key!r}", "use text for keys, or declare a typed payload")
        try:
            result[f"${key}" if key.startswith("$") else key] = _tagged(item)
        except _Refused as refused:
            refused.path.append(f"[{key!r}]")
            raise
    return result


def _tagged_list(value: list[Any]) -> list[Any]:
    result = []
    try:
        for item in value:
            result.append(_tagged(item))  # noqa: PERF401 - the length tells which item was refused
    except _Refused as refused:
        refused.path.append(f"[{len(result)}]")
        raise
    return result


def _remedy(value: object) -> str:
    if isinstance(value, tuple):
        return "use a list, or declare a typed payload"
    if isinstance(value, dict):
        return "turn it into a dict with dict(...), or declare a typed payload"
    return "declare a typed payload (a dataclass with this field), or store its value"

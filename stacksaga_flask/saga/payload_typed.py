"""Typed payloads: JSON by the type's own fields."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar

import msgspec

from stacksaga_flask.errors import PayloadError
from stacksaga_flask.saga.payload_sets import sorter
from stacksaga_flask.saga.payload_types import checked, compares_every_field, runtime_class, type_name

P = TypeVar("P")

_UNWRITABLE = (TypeError, ValueError, OverflowError, AttributeError, RecursionError, msgspec.MsgspecError)
_UNREADABLE = (msgspec.DecodeError, RecursionError)


class TypedForm(Generic[P]):
    """Payloads that are a dataclass, a Struct, a TypedDict, or a dict of typed values."""

    def __init__(self, payload_type: type[P]) -> None:
        """Check the type.

        Raises:
            DefinitionError: A part of it would not survive being stored.
        """
        info = checked(payload_type)
        self.name = type_name(payload_type)
        self.runtime_class = runtime_class(info)
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(payload_type).decode
        self._sort_sets = sorter(info)
        self._equality_tells = compares_every_field(info)

    def write(self, value: Any) -> bytes:
        """The payload as JSON; of two that are equal, the same bytes in any process.

        Raises:
            PayloadError: It holds something that does not read back as it was.
        """
        try:
            again = self._decode(self._encode(value))
        except msgspec.ValidationError as error:
            raise PayloadError(f"the payload {self.name} does not fit its type: {error}{_hint(error)}") from error
        except _UNWRITABLE as error:
            raise PayloadError(
                f"the payload {self.name} cannot be stored: {error}; keep to the types of its fields"
            ) from error
        if not (self._equality_tells and _equal(value, again)):
            self._refuse_difference(value, again)
        # From what was read and not from the value, so that an int in a float field is the float it will be.
        data = self._encode(again)
        return data if self._sort_sets is None else self._encode(self._sort_sets(msgspec.json.decode(data)))

    def read(self, data: bytes) -> P:
        """The payload that was written.

        Raises:
            PayloadError: The bytes are no payload of this type.
        """
        try:
            return self._decode(data)
        except _UNREADABLE as error:
            raise PayloadError(
                f"the stored payload does not fit {self.name}: {error}; if the type was changed, raise the payload "
                f"version and register an upcaster"
            ) from error

    def read_raw(self, data: bytes) -> dict[str, Any]:
        """The stored JSON, for an upcaster.

        Raises:
            PayloadError: The bytes are not a JSON object.
        """
        return read_object(data)

    def from_raw(self, raw: dict[str, Any]) -> P:
        """The payload from what the last upcaster returned.

        Raises:
            PayloadError: That does not fit the type.
        """
        try:
            return self._decode(self._encode(raw))
        except _UNWRITABLE as error:
            raise PayloadError(
                f"what the upcasters made of a stored payload does not fit {self.name}: {error}; mend the last of them"
            ) from error

    def _refuse_difference(self, value: Any, again: Any) -> None:
        path = difference(value, again, self.name)
        if path is not None:
            raise PayloadError(
                f"{path} would not read back as it was: it holds a value that is not of the field's type (or NaN, or "
                f"a field that the type does not declare); set a value of that type"
            )


def read_object(data: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        PayloadError: The bytes are something else.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except _UNREADABLE as error:
        raise PayloadError(
            f"the stored payload of {len(data)} bytes is damaged: {error}; freeze the transaction and mend "
            f"the row by hand"
        ) from error


def difference(value: Any, again: Any, path: str) -> str | None:
    """The path to the first part that differs, or None.

    Stricter than ``==`` where a class defines that in its own way, and laxer in one place: a time that a clock
    change makes ambiguous never equals one in another zone, though the moment and the offset are the same.
    """
    if isinstance(value, float) and isinstance(again, (float, int)):
        return None if value == again else path
    if isinstance(value, (datetime.datetime, Decimal)) and isinstance(again, type(value)):
        return None if str(value) == str(again) else path
    names = _field_names(value)
    if names is not None:
        if type(value) is not type(again):
            return path
        return _first((f"{path}.{name}", getattr(value, name), getattr(again, name)) for name in names)
    if isinstance(value, dict) and isinstance(again, dict):
        if value.keys() != again.keys():
            return path
        return _first((f"{path}[{key!r}]", item, again[key]) for key, item in value.items())
    if isinstance(value, (list, tuple)) and type(value) is type(again):
        if len(value) != len(again):
            return path
        return _first((f"{path}[{index}]", item, again[index]) for index, item in enumerate(value))
    return None if value == again else path


def _first(pairs: Iterable[tuple[str, Any, Any]]) -> str | None:
    return next((found for path, one, other in pairs if (found := difference(one, other, path)) is not None), None)


def _field_names(value: object) -> tuple[str, ...] | None:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if is_dataclass(value):
        return tuple(field.name for field in dataclass_fields(value))
    return None


def _equal(value: object, again: object) -> bool:
    try:
        return bool(value == again)
    except ArithmeticError:
        # A signaling NaN raises in a comparison.
        return False


def _hint(error: Exception) -> str:
    return " (NaN and infinity are written as null)" if "got `null`" in str(error) else ""

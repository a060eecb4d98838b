"""The saga's state as bytes and back: typed or a plain dict, with versions, upcasting and a size limit.

A payload is stored as JSON, and nothing in it names a Python module or class: code may move while a transaction is
parked. What does not survive the way there and back is refused: by its type when the saga is declared, by its value
when a step returns it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from stacksaga_flask.errors import DefinitionError, PayloadError, PayloadTooLarge
from stacksaga_flask.saga.payload_dict import DictForm
from stacksaga_flask.saga.payload_typed import TypedForm
from stacksaga_flask.saga.payload_types import is_plain_dict

DEFAULT_LIMIT = 1024 * 1024
"""Bytes."""

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)
Upcaster: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class Form(Protocol[P_co]):
    """How payloads of one type are written and read."""

    name: str
    """The type as it is called in messages."""
    runtime_class: type
    """What every payload is an instance of."""

    def write(self, value: Any) -> bytes:
        """The payload as JSON, after a check that it reads back as it was."""

    def read(self, data: bytes) -> P_co:
        """The payload that was written."""

    def read_raw(self, data: bytes) -> dict[str, Any]:
        """What an upcaster is given."""

    def from_raw(self, raw: dict[str, Any]) -> P_co:
        """The payload from what the last upcaster returned."""


class PayloadCodec(Generic[P]):
    """Writes and reads the payloads of one saga. Made once, when the saga is declared; may be used by many threads."""

    def __init__(self, form: Form[P], version: int) -> None:
        self.version = version
        """The payload version that `encode` writes."""
        self._form = form
        self._upcasters: dict[int, Upcaster] = {}

    def upcast(self, from_version: int, upcaster: Upcaster) -> None:
        """Register what turns a stored payload of one version into the next version.

        The upcaster gets and returns a dict of JSON values, as stored: a Decimal, datetime or UUID is text. Of
        a plain dict it gets the values that the steps saw. (Where a plain dict became a typed payload, `untagged`
        in `stacksaga_flask.saga.payload_dict` gives them.)

        Raises:
            DefinitionError: There is no such older version, or it has an upcaster already.
        """
        if not 1 <= from_version < self.version:
            raise DefinitionError(
                f"an upcaster from payload version {from_version} is of no use: the saga's payload version is "
                f"{self.version}, so the versions to upcast from are 1 to {self.version - 1}; raise the payload version"
            )
        if from_version in self._upcasters:
            raise DefinitionError(
                f"payload version {from_version} has two upcasters, and only one of them could be used: remove one"
            )
        self._upcasters[from_version] = upcaster

    def encode(self, value: P, *, limit: int = DEFAULT_LIMIT) -> bytes:
        """The payload as it is stored, after a check that it reads back as it was.

        Args:
            value: The payload.
            limit: The most bytes that it may have.

        Raises:
            PayloadError: It is no payload of this saga, or would not read back as it was.
            PayloadTooLarge: It is over the limit.
        """
        if not isinstance(value, self._form.runtime_class):
            raise PayloadError(
                f"expected a payload of type {self._form.name}, got {_short(value)} of type "
                f"{type(value).__name__}: a step must return its payload or None"
            )
        data = self._form.write(value)
        if len(data) > limit:
            raise PayloadTooLarge(len(data), limit)
        return data

    def decode(self, data: bytes, version: int) -> P:
        """The payload that was stored, brought up to this codec's version.

        Args:
            data: What `encode` returned, now or in an older release.
            version: The payload version that it was written with.

        Raises:
            PayloadError: It was written by a newer release, an upcaster is missing or failed, or it is no payload
                of this type.
        """
        if version == self.version:
            return self._form.read(data)
        if not 1 <= version < self.version:
            raise PayloadError(
                f"the payload was stored with version {version}, and this release knows versions 1 to "
                f"{self.version} of {self._form.name}: finish the transaction with the release that wrote it, or "
                f"deploy that release here"
            )
        raw = self._form.read_raw(data)
        for step in range(version, self.version):
            raw = self._upcast_once(raw, step)
        return self._form.from_raw(raw)

    def _upcast_once(self, raw: dict[str, Any], version: int) -> dict[str, Any]:
        upcaster = self._upcasters.get(version)
        if upcaster is None:
            raise PayloadError(
                f"a payload of version {version} cannot be brought up to version {self.version} of "
                f"{self._form.name}: register an upcaster with @saga.upcast({version})"
            )
        try:
            result: object = upcaster(raw)
        except Exception as error:
            raise PayloadError(
                f"the upcaster from payload version {version} of {self._form.name} failed with "
                f"{type(error).__name__}: {error}; mend it, nothing was changed"
            ) from error
        if not isinstance(result, dict):
            raise PayloadError(
                f"the upcaster from payload version {version} of {self._form.name} returned "
                f"{type(result).__name__}: it must return the dict of version {version + 1}"
            )
        return result


def payload_codec(payload_type: type[P], *, version: int = 1) -> PayloadCodec[P]:
    """The codec for payloads of a type: a dataclass, msgspec Struct, TypedDict, or (plain) dict.

    Typed payloads may hold Decimal, datetime, date, time, timedelta, UUID, Enum, bytes, sets, tuples, and each
    other. Of a datetime the moment and its offset from UTC survive, neither the name of the zone nor ``fold``.
    A plain dict (``dict`` or ``dict[str, Any]``) may hold what JSON holds, and Decimal, datetime, date, UUID and
    bytes.

    Raises:
        DefinitionError: The type has a field which would not survive; the message says which.
    """
    if version < 1:
        raise DefinitionError(f"the payload version {version} is refused: versions count from 1")
    form: Form[Any] = DictForm() if is_plain_dict(payload_type) else TypedForm(payload_type)
    return PayloadCodec(form, version)


def canonical_hash(saga_name: str, data: bytes) -> str:
    """SHA-256 over the saga's name and a payload, whatever the order of its keys, in hexadecimal (R17).

    Raises:
        PayloadError: The payload is not JSON.
    """
    try:
        payload = msgspec.json.encode(msgspec.json.decode(data), order="sorted")
    except (msgspec.DecodeError, RecursionError) as error:
        raise PayloadError(f"a payload of {len(data)} bytes cannot be hashed, since it is not JSON: {error}") from error
    return hashlib.sha256(msgspec.json.encode(saga_name) + payload).hexdigest()


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"

"""Which types a payload may be made of, told when the saga is declared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any, get_args, get_origin

import msgspec
from msgspec import inspect

from stacksaga_flask.errors import DefinitionError

_WITH_FIELDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_KEYS = (
    inspect.StrType,
    inspect.IntType,
    inspect.FloatType,
    inspect.DecimalType,
    inspect.UUIDType,
    inspect.DateType,
    inspect.DateTimeType,
    inspect.TimeType,
    inspect.BytesType,
    inspect.EnumType,
    inspect.LiteralType,
)
_REMEDIES: dict[type[inspect.Type], str] = {
    inspect.AnyType: "say what it holds (a Decimal in it would come back as text)",
    inspect.RawType: "say what it holds",
    inspect.ExtType: "use a type that JSON can hold",
    inspect.MemoryViewType: "use bytes",
    inspect.CustomType: "use a dataclass, or keep the data elsewhere and put its key into the payload",
}


def is_plain_dict(payload_type: Any) -> bool:
    """Whether the type is ``dict`` or ``dict[str, Any]``."""
    return payload_type is dict or (
        get_origin(payload_type) is dict and get_args(payload_type) in ((str, Any), (str, object))
    )


def checked(payload_type: Any) -> inspect.Type:
    """What msgspec knows of a typed payload, all of which survives being stored.

    Raises:
        DefinitionError: It is no payload type, or a part of it would not survive.
    """
    name = type_name(payload_type)
    try:
        info = inspect.type_info(payload_type)
        msgspec.json.Decoder(payload_type)
    except (TypeError, NameError, AttributeError, ValueError, RecursionError) as error:
        raise DefinitionError(f"the payload type {name} cannot be stored: {error}") from error
    if not isinstance(info, (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.DictType)):
        raise DefinitionError(
            f"the payload type {name} is refused: a payload is a dataclass, a msgspec.Struct, a TypedDict or a dict"
        )
    if isinstance(info, inspect.StructType) and info.array_like:
        raise DefinitionError(
            f"the payload type {name} is array_like, so a stored payload would not name its fields and could not be "
            f"upcast: remove array_like"
        )
    for path, part in parts(info, name):
        _refuse_what_is_lost(path, part)
    return info


def _refuse_what_is_lost(path: str, part: inspect.Type) -> None:
    for refused, remedy in _REMEDIES.items():
        if isinstance(part, refused):
            kind = type_name(part.cls) if isinstance(part, inspect.CustomType) else type(part).__name__[: -len("Type")]
            raise DefinitionError(f"{path} is of type {kind}, which would not survive being stored: {remedy}")
    if isinstance(part, inspect.DictType) and not isinstance(_bare(part.key_type), _KEYS):
        raise DefinitionError(
            f"{path} has keys of type {type(_bare(part.key_type)).__name__[: -len('Type')]}, which would not survive "
            f"being stored: use str, int, Decimal, UUID, date, datetime or an Enum for keys"
        )


def parts(info: inspect.Type, path: str) -> Iterator[tuple[str, inspect.Type]]:
    """The type and all types that it is made of, each with the path to it, once."""
    seen: set[int] = set()
    waiting = [(path, info)]
    while waiting:
        path, part = waiting.pop(0)
        # Types that name themselves have one node only, so its identity ends the walk.
        if id(part) not in seen:
            seen.add(id(part))
            yield path, part
            waiting.extend(_children(path, part))


def _children(path: str, part: inspect.Type) -> list[tuple[str, inspect.Type]]:
    if isinstance(part, inspect.Metadata):
        return [(path, part.type)]
    if isinstance(part, _WITH_FIELDS):
        return [(f"{path}.{field.name}", field.type) for field in part.fields]
    if isinstance(part, inspect.DictType):
        return [(f"{path}[]", part.value_type)]
    if isinstance(part, inspect.TupleType):
        return [(f"{path}[{index}]", item) for index, item in enumerate(part.item_types)]
    if isinstance(part, inspect.CollectionType):
        return [(f"{path}[]", part.item_type)]
    if isinstance(part, inspect.UnionType):
        return [(path, option) for option in part.types]
    return []


def compares_every_field(info: inspect.Type) -> bool:
    """Whether ``==`` on two payloads compares all that is stored; a class may define it otherwise."""
    return all(_compares_every_field(part.cls) for _, part in parts(info, "") if isinstance(part, _WITH_FIELDS[:2]))


def _compares_every_field(cls: type) -> bool:
    cls = get_origin(cls) or cls
    if issubclass(cls, msgspec.Struct):
        struct: type[msgspec.Struct] = cls
        return struct.__struct_config__.eq and struct.__eq__ is msgspec.Struct.__eq__
    # A generated __eq__ has no file; if that ever changes, payloads are compared field by field, which is slower.
    code = getattr(cls.__eq__, "__code__", None)
    return (
        is_dataclass(cls)
        and code is not None
        and code.co_filename == "<string>"
        and all(field.compare for field in dataclass_fields(cls))
    )


def runtime_class(info: inspect.Type) -> type:
    """What an instance of the payload type is an instance of."""
    if isinstance(info, (inspect.StructType, inspect.DataclassType)):
        return get_origin(info.cls) or info.cls
    return dict


def type_name(payload_type: Any) -> str:
    """The type as a message names it."""
    return payload_type.__name__ if isinstance(payload_type, type) else str(payload_type)


def _bare(info: inspect.Type) -> inspect.Type:
    return info.type if isinstance(info, inspect.Metadata) else info

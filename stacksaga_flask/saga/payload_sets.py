"""The order in which sets are stored.

A set of texts comes in another order in every process. Stored like that, one payload would have several hashes,
and a repeated start would be refused as another one (R17).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from stacksaga_flask.saga.payload_types import parts

Sort: TypeAlias = Callable[[Any], Any]

_SETS = (inspect.SetType, inspect.FrozenSetType)
_BY_NAME = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)


def sorter(info: inspect.Type) -> Sort | None:
    """What sorts the sets in a payload's JSON values, or None if the type has no set."""
    if not any(isinstance(part, _SETS) for _, part in parts(info, "")):
        return None
    return lambda raw: _sorted(info, raw)


def _sorted(info: inspect.Type, raw: Any) -> Any:
    if isinstance(info, inspect.Metadata):
        return _sorted(info.type, raw)
    if isinstance(info, inspect.UnionType):
        option = next((option for option in info.types if _fits(option, raw)), None)
        return raw if option is None else _sorted(option, raw)
    if isinstance(raw, list):
        return _sorted_list(info, raw)
    if isinstance(raw, dict):
        return _sorted_dict(info, raw)
    return raw


def _sorted_list(info: inspect.Type, raw: list[Any]) -> list[Any]:
    if isinstance(info, inspect.CollectionType):
        items = [_sorted(info.item_type, item) for item in raw]
        return sorted(items, key=msgspec.json.encode) if isinstance(info, _SETS) else items
    if isinstance(info, inspect.TupleType):
        return [_sorted(kind, item) for kind, item in zip(info.item_types, raw, strict=True)]
    if isinstance(info, (inspect.StructType, inspect.NamedTupleType)):
        # Only a tagged Struct has something before its fields.
        tag = raw[: len(raw) - len(info.fields)]
        fields = zip(info.fields, raw[len(tag) :], strict=True)
        return tag + [_sorted(field.type, item) for field, item in fields]
    return raw


def _sorted_dict(info: inspect.Type, raw: dict[str, Any]) -> dict[str, Any]:
    if isinstance(info, inspect.DictType):
        return {key: _sorted(info.value_type, item) for key, item in raw.items()}
    if isinstance(info, _BY_NAME):
        kinds = {field.encode_name: field.type for field in info.fields}
        return {key: _sorted(kinds[key], item) if key in kinds else item for key, item in raw.items()}
    return raw


def _fits(info: inspect.Type, raw: Any) -> bool:
    """Whether the value is of this part of a union, which JSON tells apart by object, array and tag."""
    if isinstance(info, inspect.Metadata):
        return _fits(info.type, raw)
    if isinstance(info, inspect.StructType):
        if info.array_like:
            return isinstance(raw, list) and (info.tag is None or raw[0] == info.tag)
        return isinstance(raw, dict) and (info.tag is None or raw.get(info.tag_field) == info.tag)
    if isinstance(info, (inspect.CollectionType, inspect.TupleType, inspect.NamedTupleType)):
        return isinstance(raw, list)
    return isinstance(info, (inspect.DictType, *_BY_NAME)) and isinstance(raw, dict)

"""The public result of a saga: what a client is told of a completed transaction, stored as JSON."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from msgspec import inspect

from stacksaga_flask.errors import DefinitionError
from stacksaga_flask.saga.payload_types import parts


def result_type(name: str, result: Callable[[Any], Any] | None) -> Any:
    """What a result is read back as: the type that its function is annotated to return.

    Args:
        name: The saga, for the message.
        result: The function; None for a saga without a public result.

    Raises:
        DefinitionError: It cannot be JSON.
    """
    if result is None:
        return None
    try:
        kind = typing.get_type_hints(result).get("return", Any)
        for path, part in parts(inspect.type_info(kind), "the result"):
            if isinstance(part, inspect.CustomType):
                raise TypeError(f"{path} is of type {part.cls!r}")
    except (TypeError, NameError) as error:
        raise DefinitionError(
            f"{name}: the public result cannot be JSON as {result.__name__!r} declares it: {error}; return a dict, "
            f"dataclass or msgspec Struct whose types are known where the function is declared"
        ) from error
    return kind

"""Planting: putting another function where a production function stands, wherever that was imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple


class Plant(NamedTuple):
    """A planted fault.

    Attributes:
        name: For the command line.
        schedule: What it takes the fix of, or the order that it breaks.
        owner: The module or class that has the function.
        function: Its name.
        wrong: What stands in its place; it is given the right one and returns the wrong one.
    """

    name: str
    schedule: str
    owner: Any
    function: str
    wrong: Callable[[Any], Any]


def does_nothing(right: Any) -> Any:
    """In place of a function: nothing."""
    return lambda *args, **kwargs: None


def says(answer: Any) -> Any:
    """In place of a function: one that always says the same."""
    return lambda right: lambda *args, **kwargs: answer


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Let the fault be there."""
    right = vars(plant.owner)[plant.function]
    wrong = plant.wrong(right)
    places = [plant.owner] if isinstance(plant.owner, type) else list(_importing(right))
    for place in places:
        setattr(place, plant.function, wrong)
    try:
        yield
    finally:
        for place in places:
            setattr(place, plant.function, right)


def _importing(function: Any) -> Iterator[Any]:
    """Every module of ours in which the function goes by its name."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith(("stacksaga_flask", "stacksagad")) and vars(module).get(function.__name__) is function:
            yield module

"""What the command line tells."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import NamedTuple

import click

from tests.simulation.checks.all import RULES
from tests.simulation.plants.all import PLANTS
from tests.simulation.plants.plant import Plant, planted
from tests.simulation.schedules.all import SCHEDULES
from tests.simulation.seeds import Result, replay, run_seed
from tests.simulation.trace import shortened

WITHIN = 500
"""Seeds within which each planted fault is found."""
_WITHOUT = 30
"""Seeds that are run without the rule that has found a fault."""
_LAST = 60
"""Lines of a trace that are told."""


class Found(NamedTuple):
    """How a planted fault was found.

    Attributes:
        plant: The fault.
        result: Of the first seed that found it; None if none did.
        others: Rules that find it too where the first one is not checked.
    """

    plant: Plant
    result: Result | None
    others: tuple[str, ...]


def run_seeds(first: int, number: int) -> list[Result]:
    """Run seeds, tell of those that break a rule, and return them."""
    began, broken = perf_counter(), []
    for seed in range(first, first + number):
        result = run_seed(seed)
        if result.broken is not None:
            broken.append(result)
            tell(result, last=_LAST if len(broken) == 1 else 0)
    seconds = perf_counter() - began
    click.echo(f"{number} seeds from {first}: {len(broken)} break a rule; {seconds:.1f} s")
    return broken


def run_schedules() -> list[Result]:
    """Replay every schedule, tell of those that break a rule, and return them."""
    results = [replay(schedule) for schedule in SCHEDULES.values()]
    broken = [result for result in results if result.broken or any(not on.optional for on in result.left)]
    for result in broken:
        tell(result, last=_LAST)
    click.echo(f"{len(results)} schedules: {len(broken)} break a rule or do not come up")
    return broken


def run_plants(names: Iterable[str], first: int) -> list[str]:
    """Plant faults, tell what finds each, and return what is wrong with that."""
    began = perf_counter()
    found = [_found(PLANTS[name], first) for name in names]
    for one in found:
        click.echo(_line(one))
    click.echo(f"{len(found)} planted faults; {perf_counter() - began:.1f} s")
    return [f"{one.plant.name} was not found within {WITHIN} seeds" for one in found if one.result is None] + (
        _without_a_plant(found) if len(found) == len(PLANTS) else []
    )


def _found(plant: Plant, first: int) -> Found:
    with planted(plant):
        for seed in range(first, first + WITHIN):
            result = run_seed(seed)
            if result.broken is not None:
                return Found(plant, result, _others(result.broken.rule, seed))
    return Found(plant, None, ())


def _others(rule: str, first: int) -> tuple[str, ...]:
    """The rules that object if this one does not, from the seed in which it did."""
    results = (run_seed(seed, without=rule) for seed in range(first, first + _WITHOUT))
    return tuple(sorted({result.broken.rule for result in results if result.broken is not None}))


def _line(found: Found) -> str:
    if found.result is None or found.result.broken is None:
        return f"{found.plant.name:<34} NOT FOUND ({found.plant.schedule})"
    alone = f"; without it {', '.join(found.others)}" if found.others else "; nothing else"
    how = found.result.broken.how.splitlines()[0]
    return f"{found.plant.name:<34} {found.result.broken.rule} at seed {found.result.name}{alone}: {how}"


def _without_a_plant(found: list[Found]) -> list[str]:
    """Rules that no planted fault needs."""
    needed = {one.result.broken.rule for one in found if one.result and one.result.broken and not one.others}
    rules = sorted({rule.name for rule in RULES} - needed)
    return [f"no planted fault is found by {rule} alone" for rule in rules]


def tell(result: Result, *, last: int | None = None) -> None:
    """Tell a trace, or the end of it, and what is broken."""
    for line in result.trace if last is None else shortened(result.trace, last) if last else ():
        click.echo(line)
    for on in result.left:
        click.echo(f"did not happen: {on}")
    click.echo(f"{result.name}: {result.broken or 'every rule holds'}")
    if last is not None:
        click.echo(f"  python -m tests.simulation --replay {result.name}")

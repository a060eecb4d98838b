"""``python -m tests.simulation``: seeds, schedules and planted faults."""

from __future__ import annotations

import contextlib
import sys

import click

from tests.simulation.plants.all import PLANTS
from tests.simulation.plants.plant import planted
from tests.simulation.report import run_plants, run_schedules, run_seeds, tell
from tests.simulation.schedules.all import SCHEDULES
from tests.simulation.seeds import replay, run_seed


@click.command()
@click.option("--seeds", default=0, help="How many seeds to run, after every schedule.")
@click.option("--first", default=1, help="The first of them.")
@click.option("--plant", type=click.Choice(["all", *PLANTS]), help="Plant a fault, or each in turn, and see it found.")
@click.option("--replay", "name", metavar="SEED|SCHEDULE", help="Run one and tell all that happens.")
def main(seeds: int, first: int, plant: str | None, name: str | None) -> None:
    """Run simulated worlds and check the rules of the design in them."""
    if name is not None:
        with planted(PLANTS[plant]) if plant in PLANTS else contextlib.nullcontext():
            result = replay(SCHEDULES[name]) if name in SCHEDULES else run_seed(int(name))
        tell(result)
        sys.exit(result.broken is not None)
    broken = [*run_schedules(), *run_seeds(first, seeds)] if seeds else []
    problems = run_plants(PLANTS if plant == "all" else [plant], first) if plant is not None else []
    for problem in problems:
        click.echo(problem)
    sys.exit(bool(broken or problems))


if __name__ == "__main__":
    main(prog_name="python -m tests.simulation")

"""The benchmarks by name, and what all of them have: figures as JSON, and one last line that sums it up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec


class Report(msgspec.Struct, kw_only=True):
    """What a benchmark found."""

    figures: dict[str, Any]
    """Everything that was measured, as JSON values."""
    lines: list[str]
    """The same for people."""
    summary: str
    """One line that sums it up."""
    broken: list[str]
    """Counts that are not what they must be. Speeds are never here: they depend on the machine."""


@click.group()
def benchmarks() -> None:
    """What things cost, each against its floor in the same run."""


def benchmark(name: str) -> Callable[[Callable[..., Report]], click.Command]:
    """Register a function as the benchmark of that name. It exits with 1 if a count is broken."""

    def register(measure: Callable[..., Report]) -> click.Command:
        @functools.wraps(measure)
        def command(json_file: Path | None, **options: Any) -> None:
            report = measure(**options)
            figures = {**report.figures, "broken": report.broken, "summary": report.summary}
            if json_file is not None:
                json_file.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
            for line in (*report.lines, *(f"BROKEN: {broken}" for broken in report.broken), report.summary):
                click.echo(line)
            if report.broken:
                raise click.exceptions.Exit(1)

        to_file = click.option(
            "--json",
            "json_file",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="Write all figures to this file as JSON.",
        )
        return benchmarks.command(name)(to_file(command))

    return register

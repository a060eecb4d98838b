"""``python -m stacksaga_flask.demo``"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path
from uuid import UUID

import click

from stacksaga_flask import Engine, StackSagaError, read_settings
from stacksaga_flask.demo.driver import SABOTAGES, run_demo
from stacksaga_flask.demo.processes import Interrupted, end_on_signals, undisturbed
from stacksaga_flask.demo.screen import Screen, wants_colour


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store",
    metavar="URL",
    help="The shop's event store, such as sqlite:///shop.db. By default a new SQLite file, removed at the end.",
)
@click.option("--keep", is_flag=True, help="Keep the event store and the services' logs, and print where they are.")
@click.option("--no-color", is_flag=True, help="Print without colour, as NO_COLOR=1 does.")
@click.option("--sabotage", type=click.Choice(sorted(SABOTAGES)), hidden=True)
def main(store: str | None, keep: bool, no_color: bool, sabotage: str | None) -> None:
    """Run a shop as real processes on this machine, place orders, and show what happens to each.

    Stock, payments and shipping are HTTP services; the shop runs on gunicorn and keeps its transactions in an event
    store. Some orders complete, some are refused and undone, one is paused. It takes about ten seconds, stops all it
    started, and exits 0 only if every order ended as it should.
    """
    if importlib.util.find_spec("gunicorn") is None:
        raise click.ClickException('the demo serves its shop with gunicorn: pip install "stacksaga-flask[demo]"')
    if store is not None:
        _check(store)
    end_on_signals()
    directory = Path(tempfile.mkdtemp(prefix="stacksaga-demo-"))
    try:
        right = run_demo(
            Screen(colour=wants_colour(refused=no_color)),
            store=store or f"sqlite:///{directory}/shop.db",
            directory=directory,
            sabotage=sabotage,
        )
    except Interrupted:
        click.echo("\nInterrupted: all services are stopped.", err=True)
        raise
    finally:
        if keep:
            click.echo(f"\nThe services' logs{'' if store else ' and the event store'} are in {directory}")
        else:
            with undisturbed():
                shutil.rmtree(directory)
    raise SystemExit(0 if right else 1)


def _check(store: str) -> None:
    """Refuse a store that cannot be used, before any process is started."""
    if store == "memory://":
        raise click.UsageError(
            "--store memory:// is gone with its process, and the shop has two: leave --store out for a new SQLite file"
        )
    try:
        engine = Engine(read_settings({"STACKSAGA_STORE": store}, application_name="shop"))
        engine.find(UUID(int=0))
        engine.close()
    except StackSagaError as error:
        raise click.UsageError(f"--store {store}: {error}") from error


if __name__ == "__main__":
    main(prog_name="python -m stacksaga_flask.demo")

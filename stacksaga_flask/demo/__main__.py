"""``python -m stacksaga_flask.demo``"""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from uuid import UUID

import click

from stacksaga_flask import ConfigurationError, Engine, StackSagaError, SystemTime, read_settings
from stacksaga_flask.config_values import without_password
from stacksaga_flask.demo.driver import SABOTAGES, run_demo, settings_for
from stacksaga_flask.demo.processes import Interrupted, end_on_signals, undisturbed
from stacksaga_flask.demo.screen import Screen, wants_colour
from stacksaga_flask.store.opening import Setup, init_schema


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store",
    metavar="URL",
    help="The shop's event store, such as cassandra://127.0.0.1/demo?local_datacenter=datacenter1, "
    "postgresql://127.0.0.1/demo or sqlite:///shop.db; what it lacks is set up. By default a new SQLite file, removed "
    "at the end.",
)
@click.option("--keep", is_flag=True, help="Keep the event store and the services' logs, and print where they are.")
@click.option("--no-color", is_flag=True, help="Print without colour, as NO_COLOR=1 does.")
@click.option("--sabotage", type=click.Choice(sorted(SABOTAGES)), hidden=True)
def main(store: str | None, keep: bool, no_color: bool, sabotage: str | None) -> None:
    """Run a shop as real processes on this machine, place orders, and show what happens to each.

    Stock, payments and shipping are HTTP services; the shop runs on gunicorn and keeps its transactions in an event
    store. Some orders complete, some are refused and undone. A web worker is killed in the middle of a step, and the
    payment service is away for a while: the retry node finishes both orders. It takes under a minute, stops all it
    started, and exits 0 only if every order ended as it should.
    """
    if importlib.util.find_spec("gunicorn") is None:
        raise click.ClickException('the demo serves its shop with gunicorn: pip install "stacksaga-flask[demo]"')
    # Runs that meet in one store would find each other's idempotency keys.
    service_name = f"shop-{secrets.token_hex(4)}"
    end_on_signals()
    directory = Path(tempfile.mkdtemp(prefix="stacksaga-demo-"))
    try:
        if store is not None:
            _prepare(store, service_name, directory)
        right = run_demo(
            Screen(colour=wants_colour(refused=no_color)),
            store=store or f"sqlite:///{directory}/shop.db",
            service_name=service_name,
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


def _prepare(store: str, service_name: str, directory: Path) -> None:
    """Set up what a store lacks, and refuse one that cannot be used, before any process is started."""
    if store == "memory://":
        raise click.UsageError(
            "--store memory:// is gone with its process, and the shop has two: leave --store out for a new SQLite file"
        )
    try:
        settings = read_settings(settings_for(store, service_name, directory), application_name=service_name)
        for applied in init_schema(settings, SystemTime(), Setup(development=True, say=click.echo)):
            click.echo(f"applied {applied}")
        with closing(Engine(settings)) as engine:
            engine.find(UUID(int=0))
    except ConfigurationError as error:
        raise click.UsageError(f"--store {without_password(store)}: {error}") from error
    except StackSagaError as error:
        raise click.ClickException(f"--store {without_password(store)}: {error}") from error


if __name__ == "__main__":
    main(prog_name="python -m stacksaga_flask.demo")

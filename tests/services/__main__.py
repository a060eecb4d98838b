"""``python -m tests.services start|stop|status``: a Cassandra node that stays between test runs."""

from __future__ import annotations

import click

from tests.services.plugin import lasting_node


@click.group()
def services() -> None:
    """Servers that test runs use instead of starting their own."""


@services.command()
def start() -> None:
    """Start what does not run."""
    node = lasting_node()
    if node.process_id() is None:
        click.echo("starting Cassandra; the first time on a machine fetches its jars")
        node.start()
    click.echo(node.url())


@services.command()
def stop() -> None:
    """Stop what runs, and delete its data."""
    node = lasting_node()
    node.kill()
    node.wipe()


@services.command()
def status() -> None:
    """Say what runs."""
    node = lasting_node()
    state = "answers" if node.answers() else "is starting or stuck" if node.process_id() else "does not run"
    click.echo(f"Cassandra at {node.host}:{node.port} {state}")


services()

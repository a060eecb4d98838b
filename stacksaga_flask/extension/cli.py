"""``flask stacksaga ...``"""

from __future__ import annotations

import click
from flask import current_app
from flask.cli import AppGroup, with_appcontext

from stacksaga_flask.clock import SystemTime
from stacksaga_flask.config_values import without_password
from stacksaga_flask.engine.engine import Engine
from stacksaga_flask.errors import StackSagaError
from stacksaga_flask.extension.transactions_cli import transaction_commands

stacksaga_commands = AppGroup("stacksaga", help="Sagas: the event store and its transactions.")


class _Replication(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic since click 8.5
    """``DATACENTER=FACTOR``."""

    name = "datacenter=factor"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        datacenter, _, factor = value.partition("=")
        if not datacenter or not factor.isdecimal() or int(factor) < 1:
            self.fail(f"{value!r} is not like dc1=3: a data centre and how many replicas it has", param, ctx)
        return datacenter, int(factor)


@stacksaga_commands.command("init-schema")
@click.option(
    "--replication",
    type=_Replication(),
    multiple=True,
    help="Cassandra: replicas in a data centre, for a keyspace that is still to be created. May be given for several "
    "data centres; 3 in the local one by default.",
)
@click.option(
    "--development",
    is_flag=True,
    help="Cassandra: create the keyspace with one replica (SimpleStrategy), for a cluster of one node.",
)
def init_schema_command(replication: tuple[tuple[str, int], ...], development: bool) -> None:
    """Create what the event store lacks. Running it again does no harm."""
    from stacksaga_flask.store.opening import Setup, init_schema

    if replication and development:
        raise click.UsageError("--development creates one replica: leave out --replication, or --development")
    settings = current_app.extensions["stacksaga"].engine.settings
    setup = Setup(replication=dict(replication), development=development, say=click.echo)
    try:
        applied = init_schema(settings, SystemTime(), setup)
    except StackSagaError as error:
        raise click.ClickException(str(error)) from error
    for name in applied:
        click.echo(f"applied {name}")
    click.echo(
        f"{without_password(settings.store)} is ready for {'/'.join(settings.scope)}"
        + ("" if applied else ": nothing was missing")
    )


def _engine() -> Engine:
    engine: Engine = current_app.extensions["stacksaga"].engine
    return engine


def _add_transaction_commands() -> None:
    for command in transaction_commands(_engine):
        assert command.callback is not None
        command.callback = with_appcontext(command.callback)
        stacksaga_commands.add_command(command)


_add_transaction_commands()

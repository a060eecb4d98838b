"""``flask stacksaga ...``"""

from __future__ import annotations

import click
from flask import current_app
from flask.cli import AppGroup

from stacksaga_flask.errors import StackSagaError

stacksaga_commands = AppGroup("stacksaga", help="Sagas: the event store and its transactions.")


@stacksaga_commands.command("init-schema")
def init_schema_command() -> None:
    """Create what the event store lacks. Running it again does no harm."""
    from stacksaga_flask.store.opening import init_schema

    engine = current_app.extensions["stacksaga"].engine
    settings = engine.settings
    try:
        applied = init_schema(
            settings.store,
            engine.scope,
            window_interval=settings.window_interval // 1_000_000,
            clock_skew_margin=settings.clock_skew_margin,
            timeout=settings.request_timeout / 1e6,
        )
    except StackSagaError as error:
        raise click.ClickException(str(error)) from error
    for name in applied:
        click.echo(f"applied {name}")
    click.echo(f"{settings.store} is ready for {'/'.join(engine.scope)}" + ("" if applied else ": nothing was missing"))

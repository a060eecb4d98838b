"""Commands for a person: those of ``flask stacksaga``, for the application that ``--app`` names."""

from __future__ import annotations

from typing import Final

import click

from stacksaga_flask import ConfigurationError, Engine
from stacksaga_flask.extension.transactions_cli import transaction_commands
from stacksagad.app import ApplicationFailed, NoApplication, load_engine
from stacksagad.exits import Exit

_SPEC: Final = "stacksagad.app"


def commands() -> dict[str, click.Command]:
    """The commands by name, each with ``--app``."""
    found = {command.name or "": command for command in transaction_commands(_engine)}
    for command in found.values():
        command.params.append(_app())
    return found


def _app() -> click.Option:
    return click.Option(
        ["--app", "spec"],
        required=True,
        expose_value=False,
        callback=_remember,
        metavar="MODULE:NAME",
        help="The application, as for `stacksagad node`.",
    )


def _remember(context: click.Context, parameter: click.Parameter, spec: str) -> None:
    context.meta[_SPEC] = spec


def _engine() -> Engine:
    try:
        return load_engine(click.get_current_context().meta[_SPEC])
    except ApplicationFailed as error:
        click.echo(error.traceback(), err=True, nl=False)
        problem, status = str(error), Exit.APPLICATION
    except NoApplication as error:
        problem, status = str(error), Exit.APPLICATION
    except ConfigurationError as error:
        problem, status = str(error), Exit.CONFIGURATION
    click.echo(f"Error: {problem}", err=True)
    raise click.exceptions.Exit(status)

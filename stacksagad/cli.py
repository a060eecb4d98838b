"""``stacksagad ...``: the commands of the daemon.

Nothing of the library is imported here but inside a command: gevent must replace threads before that.
"""

from __future__ import annotations

import logging
import os
import sys

import click

LEVELS = ("debug", "info", "warning", "error")


class _Commands(click.Group):
    """Imports the commands for a person only if one of them is asked for, since they need the library."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        return command if command is not None else self._by_hand().get(cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self._by_hand()]

    def _by_hand(self) -> dict[str, click.Command]:
        from stacksagad.by_hand import commands

        return commands()


@click.group(cls=_Commands)
def stacksagad() -> None:
    """The daemon of stacksaga_flask: finishes what a crash or an outage left behind.

    Exit statuses: 0 ended as told, 1 a defect, 2 wrong command line, 3 configuration refused, 4 application not
    loaded, 5 something left by --once.
    """


@stacksagad.command()
@click.option(
    "--app",
    "spec",
    required=True,
    metavar="MODULE:NAME",
    help="A Flask application, a factory without arguments, or a module with an Engine.",
)
@click.option(
    "--workers",
    type=click.Choice(["threads", "gevent"]),
    default="threads",
    show_default=True,
    help="What runs transactions. gevent patches before the application is imported.",
)
@click.option("--once", is_flag=True, help="Sweep everything that is sealed, wait for it, and end with a summary.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
def node(spec: str, workers: str, once: bool, log_level: str) -> None:
    """A retry node: sweeps the recovery directory and goes on with what it finds."""
    if workers == "gevent":
        from gevent import monkey

        monkey.patch_all()
    from stacksagad.logs import set_up
    from stacksagad.service import run_node

    set_up(log_level)
    ended = run_node(spec, once=once)
    if not ended.whole:
        # What still runs would be waited for once more.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(ended.status)
    sys.exit(ended.status)


def main() -> None:
    """The command ``stacksagad``."""
    stacksagad.main(prog_name="stacksagad")

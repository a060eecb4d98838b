"""``stacksagad node --once``: the progress of one sweep, and its summary."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from stacksaga_flask.clock import SECOND, Clock
from stacksagad.exits import Exit
from stacksagad.recovering import Recovering

logger = logging.getLogger("stacksagad")

_SAY_EVERY: Final = 60 * SECOND


@contextmanager
def progress_of(recovering: Recovering, clock: Clock) -> Iterator[Callable[[], None]]:
    """What shows how far the sweep is, each time it is called: a bar on a terminal, a line a minute in a log."""
    if not sys.stdout.isatty():
        yield _lines(recovering, clock)
        return
    bar: Any
    # A window may hold any number of transactions, so that what was done is shown between two windows too.
    with click.progressbar(
        length=1, label="windows swept", show_pos=True, show_percent=True, item_show_func=str, update_min_steps=0
    ) as bar:

        def show() -> None:
            done, bar.length = recovering.progress()
            bar.update(done - bar.pos, recovering.counters())

        yield show
        show()


def _lines(recovering: Recovering, clock: Clock) -> Callable[[], None]:
    said = clock.boot()

    def show() -> None:
        nonlocal said
        if clock.boot() - said >= _SAY_EVERY:
            said = clock.boot()
            done, windows = recovering.progress()
            logger.info("%d of %d windows are swept; %s", done, windows, recovering.counters())

    return show


def tell_summary(recovering: Recovering, left: list[str]) -> Exit:
    """Print a table of what became of everything that was found.

    Args:
        recovering: What swept.
        left: What it does not know of, in words.

    Returns:
        `Exit.DONE` if everything is durable, else `Exit.LEFT`.
    """
    rows = recovering.summary()
    rows.append(("found", sum(count for _, count in rows)))
    width = max(len(outcome) for outcome, _ in rows)
    for outcome, count in rows:
        click.echo(f"{outcome:<{width}}  {count:>9}")
    left = [*recovering.left(), *left]
    for what in left:
        click.echo(f"left: {what}")
    click.echo("something was left: run it again" if left else "everything is durable")
    return Exit.LEFT if left else Exit.DONE

"""Text on a terminal or elsewhere. Colour only adds: every line says the same without it."""

from __future__ import annotations

import os
import sys

import click


def wants_colour(*, refused: bool) -> bool:
    """Whether colour is of use: on a terminal, unless it is refused by option or by ``NO_COLOR``."""
    return sys.stdout.isatty() and not refused and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Screen:
    """Writes lines to stdout at once."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def line(self, text: str = "") -> None:
        """Write one line."""
        click.echo(text, color=self._colour)

    def heading(self, text: str) -> None:
        """Write a line that starts something new."""
        self.line()
        self.line(click.style(text, bold=True) if self._colour else text)

    def paint(self, text: str, colour: str) -> str:
        """The text in a colour, where there is colour."""
        return click.style(text, fg=colour) if self._colour else text

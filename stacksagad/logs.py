"""What the daemon logs: to stderr, one line a record, flushed at once."""

from __future__ import annotations

import datetime
import logging
import sys

OURS = ("stacksagad", "stacksaga_flask")
FORMAT = "%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"
"""Messages about a transaction hold ``transaction_id=…`` themselves, those of a step's own logger too."""


class _Formatter(logging.Formatter):
    """Times in UTC, as windows are."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    converter = staticmethod(
        lambda seconds: datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).timetuple()
    )


def set_up(level: str) -> None:
    """Log to stderr. To be called before the application is imported, which may then change it."""
    # A line that the application prints must not wait for others where stdout is a file.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    handler.addFilter(_without_tracebacks_of_drivers)
    # It tells of each run of each tick and of those that were missed; the ones are told by us, the others counted.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)


def _without_tracebacks_of_drivers(record: logging.LogRecord) -> bool:
    """Keep a driver to one line: while its cluster is away it logs a traceback for each attempt to connect."""
    if record.name.partition(".")[0] == "cassandra":
        record.exc_info = record.exc_text = None
    return True


def set_up_again() -> None:
    """See that the daemon can be heard after the application has set up its own logging.

    ``logging.config`` disables every logger that it does not name.
    """
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in OURS:
            logger.disabled = False

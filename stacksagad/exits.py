"""How a command of the daemon ends. `docs/daemon.md` tells operators the same."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """Exit statuses."""

    DONE = 0
    """It ended as it was told to, by a signal or, with ``--once``, with everything durable."""
    DEFECT = 1
    """Something that nobody foresaw; the traceback is in the log. Supervisors start it again."""
    USAGE = 2
    """The command line is wrong; click ends with this."""
    CONFIGURATION = 3
    """A setting is refused, or the store was set up with another grid (R15). Starting again does not help."""
    APPLICATION = 4
    """The application cannot be imported, or has no `StackSaga`. Starting again does not help."""
    LEFT = 5
    """``--once`` left something, or could not look at all of it. It may be run again."""

"""SIGTERM and SIGINT: the daemon ends what it is doing and leaves.

A handler runs between any two bytecodes of the main thread, which may hold any lock. So it counts and no more.
"""

from __future__ import annotations

import signal
from types import FrameType

from stacksagad.exits import Exit

STOP = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """What this process was told.

    Attributes:
        times: How often it was told to stop.
        last: The name of the last signal that said so.
    """

    def __init__(self) -> None:
        self.times = 0
        self.last = ""
        self._idle = True

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self.times > 0

    def listen(self) -> None:
        """Take over the handlers, from the application too. While nothing runs yet the process ends at once."""
        for number in STOP:
            signal.signal(number, self._told)

    def work_begins(self) -> None:
        """From now on a signal is only noted, as there is something to end."""
        self._idle = False

    def _told(self, number: int, frame: FrameType | None) -> None:
        self.last = signal.Signals(number).name
        self.times += 1
        if self._idle:
            raise SystemExit(int(Exit.DONE))

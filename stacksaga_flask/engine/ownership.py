"""The right to write a transaction: until when, and with which timestamps (R6, R13, R14).

The starter's right ends at the earliest fence of its pointers, a claim holder's at the end of its claim's trust. Both
are one `Right`. It ends by the wall clock *and* by the time elapsed since it was given, whichever comes first.

Order of one write: `timestamp` (checks the right and fixes the timestamp), send, acknowledged, `check`. A write that
is acknowledged after the right has ended counts as unknown.
"""

from __future__ import annotations

from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.errors import RightEnded


class Right:
    """One owner's right to write one transaction.

    Args:
        clock: The process's clock.
        ends_at: When it ends, in microseconds.
        above: No timestamp given out is this or less: WRITETIME of the row that was read at a takeover.
    """

    def __init__(self, clock: Clock, *, ends_at: int, above: int = 0) -> None:
        self._clock = clock
        self._last = above
        self._set_end(ends_at)

    @property
    def ends_at(self) -> int:
        """When it ends, in microseconds since 1970."""
        return self._ends_at

    @property
    def last_timestamp(self) -> int:
        """The highest timestamp given out, or the one it was to be above."""
        return self._last

    def left(self) -> int:
        """Microseconds left; 0 or less once it has ended."""
        boot = self._clock.boot()
        return self._left(boot, self._clock.at(boot))

    def timestamp(self) -> int:
        """A timestamp for a write that may be sent now: above every earlier one and below the end (R13).

        Raises:
            RightEnded: It may not.
        """
        now = self._checked()
        timestamp = max(self._last + 1, now)
        if timestamp >= self._ends_at:
            raise RightEnded("no timestamp is left below the end of the right to write")
        self._last = timestamp
        return timestamp

    def check(self) -> None:
        """Check that the right has not ended, as after each acknowledgement.

        Raises:
            RightEnded: It has.
        """
        self._checked()

    def shrink(self, ends_at: int) -> None:
        """End it earlier, as a new retry pointer does."""
        if ends_at < self._ends_at:
            self._set_end(ends_at)

    def extend(self, ends_at: int) -> None:
        """Let it end later: the new watchdog or the renewed claim was acknowledged while it lasted.

        Raises:
            RightEnded: It had ended meanwhile.
        """
        self.check()
        self._set_end(ends_at)

    def end(self) -> None:
        """End it now: the batch that pauses or ends was sent."""
        self._set_end(self._clock.now())

    def _checked(self) -> int:
        boot = self._clock.boot()
        now = self._clock.at(boot)
        left = self._left(boot, now)
        if left <= 0:
            raise RightEnded(f"the right to write the transaction ended {-left / SECOND:.3f} s ago (R6)")
        return now

    def _left(self, boot: int, now: int) -> int:
        return min(self._ends_at - now, self._ends_at_boot - boot)

    def _set_end(self, ends_at: int) -> None:
        boot = self._clock.boot()
        self._ends_at = ends_at
        self._ends_at_boot = boot + ends_at - self._clock.at(boot)

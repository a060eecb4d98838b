"""SIGTERM: the runs of this process are parked before it ends.

The handler stands before the one that was there, a web server's for example, and calls it. It is put there whenever
an engine is made or used in the main thread, as servers set their own in each worker. Where views run in other threads
and the application is loaded before the fork (gunicorn: gthread with ``--preload``), a hook of the server must call
`stop_at_sigterm` in the worker's main thread, as ``etc/gunicorn.conf.py`` does.

A process that ends otherwise lets the runs in its other threads be parked too.

A handler runs between any two bytecodes of the main thread, which may hold any lock. So it sets flags and no more.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType
from typing import Any, Final
from weakref import ReferenceType, ref

from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.engine.in_flight import InFlight

_TO_ANSWER: Final = SECOND // 5
"""How long the answers to the last requests may take to be sent, in microseconds."""


class _Sigterm:
    """The handler, and what it has to know."""

    def __init__(self) -> None:
        self.engines: list[tuple[ReferenceType[InFlight], Clock, int]] = []
        self.previous: Any = None
        self.waited = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        runs = 0
        for reference, _, _ in self.engines:
            in_flight = reference()
            if in_flight is not None:
                in_flight.stop()
                runs += in_flight.runs
        if callable(self.previous):
            self.previous(number, frame)
        elif runs and not self.waited:
            self._come_back()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _come_back(self) -> None:
        """Wait elsewhere for the runs, then send the signal again."""
        self.waited = True
        _start_native_thread(self._wait)

    def _wait(self) -> None:
        self.park()
        if self.engines:
            self.engines[0][1].sleep(_TO_ANSWER)
        os.kill(os.getpid(), signal.SIGTERM)

    def park(self) -> None:
        """Wait until every run of this process has ended or is parked, for as long as it may take."""
        for reference, clock, grace in list(self.engines):
            in_flight = reference()
            if in_flight is not None and in_flight.runs:
                in_flight.stop()
                in_flight.drain(clock, grace)


_HANDLER: Final = _Sigterm()


def watch(in_flight: InFlight, clock: Clock, grace: int) -> None:
    """Tell these runs of SIGTERM, and wait so long for them, in microseconds, if the process ends with it."""
    _HANDLER.engines = [engine for engine in _HANDLER.engines if engine[0]() is not None]
    _HANDLER.engines.append((ref(in_flight), clock, grace))
    stop_at_sigterm()


def park_at_exit() -> None:
    """Let runs be parked however the process ends: Flask's own server leaves its daemon threads behind.

    What is registered last comes first, so this is called once the store is open: drivers close their connections.
    """
    atexit.unregister(_HANDLER.park)
    atexit.register(_HANDLER.park)


def stop_at_sigterm() -> bool:
    """See that SIGTERM parks the runs of this process, and tell whether it does. For hooks of web servers.

    It does nothing outside the main thread, and nothing where SIGTERM is ignored or handled by a server in C.
    """
    present = signal.getsignal(signal.SIGTERM)
    if present is _HANDLER:
        return True
    if present is None or present is signal.SIG_IGN:
        return False
    try:
        signal.signal(signal.SIGTERM, _HANDLER)
    except ValueError:  # not the main thread
        return False
    _HANDLER.previous = present
    return True


def _start_native_thread(function: Any) -> None:
    """A thread without the locks of `threading`, which the interrupted code may hold, and without greenlets."""
    if "gevent.monkey" in sys.modules:
        from gevent import monkey

        monkey.get_original("_thread", "start_new_thread")(function, ())
    else:
        import _thread

        _thread.start_new_thread(function, ())

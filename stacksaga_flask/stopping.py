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
from types import FrameType
from typing import Any, Final, NamedTuple
from weakref import ReferenceType, ref

from stacksaga_flask.clock import SECOND, TimeSource
from stacksaga_flask.engine.in_flight import InFlight
from stacksaga_flask.threads import native

_TO_ANSWER: Final = SECOND // 5
"""How long the answers to the last requests may take to be sent, in microseconds."""


class _Engine(NamedTuple):
    """What there is to know of an engine of this process; the grace is in microseconds."""

    in_flight: ReferenceType[InFlight]
    time_source: TimeSource
    grace: int


# Replaced whole, so that the handler never sees half of a change.
_engines: tuple[_Engine, ...] = ()


class _Sigterm:
    """The handler. There is one for each handler that it stands before.

    An application may put one of its own before ours that calls it, so a single one would call itself for ever.
    """

    def __init__(self, previous: Any) -> None:
        self._previous = previous
        self._waiting_pid: int | None = None
        self._over = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        runs = _stop()
        if callable(self._previous):
            self._previous(number, frame)
            return
        waiting = self._waiting_pid == os.getpid()
        if waiting and not self._over:
            # A supervisor that repeats itself takes no run its grace.
            return
        if runs and not waiting:
            self._over = False
            # Without the locks of `threading`, which the interrupted code may hold.
            native("start_new_thread")(self._come_back, ())
            self._waiting_pid = os.getpid()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _come_back(self) -> None:
        """Wait for the runs, then send the signal again, and let it end the process."""
        try:
            _park()
            if _engines:
                _engines[0].time_source.sleep(_TO_ANSWER)
        finally:
            self._over = True
            os.kill(os.getpid(), signal.SIGTERM)


def _stop() -> int:
    """Let no step begin in this process from now on, and tell how many runs are in flight."""
    runs = 0
    for engine in _engines:
        in_flight = engine.in_flight()
        if in_flight is not None:
            in_flight.stop()
            runs += in_flight.runs
    return runs


def _park() -> None:
    """Wait until every run of this process has ended or is parked, for as long as it may take."""
    for engine in _engines:
        in_flight = engine.in_flight()
        if in_flight is not None and in_flight.runs:
            in_flight.stop()
            in_flight.drain(engine.time_source, engine.grace)


def watch(in_flight: InFlight, time_source: TimeSource, grace: int) -> None:
    """Tell these runs of SIGTERM, and wait so long for them, in microseconds, if the process ends with it."""
    global _engines
    living = [engine for engine in _engines if engine.in_flight() is not None]
    _engines = (*living, _Engine(ref(in_flight), time_source, grace))
    stop_at_sigterm()


def park_at_exit() -> None:
    """Let runs be parked however the process ends: Flask's own server leaves its daemon threads behind.

    What is registered last comes first, so this is called once the store is open: drivers close their connections.
    """
    atexit.unregister(_park)
    atexit.register(_park)


def stop_at_sigterm() -> bool:
    """See that SIGTERM parks the runs of this process, and tell whether it does. For hooks of web servers.

    It does nothing outside the main thread, and nothing where SIGTERM is ignored or handled by a server in C.
    """
    present = signal.getsignal(signal.SIGTERM)
    if isinstance(present, _Sigterm):
        return True
    if present is None or present is signal.SIG_IGN:
        return False
    try:
        signal.signal(signal.SIGTERM, _Sigterm(present))
    except ValueError:  # not the main thread
        return False
    return True

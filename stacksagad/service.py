"""A retry node from its start to its end. How it may end is told in `stacksagad.exits`.

Start: the application is loaded, the store waited for, the ticks begin. A signal ends it: no tick begins, no
transaction is taken, those that run end the step they are in and are parked, and every bucket that is not finished
stays (R4). What still runs after the grace time is left to its claim, which expires, and its watchdog.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from stacksaga_flask import ConfigurationError, Engine
from stacksaga_flask.clock import COMPARE_EVERY, SECOND
from stacksaga_flask.config_values import told
from stacksaga_flask.errors import ClockSkew, SchemaMismatch, StoreError
from stacksaga_flask.store.opening import MEMORY
from stacksagad import logs
from stacksagad.app import ApplicationFailed, NoApplication, load_engine
from stacksagad.exits import Exit
from stacksagad.once import progress_of, tell_summary
from stacksagad.recovering import LOOK_FOR_THE_DEAD_EVERY, Recovering
from stacksagad.recovery.said import Said
from stacksagad.signals import Signals
from stacksagad.ticks import Tick, Ticks
from stacksagad.waiting import wait_for_store

logger = logging.getLogger("stacksagad")

_LOOK_EVERY: Final = SECOND // 20
_FOR_READING: Final = SECOND


class Ended(NamedTuple):
    """How a retry node ended.

    Attributes:
        status: Its exit status.
        whole: Whether nothing of it runs any more, so that the process can end in the ordinary way.
    """

    status: Exit
    whole: bool = True


def run_node(spec: str, *, once: bool) -> Ended:
    """Be a retry node for the application that ``--app`` names, until a signal comes or everything is swept."""
    signals = Signals()
    signals.listen()
    try:
        engine = load_engine(spec)
        logs.set_up_again()
        signals.listen()
        _check(engine)
        wait_for_store(engine)
    except ApplicationFailed as error:
        if signals.stopping:
            return Ended(Exit.DONE)
        sys.stderr.write(error.traceback())
        logger.error("%s; its traceback stands above", error)
        return Ended(Exit.APPLICATION)
    except NoApplication as error:
        logger.error("%s", error)
        return Ended(Exit.APPLICATION)
    except (ConfigurationError, SchemaMismatch) as error:
        logger.error("%s", error)
        return Ended(Exit.CONFIGURATION)
    signals.work_begins()
    service = Service(engine, signals)
    return service.sweep_once() if once else service.serve()


def _check(engine: Engine) -> None:
    if engine.settings.store == MEMORY:
        raise ConfigurationError(
            "STACKSAGA_STORE is 'memory://', of which every process has one of its own, so a retry node would see "
            "nothing: name a store that it shares with the application, such as sqlite:///shop.db"
        )


class Service:
    """A retry node that is connected to its store."""

    def __init__(self, engine: Engine, signals: Signals) -> None:
        self._engine = engine
        self._signals = signals
        self._node = engine.node()
        self._said = Said(logger, self._node.clock.boot)
        self._recovering = Recovering(engine, lambda: not signals.stopping)
        self._ticks = Ticks(self._node.clock, self._planned())
        self._thread: threading.Thread | None = None

    def serve(self) -> Ended:
        """Sweep at each window's seal, until a signal comes."""
        settings = self._engine.settings
        logger.info(
            "retry node %s for %s: the whole ring, windows of %s, sagas %s",
            self._node.instance_id,
            "/".join(settings.scope),
            told(settings.window_interval),
            ", ".join(self._engine.sagas) or "none",
        )
        self._ticks.start()
        clock, looked = self._node.clock, -LOOK_FOR_THE_DEAD_EVERY
        while not self._signals.stopping:
            if clock.boot() - looked >= LOOK_FOR_THE_DEAD_EVERY:
                self._recovering.look_for_the_dead()
                looked = clock.boot()
            clock.sleep(_LOOK_EVERY)
        return Ended(Exit.DONE, self._stop())

    def sweep_once(self) -> Ended:
        """Sweep everything that is sealed, wait for what was found, and print what became of it."""
        thread = self._begin(self._recovering.sweep_whole, "stacksagad-once")
        with progress_of(self._recovering, self._node.clock) as show:
            while thread.is_alive() and not self._signals.stopping:
                self._node.clock.sleep(_LOOK_EVERY)
                show()
        left = [f"{self._signals.last} came before the end"] if thread.is_alive() else []
        whole = self._stop()
        return Ended(tell_summary(self._recovering, left), whole)

    # -- the ticks ---------------------------------------------------------------------------------------------

    def _planned(self) -> list[Tick]:
        settings, compact = self._engine.settings, self._recovering.compact
        window = settings.window_interval
        return [
            Tick("compare clocks", self._compare_clocks, every=COMPARE_EVERY),
            Tick("sweep", self._sweep, every=window, offset=settings.seal_delay),
            Tick("compaction", compact, every=window, offset=window // 2, at_start=False),
            Tick("counters", self._tell_counters, every=COMPARE_EVERY, at_start=False),
        ]

    def _sweep(self) -> None:
        clock = self._node.clock
        now = clock.now()
        if self._compare_clocks():
            # The comparison may have set the clock back by a little, and the window would not be sealed yet.
            clock.sleep(max(0, now - clock.now()))
            self._recovering.sweep()

    def _compare_clocks(self) -> bool:
        """Compare with the store's clock, if that was not done within a minute (R14); False if nothing is swept."""
        try:
            self._node.clock.compare(self._node.store.now)
        except (StoreError, ClockSkew) as error:
            self._said.say(type(error).__name__, f"nothing is swept: {error}")
            return False
        return True

    def _tell_counters(self) -> None:
        logger.info("%s, missed ticks %d", self._recovering.counters(), self._ticks.missed)

    # -- the end -----------------------------------------------------------------------------------------------

    def _stop(self) -> bool:
        """End what runs, within the grace time, and tell whether all has ended."""
        clock, grace = self._node.clock, self._engine.settings.shutdown_grace
        began = clock.boot()
        self._ticks.stop()
        self._recovering.stop()
        self._engine.stop()
        told_before = 0
        while busy := self._busy(clock.boot() - began):
            if self._signals.times > told_before:
                told_before = self._signals.times
                left = -(-max(0, grace - (clock.boot() - began)) // SECOND) * SECOND
                logger.info("%s: waiting at most %s for %s", self._signals.last, told(left), busy)
            if clock.boot() - began >= grace:
                logger.warning("%s are over: %s is left to claims and watchdogs", told(grace), busy)
                return False
            clock.sleep(_LOOK_EVERY)
        logger.info("ended: %s", self._recovering.counters())
        if self._reading():
            return False
        self._engine.close()
        return True

    def _busy(self, waited: int) -> str:
        """What has to be waited for, in words; empty if nothing has.

        Args:
            waited: Microseconds waited so far. What reads the directory may be cut off anywhere, so it is given little.
        """
        parts = self._recovering.busy()
        if len(self._node.kept):
            parts.append(f"{len(self._node.kept)} results that the store has not taken yet")
        if waited < _FOR_READING:
            parts += self._reading()
        return ", ".join(parts)

    def _reading(self) -> list[str]:
        """What reads the directory now, in words."""
        parts = [f"the tick {name!r}" for name in self._ticks.running]
        return [*parts, "the sweep"] if self._thread is not None and self._thread.is_alive() else parts

    def _begin(self, run: Callable[[], None], name: str) -> threading.Thread:
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()
        return self._thread

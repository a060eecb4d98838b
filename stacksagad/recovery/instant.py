"""Instant restore: processes of this host that have died, found by their locks, and what they left (R18, H14).

The finder tries the lock of each file. It judges only files of this start of the kernel, and holds the lock of a dead
process's file while it recovers what stands in it, so that a second finder takes the file for one in use. Whoever
re-invokes does so under a claim, so that two finders, or a finder and a sweep, do no harm. Directory rows are left to
the sweep. The file is removed last.
"""

from __future__ import annotations

import fcntl
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias
from uuid import UUID

from stacksaga_flask.clock import Clock
from stacksaga_flask.engine.lock_file import TEMPORARY, VERSION, boot_id
from stacksaga_flask.engine.reinvoke import Found
from stacksagad.recovery.workers import Workers

Recover: TypeAlias = Callable[[UUID, Found], bool]
"""Goes on with a transaction, and tells whether that is settled. Raises nothing."""


class Dead(NamedTuple):
    """A process that is dead, and what it was running."""

    instance_id: str
    path: Path
    transaction_ids: tuple[UUID, ...]


class Finder:
    """Finds the dead processes of a scope on this host, and has what they left gone on with.

    Args:
        directory: The scope's lock files; see `stacksaga_flask.engine.lock_file.scope_directory`.
        clock: This process's clock.
        skew_margin: δ in microseconds, which is waited after a death was found: what the dead process sent may still
            be under way.
        workers: Run the re-invocations.
        recover: Goes on with a transaction.
    """

    def __init__(self, directory: Path, clock: Clock, *, skew_margin: int, workers: Workers, recover: Recover) -> None:
        self._directory = directory
        self._clock = clock
        self._skew_margin = skew_margin
        self._workers = workers
        self._recover = recover
        self._lock = threading.Lock()
        self._at_work: set[Path] = set()
        self._all_done = threading.Condition(self._lock)

    def look(self) -> list[Dead]:
        """Look once, begin to go on with what was found, and return which processes have died.

        Raises:
            OSError: The directory or a file could not be read.
        """
        found = []
        for path in self._paths():
            descriptor = _held(path)
            if descriptor is None:
                continue
            dead = _read(path, descriptor)
            if dead is None:
                os.close(descriptor)
                continue
            found.append(dead)
            with self._lock:
                self._at_work.add(path)
            # A step may take long, and the next death shall be seen meanwhile.
            threading.Thread(
                target=self._deal_with, args=(dead, descriptor), name="stacksagad-instant", daemon=True
            ).start()
        return found

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until all that was found is dealt with or left, at most so many seconds; tell whether it is."""
        with self._lock:
            return self._all_done.wait_for(lambda: not self._at_work, timeout)

    def _paths(self) -> list[Path]:
        try:
            paths = sorted(path for path in self._directory.iterdir() if not path.name.startswith(TEMPORARY))
        except FileNotFoundError:
            return []
        with self._lock:
            return [path for path in paths if path not in self._at_work]

    def _deal_with(self, dead: Dead, descriptor: int) -> None:
        try:
            if self._settle(dead):
                dead.path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
            with self._lock:
                self._at_work.discard(dead.path)
                self._all_done.notify_all()

    def _settle(self, dead: Dead) -> bool:
        """Go on with each transaction, and tell whether all are settled."""
        if not dead.transaction_ids:
            return True
        self._clock.sleep(self._skew_margin)
        found = Found(dead_instance=dead.instance_id)
        answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

        def going_on(transaction_id: UUID) -> Callable[[], None]:
            return lambda: answers.put(self._recover(transaction_id, found))

        begun = sum(self._workers.submit(going_on(transaction_id)) for transaction_id in dead.transaction_ids)
        settled = sum(answers.get() for _ in range(begun))
        return settled == len(dead.transaction_ids)


def _held(path: Path) -> int | None:
    """The open file, locked, if nobody else holds its lock and it still lies there."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if _is_free(path, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _is_free(path: Path, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        there, ours = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    # Its owner may have put another file in its place, which is locked.
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _read(path: Path, descriptor: int) -> Dead | None:
    """What a dead process left; None if it is not this finder's to judge."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        # Its last line may be cut off, or its first one missing if the disk was full.
        header, *lines = file.read().split(b"\n")
    words = header.decode("ascii", "replace").split(" ")
    if " ".join(words[:2]) != VERSION or len(words) != 5 or words[2] != boot_id():
        return None
    running: dict[UUID, None] = {}
    for line in lines[:-1]:
        sign, _, text = line.decode("ascii", "replace").partition(" ")
        # A line that a full disk cut off runs into the next one; the watchdog finds what it named.
        if len(text) == _ID_LENGTH and sign == "+":
            running[UUID(hex=text)] = None
        elif len(text) == _ID_LENGTH and sign == "-":
            running.pop(UUID(hex=text), None)
    return Dead(words[3], path, tuple(running))


_ID_LENGTH = 32

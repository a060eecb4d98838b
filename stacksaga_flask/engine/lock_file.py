"""A small file that a process holds a lock on for life, so that its death is noticed at once on its host (R18, H14).

Into it goes what the process starts and ends, without fsync: a process that is killed leaves what it wrote in the
kernel. The kernel lets go of the lock when the last descriptor is closed, so a forked child closes its copy. A finder
(`stacksagad.recovery.instant`) tries the lock of each file; one that is free tells of a dead process.

The file is made under a temporary name, locked, and only then renamed: a finder never sees one that is not locked yet.

A line is ``+ id`` for what is begun and ``- id`` for what has ended, which is written with what begins next: a finder
that misses it finds the transaction ended. The first line says who writes:
``stacksaga 1 <boot id> <instance id> <process id>``.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import threading
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID
from weakref import WeakSet

from stacksaga_flask.config import Settings
from stacksaga_flask.config_values import without_password
from stacksaga_flask.store.opening import MEMORY

logger = logging.getLogger("stacksaga_flask")

VERSION: Final = "stacksaga 1"
LONGEST: Final = 1 << 20
"""Bytes after which the file is written anew with what is in flight."""
TEMPORARY: Final = "."
"""Names that begin so are not finished, and no finder looks at them."""

_LONGEST_UNWRITTEN: Final = 4096
_REMOTE: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse", "gfs2", "glusterfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3", "smbfs"}
)


class LivenessFile(Protocol):
    """What a process tells of itself for its finder."""

    def started(self, transaction_id: UUID) -> None:
        """This process begins to run the transaction."""

    def ended(self, transaction_id: UUID) -> None:
        """This process runs it no more, and another one need not go on at once."""

    def close(self) -> None:
        """This process ends by itself: nothing of it is left."""


class NoLockFile:
    """A process whose death is noticed by its watchdogs only."""

    def started(self, transaction_id: UUID) -> None:
        """Nobody is told."""

    def ended(self, transaction_id: UUID) -> None:
        """Nobody is told."""

    def close(self) -> None:
        """There is nothing to close."""


def lock_files_of(settings: Settings) -> Path | None:
    """Where the lock files lie of the processes that share a scope and a store on this host; None for nowhere."""
    if not settings.run_directory or settings.store == MEMORY:
        return None
    store = without_password(settings.store)
    if settings.embedded:
        # A relative path names another file elsewhere.
        store += os.getcwd()
    return Path(settings.run_directory, *settings.scope, hashlib.sha256(store.encode()).hexdigest()[:12])


def boot_id() -> str:
    """Which start of this machine's kernel this is.

    Raises:
        OSError: The system does not tell.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def open_lock_file(settings: Settings, instance_id: str) -> LivenessFile:
    """The lock file of this process; where there can be none, one that does nothing, after a warning."""
    directory = lock_files_of(settings)
    if directory is None:
        return NoLockFile()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        remote = file_system_elsewhere(directory)
        if remote is None:
            return LockFile(directory, instance_id)
        why = f"it lies on {remote}, where a lock may be lost while its holder lives: use a directory of this host"
    except OSError as error:
        why = f"{error}: make it writable, or set STACKSAGA_RUN_DIRECTORY to a directory that is"
    logger.warning(
        "a death of this process will be noticed by its watchdogs only, not at once, since there can be no lock file "
        "in %s (STACKSAGA_RUN_DIRECTORY): %s",
        *(directory, why),
    )
    return NoLockFile()


def file_system_elsewhere(directory: Path) -> str | None:
    """The kind of the directory's file system if other hosts may share it, else None."""
    device = directory.stat().st_dev
    here = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
        mount, _, rest = line.partition(" - ")
        kind = rest.split(" ")[0]
        if mount.split(" ")[2] == here and kind.partition(".")[0] in _REMOTE:
            return kind
    return None


class LockFile:
    """The lock file of this process.

    Args:
        directory: Where it lies; exists.
        instance_id: This process, and the file's name.

    Raises:
        OSError: It could not be made.
    """

    def __init__(self, directory: Path, instance_id: str) -> None:
        self.path = directory / instance_id
        self._temporary = directory / f"{TEMPORARY}{instance_id}"
        self._header = f"{VERSION} {boot_id()} {instance_id} {os.getpid()}\n".encode("ascii")
        self._lock = threading.Lock()
        self._in_flight: set[UUID] = set()
        self._ended = b""
        self._descriptor: int | None = None
        self._size = 0
        self._replace()
        _OPEN.add(self)

    def started(self, transaction_id: UUID) -> None:
        """This process begins to run the transaction."""
        with self._lock:
            self._in_flight.add(transaction_id)
            ended, self._ended = self._ended, b""
            self._append(b"%b+ %b\n" % (ended, transaction_id.hex.encode()))

    def ended(self, transaction_id: UUID) -> None:
        """This process runs it no more, and another one need not go on at once."""
        with self._lock:
            self._in_flight.discard(transaction_id)
            self._ended += b"- %b\n" % transaction_id.hex.encode()
            if len(self._ended) > _LONGEST_UNWRITTEN:
                ended, self._ended = self._ended, b""
                self._append(ended)

    def close(self) -> None:
        """This process ends by itself, or lets go: with nothing in flight the file goes too."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is None:
                return
            try:
                if not self._in_flight and _is_at(self.path, descriptor):
                    self.path.unlink(missing_ok=True)
            finally:
                os.close(descriptor)

    def forget_in_child(self) -> None:
        """Close a forked child's copy of the descriptor, which would keep the lock after its parent's death."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _append(self, line: bytes) -> None:
        if self._descriptor is None:
            return
        try:
            self._size += os.write(self._descriptor, line)
            if self._size > LONGEST:
                self._replace()
        except OSError as error:
            logger.warning(
                "what this process runs is found by its watchdogs only, if it dies: %s cannot be written: %s",
                *(self.path, error),
            )
            self._give_up()

    def _give_up(self) -> None:
        """Leave the file as it is. The lock stays, so nobody takes this process for dead."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _KEPT_OPEN.append(descriptor)

    def _replace(self) -> None:
        """Write the file anew: under a temporary name, locked, then renamed over the old one."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._temporary, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lines = b"".join(b"+ %b\n" % transaction_id.hex.encode() for transaction_id in self._in_flight)
            size = os.write(descriptor, self._header + lines)
            self._temporary.rename(self.path)
        except BaseException:
            os.close(descriptor)
            self._temporary.unlink(missing_ok=True)
            raise
        old, self._descriptor, self._size = self._descriptor, descriptor, size
        if old is not None:
            os.close(old)


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether the open file is the one that lies there."""
    try:
        there, ours = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


_OPEN: Final[WeakSet[LockFile]] = WeakSet()
_KEPT_OPEN: Final[list[int]] = []


def _after_in_child() -> None:
    for lock_file in list(_OPEN):
        lock_file.forget_in_child()
    while _KEPT_OPEN:
        os.close(_KEPT_OPEN.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)

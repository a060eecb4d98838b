"""One node a process, and what a fork does to it (R11).

Before a fork every node of the process is brought to rest: no call of its store is under way, no connection is open,
and nobody is opening or closing it. In the parent it then goes on; a child opens another one when it needs it. Python
prints what a hook raises and forks all the same. So it is logged here, and a child that inherited an open store
refuses to use it: what it acknowledged could be lost (R2).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Final
from weakref import WeakValueDictionary

from stacksaga_flask.engine.node import Node
from stacksaga_flask.errors import StoreRefused, StoreUnavailable

logger = logging.getLogger("stacksaga_flask")


class NodeOfProcess:
    """This process's node, opened at first use.

    Args:
        open_node: Opens one.
        timeout: Seconds that a fork waits for each thing under way.
    """

    def __init__(self, open_node: Callable[[], Node], *, timeout: float) -> None:
        self._open_node = open_node
        self._timeout = timeout
        self._locks: dict[Any, Any] = {}
        self._pid: int | None = None
        """The process whose store is open, or is being opened."""
        self._node: Node | None = None
        _NODES[next(_NUMBERS)] = self

    def get(self) -> Node:
        """The node.

        Raises:
            StoreRefused: This process inherited it with its store open.
            StoreError: The store cannot be used.
        """
        node = self._node
        if node is not None and self._pid == os.getpid():
            return node
        with self._lock():
            return self._opened()

    def close(self) -> None:
        """Give back the store's connections, unless they are those of a parent."""
        with self._lock():
            if self._pid == os.getpid():
                node, self._node, self._pid = self._node, None, None
                if node is not None:
                    node.kept.close()
                    node.lock_file.close()
                    node.store.close()

    def before_fork(self) -> None:
        """Bring it to rest.

        Raises:
            StoreError: It does not come to rest; all is as before.
        """
        if not self._lock().acquire(timeout=self._timeout):
            raise StoreUnavailable(f"somebody has been opening or closing the store for {self._timeout:g} s")
        try:
            self._refuse_what_was_inherited()
            if self._node is not None:
                self._node.store.before_fork(self._timeout)
        except BaseException:
            self._lock().release()
            raise

    def after_fork_in_parent(self) -> None:
        """Go on. Only after a `before_fork` that succeeded."""
        try:
            if self._node is not None:
                self._node.store.after_fork_in_parent()
        finally:
            self._lock().release()

    def after_fork_in_child(self, *, at_rest: bool) -> None:
        """Begin anew, if nothing was open. Whoever held the lock does not exist here."""
        self._locks = {}
        if at_rest:
            self._node = self._pid = None

    def _lock(self) -> Any:
        """A lock of the kind that this process has now.

        A web server may patch a worker after the application was loaded or the process forked. A lock from before that
        would stop every greenlet as soon as two of them want to open the store.
        """
        lock = self._locks.get(threading.Lock)
        return self._locks.setdefault(threading.Lock, threading.Lock()) if lock is None else lock

    def _opened(self) -> Node:
        self._refuse_what_was_inherited()
        if self._node is None:
            self._pid = os.getpid()
            try:
                self._node = self._open_node()
            finally:
                if self._node is None:
                    self._pid = None
        return self._node

    def _refuse_what_was_inherited(self) -> None:
        if self._pid not in (None, os.getpid()):
            raise StoreRefused(
                f"process {os.getpid()} inherited the event store from process {self._pid}, which had it open at the "
                f"fork, so what is written here could be lost (R2): do not fork a process that is running "
                f"transactions, and close the engine before a fork that Python is not told of (uWSGI: set lazy-apps)"
            )


_NUMBERS: Final = count()
# By the order in which they were made, so that two forks at once do not wait for each other.
_NODES: Final[WeakValueDictionary[int, NodeOfProcess]] = WeakValueDictionary()


class _Fork(threading.local):
    """The fork that this thread is making."""

    def __init__(self) -> None:
        self.at_rest: list[NodeOfProcess] = []


_FORK: Final = _Fork()


def _living() -> list[NodeOfProcess]:
    # Not by iterating over the dictionary, which another thread may change meanwhile.
    return [node for reference in _NODES.valuerefs() if (node := reference()) is not None]


def _before() -> None:
    _FORK.at_rest = []
    asked: set[NodeOfProcess] = set()
    # Again and again, since one may be made while the others are waited for.
    while new := [node for node in _living() if node not in asked]:
        asked.update(new)
        for node in new:
            _bring_to_rest(node)


def _bring_to_rest(node: NodeOfProcess) -> None:
    try:
        node.before_fork()
    except Exception:
        logger.exception(
            "process %d forks although its event store did not come to rest; the child will refuse to use the store: "
            "do not fork a process that is running transactions",
            os.getpid(),
        )
    else:
        _FORK.at_rest.append(node)


def _let_go_on(node: NodeOfProcess) -> None:
    try:
        node.after_fork_in_parent()
    except Exception:
        logger.exception("process %d cannot go on with its event store after a fork: start it anew", os.getpid())


def _after_in_parent() -> None:
    at_rest, _FORK.at_rest = _FORK.at_rest, []
    for node in at_rest:
        _let_go_on(node)


def _after_in_child() -> None:
    at_rest, _FORK.at_rest = _FORK.at_rest, []
    for node in _living():
        node.after_fork_in_child(at_rest=node in at_rest)


if hasattr(os, "register_at_fork"):  # not where no process forks, and where an engine refuses to be made
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)

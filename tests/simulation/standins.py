"""What stands in, while worlds run, for chance, threads' locks and lock files: all of it comes from the seed."""

from __future__ import annotations

import logging
import random as global_random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from stacksaga_flask.engine import node as node_module
from tests.simulation.scheduler import SteppableLock


class RememberedFile:
    """A lock file that outlives its process.

    Attributes:
        in_flight: What was begun and has not ended, in order.
    """

    def __init__(self) -> None:
        self.in_flight: dict[UUID, None] = {}

    def started(self, transaction_id: UUID) -> None:
        """The process begins to run the transaction."""
        self.in_flight[transaction_id] = None

    def ended(self, transaction_id: UUID) -> None:
        """It runs it no more."""
        self.in_flight.pop(transaction_id, None)

    def close(self) -> None:
        """No world lets a process end by itself."""


FILES: dict[str, RememberedFile] = {}
"""The lock files of the world that runs now, by instance id."""


@contextmanager
def without_chance(random: Random) -> Iterator[None]:
    """Let ids, jitter, locks and lock files come from the seed."""
    numbers = count(1)
    state, disabled = global_random.getstate(), logging.root.manager.disable
    FILES.clear()
    global_random.seed(random.getrandbits(64))
    logging.disable(logging.CRITICAL)
    stand_ins = (
        (threading, "Lock", SteppableLock),
        (uuid, "uuid4", lambda: UUID(int=random.getrandbits(128), version=4)),
        (node_module, "new_instance_id", lambda: f"instance-{next(numbers)}-{random.getrandbits(32):x}"),
        (node_module, "open_lock_file", lambda settings, instance_id: FILES.setdefault(instance_id, RememberedFile())),
    )
    real = [(module, name, getattr(module, name)) for module, name, _ in stand_ins]
    _put(stand_ins)
    try:
        yield
    finally:
        _put(real)
        global_random.setstate(state)
        logging.disable(disabled)


def _put(places: Any) -> None:
    for module, name, value in places:
        setattr(module, name, value)

"""Which of the driver's event loops is used: one for threads, one for gevent, both chosen by measurement.

Threads: libev. Measured against asyncio it needs half the time of a core for a write, and asyncio's knows neither
TLS nor a fork. gevent: the driver's own gevent reactor. Measured under `monkey.patch_all()` asyncio's needs 1.5 to 2.4
times as much of a core, and knows no TLS; native threads behind gevent's pool cost 1.2 to 1.6 times as much, and
a driver imported from beneath the patches.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from stacksaga_flask.errors import StoreRefused
from stacksaga_flask.threads import threads_are_greenlets


def connection_class() -> type[Any]:
    """The driver's connection class for this process.

    Raises:
        StoreRefused: The driver would block or hang; see `refuse_mixed_threads`. Or it lacks what it needs.
    """
    refuse_mixed_threads()
    if threads_are_greenlets():
        from stacksaga_flask.store.cassandra.greenlets import GreenletConnection

        return GreenletConnection
    try:
        from cassandra.io.libevreactor import LibevConnection
    except ImportError as error:
        raise StoreRefused(
            f"cassandra-driver was installed without its libev extension ({error}): install it from a wheel, or "
            f"install libev's headers and build it again"
        ) from error
    connection: type[Any] = LibevConnection
    return connection


def refuse_mixed_threads() -> None:
    """Refuse a driver that was imported before gevent patched the process: its locks would stop every greenlet.

    Raises:
        StoreRefused: It was.
    """
    cluster = sys.modules.get("cassandra.cluster")
    if cluster is not None and cluster.Lock is not threading.Lock:
        raise StoreRefused(
            "cassandra-driver was imported before gevent patched this process, so a call would stop every greenlet for "
            "ever: call gevent.monkey.patch_all() before anything else is imported (with `gunicorn -k gevent "
            "--preload`, at the top of gunicorn's configuration file), or leave out --preload"
        )

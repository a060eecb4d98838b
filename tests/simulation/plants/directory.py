"""Faults planted in the directory's writer and in the arithmetic of windows."""

from __future__ import annotations

from typing import Any

from stacksaga_flask.directory import writer
from stacksaga_flask.directory.windows import Window, WindowGrid
from stacksaga_flask.directory.writer import DirectoryWriter
from tests.simulation.plants.plant import Plant


def _cached_before_acknowledged(right: Any) -> Any:
    def register(self: DirectoryWriter, path: Any, transaction_id: Any) -> Any:
        registration = right(self, path, transaction_id)
        self._registered |= {path, Window(path.date, path.window)}
        return registration

    return register


def _this_window(right: Any) -> Any:
    def write_window(self: WindowGrid, now: int, *, delay_windows: int, not_before: int, write_timeout: int) -> Window:
        number = max(now // self.interval + delay_windows - 1, -(-not_before // self.interval))
        return self._window(number)

    return write_window


def _next_window_however_near(right: Any) -> Any:
    def write_window(self: WindowGrid, now: int, *, delay_windows: int, not_before: int, write_timeout: int) -> Window:
        return self._window(max(now // self.interval + delay_windows, -(-not_before // self.interval)))

    return write_window


def _one_bucket(right: Any) -> Any:
    return lambda slot, kind, bucket_size: int(kind)


def _below_the_insert(right: Any) -> Any:
    return lambda self, window: right(self, window) - 5_000_000


PLANTS = (
    Plant("cached-before-acknowledged", "C11", DirectoryWriter, "register", _cached_before_acknowledged),
    Plant("this-window", "W instead of W + 1", WindowGrid, "write_window", _this_window),
    Plant("window-however-near", "R3", WindowGrid, "write_window", _next_window_however_near),
    Plant("one-bucket", "R10", writer, "bucket_of", _one_bucket),
    Plant("deleted-below-the-insert", "C10", WindowGrid, "delete_timestamp", _below_the_insert),
)

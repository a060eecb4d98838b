"""Whether gevent has replaced threads, and what lies beneath. gevent is asked without importing it."""

from __future__ import annotations

import _thread
import sys
from typing import Any


def threads_are_greenlets() -> bool:
    """Whether gevent has replaced threads."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def native(name: str) -> Any:
    """What Python's own `_thread` has under this name, whatever gevent has put in its place."""
    monkey = sys.modules.get("gevent.monkey")
    return getattr(_thread, name) if monkey is None else monkey.get_original("_thread", name)

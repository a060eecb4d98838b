"""What befalls a process or a call at a certain place, by a script or by a seed's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from stacksaga_flask.clock import SECOND
from tests.simulation.network import Fate

if TYPE_CHECKING:
    from tests.simulation.processes import Process


class Kill(NamedTuple):
    """Kill the process.

    Attributes:
        restart: After how many microseconds another one takes its place; None for never.
    """

    restart: int | None = None


class Leave(NamedTuple):
    """Tell the process to end, as SIGTERM does.

    Attributes:
        grace: How many microseconds it has for that.
        restart: After how many microseconds another one takes its place; None for never.
    """

    grace: int
    restart: int | None = None


class Stop(NamedTuple):
    """Let the process stand still for so many microseconds."""

    length: int


class Becomes(NamedTuple):
    """What becomes of the call.

    Attributes:
        fate: Its fate.
        kills: After how many microseconds from then the caller is killed; None for not at all.
    """

    fate: Fate
    kills: int | None = None


Deed: TypeAlias = Kill | Leave | Stop | Becomes


class On(NamedTuple):
    """One thing that happens at one place.

    Attributes:
        who: How the process's name begins.
        at: The point's or the call's name; after a ``*`` a part of it.
        nth: At which time that it is come to, from 1.
        deed: What happens.
        optional: Whether it need not come to it when the schedule is replayed by its name.
    """

    who: str
    at: str
    nth: int
    deed: Deed
    optional: bool = False


def late(seconds: float, *, kills: float | None = None) -> Becomes:
    """The write lands so many seconds after it was sent, and its answer never comes."""
    return Becomes(Fate(round(seconds * SECOND), None), None if kills is None else round(kills * SECOND))


def lost() -> Becomes:
    """The call never reaches the store."""
    return Becomes(Fate(None, None))


def unanswered() -> Becomes:
    """The call is carried out at once, and its answer never comes."""
    return Becomes(Fate(2_000, None))


def stop(seconds: float) -> Stop:
    """Stand still for so many seconds."""
    return Stop(round(seconds * SECOND))


class Script:
    """Counts the places, and says what happens at one.

    Attributes:
        left: What has not happened yet.
    """

    def __init__(self, entries: tuple[On, ...]) -> None:
        self.left = list(entries)
        self._seen: dict[int, int] = {}

    def at_point(self, process: Process, name: str) -> Kill | Leave | Stop | None:
        """What happens at a point."""
        deed = self._next(process, name, (Kill, Leave, Stop))
        return None if isinstance(deed, Becomes) else deed

    def of_call(self, process: Process, name: str) -> Becomes | None:
        """What becomes of a call."""
        deed = self._next(process, name, (Becomes,))
        return deed if isinstance(deed, Becomes) else None

    def _next(self, process: Process, name: str, kinds: tuple[type, ...]) -> Deed | None:
        found = None
        for on in self.left:
            if isinstance(on.deed, kinds) and process.name.startswith(on.who) and _is_at(on.at, name):
                count = self._seen[id(on)] = self._seen.get(id(on), 0) + 1
                found = on if count == on.nth else found
        if found is None:
            return None
        self.left.remove(found)
        return found.deed


def _is_at(at: str, name: str) -> bool:
    return at[1:] in name if at.startswith("*") else at == name

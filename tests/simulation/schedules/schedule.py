"""What a schedule is, and the calm world that it comes over when it is replayed by name."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeAlias

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import ExecutionType
from tests.simulation.clients import Hand, Request
from tests.simulation.participants import Answer
from tests.simulation.plan import BEGINS, PROCESS, REVERT, Plan, settings_of
from tests.simulation.script import On
from tests.simulation.weather import FINE

Behaviour: TypeAlias = dict[tuple[str, ExecutionType], tuple[Answer, ...]]


class Schedule(NamedTuple):
    """One way in which things can come together.

    Attributes:
        name: As `schedules.md` names it.
        what: What happens, in one sentence.
        into: Lets it come over a world.
        plants: Planted faults that its replay finds.
    """

    name: str
    what: str
    into: Callable[[Plan, Random], Plan]
    plants: tuple[str, ...] = ()


def calm() -> Plan:
    """A world in which nothing befalls anybody."""
    begins = BEGINS[0]
    return Plan(
        begins=begins,
        settings=settings_of(5, 2, 50, 1, 600, False),
        standard_nodes=2,
        retry_nodes=2,
        skews=(0, 0, 0, 0),
        requests=(),
        behaviour={},
        script=(),
        jumps=(),
        weather=FINE,
        faults_end=begins + 60 * SECOND,
        slowness=10_000,
    )


def comes_over(
    plan: Plan,
    *script: On,
    saga: str = "commands",
    at: float = 0.3,
    key: str | None = None,
    again: tuple[float, ...] = (),
    nodes: tuple[int, ...] = (0,),
    asks: tuple[float, ...] = (),
    behaviour: Behaviour | None = None,
    hands: tuple[tuple[float, str], ...] = (),
    restore: int = 2,
    lifetime: int = 600,
    finds_dead: bool = False,
    slowness: int | None = None,
) -> Plan:
    """The plan with one request more, and what befalls it.

    Args:
        plan: The world's.
        script: What befalls it.
        saga, at, key, again, nodes, asks: Of the request, times in seconds.
        behaviour: What the participants do at its first calls, by step and side.
        hands: What is done by hand, in seconds after the request.
        restore, lifetime: Windows until its watchdog, and seconds that it may live.
        finds_dead: Whether a retry node notices that a process is dead.
        slowness: See `Plan`.
    """
    number = 1 + max((request.number for request in plan.requests), default=0)
    request = Request(
        number=number,
        saga=saga,
        at=_micro(at),
        key=None if key is None else f"{key} {number}",
        again=tuple(map(_micro, again)),
        nodes=nodes,
        asks=tuple(map(_micro, asks)),
    )
    planned = {(number, step, side): answers for (step, side), answers in (behaviour or {}).items()}
    bucket_size = plan.settings.bucket_size
    return plan._replace(
        settings=settings_of(5, restore, bucket_size, 1, lifetime, False),
        requests=(*plan.requests, request),
        behaviour={**plan.behaviour, **planned},
        script=(*script, *plan.script),
        hands=(*plan.hands, *(Hand(number, _micro(at + after), what) for after, what in hands)),
        faults_end=max(plan.faults_end, plan.begins + 60 * SECOND),
        finds_dead=plan.finds_dead or finds_dead,
        slowness=plan.slowness if slowness is None else slowness,
    )


def near(random: Random, seconds: float) -> float:
    """About so many seconds."""
    return seconds * random.uniform(0.85, 1.2)


def _micro(seconds: float) -> int:
    return round(seconds * SECOND)


__all__ = ["PROCESS", "REVERT", "Schedule", "calm", "comes_over", "near"]

"""What a seed makes of a world."""

from __future__ import annotations

from random import Random

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import ExecutionType
from stacksagad.recovery.sweep import WHOLE_RING, Sector
from tests.simulation.clients import Hand, Request
from tests.simulation.participants import Answer
from tests.simulation.plan import BEGINS, PROCESS, REVERT, Jump, Plan, Ring, settings_of
from tests.simulation.script import Kill, Leave, On, Stop
from tests.simulation.weather import Weather

_PLACES = (
    *("*row", "*row", "*COMPLETED", "*PAUSED", "*process", "*revert", "*returned", "*answered", "*failed", "*failed"),
    *("retry answered", "*watchdog answered", "*drop", "*#claim", "waits"),
)
_STEPS = {"commands": ("reserve", "charge", "ship"), "pivoted": ("reserve", "quote", "charge", "ship")}


def drawn(random: Random) -> Plan:
    """The plan of a seed."""
    begins = random.choice((BEGINS[0], *BEGINS))
    last = random.choice((15, 30, 60)) * SECOND
    settings = settings_of(
        random.choice((5, 5, 6)),
        random.choice((2, 2, 3, 5)),
        random.choice((1, 2, 50)),
        random.choice((1, 1, 2)),
        random.choice((45, 90, 600, 600)),
        random.random() < 0.3,
    )
    standard, retry = random.choice((1, 2)), random.choice((1, 2, 2))
    processes = standard + retry
    names = tuple(f"web{n}" for n in range(standard)) + tuple(f"retry{standard + n}" for n in range(retry))
    half = settings.clock_skew_margin // 2
    requests = tuple(_request(random, number) for number in range(1, random.choice((1, 2, 3, 5)) + 1))
    behaviour = {}
    for request in requests:
        behaviour.update(_behaviour(random, request))
    return Plan(
        begins=begins,
        settings=settings,
        standard_nodes=standard,
        retry_nodes=retry,
        skews=tuple(random.randrange(-half, half + 1) for _ in range(processes)),
        requests=requests,
        behaviour=behaviour,
        script=tuple(_blow(random, names) for _ in range(random.choice((0, 1, 2, 3, 5)))),
        jumps=tuple(_jump(random, processes, last) for _ in range(random.choice((0, 0, 0, 1)))),
        weather=Weather.drawn(random, begins, begins + last),
        faults_end=begins + last,
        hands=tuple(_hand(random, requests, last) for _ in range(random.choice((0, 0, 1, 2)))),
        slowness=random.choice((10_000, 200_000, 1_900_000)),
        ring=_ring(random, begins, begins + last),
        finds_dead=random.random() < 0.4,
        found_after=(0, random.choice((SECOND, SECOND, 30 * SECOND))),
    )


def _hand(random: Random, requests: tuple[Request, ...], last: int) -> Hand:
    request = random.choice(requests)
    if random.random() < 0.5:
        return Hand(request.number, request.at + random.randrange(10 * SECOND), "retry")
    return Hand(request.number, random.randrange(2 * SECOND, last + 20 * SECOND), "restore")


def _ring(random: Random, begins: int, until: int) -> Ring:
    """The whole ring for all, or halves of it that overlap; and a lease that is lost for a while."""
    middle = random.randrange(-(2**62), 2**62)
    halves = (Sector(WHOLE_RING.minimum, middle + 2**60), Sector(middle, WHOLE_RING.maximum))
    lost = random.randrange(begins, until)
    flaps = (lost, lost + random.choice((5, 10, 20)) * SECOND)
    return Ring(
        sectors=halves if random.random() < 0.2 else (),
        flaps=flaps if random.random() < 0.3 else (0, 0),
        every=random.choice((30_000, SECOND, 20 * SECOND)),
    )


def _request(random: Random, number: int) -> Request:
    key = f"key {number}" if random.random() < 0.35 else None
    return Request(
        number=number,
        saga=random.choice(tuple(_STEPS)),
        at=random.randrange(8 * SECOND),
        key=key,
        leave=random.random() < 0.1,
        again=tuple(_soon(random) for _ in range(random.choice((1, 2, 3)))) if key is not None else (),
        clash=_soon(random) if key is not None and random.random() < 0.3 else None,
        asks=tuple(_soon(random) for _ in range(random.choice((0, 2, 5)))),
    )


def _soon(random: Random) -> int:
    return random.choice((SECOND // 5, 2 * SECOND, 20 * SECOND)) * random.randrange(1, 101) // 100


def _behaviour(random: Random, request: Request) -> dict[tuple[int, str, ExecutionType], tuple[Answer, ...]]:
    """What the participants do: mostly what they are asked."""
    planned: dict[tuple[int, str, ExecutionType], tuple[Answer, ...]] = {}
    steps = _STEPS[request.saga]
    passing = (Answer.BUSY, Answer.BUSY, Answer.LOST, Answer.LONG)
    for step in steps:
        if random.random() < 0.25:
            planned[request.number, step, PROCESS] = tuple(random.choice(passing) for _ in range(random.choice((1, 2))))
        if random.random() < 0.25:
            planned[request.number, step, REVERT] = tuple(random.choice(passing) for _ in range(random.choice((1, 2))))
    if random.random() < 0.5:
        step = random.choice(steps[1:] if request.saga == "commands" else steps[1:-1])
        last = random.choice((Answer.REFUSED, Answer.REFUSED, Answer.BROKEN, Answer.UNASKED))
        if last is Answer.UNASKED and request.saga == "pivoted":
            last = Answer.REFUSED  # of a pivot the answer belongs to the key (R8)
        planned[request.number, step, PROCESS] = (*planned.get((request.number, step, PROCESS), ()), last)
    if random.random() < 0.15:
        refusal = random.choice((Answer.REFUSED, Answer.UNASKED, Answer.UNASKED))
        planned[request.number, random.choice(steps), REVERT] = (refusal,)
    return planned


def _blow(random: Random, names: tuple[str, ...]) -> On:
    """A kill or a stop of one of these processes."""
    at = random.choice(("*", "*", *_PLACES))
    nth = (
        random.choice((1, 1, 2, 3, 6, 12))
        if at != "*"
        else random.choice((12, 60, 300)) * random.randrange(1, 101) // 100
    )
    deed: Kill | Leave | Stop = Kill(random.choice((None, SECOND, 20 * SECOND)))
    if random.random() < 0.2:
        deed = Leave(random.choice((1, 10)) * SECOND, random.choice((None, SECOND)))
    elif random.random() < 0.6:
        deed = Stop(random.choice((1, 10, 20, 20)) * random.randrange(SECOND // 2, SECOND * 2))
    return On(random.choice(names), at, max(1, nth), deed)


def _jump(random: Random, processes: int, last: int) -> Jump:
    by = random.choice((-3600, 3600, -15, 15, -3, 3)) * SECOND
    return Jump(random.randrange(processes), random.randrange(last), by, random.choice((5, 20, 90)) * SECOND)

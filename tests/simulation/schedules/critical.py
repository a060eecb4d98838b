"""C1 to C11: the critical ones."""

from __future__ import annotations

from random import Random

from stacksaga_flask.clock import SECOND
from tests.simulation.network import Fate
from tests.simulation.participants import Answer
from tests.simulation.plan import Jump, Plan
from tests.simulation.schedules.schedule import PROCESS, Schedule, comes_over, near
from tests.simulation.script import Becomes, Kill, On, late, lost, stop


def _stopped_before_sending(plan: Plan, random: Random) -> Plan:
    # The one at the wait falls only where a fault makes the writer wait after its check.
    where = On("web0", "row PROCESSING", 2, stop(near(random, 18)))
    return comes_over(plan, where, On("web0", "waits", 3, stop(near(random, 18)), optional=True))


def _late_batch(plan: Plan, random: Random) -> Plan:
    fate = late(near(random, 20), kills=0.001)
    return comes_over(plan, On("web0", "row PROCESSING", 2, fate))


def _acknowledged_after_the_fence(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "row PROCESS_COMPLETED", 1, stop(near(random, 17))),
        behaviour={("ship", PROCESS): (Answer.DONE, Answer.BUSY)},
    )


def _losers_marker(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "row PROCESSING", 2, late(near(random, 17), kills=0.001)),
        behaviour={("charge", PROCESS): (Answer.DONE, Answer.BUSY)},
    )


def _late_duplicate(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web", "take #claim", 2, stop(near(random, 6))),
        key="C4",
        again=(0.0005,),
        nodes=(0, 1),
    )


def _paused_starter(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "row PROCESSING", 1, stop(near(random, 28))),
        key="C5",
        again=(near(random, 14),),
        nodes=(0, 1),
    )


def _clock_set_back(plan: Plan, random: Random) -> Plan:
    by = random.choice((-3600, -15)) * SECOND
    over = comes_over(plan, behaviour={("charge", PROCESS): (Answer.LONG,)}, slowness=1_900_000)
    return over._replace(jumps=(*over.jumps, Jump(0, SECOND, by, 30 * SECOND)))


def _pause_hands_over(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "retry answered", 1, stop(near(random, 12))),
        behaviour={("charge", PROCESS): (Answer.BUSY,)},
        restore=6,
    )


def _possibly_done(plan: Plan, random: Random) -> Plan:
    return comes_over(plan, behaviour={("charge", PROCESS): (Answer.LOST, Answer.UNASKED)})


def _possibly_done_and_killed(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process charge returned", 1, Kill()),
        behaviour={("charge", PROCESS): (Answer.DONE, Answer.UNASKED)},
    )


def _in_a_row(plan: Plan, random: Random) -> Plan:
    return comes_over(plan, asks=(near(random, 2),))


def _cached_tiers(plan: Plan, random: Random) -> Plan:
    # Of tier 2 the first request's write never arrives; the second request comes before it has given up.
    parts = (2_000, None, 2_000, 2_000, 2_000, 2_000)
    over = comes_over(plan, On("web0", "watchdog + row PROCESSING", 1, Becomes(Fate(None, None, parts=parts))))
    return comes_over(over, at=0.3 + near(random, 0.4))


def _pointer_but_no_row(plan: Plan, random: Random) -> Plan:
    writes = [On("web0", "row PROCESSING", nth, late(near(random, 30)), optional=nth > 1) for nth in (1, 2, 3, 4)]
    return comes_over(plan, *writes, key="H5", again=(near(random, 50),))


def _clock_steps_under_a_keyed_start(plan: Plan, random: Random) -> Plan:
    over = _pointer_but_no_row(plan, random)
    return over._replace(jumps=(*over.jumps, Jump(0, 40 * SECOND, -15 * SECOND, 30 * SECOND)))


def _revert_not_acknowledged(plan: Plan, random: Random) -> Plan:
    return comes_over(plan, On("web0", "row REVERTING", 1, lost()), behaviour={("charge", PROCESS): (Answer.REFUSED,)})


SCHEDULES = (
    Schedule(
        "C1",
        "A's batch waits between check and send, and lands after a takeover",
        _stopped_before_sending,
        ("stamped-at-send",),
    ),
    Schedule("C1-hint", "A's batch becomes a hint and lands long after a takeover", _late_batch),
    Schedule(
        "C2",
        "an acknowledgement comes after the fence",
        _acknowledged_after_the_fence,
        ("late-acknowledgement-counts",),
    ),
    Schedule("C3", "a loser's marker survives its batch", _losers_marker, ("committed-by-markers",)),
    Schedule(
        "C4", "a duplicate of a keyed start claims after the first has ended", _late_duplicate, ("not-read-again",)
    ),
    Schedule(
        "C5", "a keyed starter stands still before its row, and another one runs the transaction", _paused_starter
    ),
    Schedule("C6", "the wall clock is set back during a run", _clock_set_back, ("wall-clock",)),
    Schedule(
        "C7",
        "a starter stands still between its retry pointer and the paused row",
        _pause_hands_over,
        ("right-not-shrunk",),
    ),
    Schedule("C8", "a step's answer is lost, and its next attempt is refused", _possibly_done, ("possibly-done-kept",)),
    Schedule(
        "C8-crash",
        "a process dies in a step, and the next attempt is refused",
        _possibly_done_and_killed,
        ("takeover-not-possibly-done",),
    ),
    Schedule("C9", "steps follow one another within milliseconds", _in_a_row, ("coordinators-timestamps",)),
    Schedule("C10", "a finished transaction's pointer is deleted", _in_a_row, ("deleted-below-the-insert",)),
    Schedule(
        "C11", "a tier's write fails that another request relies on", _cached_tiers, ("cached-before-acknowledged",)
    ),
    Schedule("H5", "a keyed start's row comes after its pointer was dropped", _pointer_but_no_row, ("not-fenced",)),
    Schedule("V8", "the clock is set back between a fence delete and the next start", _clock_steps_under_a_keyed_start),
    Schedule(
        "V9", "the batch with the list of reverts is not acknowledged", _revert_not_acknowledged, ("unknown-counts",)
    ),
)

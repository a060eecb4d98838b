"""What happens to a world from its beginning to its end."""

from __future__ import annotations

from functools import partial

from stacksaga_flask.clock import SECOND
from tests.simulation.checks.finish import left_over, unfinished
from tests.simulation.clients import Client, Hand, by_hand
from tests.simulation.plan import Jump
from tests.simulation.world import World

_WINDOWS_TO_REST = 60
"""How many windows after the last fault everything must have come to rest."""


class Course:
    """The course of one world: what was planned, then calm, then rest."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scheduler = world.scheduler

    def run(self) -> None:
        """Let everything happen, and check the end."""
        self._populate()
        for client in self._world.clients.values():
            client.begin()
        for hand in self._world.plan.hands:
            self._scheduler.at(
                self._world.plan.begins + hand.at, partial(self._lend, hand, self._world.clients[hand.number])
            )
        self._scheduler.run(until=self._world.faults_end)
        if not self._scheduler.stop:
            self._calm_down()
            self._come_to_rest()
        if not self._scheduler.stop:
            for client in self._world.clients.values():
                client.ask()
            self._scheduler.run(until=self._scheduler.now + SECOND)
            self._world.watch.ends()
        for process in self._world.processes:
            process.dead = True
            self._scheduler.discard(process)
        self._scheduler.stop = False
        self._scheduler.run(until=self._scheduler.now)

    def _populate(self) -> None:
        plan = self._world.plan
        roles = ["web"] * plan.standard_nodes + ["retry"] * plan.retry_nodes
        for number, role in enumerate(roles):
            self._world.begin(role, plan.skews[number])
        for key, answers in plan.behaviour.items():
            self._world.participants.will(*key, *answers)
        for jump in plan.jumps:
            self._scheduler.at(plan.begins + jump.at, partial(self._jump, jump))

    def _lend(self, hand: Hand, client: Client) -> None:
        process = self._world.a_standard_node()
        if process is None or client.transaction_id is None:
            return
        transaction_id = client.transaction_id
        self._world.watch.story(transaction_id).by_hand = True
        process.spawn(hand.what, lambda: by_hand(process, hand.what, transaction_id))

    def _jump(self, jump: Jump) -> None:
        process = self._world.processes[jump.process]
        process.time.jump = jump.by
        self._world.trace.add(process, f"its clock is set by {jump.by / SECOND:+.0f} s")

        def heal() -> None:
            process.time.jump = 0
            self._world.trace.add(process, "its clock is set right")

        self._scheduler.at(self._scheduler.now + jump.lasts, heal)

    def _calm_down(self) -> None:
        """No more faults from here on, and a retry node that works."""
        self._world.trace.add(None, "no more faults")
        for process in self._world.processes:
            process.time.jump = 0
        if not any(one.serves and one.name.startswith("retry") for one in self._world.processes):
            self._world.begin("retry")
        for client in self._world.clients.values():
            client.repeat()

    def _come_to_rest(self) -> None:
        interval = self._world.settings.window_interval
        for _ in range(_WINDOWS_TO_REST):
            self._scheduler.run(until=self._scheduler.now + interval)
            if self._scheduler.stop or self._is_at_rest():
                return

    def _is_at_rest(self) -> bool:
        """Whether nothing is left to come or to be done."""
        if self._scheduler.now < self._world.plan.hands_end:
            return False
        stands_still = any(not one.dead and one.stopped_until > self._scheduler.now for one in self._world.processes)
        return not (self._world.under_way or stands_still or unfinished(self._world) or left_over(self._world))

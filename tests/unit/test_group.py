"""Threads that write together: who wakes whom."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any, cast

import pytest

from stacksaga_flask.store.sql import group as group_module
from stacksaga_flask.store.sql.backend import Cursor
from stacksaga_flask.store.sql.forking import HeldWriter
from stacksaga_flask.store.sql.group import Call, Group
from tests.support.waiting import wait_until


class Interrupted(BaseException):
    """What a signal's handler raises."""


class SlowDisk:
    """Writes when it is told to, one group each time."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self._may_write = threading.Semaphore(0)

    def run(self, calls: Sequence[Call[Any]]) -> None:
        answers = [call.work(cast(Cursor, None)) for call in calls]
        self.groups.append(answers)
        assert self._may_write.acquire(timeout=30)
        for call, answer in zip(calls, answers, strict=True):
            call.answer, call.done = answer, True

    def write(self) -> None:
        self._may_write.release()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    # Nobody is to look by himself whether he was answered.
    monkeypatch.setattr(group_module, "_LONGEST_SLEEP", 60.0)
    return SlowDisk()


@pytest.fixture
def callers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def queue(group: Group, callers: ThreadPoolExecutor, name: str) -> Future[str]:
    """A caller whose call is queued by now."""
    before = len(group._queue)
    answer = callers.submit(group.submit, lambda _: name)
    wait_until(lambda: len(group._queue) > before)
    return answer


def test_all_callers_of_a_group_and_of_the_next_one_are_answered(disk: SlowDisk, callers: ThreadPoolExecutor) -> None:
    group = Group(cast(HeldWriter, disk))
    first = callers.submit(group.submit, lambda _: "first")
    wait_until(lambda: len(disk.groups) == 1)
    second = [queue(group, callers, name) for name in ("a", "b", "c")]
    disk.write()
    wait_until(lambda: len(disk.groups) == 2)
    third = [queue(group, callers, name) for name in ("d", "e")]
    disk.write()
    disk.write()
    assert [answer.result(30) for answer in (first, *second, *third)] == ["first", "a", "b", "c", "d", "e"]
    assert disk.groups == [["first"], ["a", "b", "c"], ["d", "e"]]


@pytest.mark.parametrize("taken", [False, True])
def test_a_caller_that_is_interrupted_keeps_nobody_from_being_answered(
    disk: SlowDisk, callers: ThreadPoolExecutor, *, taken: bool
) -> None:
    group = Group(cast(HeldWriter, disk))
    first = callers.submit(group.submit, lambda _: "first")
    wait_until(lambda: len(disk.groups) == 1)
    before = queue(group, callers, "before")
    after: list[Future[str]] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    def others() -> None:
        wait_until(lambda: len(group._queue) == 2)
        after.append(queue(group, callers, "after"))
        if taken:
            disk.write()
            wait_until(lambda: len(disk.groups) == 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    handler = signal.signal(signal.SIGUSR1, interrupt)
    try:
        others_are_there = callers.submit(others)
        with pytest.raises(Interrupted):
            group.submit(lambda _: "interrupted")
    finally:
        signal.signal(signal.SIGUSR1, handler)
    others_are_there.result(30)
    for _ in range(2):
        disk.write()
    assert [answer.result(30) for answer in (first, before, *after)] == ["first", "before", "after"]
    together = ["before", "interrupted", "after"] if taken else ["before", "after"]
    assert disk.groups == [["first"], together]

"""Instant restore: real processes that die, stop or live on, and the finder on their host (R18, H14)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from stacksaga_flask import ManualTime
from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.engine.lock_file import LockFile
from stacksaga_flask.engine.reinvoke import Found
from stacksagad.recovery.instant import Finder
from stacksagad.recovery.workers import ThreadWorkers

OWNER = """
import sys, uuid
from pathlib import Path
from stacksaga_flask.engine.lock_file import LockFile
opened = LockFile(Path(sys.argv[1]), sys.argv[2])
for line in sys.stdin:
    sign, text = line.split()
    (opened.started if sign == "+" else opened.ended)(uuid.UUID(text))
    print("done", flush=True)
"""


class Owner:
    """A process that holds a lock file."""

    def __init__(self, directory: Path, instance_id: str) -> None:
        self.path = directory / instance_id
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(directory), instance_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, sign: str, transaction_id: UUID) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{sign} {transaction_id}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path, "web-1")
    yield owner
    owner.kill()


class Recovered:
    """What was asked to be gone on with, and what is answered."""

    def __init__(self) -> None:
        self.asked: list[tuple[UUID, Found]] = []
        self.settles = True

    def __call__(self, transaction_id: UUID, found: Found) -> bool:
        self.asked.append((transaction_id, found))
        return self.settles


def finder_of(directory: Path, recovered: Recovered) -> tuple[Finder, ManualTime]:
    time = ManualTime()
    clock = Clock(time, skew_margin=SECOND)
    return Finder(directory, clock, skew_margin=SECOND, workers=ThreadWorkers(2), recover=recovered), time


def test_what_a_killed_process_ran_is_gone_on_with_after_the_skew_margin(tmp_path: Path, owner: Owner) -> None:
    recovered = Recovered()
    finder, time = finder_of(tmp_path, recovered)
    ended, *running = (uuid4() for _ in range(4))
    owner.tell("+", ended)
    owner.tell("-", ended)
    for transaction_id in running:
        owner.tell("+", transaction_id)
    assert finder.look() == []
    owner.kill()
    (dead,) = finder.look()
    assert (dead.instance_id, dead.transaction_ids) == ("web-1", tuple(running))
    assert finder.drain(30)
    assert {each for each, _ in recovered.asked} == set(running)
    assert {found for _, found in recovered.asked} == {Found(dead_instance="web-1")}
    assert time.boot() == SECOND
    assert not owner.path.exists()
    assert finder.look() == []


def test_a_stopped_process_is_not_dead(tmp_path: Path, owner: Owner) -> None:
    finder, _ = finder_of(tmp_path, Recovered())
    owner.tell("+", uuid4())
    owner.process.send_signal(signal.SIGSTOP)
    assert finder.look() == []
    assert owner.path.exists()


def test_what_could_not_be_settled_is_looked_at_again(tmp_path: Path, owner: Owner) -> None:
    recovered = Recovered()
    finder, _ = finder_of(tmp_path, recovered)
    transaction_id = uuid4()
    owner.tell("+", transaction_id)
    owner.kill()
    recovered.settles = False
    assert len(finder.look()) == 1
    assert finder.drain(30)
    assert owner.path.exists()
    recovered.settles = True
    assert len(finder.look()) == 1
    assert finder.drain(30)
    assert not owner.path.exists()
    assert [each for each, _ in recovered.asked] == [transaction_id] * 2


def test_a_process_that_died_with_nothing_in_flight_leaves_nothing_to_do(tmp_path: Path, owner: Owner) -> None:
    recovered = Recovered()
    finder, time = finder_of(tmp_path, recovered)
    owner.tell("-", uuid4())
    owner.kill()
    finder.look()
    assert finder.drain(30)
    assert not owner.path.exists()
    assert (recovered.asked, time.boot()) == ([], 0)


def test_two_finders_at_once_do_not_both_go_on(tmp_path: Path, owner: Owner) -> None:
    one, other = Recovered(), Recovered()
    first, _ = finder_of(tmp_path, one)
    second, _ = finder_of(tmp_path, other)
    for _ in range(20):
        owner.tell("+", uuid4())
    owner.kill()
    first.look()
    second.look()
    assert first.drain(30)
    assert second.drain(30)
    assert sorted((len(one.asked), len(other.asked))) == [0, 20]
    assert not owner.path.exists()


def test_a_finder_does_not_take_its_own_process_for_dead(tmp_path: Path) -> None:
    ours = LockFile(tmp_path, "node-1")
    ours.started(uuid4())
    finder, _ = finder_of(tmp_path, Recovered())
    assert finder.look() == []
    ours.close()


def test_files_that_are_not_finished_or_not_of_this_start_of_the_kernel_are_left_alone(tmp_path: Path) -> None:
    line = f"+ {uuid4().hex}\n"
    others = {
        ".web-2": f"stacksaga 1 {'0' * 36} web-2 7\n{line}",
        "web-3": f"stacksaga 1 {'0' * 36} web-3 7\n{line}",
        "web-4": f"stacksaga 2 {'0' * 36} web-4 7\n{line}",
        "web-5": "",
    }
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    recovered = Recovered()
    finder, _ = finder_of(tmp_path, recovered)
    assert finder.look() == []
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == others


def test_lines_that_were_cut_off_are_left_to_the_watchdog(tmp_path: Path, owner: Owner) -> None:
    recovered = Recovered()
    finder, _ = finder_of(tmp_path, recovered)
    whole = uuid4()
    owner.tell("+", whole)
    owner.kill()
    with owner.path.open("ab") as file:
        file.write(b"+ 0123456789abc- 0123\n+ 4567\n+ 89ab")
    finder.look()
    assert finder.drain(30)
    assert [each for each, _ in recovered.asked] == [whole]


def test_a_file_that_its_owner_writes_anew_meanwhile_is_never_taken(tmp_path: Path) -> None:
    """Between a finder's opening and its lock the owner may have put another file there, which is locked (H14)."""
    ours = LockFile(tmp_path, "web-1")
    old = os.open(ours.path, os.O_RDWR)
    ours._replace()
    recovered = Recovered()
    finder, _ = finder_of(tmp_path, recovered)
    assert finder.look() == []
    os.close(old)
    ours.close()


def test_a_directory_that_is_not_there_yet_holds_nobody(tmp_path: Path) -> None:
    finder, _ = finder_of(tmp_path / "later", Recovered())
    assert finder.look() == []

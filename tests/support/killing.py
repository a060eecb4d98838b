"""Kills a scenario's process at each of its points, and gathers what each death left behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.kill_evidence import Evidence, effects_in
from tests.support.kill_places import KillPlace
from tests.support.kill_scenarios import Scenario
from tests.support.kill_server import AT_ONCE, End, Job

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Visit:
    """A fresh process that opened what was left behind.

    Attributes:
        answer: What it was answered.
        evidence: What was there afterwards.
    """

    answer: dict[str, str]
    evidence: Evidence


@dataclass(frozen=True)
class Death:
    """A process that was killed, or one that was left alone.

    Attributes:
        number: Which point it was to be killed at, from 0; -1 for none.
        points: The points it reached, the last one being where it died.
        end: How it ended.
        evidence: What it left behind.
        folder: Where.
        errors: What it printed.
    """

    number: int
    points: tuple[str, ...]
    end: End
    evidence: Evidence
    folder: Path
    errors: str


class Killing:
    """Runs children in folders of their own, which are gone when it ends. Use it as a context manager."""

    def __init__(self, place: KillPlace) -> None:
        self.place = place

    def __enter__(self) -> Killing:
        # Not pytest's folder, which keeps the files of three runs.
        self._folder = Path(tempfile.mkdtemp(prefix="killing-"))
        self._used = 0
        self._server = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.support.kill_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        # Its input ends, and so does the server.
        self._server.communicate(timeout=10)
        shutil.rmtree(self._folder)

    def rehearse(self, scenario: Scenario) -> Death:
        """Let a process live, to learn its points."""
        return self.kill(scenario, [None])[0]

    def kill_everywhere(self, scenario: Scenario, points: int) -> list[Death]:
        """Kill one process at each point."""
        return self.kill(scenario, range(points))

    def visit(self, scenario: Scenario, deaths: Sequence[Death]) -> list[Visit]:
        """Let fresh processes open what was left behind: make a keyed request again, or find the transaction."""
        jobs = [self._visiting(scenario, death) for death in deaths]
        shares = [jobs[share::AT_ONCE] for share in range(AT_ONCE)]
        for end, share in zip(self._carried_out(shares), shares, strict=True):
            errors = [(Path(job["folder"]) / "errors.txt").read_text() for job in share]
            assert (end["signal"], end["code"]) == (0, 0), f"a fresh process ended with {end}: {errors}"
        return [
            Visit(json.loads((death.folder / "answer.json").read_text()), self.evidence(death.folder))
            for death in deaths
        ]

    def kill(self, scenario: Scenario, numbers: Sequence[int | None]) -> list[Death]:
        """Kill one process at each of these points; None lets one live."""
        folders = [self._new_folder() for _ in numbers]
        return self._deaths(
            folders,
            [self._job(scenario, folder, kill_at=number) for folder, number in zip(folders, numbers, strict=True)],
        )

    def lose_everywhere(self, scenario: Scenario, writes: int) -> list[Death]:
        """Let one process live for each write, whose answer is lost though it was applied."""
        folders = [self._new_folder() for _ in range(writes)]
        return self._deaths(
            folders, [self._job(scenario, folder, lose_at=number) for number, folder in enumerate(folders)]
        )

    def evidence(self, folder: Path) -> Evidence:
        """What is in the store and in the participants' file."""
        return Evidence(self.place.tables(folder), effects_in(folder))

    def _job(
        self,
        scenario: Scenario,
        folder: Path,
        *,
        kill_at: int | None = None,
        lose_at: int | None = None,
        find: str | None = None,
    ) -> Job:
        return Job(
            scenario=scenario.name,
            folder=str(folder),
            url=self.place.url(folder),
            service=self.place.service(folder),
            settings=self.place.settings,
            kill_at=kill_at,
            lose_at=lose_at,
            find=find,
        )

    def _deaths(self, folders: Sequence[Path], jobs: Sequence[Job]) -> list[Death]:
        return [
            Death(
                number=-1 if job["kill_at"] is None else job["kill_at"],
                points=tuple((folder / "points.txt").read_text().splitlines()),
                end=end,
                evidence=self.evidence(folder),
                folder=folder,
                errors=(folder / "errors.txt").read_text(),
            )
            for folder, job, end in zip(folders, jobs, self._carried_out([[job] for job in jobs]), strict=True)
        ]

    def _carried_out(self, shifts: list[list[Job]]) -> list[End]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(shifts) + "\n")
        self._server.stdin.flush()
        ends: list[End] = json.loads(self._server.stdout.readline())
        return ends

    def _new_folder(self) -> Path:
        folder = self._folder / str(self._used)
        self._used += 1
        folder.mkdir()
        self.place.prepare(folder)
        return folder

    def _visiting(self, scenario: Scenario, death: Death) -> Job:
        row = death.evidence.row
        find = None if scenario.key else str(row["transaction_id"]) if row else ""
        return self._job(scenario, death.folder, find=find)

"""A process that is killed at any operation leaves a state that is legal and reachable (R1, R2, R8, R9).

Each scenario is first left alone, which tells the points at which its process can be killed: before and after every
operation of the store and every call of a participant. Then one process is killed at each of them.
"""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.kill_evidence import read_evidence
from tests.support.kill_plants import Plant, in_the_effects, in_the_tables
from tests.support.kill_points import OPERATIONS, KillingStore, Points
from tests.support.kill_rules import broken_rules
from tests.support.kill_scenarios import NAMED, SCENARIOS, Scenario
from tests.support.killing import Death, Killing, let_claims_expire

NEVER = 2**62
LONG_AGO = 1


class Campaign:
    """Kills every scenario once, when somebody first asks for it."""

    def __init__(self, killing: Killing) -> None:
        self.killing = killing
        self._deaths: dict[str, list[Death]] = {}

    def deaths(self, scenario: Scenario) -> list[Death]:
        """One death at each point of the scenario."""
        if scenario.name not in self._deaths:
            points = self.killing.rehearse(scenario).points
            self._deaths[scenario.name] = self.killing.kill_everywhere(scenario, len(points))
        return self._deaths[scenario.name]


@pytest.fixture(scope="module")
def campaign() -> Iterator[Campaign]:
    with Killing() as killing:
        yield Campaign(killing)


def named(scenario: Scenario) -> str:
    return scenario.name


each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
each_keyed = pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.key], ids=named)
each_unkeyed = pytest.mark.parametrize("scenario", [each for each in SCENARIOS if not each.key], ids=named)


def about(scenario: Scenario, death: Death, complaint: object) -> str:
    return f"{scenario.name}: killed at point {death.number}, {death.points[-1]!r}: {complaint}"


def points_of(scenario: Scenario) -> list[str]:
    return [f"{when} {operation}" for operation in scenario.operations for when in ("before", "after")]


# -- left alone ------------------------------------------------------------------------------------------------


@each_scenario
def test_left_alone_each_saga_does_what_was_worked_out_by_hand(campaign: Campaign, scenario: Scenario) -> None:
    life = campaign.killing.rehearse(scenario)
    assert (life.end["signal"], life.end["code"], life.errors) == (0, 0, "")
    assert life.evidence.row is not None
    assert life.evidence.row["running_status"] == scenario.status
    assert tuple(effect.name for effect in life.evidence.effects) == scenario.effects
    assert broken_rules(life.evidence, life.end["at"]) == []
    if not scenario.each_statement:
        assert list(life.points) == points_of(scenario)


@pytest.mark.parametrize(
    ("name", "commits"),
    [
        ("every step succeeds, killed at each statement", 3 + 1),
        ("the charge succeeds and raises, killed at each statement", 2 + 2 + 1),
    ],
)
def test_a_saga_commits_once_for_its_start_and_once_for_each_execution(
    campaign: Campaign, name: str, commits: int
) -> None:
    points = campaign.killing.rehearse(NAMED[name]).points
    started = points.index("before INSERT INTO es_days_by_year")
    assert points[started:].count("before COMMIT") == commits
    assert points[:started].count("before COMMIT") == 2, "the tables were checked and the grid was recorded"


# -- killed ----------------------------------------------------------------------------------------------------


@each_scenario
def test_killed_at_any_point_each_saga_leaves_what_the_rules_ask_for(campaign: Campaign, scenario: Scenario) -> None:
    deaths = campaign.deaths(scenario)
    complaints = [about(scenario, death, each) for death in deaths for each in complaints_about(scenario, death)]
    assert not complaints, "\n".join(complaints)


def complaints_about(scenario: Scenario, death: Death) -> Iterator[str]:
    if death.end["signal"] != signal.SIGKILL:
        yield f"it was not killed, but ended with {death.end}: {death.errors}"
    if len(death.points) != death.number + 1:
        yield f"it should have died at point {death.number}"
    yield from broken_rules(death.evidence, death.end["at"])
    if scenario.each_statement:
        return
    row = death.evidence.row
    found = row["running_status"] if row else None
    if found != last_acknowledged(death.points):
        yield f"the row says {found}, and what was acknowledged last is {last_acknowledged(death.points)}"


def last_acknowledged(points: tuple[str, ...]) -> str | None:
    """The status in the last row whose write had returned."""
    rows = [re.search(r"row (\w+)", point) for point in points if point.startswith("after ")]
    return next((row[1] for row in reversed(rows) if row), None)


@each_unkeyed
def test_a_fresh_process_finds_what_a_killed_one_recorded(campaign: Campaign, scenario: Scenario) -> None:
    deaths = campaign.deaths(scenario)
    for death, visit in zip(deaths, campaign.killing.visit(scenario, deaths), strict=True):
        row = death.evidence.row
        expected = {"status": row["running_status"], "id": row["transaction_id"]} if row else {}
        assert visit.answer == expected, about(scenario, death, visit.answer)
        assert visit.evidence.tables == death.evidence.tables, about(scenario, death, "looking changed something")


@each_keyed
def test_after_any_death_the_same_key_does_nothing_twice_and_goes_on_once_the_claim_has_expired(
    campaign: Campaign, scenario: Scenario
) -> None:
    deaths = campaign.deaths(scenario)
    for death in deaths:
        let_claims_expire(death.folder, NEVER)
    at_once = campaign.killing.visit(scenario, deaths)
    for death in deaths:
        let_claims_expire(death.folder, LONG_AGO)
    later = campaign.killing.visit(scenario, deaths)
    for death, first, second in zip(deaths, at_once, later, strict=True):
        row = death.evidence.row
        claimed = bool(death.evidence.tables["es_execution_markers"])
        for visit in (first, second):
            assert broken_rules(visit.evidence, death.end["at"]) == [], about(scenario, death, visit.answer)
            if row is not None:
                # The row is the ledger of the key: what it says is the answer, and nobody but the daemon goes on.
                assert visit.answer == {"status": row["running_status"], "id": row["transaction_id"]}
                assert visit.evidence.row == row, about(scenario, death, "the answer changed the row")
                assert visit.evidence.effects == death.evidence.effects, about(scenario, death, "a step ran again")
        if row is None:
            assert death.evidence.effects == ()
            if claimed:
                assert first.answer["error"] == "StartUnknown", about(scenario, death, first.answer)
                assert first.evidence.effects == (), about(scenario, death, "a step ran beside a claim")
            else:
                assert first.answer["status"] == scenario.status, about(scenario, death, first.answer)
            assert second.answer["status"] == scenario.status, about(scenario, death, second.answer)
            assert tuple(effect.name for effect in second.evidence.effects) == scenario.effects


def test_every_process_that_should_have_died_did_and_there_were_hundreds(campaign: Campaign) -> None:
    killed = {
        scenario.name: sum(death.end["signal"] == signal.SIGKILL for death in campaign.deaths(scenario))
        for scenario in SCENARIOS
    }
    around_operations = [scenario for scenario in SCENARIOS if not scenario.each_statement]
    assert {each.name: killed[each.name] for each in around_operations} == {
        each.name: 2 * len(each.operations) for each in around_operations
    }
    assert sum(killed[each.name] for each in around_operations) == 388
    # BEGIN and COMMIT, five tiers, index and row; then BEGIN, row, tryout, marker and COMMIT for each of three steps.
    assert min(killed[each.name] for each in SCENARIOS if each.each_statement) > 9 + 3 * 5


# -- whether all this would notice -----------------------------------------------------------------------------


def test_the_store_is_killed_at_every_operation_that_talks_to_the_database(tmp_path: Path) -> None:
    expected = {
        *("apply", "read", "tryouts", "frozen", "insert_marker", "replace_marker", "delete_marker", "marker"),
        *("markers", "days", "windows", "instances", "buckets", "pointers", "has_pointer"),
        *("now", "read_grid", "record_grid"),
    }
    assert expected == OPERATIONS
    points = Points(tmp_path / "points.txt", kill_at=None)

    class Inner:
        def __getattr__(self, name: str) -> Callable[[], str]:
            return lambda: name

    store: Any = KillingStore(Inner(), points, str)  # type: ignore[arg-type]
    for name in sorted(expected):
        assert getattr(store, name)() == name
    store.close()
    points.close()
    counted = (tmp_path / "points.txt").read_text().splitlines()
    assert counted == [
        f"{when} {name if name != 'apply' else ''}" for name in sorted(expected) for when in ("before", "after")
    ]


def test_a_process_that_was_not_killed_is_noticed(campaign: Campaign) -> None:
    scenario = NAMED["every step succeeds"]
    (life,) = campaign.killing.kill(scenario, [999])
    assert list(complaints_about(scenario, life)) == [
        f"it was not killed, but ended with {life.end}: ",
        "it should have died at point 999",
    ]


def test_a_row_that_was_acknowledged_and_is_gone_is_noticed(campaign: Campaign) -> None:
    scenario = NAMED["every step succeeds"]
    (death,) = campaign.killing.kill(scenario, [points_of(scenario).index("after watchdog + row PROCESSING")])
    with closing(sqlite3.connect(death.folder / "shop.db")) as connection, connection:
        connection.execute("DELETE FROM es_transaction")
        connection.execute("DELETE FROM es_recovery_transactions_by_instance")
    without = dataclasses.replace(death, evidence=read_evidence(death.folder))
    assert list(complaints_about(scenario, without)) == [
        "the row says None, and what was acknowledged last is PROCESSING"
    ]


def planted(plant: Plant) -> str:
    return f"{plant.objection} ({plant.change})"


def killed_for(campaign: Campaign, plant: Plant) -> Death:
    """A death with which nothing is wrong."""
    scenario = NAMED[plant.scenario]
    at = None if plant.killed_at is None else points_of(scenario).index(plant.killed_at)
    (death,) = campaign.killing.kill(scenario, [at])
    assert broken_rules(death.evidence, death.end["at"]) == []
    return death


@pytest.mark.parametrize("plant", in_the_tables(), ids=planted)
def test_what_is_wrong_in_the_tables_is_objected_to(campaign: Campaign, plant: Plant) -> None:
    death = killed_for(campaign, plant)
    with closing(sqlite3.connect(death.folder / "shop.db")) as connection, connection:
        assert connection.execute(plant.change).rowcount > 0, "the plant changed nothing"
    objections = broken_rules(read_evidence(death.folder), death.end["at"])
    assert any(objection.startswith(plant.objection) for objection in objections), objections


@pytest.mark.parametrize("plant", in_the_effects(), ids=planted)
def test_what_participants_did_wrong_is_objected_to(campaign: Campaign, plant: Plant) -> None:
    death = killed_for(campaign, plant)
    done = {effect.name: effect for effect in death.evidence.effects}
    effects = [done[name]._asdict() if name in done else json.loads(name) for name in json.loads(plant.change)]
    (death.folder / "effects.jsonl").write_text("".join(json.dumps(effect) + "\n" for effect in effects))
    objections = broken_rules(read_evidence(death.folder), death.end["at"])
    assert any(objection.startswith(plant.objection) for objection in objections), objections

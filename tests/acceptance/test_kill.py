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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.services.postgresql import Server
from tests.support.kill_evidence import Evidence
from tests.support.kill_places import KillPlace, SqlitePlace, cassandra_place, postgresql_place
from tests.support.kill_plants import Plant, in_the_effects, in_the_tables
from tests.support.kill_points import OPERATIONS, KillingStore, Points
from tests.support.kill_rules import broken_rules
from tests.support.kill_scenarios import NAMED, SCENARIOS, Scenario, operations_on
from tests.support.killing import Death, Killing
from tests.support.opening import SHOP, init_url, open_url

KILLS = {"sqlite": 386, "postgresql": 350, "cassandra": 384}
"""How many processes are killed around operations: twice the operations in `kill_scenarios`, counted by hand. Only a
file has its grid recorded, and where operations are not written together there are more of them."""


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


STORES = ("sqlite", "postgresql", "cassandra")


@contextmanager
def place_named(name: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[KillPlace]:
    if name == "sqlite":
        open_url(f"sqlite:///{folder}/template.db", SHOP).close()
        yield SqlitePlace(folder / "template.db")
    elif name == "postgresql":
        server: Server = request.getfixturevalue("postgresql")
        database = server.create_database()
        init_url(server.url(database), SHOP)
        with postgresql_place(server, database) as place:
            yield place
    else:
        node, keyspace = request.getfixturevalue("cassandra"), request.getfixturevalue("cassandra_keyspace")
        with cassandra_place(node, keyspace) as place:
            yield place


@pytest.fixture(scope="module")
def campaigns(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Campaign]]:
    """One campaign a store, which all tests share, whichever order they come in."""
    with ExitStack() as stack:

        @cache
        def campaign_on(store: str) -> Campaign:
            place = stack.enter_context(place_named(store, request, tmp_path_factory.mktemp("template")))
            return Campaign(stack.enter_context(Killing(place)))

        yield campaign_on


@pytest.fixture(params=STORES)
def campaign(request: pytest.FixtureRequest, campaigns: Callable[[str], Campaign]) -> Campaign:
    return campaigns(request.param)


only_a_file = pytest.mark.parametrize("campaign", ["sqlite"], indirect=True)


def named(scenario: Scenario) -> str:
    return scenario.name


AROUND_OPERATIONS = [each for each in SCENARIOS if not each.each_statement]
AT_STATEMENTS = [each for each in SCENARIOS if each.each_statement]


def on_each_store(scenarios: Sequence[Scenario]) -> pytest.MarkDecorator:
    """Every scenario on every store; those that are killed at each statement only on SQLite."""
    pairs = [
        pytest.param(store, scenario, id=f"{store}-{scenario.name}")
        for store in STORES
        for scenario in scenarios
        if store == "sqlite" or not scenario.each_statement
    ]
    return pytest.mark.parametrize(("campaign", "scenario"), pairs, indirect=["campaign"])


each_scenario = on_each_store(SCENARIOS)
each_keyed = on_each_store([each for each in SCENARIOS if each.key])
each_unkeyed = on_each_store([each for each in SCENARIOS if not each.key])
around_each_operation = on_each_store(AROUND_OPERATIONS)


def about(scenario: Scenario, death: Death, complaint: object) -> str:
    return f"{scenario.name}: killed at point {death.number}, {death.points[-1]!r}: {complaint}"


def points_of(scenario: Scenario, place: KillPlace) -> list[str]:
    operations = operations_on(scenario, transactional=place.transactional, embedded=place.embedded)
    return [f"{when} {operation}" for operation in operations for when in ("before", "after")]


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
        assert list(life.points) == points_of(scenario, campaign.killing.place)


@only_a_file
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


def as_it_is_told(evidence: Evidence) -> str:
    """The row's status; a terminal one only once its watchdog is gone, since until then it is not confirmed (R4)."""
    assert evidence.row is not None
    status: str = evidence.row["running_status"]
    watchdog = evidence.place("restore")
    assert watchdog is not None
    pointers = evidence.tables["es_recovery_transactions_by_instance"]
    if not any(pointer["bucket_index"] == watchdog.bucket for pointer in pointers):
        return status
    return {"PROCESS_COMPLETED": "PROCESSING", "REVERT_COMPLETED": "REVERTING"}.get(status, status)


@each_unkeyed
def test_a_fresh_process_finds_what_a_killed_one_recorded(campaign: Campaign, scenario: Scenario) -> None:
    deaths = campaign.deaths(scenario)
    for death, visit in zip(deaths, campaign.killing.visit(scenario, deaths), strict=True):
        row = death.evidence.row
        expected = {"status": as_it_is_told(death.evidence), "id": row["transaction_id"]} if row else {}
        assert visit.answer == expected, about(scenario, death, visit.answer)
        assert visit.evidence.tables == death.evidence.tables, about(scenario, death, "looking changed something")


@each_keyed
def test_after_any_death_the_same_key_does_nothing_twice_and_goes_on_once_the_claim_has_expired(
    campaign: Campaign, scenario: Scenario
) -> None:
    deaths = campaign.deaths(scenario)
    place = campaign.killing.place
    for death in deaths:
        place.let_claims_expire(death.folder, never=True)
    at_once = campaign.killing.visit(scenario, deaths)
    for death in deaths:
        place.let_claims_expire(death.folder, never=False)
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
        for scenario in (SCENARIOS if campaign.killing.place.name == "sqlite" else AROUND_OPERATIONS)
    }
    place = campaign.killing.place
    assert {each.name: killed[each.name] for each in AROUND_OPERATIONS} == {
        each.name: len(points_of(each, place)) for each in AROUND_OPERATIONS
    }
    assert sum(killed[each.name] for each in AROUND_OPERATIONS) == KILLS[place.name]
    if place.name != "sqlite":
        return
    # BEGIN and COMMIT, five tiers, index and row; then BEGIN, row, tryout, marker and COMMIT for each of three steps.
    assert min(killed[each.name] for each in AT_STATEMENTS) > 9 + 3 * 5


# -- an answer that is lost ------------------------------------------------------------------------------------


@around_each_operation
def test_whichever_write_is_applied_without_an_answer_each_saga_ends_as_it_should(
    campaign: Campaign, scenario: Scenario
) -> None:
    points = campaign.killing.rehearse(scenario).points
    writes = [point for point in points if point.startswith("before ") and is_a_write(point)]
    lives = campaign.killing.lose_everywhere(scenario, len(writes))
    for number, (write, life) in enumerate(zip(writes, lives, strict=True)):
        told = f"{scenario.name}: no answer to {write.removeprefix('before ')!r}: {life.evidence.row}"
        assert (life.end["signal"], life.end["code"]) == (0, 0), f"{told} {life.errors}"
        assert broken_rules(life.evidence, life.end["at"]) == [], told
        effects = tuple(effect.name for effect in life.evidence.effects)
        answer = json.loads((life.folder / "answer.json").read_text())
        if "error" in answer:
            # It was the start, which was closed, or whose key goes on with it; no step ran.
            assert answer["error"] in ("NotStarted", "StartUnknown"), told
            assert effects == (), told
        elif scenario.takes_over and write in _takeover(writes, number):
            assert answer["status"] == "PROCESSING", told
            assert effects == scenario.effects[: len(effects)], told
        else:
            assert life.evidence.row is not None
            assert (answer["status"], life.evidence.row["running_status"]) == (scenario.status,) * 2, told
            assert effects == scenario.effects, told


def _takeover(writes: list[str], number: int) -> list[str]:
    """This write, if it is one of the takeover: the registration and the row behind the claim."""
    claim = writes.index("before insert_marker")
    row = next(n for n in range(claim, len(writes)) if "row " in writes[n])
    return [writes[number]] if claim < number <= row else []


def is_a_write(point: str) -> bool:
    return any(word in point for word in ("row ", "watchdog", "retry", "_marker"))


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


@only_a_file
def test_a_process_that_was_not_killed_is_noticed(campaign: Campaign) -> None:
    scenario = NAMED["every step succeeds"]
    (life,) = campaign.killing.kill(scenario, [999])
    assert list(complaints_about(scenario, life)) == [
        f"it was not killed, but ended with {life.end}: ",
        "it should have died at point 999",
    ]


@only_a_file
def test_a_row_that_was_acknowledged_and_is_gone_is_noticed(campaign: Campaign) -> None:
    scenario = NAMED["every step succeeds"]
    (death,) = campaign.killing.kill(
        scenario, [points_of(scenario, campaign.killing.place).index("after watchdog + row PROCESSING")]
    )
    with closing(sqlite3.connect(death.folder / "shop.db")) as connection, connection:
        connection.execute("DELETE FROM es_transaction")
        connection.execute("DELETE FROM es_recovery_transactions_by_instance")
    without = dataclasses.replace(death, evidence=campaign.killing.evidence(death.folder))
    assert list(complaints_about(scenario, without)) == [
        "the row says None, and what was acknowledged last is PROCESSING"
    ]


def planted(plant: Plant) -> str:
    return f"{plant.objection} ({plant.change})"


def killed_for(campaign: Campaign, plant: Plant) -> Death:
    """A death with which nothing is wrong."""
    scenario = NAMED[plant.scenario]
    at = None if plant.killed_at is None else points_of(scenario, campaign.killing.place).index(plant.killed_at)
    (death,) = campaign.killing.kill(scenario, [at])
    assert broken_rules(death.evidence, death.end["at"]) == []
    return death


@only_a_file
@pytest.mark.parametrize("plant", in_the_tables(), ids=planted)
def test_what_is_wrong_in_the_tables_is_objected_to(campaign: Campaign, plant: Plant) -> None:
    death = killed_for(campaign, plant)
    with closing(sqlite3.connect(death.folder / "shop.db")) as connection, connection:
        assert connection.execute(plant.change).rowcount > 0, "the plant changed nothing"
    objections = broken_rules(campaign.killing.evidence(death.folder), death.end["at"])
    assert any(objection.startswith(plant.objection) for objection in objections), objections


@only_a_file
@pytest.mark.parametrize("plant", in_the_effects(), ids=planted)
def test_what_participants_did_wrong_is_objected_to(campaign: Campaign, plant: Plant) -> None:
    death = killed_for(campaign, plant)
    done = {effect.name: effect for effect in death.evidence.effects}
    effects = [done[name]._asdict() if name in done else json.loads(name) for name in json.loads(plant.change)]
    (death.folder / "effects.jsonl").write_text("".join(json.dumps(effect) + "\n" for effect in effects))
    objections = broken_rules(campaign.killing.evidence(death.folder), death.end["at"])
    assert any(objection.startswith(plant.objection) for objection in objections), objections

"""``flask stacksaga show``, ``list``, ``retry`` and ``restore``, and the same commands in another group."""

from __future__ import annotations

import json
from pathlib import Path as FilePath
from typing import Any
from uuid import UUID, uuid4

import click
import pytest
from click.testing import CliRunner, Result
from flask import Flask, current_app

from stacksaga_flask import Rejected, Retryable, Saga, StackSaga
from stacksaga_flask.engine.engine import Engine
from stacksaga_flask.engine.reinvoke import Found
from stacksaga_flask.extension.transactions_cli import transaction_commands
from stacksaga_flask.store.contract import RunningStatus
from tests.support.faults import unavailable, unknown
from tests.support.places import MINUTE, Place


class Desk(Place):
    """A place whose commands are given as in a shell."""

    def __init__(self) -> None:
        super().__init__()
        self.app = Flask("shop")
        self.app.config["STACKSAGA_STORE"] = "memory://"
        StackSaga(self.app, sagas=[self.saga])
        self.app.extensions["stacksaga"].engine = self.another_engine()

    def flask(self, *arguments: object, typed: str | None = None) -> Result:
        """``flask stacksaga ...``"""
        args = ["stacksaga", *map(str, arguments)]
        return self.app.test_cli_runner().invoke(args=args, input=typed)

    def several_frozen(self, count: int) -> list[UUID]:
        """So many transactions that one sweep froze."""
        rows = [self.paused() for _ in range(count)]
        self.time.advance(2 * MINUTE)
        engine = self.older_release()
        for row in rows:
            assert engine.reinvoke(row.transaction_id, Found(row.retry)).outcome == "frozen"
        return [row.transaction_id for row in rows]

    def statuses(self, transaction_ids: list[UUID]) -> set[RunningStatus]:
        """Their running statuses."""
        return {self.row(transaction_id).running_status for transaction_id in transaction_ids}


PAUSED, FROZEN = RunningStatus.PROCESS_PAUSED, RunningStatus.FROZEN


@pytest.fixture
def desk() -> Desk:
    return Desk()


# -- show ------------------------------------------------------------------------------------------------------


def test_show_tells_state_pointers_attempts_and_next_try_in_aligned_columns(desk: Desk) -> None:
    row = desk.paused()
    result = desk.flask("show", row.transaction_id)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    facts = dict(line.split("  ", 1) for line in lines[: lines.index("")])
    told = {name: value.strip() for name, value in facts.items()}
    assert told["transaction"] == str(row.transaction_id)
    assert told["status"] == "PROCESS_PAUSED"
    assert told["committed steps"] == "reserve"
    assert told["claimed by"] == "nobody"
    assert told["retry pointer"].endswith("in the directory")
    # 22:13:20 is when the clock of the bench starts; the next window is sealed ten seconds after it opens.
    assert told["started"] == "2023-11-14T22:13:20Z"
    assert told["next try"] == "2023-11-14T22:14:10Z"
    heading, *attempts = lines[lines.index("") + 1 :]
    assert [line.split()[1] for line in attempts] == ["reserve", "charge"]
    assert attempts[1][heading.index("ERROR") :] == "Retryable: HTTP 503"


def test_show_as_json_is_one_object_on_one_line(desk: Desk) -> None:
    row = desk.paused()
    result = desk.flask("show", row.transaction_id, "--json")
    (line,) = result.output.splitlines()
    shown: dict[str, Any] = json.loads(line)
    assert (shown["saga"], shown["status"], shown["attempt"]) == ("place-order", "PROCESS_PAUSED", 1)
    assert [pointer["kind"] for pointer in shown["pointers"]] == ["retry pointer", "watchdog"]
    assert [(one["step"], one["status"], one["error"]) for one in shown["tryouts"]] == [
        ("reserve", "SUCCEEDED", None),
        ("charge", "RETRYABLE", "Retryable: HTTP 503"),
    ]
    assert "payload" not in shown, "it may hold what is nobody's business"


def test_what_a_participant_answered_moves_no_cursor(desk: Desk) -> None:
    row = desk.paused()
    desk.shop.errors["charge"] = [Retryable("gone\x1b[2J\nERROR")]
    assert "\x1b" not in desk.flask("retry", row.transaction_id).output
    output = desk.flask("show", row.transaction_id).output
    assert "\x1b" not in output
    assert "gone [2J ERROR" in output


def test_an_unknown_transaction_is_told_with_the_scope(desk: Desk) -> None:
    result = desk.flask("show", uuid4())
    assert result.exit_code == 1
    assert "default/default/shop" in result.output


@pytest.mark.parametrize("command", ["show", "retry", "restore"])
def test_an_abbreviated_id_is_refused(desk: Desk, command: str) -> None:
    result = desk.flask(command, "6f1c")
    assert result.exit_code == 2
    assert "'6f1c' is no transaction id: give the whole UUID" in result.output


# -- list ------------------------------------------------------------------------------------------------------


def listed(result: Result) -> dict[str, str]:
    """Statuses by id, from the lines below the heading."""
    assert result.exit_code == 0, result.output
    heading, *lines = result.output.splitlines()
    assert heading.startswith("TRANSACTION")
    return {line[:36]: line[heading.index("STATUS") :].split()[0] for line in lines}


def test_list_shows_everything_unfinished_or_one_kind(desk: Desk) -> None:
    (frozen,) = desk.several_frozen(1)
    paused, running = desk.paused(), desk.killed()
    states = {
        str(frozen): "FROZEN",
        str(paused.transaction_id): "PROCESS_PAUSED",
        str(running.transaction_id): "PROCESSING",
    }
    assert listed(desk.flask("list")) == states
    for option, status in (("--in-flight", "PROCESSING"), ("--paused", "PROCESS_PAUSED"), ("--frozen", "FROZEN")):
        assert list(listed(desk.flask("list", option)).values()) == [status]
    assert listed(desk.flask("list", "--saga", "place-order")) == states
    assert desk.flask("list", "--saga", "another").output == "There are none.\n"


def test_list_as_json_is_an_object_a_line_and_nothing_else(desk: Desk) -> None:
    assert desk.flask("list", "--json").output == ""
    (frozen,) = desk.several_frozen(1)
    paused = desk.paused()
    objects = [json.loads(line) for line in desk.flask("list", "--json").output.splitlines()]
    assert [one["transaction_id"] for one in objects] == [str(paused.transaction_id), str(frozen)]
    assert objects[0]["next_try"] is not None
    assert objects[1]["status_before_freezing"] == "PROCESS_PAUSED"
    assert "not registered" in objects[1]["reason"]


# -- retry -----------------------------------------------------------------------------------------------------


def test_retry_tries_a_paused_transaction_now(desk: Desk) -> None:
    row = desk.paused()
    result = desk.flask("retry", row.transaction_id)
    assert (result.exit_code, result.output) == (0, f"{row.transaction_id}  completed\n")
    assert desk.shop.calls == ["charge", "ship"]


def test_retry_of_a_frozen_transaction_says_to_restore_it_first(desk: Desk) -> None:
    (frozen,) = desk.several_frozen(1)
    result = desk.flask("retry", frozen)
    assert result.exit_code == 1
    assert "restore it first" in result.output


def test_steps_of_a_retry_run_in_the_application(tmp_path: FilePath) -> None:
    app = Flask("shop")
    app.config["STACKSAGA_STORE"] = f"sqlite:///{tmp_path / 'shop.db'}"
    saga: Saga[Any, Any] = Saga("one-step", payload=dict)
    names: list[str] = []

    @saga.pivot
    def only(payload: Any, context: Any) -> None:
        names.append(current_app.name)
        if len(names) == 1:
            raise Retryable("HTTP 503")

    StackSaga(app, sagas=[saga])
    engine: Engine = app.extensions["stacksaga"].engine
    transaction_id = engine.run(saga, {}).transaction_id
    result = app.test_cli_runner().invoke(args=["stacksaga", "retry", str(transaction_id)])
    assert result.exit_code == 0, result.output
    assert names == ["shop", "shop"]


# -- restore ---------------------------------------------------------------------------------------------------


def test_restore_takes_any_number_of_ids_and_ends_with_a_summary(desk: Desk) -> None:
    chosen = desk.several_frozen(3)
    result = desk.flask("restore", chosen[0], chosen[1], chosen[0])
    assert result.exit_code == 0
    assert result.output.splitlines()[-1].startswith("restored 2, ")
    assert [desk.row(one).running_status for one in chosen] == [PAUSED, PAUSED, FROZEN]


def test_restore_of_something_else_is_refused_and_said_by_the_exit_status(desk: Desk) -> None:
    (frozen,) = desk.several_frozen(1)
    running = desk.killed()
    result = desk.flask("restore", frozen, running.transaction_id)
    assert result.exit_code == 1
    assert "it is PROCESSING: only a frozen transaction is restored" in result.stderr
    assert result.stdout.splitlines()[-1].startswith("restored 1, not frozen any more 0, refused 1")
    assert desk.flask("restore", frozen).exit_code == 0, "it is paused already, as wanted"


def test_all_of_one_reason_are_restored_after_a_question(desk: Desk) -> None:
    late = desk.several_frozen(2)
    refused = desk.paused("release")
    desk.shop.errors["release"] = [Rejected("no such reservation")]
    desk.time.advance(2 * MINUTE)
    desk.another_engine().reinvoke(refused.transaction_id, Found(refused.retry))
    assert desk.row(refused.transaction_id).running_status is FROZEN
    no = desk.flask("restore", "--reason", "not registered", typed="n\n")
    assert no.exit_code == 1
    assert "Restore 2 frozen transactions of default/default/shop?" in no.output
    assert desk.statuses(late) == {FROZEN}
    assert desk.flask("restore", "--reason", "not registered", typed="").exit_code == 1, "nobody answers"
    assert desk.statuses(late) == {FROZEN}
    yes = desk.flask("restore", "--reason", "not registered", "--saga", "place-order", typed="y\n")
    assert yes.exit_code == 0
    assert desk.statuses(late) == {PAUSED}
    assert desk.row(refused.transaction_id).running_status is FROZEN
    assert desk.flask("restore", "--all", "--yes").exit_code == 0
    assert desk.row(refused.transaction_id).running_status is RunningStatus.REVERT_PAUSED
    assert desk.flask("restore", "--all").output == "There are none to restore.\n"


def test_many_are_restored_with_a_summary_instead_of_a_line_each(desk: Desk) -> None:
    many = desk.several_frozen(25)
    result = desk.flask("restore", "--saga", "place-order", "--yes")
    assert result.exit_code == 0
    (summary,) = result.stdout.splitlines()
    assert summary.startswith("restored 25, ")
    assert desk.statuses(many) == {PAUSED}


def test_progress_is_told_each_minute_in_a_log(desk: Desk) -> None:
    desk.several_frozen(25)
    slow = desk.store.apply

    def apply(*operations: Any) -> None:
        desk.time.advance(3_000_000)
        slow(*operations)

    desk.store.apply = apply  # type: ignore[method-assign]
    result = desk.flask("restore", "--all", "--yes")
    assert result.exit_code == 0
    # Two writes of three seconds each.
    assert result.stderr.splitlines() == ["restored 10 of 25", "restored 20 of 25"]


@pytest.mark.parametrize("arguments", [[], ["--all", "--saga", "place-order"], [uuid4(), "--all"]])
def test_restore_wants_to_know_which_and_only_once(desk: Desk, arguments: list[object]) -> None:
    result = desk.flask("restore", *arguments)
    assert result.exit_code == 2
    assert "ids, or --reason and --saga, or --all" in result.output


def test_a_store_that_is_away_is_not_asked_for_each_of_many(desk: Desk) -> None:
    many = desk.several_frozen(10)
    desk.store.fault("insert_marker", *[unavailable] * 100)
    result = desk.flask("restore", "--all", "--yes")
    assert result.exit_code == 1
    assert "failed 3" in result.output
    assert "not tried after 3 failures in a row 7" in result.output
    assert desk.statuses(many) == {FROZEN}
    desk.store.clear()
    assert desk.flask("restore", "--all", "--yes").exit_code == 0
    assert desk.statuses(many) == {PAUSED}


def test_a_restore_that_is_not_acknowledged_says_to_look_again(desk: Desk) -> None:
    (frozen,) = desk.several_frozen(1)
    desk.store.fault("row PROCESS_PAUSED", unknown)
    result = desk.flask("restore", frozen)
    assert result.exit_code == 1
    assert "whether it was restored is not known" in result.stderr
    assert "Look at it again" in result.stderr


# -- elsewhere -------------------------------------------------------------------------------------------------


def test_the_same_commands_serve_a_group_without_flask(desk: Desk) -> None:
    group = click.Group("stacksagad", commands={c.name or "": c for c in transaction_commands(desk.another_engine)})
    row = desk.paused()
    result = CliRunner().invoke(group, ["list", "--paused"])
    assert list(listed(result)) == [str(row.transaction_id)]
    assert CliRunner().invoke(group, ["retry", str(row.transaction_id)]).exit_code == 0


def test_a_store_that_cannot_be_opened_is_a_message_and_no_traceback(tmp_path: FilePath) -> None:
    app = Flask("shop")
    app.config["STACKSAGA_STORE"] = f"sqlite:///{tmp_path / 'no' / 'folder' / 'shop.db'}"
    StackSaga(app)
    result = app.test_cli_runner().invoke(args=["stacksaga", "list"])
    assert (result.exit_code, result.output.startswith("Error: ")) == (1, True)

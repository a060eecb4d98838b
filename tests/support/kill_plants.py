"""What is planted to see that the checks object: changes to what a killed process left behind, and the objections."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

PAUSED = "the charge succeeds and its answer is lost"
COMPLETED = "every step succeeds"
COMPENSATED = "the charge succeeds and raises"
FROZEN = "the charge is refused and so is its release, which freezes"
START = "before watchdog + row PROCESSING"


class Plant(NamedTuple):
    """A change that makes something wrong.

    Attributes:
        scenario: The scenario's name.
        killed_at: The point at which its process is killed; None lets it live.
        change: An SQL statement; or the effects as a JSON list, each by its name or, if it never was, as JSON.
        objection: How one of the objections begins.
    """

    scenario: str
    killed_at: str | None
    change: str
    objection: str


def in_the_tables() -> list[Plant]:
    """Statements on the database."""
    return [*_unreachable(), *_illegal(), *_out_of_order(), *_not_final()]


def _unreachable() -> list[Plant]:
    pointers = "DELETE FROM es_recovery_transactions_by_instance WHERE bucket_index % 2 ="
    row = "UPDATE es_transaction SET"
    changes = {
        f"{pointers} 1": "R1: tier 5 of the watchdog",
        f"{pointers} 0": "R1: tier 5 of the retry pointer",
        "UPDATE es_recovery_transactions_by_instance SET transaction_id = 'x'": "R1: tier 5",
        "DELETE FROM es_buckets_by_instance": "R1: tier 4",
        "DELETE FROM es_instances_by_recovery_window": "R1: tier 3",
        "UPDATE es_instances_by_recovery_window SET instance_id_token = instance_id_token / 2": "R1: tier 3",
        "DELETE FROM es_recovery_windows_by_day": "R1: tier 2",
        "DELETE FROM es_days_by_year": "R1: tier 1",
        "UPDATE es_days_by_year SET year = year - 1": "R1: tier 1",
        f"{row} restore_date = NULL": "R1: the row names no watchdog",
        f"{row} retry_date = NULL": "R1: the row names no retry pointer",
        f"{row} restore_bucket = 0": "R1: the watchdog lies in bucket 0",
        f"{row} retry_bucket = 1": "R1: the retry pointer lies in bucket 1",
        f"{row} restore_date = '2020-01-01'": "R1: the window of the watchdog",
        f"{row} restore_date = retry_date, restore_window = retry_window": "R1: the watchdog",
    }
    return [Plant(PAUSED, None, change, objection) for change, objection in changes.items()]


def _illegal() -> list[Plant]:
    row = "UPDATE es_transaction SET"
    again = "INSERT INTO es_transaction (region, cluster, service_name, transaction_id) VALUES ('r', 'c', 's', 't')"
    frozen = "INSERT INTO es_frozen_transaction (region, cluster, service_name, transaction_id) VALUES (1, 2, 3, 4)"
    changes = {
        again: "state: one start made 2 transactions",
        frozen: "state: PROCESS_PAUSED with the frozen rows",
        "DELETE FROM es_transaction": "state: there is no row",
        "DELETE FROM es_execution_markers": "state: there are markers of set()",
        "DELETE FROM es_transaction_tryout": "state: the tryouts say that []",
        f"{row} running_status = 'PAUSED'": "state: 'PAUSED' is no status",
        f"{row} running_status = 'PROCESS_COMPLETED'": "state: PROCESS_COMPLETED with the committed steps",
        f"""{row} committed_steps = '["charge"]'""": "state: the committed steps ['charge'] are no beginning",
        f"""{row} reverts = '["reserve"]'""": "state: PROCESS_PAUSED with the reverts",
    }
    return [
        *(Plant(PAUSED, None, change, objection) for change, objection in changes.items()),
        Plant(FROZEN, None, "DELETE FROM es_frozen_transaction", "state: FROZEN with the frozen rows []"),
        Plant(COMPENSATED, "before refund", f"{row} reverts = '[]'", "state: REVERTING with the reverts []"),
    ]


def _out_of_order() -> list[Plant]:
    row = "UPDATE es_transaction SET"
    forgotten = f"""{row} reverts = '["reserve"]'"""
    return [
        Plant(PAUSED, None, f"{row} possibly_done = 0", "R8: ['charge'] were done, and the row does not say"),
        Plant(PAUSED, None, "DELETE FROM es_transaction", "R2: ['reserve', 'charge'] without a row"),
        Plant(COMPENSATED, "before refund", forgotten, "R8: ['reserve'] are committed"),
        Plant(COMPENSATED, "before refund", f"""{row} reverts = '["reserve", "charge"]'""", "R8:"),
        Plant(COMPENSATED, "before refund", f"""{row} reverts = '["charge"]'""", "R8:"),
        Plant(COMPENSATED, "after release", f"{row} running_status = 'PROCESSING'", "R8: ['charge', 'reserve'] were"),
        Plant(COMPENSATED, None, "DELETE FROM es_transaction_tryout WHERE execution_type = 'REVERT'", "R8:"),
    ]


def _not_final() -> list[Plant]:
    key = "region, cluster, service_name, transaction_id"
    claim = f"INSERT INTO es_execution_markers ({key}, step_id) SELECT {key}"
    return [
        Plant(COMPLETED, None, f"{claim}, '#claim' FROM es_transaction", "R9: PROCESS_COMPLETED with the markers"),
        Plant(COMPENSATED, None, f"{claim}, 'reserve' FROM es_transaction", "R9: REVERT_COMPLETED with the markers"),
        Plant(COMPLETED, None, "UPDATE es_transaction SET retry_date = '2030-01-01'", "R9: PROCESS_COMPLETED names"),
        Plant(COMPLETED, None, "UPDATE es_transaction SET updated_at = 1", "R9: ['reserve', 'charge', 'ship'] ran"),
        Plant(COMPLETED, None, "DELETE FROM es_buckets_by_instance", "R2: tier 4 of the watchdog"),
        Plant(COMPLETED, None, "UPDATE es_transaction SET restore_date = NULL", "R2: there is a row that names no"),
    ]


def in_the_effects() -> list[Plant]:
    """Other effects than there were."""
    refund_again = _effect("charge", "REVERT", "another key")
    return [
        _did(COMPLETED, START, [_effect("reserve", "PROCESS", "k")], "R2: ['made up'] without a row"),
        _did(COMPLETED, None, ["reserve", "ship"], "R8: ['reserve', 'charge', 'ship'] are committed, but"),
        _did(COMPLETED, None, ["reserve", "ship", "charge"], "R8: ['reserve', 'charge', 'ship'] are committed, but"),
        _did(COMPLETED, None, ["reserve", "charge", "ship", refund_again], "R8: ['charge'] were reverted before"),
        _did(COMPLETED, None, ["reserve", "charge", "ship", "ship"], "R8: PROCESS of ship was done 2 times"),
        _did(COMPENSATED, None, ["reserve", "charge", "release", "refund"], "R8: ['reserve'] are committed"),
        _did(COMPENSATED, None, ["reserve", "charge", "release"], "R8: ['reserve'] are committed"),
        _did(COMPENSATED, None, ["reserve", "charge", "refund"], "R8: ['reserve'] are committed"),
        _did(COMPENSATED, None, ["reserve", "charge", "refund", "release", refund_again], "R8: REVERT of charge"),
        _did(
            COMPENSATED,
            "before refund",
            ["reserve", "charge", _effect("reserve", "REVERT", "k")],
            "R8: ['reserve'] are committed",
        ),
        _did(
            COMPENSATED,
            "before refund",
            ["reserve", "charge", _effect("ship", "PROCESS", "k")],
            "R8: ['charge', 'ship'] were done and are not committed",
        ),
        _did(
            PAUSED,
            None,
            [_effect("reserve", "PROCESS", "one key"), _effect("charge", "PROCESS", "one key")],
            "R8: two executions share a key",
        ),
    ]


def _did(scenario: str, killed_at: str | None, effects: list[str], objection: str) -> Plant:
    return Plant(scenario, killed_at, json.dumps(effects), objection)


def _effect(step: str, side: str, key: str) -> str:
    effect: dict[str, Any] = {"name": "made up", "step": step, "side": side, "key": key}
    return json.dumps(effect)

"""Whether the rules hold in what a death left behind (R1, R2, R8, R9). Each complaint begins with the rule's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import mmh3

from tests.support.kill_evidence import Evidence, Place, opens

PLAN: Final = ["reserve", "charge", "ship"]
REVERTIBLE: Final = ("reserve", "charge")

PROCESSING: Final = ("PROCESSING", "PROCESS_PAUSED", "PROCESS_COMPLETED")
REVERTING: Final = ("REVERTING", "REVERT_PAUSED", "REVERT_COMPLETED")
PAUSED: Final = ("PROCESS_PAUSED", "REVERT_PAUSED")
TERMINAL: Final = ("PROCESS_COMPLETED", "REVERT_COMPLETED")


def broken_rules(evidence: Evidence, now: int) -> list[str]:
    """Everything that is wrong.

    Args:
        evidence: What was left behind.
        now: When, in microseconds since 1970.
    """
    rows = evidence.tables["es_transaction"]
    if len(rows) > 1:
        return [f"state: one start made {len(rows)} transactions"]
    return [
        *illegal_state(evidence),
        *unreachable(evidence, now),
        *not_armed_first(evidence),
        *out_of_order(evidence),
        *keys_mixed_up(evidence),
        *not_final(evidence),
    ]


def illegal_state(evidence: Evidence) -> Iterator[str]:
    """A row that no transition leads to, or tables of its partition that tell another story than the row."""
    row = evidence.row
    markers = {marker["step_id"] for marker in evidence.tables["es_execution_markers"]} - {"#claim"}
    frozen = evidence.tables["es_frozen_transaction"]
    if row is None:
        if markers or frozen or evidence.tables["es_transaction_tryout"]:
            yield f"state: there is no row, but markers {markers}, frozen rows {frozen} or tryouts"
        return
    status, committed, reverts = row["running_status"], evidence.names("committed_steps"), evidence.names("reverts")
    if status not in (*PROCESSING, *REVERTING, "FROZEN"):
        yield f"state: {status!r} is no status that these sagas have"
    if committed != PLAN[: len(committed)]:
        yield f"state: the committed steps {committed} are no beginning of {PLAN}"
    if (status == "PROCESS_COMPLETED") != (len(committed) == len(PLAN)):
        yield f"state: {status} with the committed steps {committed}"
    if bool(reverts) != (status in ("REVERTING", "REVERT_PAUSED") or row["status_before_freezing"] in REVERTING):
        yield f"state: {status} with the reverts {reverts}"
    if evidence.succeeded("PROCESS") != committed:
        yield f"state: the tryouts say that {evidence.succeeded('PROCESS')} succeeded, and {committed} are committed"
    if status not in TERMINAL and markers != set(committed):
        yield f"state: there are markers of {markers}, and {committed} are committed"
    if (status == "FROZEN") != bool(frozen):
        yield f"state: {status} with the frozen rows {frozen}"


def unreachable(evidence: Evidence, now: int) -> Iterator[str]:
    """R1: a watchdog, and a retry pointer before it if the transaction is paused, in windows that have not opened."""
    row = evidence.row
    if row is None or row["running_status"] in (*TERMINAL, "FROZEN"):
        return
    watchdog, retry = evidence.place("restore"), evidence.place("retry")
    yield from _not_there(evidence, "watchdog", watchdog, 1, now)
    if row["running_status"] in PAUSED:
        yield from _not_there(evidence, "retry pointer", retry, 0, now)
    if watchdog and retry and opens(*watchdog[:2]) <= opens(*retry[:2]):
        yield f"R1: the watchdog {watchdog} does not lie after the retry pointer {retry}"


def _not_there(evidence: Evidence, kind: str, place: Place | None, parity: int, now: int) -> Iterator[str]:
    if place is None:
        yield f"R1: the row names no {kind}"
        return
    if place.bucket % 2 != parity:
        yield f"R1: the {kind} lies in bucket {place.bucket}"
    if opens(*place[:2]) <= now:
        yield f"R1: the window of the {kind} {place} has opened"
    for tier in _missing_tiers(evidence, place, (5, 4, 3, 2, 1)):
        yield f"R1: tier {tier} of the {kind} {place} is missing"


def _missing_tiers(evidence: Evidence, place: Place, tiers: tuple[int, ...]) -> list[int]:
    row = evidence.row
    assert row is not None
    day = {"date_of_year": place.date}
    window = {**day, "minute_of_day": place.window}
    token = mmh3.hash64(place.instance_id.encode("ascii"), signed=True)[0]
    bucket = {**window, "instance_id": place.instance_id, "bucket_index": place.bucket}
    wanted: dict[int, tuple[str, dict[str, object]]] = {
        1: ("es_days_by_year", {**day, "year": int(place.date[:4])}),
        2: ("es_recovery_windows_by_day", window),
        3: (
            "es_instances_by_recovery_window",
            {**window, "instance_id": place.instance_id, "instance_id_token": token},
        ),
        4: ("es_buckets_by_instance", bucket),
        5: ("es_recovery_transactions_by_instance", {**bucket, "transaction_id": row["transaction_id"]}),
    }
    scope = {name: row[name] for name in ("region", "cluster", "service_name")}
    return [
        tier
        for tier in tiers
        if not any(
            {**scope, **wanted[tier][1]}.items() <= record.items() for record in evidence.tables[wanted[tier][0]]
        )
    ]


def not_armed_first(evidence: Evidence) -> Iterator[str]:
    """R2: whatever was done, was done after the row and its watchdog were there."""
    if evidence.row is None:
        if evidence.effects:
            yield f"R2: {[effect.name for effect in evidence.effects]} without a row"
        return
    watchdog = evidence.place("restore")
    if watchdog is None:
        yield "R2: there is a row that names no watchdog"
        return
    # Only a sweep takes these away, so they tell that the watchdog was registered even after it was deleted.
    for tier in _missing_tiers(evidence, watchdog, (4, 3, 2, 1)):
        yield f"R2: tier {tier} of the watchdog {watchdog} was never written"


def out_of_order(evidence: Evidence) -> Iterator[str]:
    """R8: steps in order, reverts in exactly the reverse one, none lost, none before it was written down."""
    row = evidence.row
    if row is None:
        return
    committed, done, undone = evidence.names("committed_steps"), evidence.done("PROCESS"), evidence.done("REVERT")
    if done[: len(committed)] != committed:
        yield f"R8: {committed} are committed, but {done} were done"
    following = PLAN[len(committed) : len(committed) + 1]
    uncommitted = [step for step in done if step not in committed]
    if uncommitted not in ([], following):
        yield f"R8: {uncommitted} were done and are not committed; the step after the committed ones is {following}"
    status = row["running_status"] if row["running_status"] != "FROZEN" else row["status_before_freezing"]
    if status in PROCESSING:
        if undone:
            yield f"R8: {undone} were reverted before REVERTING was written"
        if status == "PROCESS_PAUSED" and uncommitted and not row["possibly_done"]:
            yield f"R8: {uncommitted} were done, and the row does not say that they may be"
        return
    if not any(_reverted_in_order(evidence, todo) for todo in _what_to_revert(committed, following, uncommitted)):
        yield (
            f"R8: {committed} are committed, {done} were done, {undone} were reverted, of which "
            f"{evidence.succeeded('REVERT')} are recorded; {evidence.names('reverts')} are left in {status}"
        )


def _what_to_revert(committed: list[str], following: list[str], uncommitted: list[str]) -> list[list[str]]:
    """All reverts of a compensation. The step after the committed ones may be one of them, and must if it was done."""
    in_reverse = [step for step in reversed(committed) if step in REVERTIBLE]
    with_following = [*following, *in_reverse]
    if not following or following[0] not in REVERTIBLE:
        return [] if uncommitted else [in_reverse]
    return [with_following] if uncommitted else [with_following, in_reverse]


def _reverted_in_order(evidence: Evidence, todo: list[str]) -> bool:
    left, undone = evidence.names("reverts"), evidence.done("REVERT")
    recorded = todo[: len(todo) - len(left)]
    if [*recorded, *left] != todo or evidence.succeeded("REVERT") != recorded:
        return False
    return undone in (recorded, [*recorded, *left[:1]])


def keys_mixed_up(evidence: Evidence) -> Iterator[str]:
    """R8: one key for each side of each step, and what was done, was done once."""
    keys: dict[tuple[str, str], list[str]] = {}
    for effect in evidence.effects:
        keys.setdefault((effect.step, effect.side), []).append(effect.key)
    for (step, side), used in keys.items():
        if len(used) > 1:
            yield f"R8: {side} of {step} was done {len(used)} times, under the keys {used}"
    if len({key for used in keys.values() for key in used}) < len(keys):
        yield f"R8: two executions share a key: {keys}"


def not_final(evidence: Evidence) -> Iterator[str]:
    """R9: nothing is left of a terminal transaction but its history, and nothing happened after its end."""
    row = evidence.row
    if row is None or row["running_status"] not in TERMINAL:
        return
    if markers := evidence.tables["es_execution_markers"]:
        yield f"R9: {row['running_status']} with the markers {[marker['step_id'] for marker in markers]}"
    if evidence.place("retry") is not None:
        yield f"R9: {row['running_status']} names the retry pointer {evidence.place('retry')}"
    late = [t for t in evidence.tables["es_transaction_tryout"] if t["finished_at"] > row["updated_at"]]
    if late:
        yield f"R9: {[tryout['executor'] for tryout in late]} ran after the end"

"""Transactions as a person or a script reads them: aligned tables, or one JSON object a line."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from stacksaga_flask.clock import SECOND
from stacksaga_flask.config_values import told
from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.listing import Listed, ListedFrozen
from stacksaga_flask.engine.operator import NamedPointer, Shown
from stacksaga_flask.store.contract import RunningStatus, TransactionRow, Tryout

_KINDS = {PointerKind.RETRY: "retry pointer", PointerKind.WATCHDOG: "watchdog"}
_ID, _STATUS, _TIME = 36, max(len(status.value) for status in RunningStatus), 20
UNREADABLE = "UNREADABLE"


def time_told(microseconds: int | None) -> str:
    """A time in UTC to the second, or nothing."""
    if microseconds is None:
        return "-"
    moment = datetime.datetime.fromtimestamp(microseconds // SECOND, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def plain(text: object) -> str:
    """A text on one line. What participants answered must not move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def json_line(fields: dict[str, Any]) -> str:
    """One object on one line."""
    return json.dumps(fields, ensure_ascii=False)


# -- a list ----------------------------------------------------------------------------------------------------


class ListTable:
    """Lines of a list. Widths are fixed before the first line, as a list may be longer than memory.

    Args:
        saga_names: The names that are to be expected.
    """

    def __init__(self, saga_names: Iterable[str]) -> None:
        self._widths = (_ID, _STATUS, max(map(len, ("SAGA", *saga_names))), _TIME, _TIME)

    def heading(self) -> str:
        """The line of names."""
        return self._line("TRANSACTION", "STATUS", "SAGA", "SINCE", "NEXT TRY", "REASON")

    def listed(self, listed: Listed, next_try: int | None) -> str:
        """A transaction that a pointer led to."""
        row = listed.row
        if row is None:
            return self._line(listed.transaction_id, UNREADABLE, "-", "-", "-", listed.problem)
        return self._line(
            row.transaction_id,
            row.running_status.value,
            row.saga_name,
            time_told(row.updated_at),
            time_told(next_try),
            row.reason or "-",
        )

    def frozen(self, listed: ListedFrozen) -> str:
        """A frozen transaction."""
        row, since = listed.row, time_told(listed.frozen_at)
        if row is None:
            return self._line(listed.transaction_id, UNREADABLE, "-", since, "-", listed.problem)
        before = row.status_before_freezing
        reason = f"(was {before.value}) {listed.reason}" if before else listed.reason
        return self._line(row.transaction_id, row.running_status.value, row.saga_name, since, "-", reason)

    def _line(self, *cells: object) -> str:
        padded = [plain(cell).ljust(width) for cell, width in zip(cells, self._widths, strict=False)]
        return "  ".join([*padded, plain(cells[-1])])


def listed_json(listed: Listed, next_try: int | None) -> str:
    """A transaction that a pointer led to, as an object."""
    if listed.row is None:
        return json_line(_unreadable(listed.transaction_id, listed.problem))
    return json_line({**_row_fields(listed.row), "next_try": _json_time(next_try)})


def frozen_json(listed: ListedFrozen) -> str:
    """A frozen transaction, as an object."""
    fields = {"frozen_at": time_told(listed.frozen_at), "reason": listed.reason}
    if listed.row is None:
        return json_line({**_unreadable(listed.transaction_id, listed.problem), **fields})
    return json_line({**_row_fields(listed.row), **fields})


def _unreadable(transaction_id: UUID, problem: str | None) -> dict[str, Any]:
    return {"transaction_id": str(transaction_id), "status": UNREADABLE, "problem": problem}


def _row_fields(row: TransactionRow) -> dict[str, Any]:
    before = row.status_before_freezing
    return {
        "transaction_id": str(row.transaction_id),
        "saga": row.saga_name,
        "status": row.running_status.value,
        "status_before_freezing": None if before is None else before.value,
        "reason": row.reason,
        "started_at": time_told(row.created_at),
        "updated_at": time_told(row.updated_at),
        "epoch": row.epoch,
        "attempt": row.attempt,
    }


def _json_time(microseconds: int | None) -> str | None:
    return None if microseconds is None else time_told(microseconds)


# -- one transaction -------------------------------------------------------------------------------------------


def shown_lines(shown: Shown) -> Iterator[str]:
    """A transaction with its attempts, as two aligned tables."""
    yield from _aligned([(name, plain(value)) for name, value in _facts(shown)])
    if shown.tryouts:
        yield ""
        heading = ("TRYOUT", "STEP", "SIDE", "STATUS", "BEGUN", "TOOK", "INSTANCE", "ERROR")
        yield from _aligned([heading, *map(_tryout_cells, shown.tryouts)])


def _facts(shown: Shown) -> Iterator[tuple[str, object]]:
    row = shown.row
    yield "transaction", row.transaction_id
    yield "saga", f"{row.saga_name}, version {row.saga_version}"
    yield "status", row.running_status.value
    if row.status_before_freezing is not None:
        yield "before freezing", row.status_before_freezing.value
    yield "reason", row.reason or "-"
    yield "started", time_told(row.created_at)
    yield "updated", time_told(row.updated_at)
    yield "waited", told(row.waited)
    yield "epoch", row.epoch
    yield "failed attempts", row.attempt
    yield "committed steps", ", ".join(row.committed_steps) or "-"
    yield "possibly done", "yes, the next step" if row.possibly_done else "no"
    yield "still to revert", ", ".join(row.reverts) or "-"
    yield "markers", ", ".join(f"{marker.step_id} {marker.execution_state}" for marker in shown.markers) or "-"
    yield "claimed by", shown.claimed_by or "nobody"
    for pointer in shown.pointers:
        yield _KINDS[pointer.kind], _pointer_told(pointer)
    yield "next try", time_told(shown.next_try)


def _pointer_told(pointer: NamedPointer) -> str:
    path = pointer.path
    where = f"{path.date} window {path.window}, bucket {path.bucket} of {path.instance_id}"
    there = "in the directory" if pointer.in_directory else "not in the directory any more"
    return f"{where}; opens {time_told(pointer.opens)}; {there}"


def _tryout_cells(tryout: Tryout) -> tuple[str, ...]:
    return (
        str(tryout.tryout_index),
        plain(tryout.executor),
        tryout.execution_type.value,
        tryout.status.value,
        time_told(tryout.created_at),
        f"{(tryout.finished_at - tryout.created_at) / SECOND:.3f} s",
        plain(tryout.instance_id),
        plain(tryout.error or "-"),
    )


def _aligned(lines: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Cells of lines under one another; the last one as it is."""
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        yield "  ".join([*padded, line[-1]])


def shown_json(shown: Shown) -> str:
    """A transaction with its attempts, as one object."""
    row = shown.row
    return json_line(
        {
            **_row_fields(row),
            "saga_version": row.saga_version,
            "waited_seconds": row.waited / SECOND,
            "committed_steps": row.committed_steps,
            "possibly_done": row.possibly_done,
            "reverts": row.reverts,
            "markers": [marker.step_id for marker in shown.markers],
            "claimed_by": shown.claimed_by,
            "pointers": [_pointer_fields(pointer) for pointer in shown.pointers],
            "next_try": _json_time(shown.next_try),
            "tryouts": [_tryout_fields(tryout) for tryout in shown.tryouts],
        }
    )


def _pointer_fields(pointer: NamedPointer) -> dict[str, Any]:
    return {
        "kind": _KINDS[pointer.kind],
        **pointer.path._asdict(),
        "opens": time_told(pointer.opens),
        "in_directory": pointer.in_directory,
    }


def _tryout_fields(tryout: Tryout) -> dict[str, Any]:
    return {
        "tryout_index": tryout.tryout_index,
        "step": tryout.executor,
        "execution_type": tryout.execution_type.value,
        "status": tryout.status.value,
        "created_at": time_told(tryout.created_at),
        "took_seconds": (tryout.finished_at - tryout.created_at) / SECOND,
        "instance_id": tryout.instance_id,
        "error": tryout.error,
    }

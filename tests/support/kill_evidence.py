"""What a death left behind: nothing of the library takes part in reading it."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

Record: TypeAlias = dict[str, Any]

WINDOW_SECONDS: Final = 60
TABLES: Final = (
    "es_transaction",
    "es_transaction_tryout",
    "es_execution_markers",
    "es_frozen_transaction",
    "es_days_by_year",
    "es_recovery_windows_by_day",
    "es_instances_by_recovery_window",
    "es_buckets_by_instance",
    "es_recovery_transactions_by_instance",
)


class Effect(NamedTuple):
    """Something that a participant did."""

    name: str
    step: str
    side: str
    key: str


class Place(NamedTuple):
    """Where the row says that a pointer lies."""

    date: str
    window: int
    instance_id: str
    bucket: int


@dataclass(frozen=True)
class Evidence:
    """The tables and the participants' file.

    Attributes:
        tables: Each table's records by column.
        effects: What the participants did, in order.
    """

    tables: dict[str, list[Record]]
    effects: tuple[Effect, ...]

    @property
    def row(self) -> Record | None:
        """The transaction's row."""
        rows = self.tables["es_transaction"]
        return rows[0] if rows else None

    def place(self, kind: str) -> Place | None:
        """The pointer that the row names: ``restore`` (the watchdog) or ``retry``."""
        row = self.row
        if row is None or row[f"{kind}_date"] is None:
            return None
        return Place(*(row[f"{kind}_{part}"] for part in ("date", "window", "instance_id", "bucket")))

    def names(self, column: str) -> list[str]:
        """A column of the row that holds names of steps."""
        names: list[str] = json.loads(self.row[column]) if self.row else []
        return names

    def succeeded(self, side: str) -> list[str]:
        """The steps whose tryouts on this side succeeded, in order."""
        return [
            tryout["executor"]
            for tryout in sorted(self.tables["es_transaction_tryout"], key=lambda each: int(each["tryout_index"]))
            if (tryout["execution_type"], tryout["status"]) == (side, "SUCCEEDED")
        ]

    def done(self, side: str) -> list[str]:
        """The steps that participants did on this side, in order."""
        return [effect.step for effect in self.effects if effect.side == side]


def opens(date: str, window: int) -> int:
    """The first microsecond of a window."""
    day = datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.timezone.utc)
    return round(day.timestamp() + window * WINDOW_SECONDS) * 1_000_000


def effects_in(folder: Path) -> tuple[Effect, ...]:
    """What the participants of a child did."""
    effects = folder / "effects.jsonl"
    lines = effects.read_text().splitlines() if effects.exists() else []
    return tuple(Effect(**json.loads(line)) for line in lines)

"""The schema files, shipped in the wheel as an importable package: numbered migrations that only add.

One number is one file for CQL and one for SQL, which say the same. A file that was released is never changed.
Code runs on any newer schema: it names each table and column that it uses.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["cql", "sql"]
SqlDialect: TypeAlias = Literal["sqlite", "postgresql"]

SCHEMA_VERSION: Final = 3
"""The highest number of a migration, the same for CQL and SQL."""

_BLOB: Final[dict[SqlDialect, str]] = {"sqlite": "BLOB", "postgresql": "BYTEA"}
_ONLY: Final = re.compile(r"^-- only (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)


class Migration(NamedTuple):
    """One numbered file."""

    number: int
    name: str
    """The file's name without its ending, ``0001_seed``."""
    statements: tuple[str, ...]
    """In order, with their comments. A SQL statement is still to be put `in_dialect`."""


@cache
def migrations(kind: Kind) -> tuple[Migration, ...]:
    """The migrations by rising number."""
    folder = files(__name__) / kind
    found = sorted((entry.name, entry.read_text("ascii")) for entry in folder.iterdir() if entry.name.endswith(kind))
    return tuple(_migration(name.removesuffix(f".{kind}"), text) for name, text in found)


def in_dialect(migration: Migration, dialect: SqlDialect) -> tuple[str, ...]:
    """The SQL statements for one database: its types, without what is only for another."""
    wanted = (
        statement
        for statement in migration.statements
        if (only := _ONLY.search(statement)) is None or only.group(1) == dialect
    )
    return tuple(_COMMENT.sub("", statement).strip().replace("{blob}", _BLOB[dialect]) for statement in wanted)


def _migration(name: str, text: str) -> Migration:
    # No comment and no literal of these files holds a semicolon that ends a line.
    parts = re.split(r";\s*$", text, flags=re.MULTILINE)
    statements = (part.strip() for part in parts)
    return Migration(int(name[:4]), name, tuple(part for part in statements if part))

"""Who may import whom (docs/inside.md), read from the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ONLY_IN = {
    "flask": ("stacksaga_flask/extension", "stacksaga_flask/testing", "stacksaga_flask/demo"),
    "blinker": ("stacksaga_flask/extension",),
    "sqlalchemy": ("stacksaga_flask/store/sql",),
    "sqlite3": ("stacksaga_flask/store/sql",),
    "cassandra": ("stacksaga_flask/store/cassandra",),
    "tenacity": ("stacksaga_flask/engine/repeat.py",),
    "time": ("stacksaga_flask/clock.py", "stacksaga_flask/demo"),
    "apscheduler": ("stacksagad/ticks.py",),
    # Its tests sweep in their own process.
    "stacksagad": ("stacksagad", "stacksaga_flask/testing/__init__.py"),
}
PURE = (
    "stacksaga_flask/transitions.py",
    "stacksaga_flask/directory/windows.py",
    "stacksagad/recovery/sweep.py",
    "stacksagad/recovery/requests.py",
    "stacksagad/recovery/compaction.py",
)


def modules() -> Iterator[tuple[str, list[str]]]:
    for package in ("stacksaga_flask", "stacksagad"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), list(imported(ast.parse(path.read_text())))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_each_library_is_imported_in_its_place_only() -> None:
    misplaced = [
        f"{path} imports {name}"
        for path, names in modules()
        for name in names
        for library, places in ONLY_IN.items()
        if name.split(".")[0] == library and not path.startswith(places)
    ]
    assert misplaced == []


def test_decisions_import_no_store_adapter_clock_or_framework() -> None:
    allowed = (
        "stacksaga_flask.store.contract",
        "stacksaga_flask.saga.outcome",
        "stacksaga_flask.clock",
        "stacksaga_flask.directory.windows",
        "stacksagad.recovery.requests",
        "stacksagad.recovery.sweep",
    )
    for path, names in modules():
        if path in PURE:
            ours = [name for name in names if name.startswith("stacksaga") and not name.startswith(allowed)]
            assert ours == [], path


def test_the_engine_knows_the_contract_and_no_adapter() -> None:
    for path, names in modules():
        if path.startswith(("stacksaga_flask/engine", "stacksaga_flask/directory", "stacksaga_flask/saga")):
            stores = {name for name in names if name.startswith("stacksaga_flask.store")}
            assert stores <= {"stacksaga_flask.store.contract", "stacksaga_flask.store.opening"}, path


def test_adapters_know_no_saga() -> None:
    for path, names in modules():
        if path.startswith("stacksaga_flask/store"):
            assert not [n for n in names if n.startswith(("stacksaga_flask.saga", "stacksaga_flask.engine"))], path


def test_the_clock_is_asked_nowhere_else() -> None:
    for path, _ in modules():
        if path != "stacksaga_flask/clock.py" and not path.startswith("stacksaga_flask/demo"):
            text = (ROOT / path).read_text()
            assert "datetime.now" not in text, path
            assert "utcnow" not in text, path


def test_every_rule_in_play_is_named_in_the_code() -> None:
    text = "".join((ROOT / path).read_text() for path, _ in modules())
    for rule in (
        "R1",
        "R2",
        "R3",
        "R4",
        "R5",
        "R6",
        "R7",
        "R8",
        "R9",
        "R10",
        "R11",
        "R13",
        "R14",
        "R15",
        "R16",
        "R17",
        "R18",
    ):
        assert f"{rule})" in text or f"{rule}," in text, rule

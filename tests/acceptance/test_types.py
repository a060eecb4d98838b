"""Payload, context and result are generic: mypy --strict passes on the README's saga and fails on a wrong field."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.readme import ROOT, write_files


def mypy(folder: Path) -> str:
    """What mypy --strict says of the files in a folder."""
    (folder / "stacksaga_schema").symlink_to(ROOT / "schema")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--follow-imports=silent",
            "--cache-dir",
            str(folder / ".cache"),
            "orders.py",
            "shop.py",
        ],
        cwd=folder,
        env={**os.environ, "MYPYPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder, so that mypy reads the library once."""
    return tmp_path_factory.mktemp("types")


WRONG = [
    ("orders.py", "order.total > 100", "order.price > 100", '"Order" has no attribute "price"'),
    (
        "orders.py",
        "context: StepContext[Order]) -> None:\n    if",
        "context: StepContext[str]) -> None:\n    if",
        "StepContext",
    ),
    ("orders.py", 'Rejected("card refused")', "Rejected()", "Missing positional argument"),
    ("shop.py", "return stacksaga.run(place_order, Order(", "return stacksaga.run(place_order, str(", "str"),
    (
        "shop.py",
        "app = Flask",
        'stacksaga_result: int = StackSaga().execute(place_order, Order("a", Decimal(1))).result\napp = Flask',
        "int",
    ),
]


def test_mypy_passes_on_the_saga_of_the_readme_and_fails_on_each_wrong_one(folder: Path) -> None:
    write_files(folder, "orders.py", "shop.py")
    assert "Success: no issues found" in mypy(folder)
    for name, right, wrong, complaint in WRONG:
        write_files(folder, "orders.py", "shop.py")
        text = (folder / name).read_text()
        assert right in text
        (folder / name).write_text(text.replace(right, wrong, 1))
        (folder / "stacksaga_schema").unlink()
        said = mypy(folder)
        assert f"{name}:" in said, f"{wrong} was accepted: {said}"
        assert complaint in said

"""What the README says of settings, and the page on the inside, against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stacksaga_flask.config import SEED_PROPERTY_NAMES, Settings, read_settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", Settings.__struct_fields__)
def test_the_readme_lists_every_setting(name: str) -> None:
    assert f"| `STACKSAGA_{name.upper()}` |" in README


def test_the_readme_lists_no_setting_that_does_not_exist() -> None:
    named = set(re.findall(r"^\| `STACKSAGA_(\w+)`", README, re.MULTILINE))
    assert {name.lower() for name in named} == set(Settings.__struct_fields__)


def test_the_readmes_defaults_are_accepted_as_they_are_written() -> None:
    rows = re.findall(r"^\| `(STACKSAGA_\w+)` \| `?([^|`]+)`? \|", README, re.MULTILINE)
    written = {
        key: value for key, value in rows if value != "—" and key not in ("STACKSAGA_SERVICE_NAME", "STACKSAGA_DOMAINS")
    }
    assert read_settings(written, application_name="shop") == read_settings({}, application_name="shop")


@pytest.mark.parametrize(("property_name", "key"), SEED_PROPERTY_NAMES.items())
def test_the_readme_maps_the_documents_property_names(property_name: str, key: str) -> None:
    assert f"| `{property_name}` | `{key}` |" in README


def test_the_page_on_the_inside_names_files_that_exist_and_forgets_none() -> None:
    page = (ROOT / "docs" / "inside.md").read_text()
    table = re.search(r"\| place \|.*?\n\n", page, re.DOTALL)
    assert table is not None
    named = re.findall(r"`([\w/]+(?:\.py|/))`", table[0])
    package = ROOT / "stacksaga_flask"
    for name in named:
        assert (package / name).exists() or (ROOT / name).exists(), name
    known = [name.removeprefix("stacksaga_flask/") for name in named]
    for path in package.rglob("*.py"):
        inside = str(path.relative_to(package))
        if path.name != "__init__.py":
            assert inside in known or any(inside.startswith(k) for k in known if k.endswith("/")), inside


def test_the_first_saga_of_the_readme_has_under_thirty_lines() -> None:
    block = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert block is not None
    assert "@place_order.pivot" in block[1]
    assert len(block[1].splitlines()) < 30


def test_the_settings_of_gunicorn_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    from gunicorn.app.base import BaseApplication

    class Reader(BaseApplication):  # type: ignore[misc]
        def load_config(self) -> None:
            settings: dict[str, object] = {}
            exec((ROOT / "etc" / "gunicorn.conf.py").read_text(), settings)
            for name, value in settings.items():
                if not name.startswith("__"):
                    self.cfg.set(name, value)

    settings = read_settings({}, application_name="shop")
    assert Reader().cfg.graceful_timeout * 1_000_000 >= settings.step_budget + settings.request_timeout

"""What ``stacksagad --app`` takes for the application, and what it says when there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from stacksaga_flask import ConfigurationError, Engine
from stacksagad.app import ApplicationFailed, NoApplication, load_engine

Write = Callable[[str], str]

FLASK = """
from flask import Flask
from stacksaga_flask import StackSaga

def made(name):
    app = Flask(name)
    app.config["STACKSAGA_STORE"] = "memory://"
    StackSaga(app)
    return app
"""
ENGINE = """
from stacksaga_flask import Engine, read_settings

def made(name):
    return Engine(read_settings({"STACKSAGA_STORE": "memory://"}, application_name=name))
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the working directory, which is not on the path, and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)

    def write(text: str) -> str:
        name = f"shop_{len(list(tmp_path.glob('*.py')))}_{abs(hash(text))}"
        (tmp_path / f"{name}.py").write_text(dedent(text))
        return name

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("shop_"):
            del sys.modules[name]


def service(engine: Engine) -> str:
    return engine.settings.service_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "first"),
        (":app", "first"),
        (":other", "second"),
        (":create_app", "from-create"),
        (":create_app()", "from-create"),
        (":late", "late"),
        (":holder.inner", "held"),
        (":holder", "held"),
    ],
)
def test_an_application_is_found_by_its_name(write: Write, name: str, expected: str) -> None:
    module = write(
        FLASK
        + """
import functools, types
app = made("first")
other = made("second")
holder = types.SimpleNamespace(inner=made("held"))
late = functools.partial(made, "late")

def create_app():
    return made("from-create")
"""
    )
    assert service(load_engine(module + name)) == expected


def test_an_application_named_application_is_found_without_a_name(write: Write) -> None:
    assert service(load_engine(write(FLASK + "other = made('other'); application = made('it')"))) == "it"


def test_the_only_application_of_a_module_is_found_without_a_name(write: Write) -> None:
    module = write(FLASK + "from flask import current_app, request\nshop = made('only')")
    assert service(load_engine(module)) == "only"


@pytest.mark.parametrize("factory", ["create_app", "make_app"])
def test_a_factory_is_found_without_a_name(write: Write, factory: str) -> None:
    module = write(FLASK + f"\ndef {factory}(debug=False):\n    return made('factory')")
    assert service(load_engine(module)) == "factory"


def test_an_engine_beside_a_plain_wsgi_application_is_found(write: Write) -> None:
    module = write(ENGINE + "engine = made('plain')\ndef application(environ, start_response): ...")
    assert service(load_engine(module)) == "plain"
    assert load_engine(f"{module}:engine") is load_engine(module)


def test_an_application_and_its_engine_are_not_two(write: Write) -> None:
    module = write(FLASK + "shop = made('one')\nengine = shop.extensions['stacksaga'].engine")
    assert service(load_engine(module)) == "one"


def test_the_application_of_a_stacksaga_is_found(write: Write) -> None:
    module = write(FLASK + "stacksaga = StackSaga()\nshop = made('shop')")
    assert service(load_engine(f"{module}:stacksaga")) == "shop"


def test_an_application_in_middleware_is_found(write: Write) -> None:
    module = write(
        FLASK
        + """
class Middleware:
    def __init__(self, app):
        self.app = app

app = Middleware(made("inside"))
"""
    )
    assert service(load_engine(f"{module}:app")) == "inside"


def refusal(spec: str) -> str:
    with pytest.raises(NoApplication) as caught:
        load_engine(spec)
    return str(caught.value)


@pytest.mark.parametrize("spec", ["", "shop:", "shop.py", "shop/app", "shop:app(1)", ":app", "shop:app:app"])
def test_what_is_no_name_is_refused_with_an_example(write: Write, spec: str) -> None:
    assert "such as shop:app" in refusal(spec)


def test_an_application_without_a_stacksaga_says_what_is_missing(write: Write) -> None:
    module = write("from flask import Flask\napp = Flask('bare')")
    for spec in (module, f"{module}:app"):
        assert "has no sagas: call StackSaga(app" in refusal(spec)


def test_a_stacksaga_without_an_application_says_so(write: Write) -> None:
    module = write("from stacksaga_flask import StackSaga\nstacksaga = StackSaga()")
    for spec in (module, f"{module}:stacksaga"):
        assert "no application that has been initialised with it" in refusal(spec)


def test_several_applications_are_told_by_name(write: Write) -> None:
    assert "several applications, one, two: name one" in refusal(write(FLASK + "one = made('a')\ntwo = made('b')"))


def test_a_misspelt_name_is_answered_with_the_nearest(write: Write) -> None:
    assert "did you mean 'shop'?" in refusal(write(FLASK + "shop = made('a')") + ":shpo")


def test_a_factory_with_arguments_is_refused(write: Write) -> None:
    module = write(FLASK)
    assert "takes arguments (missing a required argument: 'name')" in refusal(f"{module}:made()")


def test_what_cannot_be_called_is_refused(write: Write) -> None:
    assert "cannot be called: leave out the parentheses" in refusal(write("number = 5") + ":number()")


@pytest.mark.parametrize("value", ["None", "5", "'text'", "[]"])
def test_a_factory_that_returns_no_application_is_refused(write: Write, value: str) -> None:
    assert "has no sagas" in refusal(write(f"def create_app():\n    return {value}"))


def test_an_error_of_the_application_comes_with_its_own_traceback(write: Write) -> None:
    module = write("def broken():\n    return 1 / 0\n\nbroken()")
    with pytest.raises(ApplicationFailed, match="cannot be imported") as caught:
        load_engine(module)
    first, frame, *rest = caught.value.traceback().splitlines()
    assert first == "Traceback (most recent call last):"
    assert f'{module}.py", line 4, in <module>' in frame
    assert rest[-1] == "ZeroDivisionError: division by zero"


def test_an_error_of_a_factory_comes_with_its_own_traceback(write: Write) -> None:
    module = write("import sys\n\ndef create_app():\n    sys.exit('no licence')")
    with pytest.raises(ApplicationFailed, match=f"factory '{module}:create_app' failed") as caught:
        load_engine(module)
    assert "line 4, in create_app" in caught.value.traceback().splitlines()[1]
    assert caught.value.traceback().splitlines()[-1] == "SystemExit: no licence"


@pytest.mark.parametrize(
    ("text", "last"), [("app = (", "SyntaxError: '(' was never closed"), (None, "ModuleNotFoundError")]
)
def test_a_module_that_cannot_be_read_or_found_says_which(write: Write, text: str | None, last: str) -> None:
    module = "shop_that_is_nowhere" if text is None else write(text)
    with pytest.raises(ApplicationFailed) as caught:
        load_engine(module)
    shown = caught.value.traceback()
    assert last in shown.splitlines()[-1]
    assert module in shown
    assert "importlib" not in shown


def test_a_wrong_setting_is_an_error_of_the_configuration(write: Write) -> None:
    module = write(FLASK.replace("memory://", "oracle://shop") + "app = made('shop')")
    with pytest.raises(ConfigurationError, match="oracle"):
        load_engine(module)

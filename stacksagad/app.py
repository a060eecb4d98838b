"""Loading the application that ``--app`` names, as Flask's own command does.

What is looked for is an `Engine`: one itself, that of a Flask application with a `StackSaga`, or that of a module or
object which holds one of these. Flask is not needed for it.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Final

from stacksaga_flask import ConfigurationError, Engine, StackSaga, StackSagaError

APPLICATIONS: Final = ("app", "application")
FACTORIES: Final = ("create_app", "make_app")

_SPEC = re.compile(r"(?P<module>\w+(\.\w+)*)(:(?P<name>[^\W\d]\w*(\.[^\W\d]\w*)*)(?P<called>\(\))?)?")


class NoApplication(StackSagaError):
    """``--app`` names nothing that sagas could be taken from."""


class ApplicationFailed(StackSagaError):
    """The application raised an error while it was loaded; the error is ``__cause__``."""

    def traceback(self) -> str:
        """The application's own traceback, without the frames that led to it."""
        assert self.__cause__ is not None
        shown = traceback.TracebackException.from_exception(self.__cause__)
        frames = list(shown.stack)
        while frames and (frames[0].filename == __file__ or "importlib" in frames[0].filename):
            del frames[0]
        shown.stack = traceback.StackSummary.from_list(frames)
        return "".join(shown.format())


def load_engine(spec: str) -> Engine:
    """The engine of what ``module``, ``module:name`` or ``module:factory()`` names; factories take no arguments.

    Without a name it is ``app`` or ``application`` in the module, else the only one there, else what ``create_app()``
    or ``make_app()`` returns. A name without parentheses may be a factory's too.

    Raises:
        NoApplication: It names nothing that has an engine.
        ApplicationFailed: Importing it or calling the factory failed.
        ConfigurationError: A setting of the application is wrong.
    """
    match = _SPEC.fullmatch(spec)
    if match is None or match["module"].endswith(".py"):
        raise NoApplication(f"--app is {spec!r}: write module:name, such as shop:app, or module:factory()")
    module = _called(lambda: _import(match["module"]), f"the module {match['module']!r} cannot be imported")
    if match["name"] is None:
        return _looked_for(module, spec)
    found = _attribute(module, match["name"])
    engine = _engine_in(found)
    if engine is not None:
        return engine
    if match["called"] or _is_factory(found):
        return _made_by(found, f"{match['module']}:{match['name']}")
    if isinstance(found, StackSaga):
        # It serves any number of applications and holds none, so they are looked for around it.
        return _only_one(module, spec)
    return _only_one(found, spec)


def _import(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return import_module(name)


def _called(call: Callable[[], object], problem: str) -> object:
    """Call what belongs to the application.

    Raises:
        ConfigurationError: It raised one.
        ApplicationFailed: It raised something else.
    """
    try:
        return call()
    except ConfigurationError:
        raise
    except (Exception, SystemExit) as error:
        raise ApplicationFailed(problem) from error


def _attribute(module: object, name: str) -> object:
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = get_close_matches(part, _names_in(found), n=1)
            hint = f"did you mean {near[0]!r}?" if near else "name what the application is called there"
            raise NoApplication(f"{_told(found)} has no {part!r}: {hint}")
        found = getattr(found, part)
    return found


def _looked_for(module: object, spec: str) -> Engine:
    """What Flask's command would take, and then whatever else has an engine."""
    names = _names_in(module)
    for name in APPLICATIONS:
        engine = _engine_in(names.get(name))
        if engine is not None:
            return engine
    if _engines_in(module):
        return _only_one(module, spec)
    for name in FACTORIES:
        if _is_factory(names.get(name)):
            return _made_by(names[name], f"{spec}:{name}")
    return _only_one(module, spec)


def _only_one(holder: object, spec: str) -> Engine:
    engines = _engines_in(holder)
    if len(set(engines.values())) == 1:
        return next(iter(engines.values()))
    if engines:
        raise NoApplication(f"{_told(holder)} has several applications, {', '.join(engines)}: name one as module:name")
    raise _without_sagas(holder, spec)


def _made_by(factory: object, name: str) -> Engine:
    if not callable(factory):
        raise NoApplication(f"{name} is {_told(factory)}, which cannot be called: leave out the parentheses")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise NoApplication(
            f"{name} takes arguments ({error}), and a factory is called without any: give them defaults, or name "
            f"an application, an Engine or a module that holds one"
        ) from error
    made = _called(factory, f"the factory {name!r} failed")
    return _engine_in(made) or _only_one(made, f"{name}()")


def _engine_in(found: object) -> Engine | None:
    """The engine that this is, or that this application has."""
    if isinstance(found, Engine):
        return found
    try:
        extensions = getattr(found, "extensions", None)
    except RuntimeError:
        # One of Flask's proxies, of which a module may have any, outside of a request.
        return None
    if not isinstance(extensions, Mapping):
        return None
    engine = getattr(extensions.get("stacksaga"), "engine", None)
    return engine if isinstance(engine, Engine) else None


def _engines_in(holder: object) -> dict[str, Engine]:
    """The engines of what it holds, by name."""
    return {name: engine for name, value in _names_in(holder).items() if (engine := _engine_in(value)) is not None}


def _names_in(holder: object) -> dict[str, object]:
    return dict(vars(holder)) if hasattr(holder, "__dict__") else {}


def _is_factory(found: object) -> bool:
    return inspect.isroutine(found) or isinstance(found, functools.partial)


def _without_sagas(holder: object, spec: str) -> NoApplication:
    if any(isinstance(value, StackSaga) for value in _names_in(holder).values()):
        remedy = "it has a StackSaga, but no application that has been initialised with it: name that, or its factory"
    else:
        remedy = "call StackSaga(app, sagas=[...]) or stacksaga.init_app(app) in it, or name a module with an Engine"
    return NoApplication(f"{spec}: {_told(holder)} has no sagas: {remedy}")


def _told(found: object) -> str:
    if isinstance(found, ModuleType):
        return f"the module {found.__name__!r}"
    return f"{found!r} ({type(found).__name__})"

"""Where a step runs: in an application context of its own, out of sight of any request.

A step is run again later by another process, where there is no request. So it never sees the one that started it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

from flask import Flask

from stacksaga_flask.engine.execute import Surroundings
from stacksaga_flask.errors import RequestUsedInStep
from stacksaga_flask.saga.context import StepContext

_REMEDY = "a step may run later and elsewhere, where there is no request: put what it needs into the payload"
_WERKZEUG_SAYS = "Working outside of request context"


class NotInStep(RequestUsedInStep, AttributeError):
    """An attribute of g that only the view has. An AttributeError too, so that hasattr() and g.get() work."""


def step_surroundings(app: Flask) -> Surroundings:
    """The surroundings of an application's steps."""

    class StepGlobals(app.app_ctx_globals_class):  # type: ignore[misc, name-defined]
        """The g of one step."""

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError as error:
                raise NotInStep(f"g.{name} is not set in this step, whose g is not the view's: {_REMEDY}") from error

    def run(step: Callable[[], Any]) -> Any:
        with app.app_context() as context:
            context.g = StepGlobals()
            try:
                return step()
            except RuntimeError as error:
                if _WERKZEUG_SAYS in str(error):
                    raise RequestUsedInStep(f"the step used the request or the session: {_REMEDY}") from error
                raise

    def surroundings(context: StepContext[Any] | None, step: Callable[[], Any], /) -> Any:
        # A fresh context, in which Flask's context variables are not set.
        return contextvars.Context().run(run, step)

    return surroundings

"""The pytest plugin: the fixture `stacksaga_testing`. Installed with the package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stacksaga_flask.testing import SagaTesting


@pytest.fixture
def stacksaga_testing() -> Iterator[Callable[..., SagaTesting]]:
    """Makes a `stacksaga_flask.testing.SagaTesting`, with its arguments, and closes it after the test."""
    # Imported here, since pytest loads plugins in every project of the environment.
    from stacksaga_flask.testing import SagaTesting

    made: list[SagaTesting] = []

    def make(*args: object, **kwargs: object) -> SagaTesting:
        made.append(SagaTesting(*args, **kwargs))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for testing in reversed(made):
        testing.close()

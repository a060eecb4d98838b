"""Tests that mostly wait, run beside each other: threads begin them, and each test reports what became of its own.

A body is written as a test, but is given a `Site` and its parameters instead of fixtures. It may run while another
test is reported, so it must use nothing that fixtures of a function do to the process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

import pytest

from tests.support.recovery_site import Site

Body: TypeAlias = Callable[..., None]


class Case(dict[str, str]):
    """Parameters by name; ``store`` is among them."""

    def __str__(self) -> str:
        return "-".join(value.replace(" ", "_") for value in self.values())


SiteFor: TypeAlias = Callable[[Case], AbstractContextManager[Site]]


class Outcomes(Protocol):
    """What became of tests that run beside each other, by their ids."""

    def __call__(self, node_id: str) -> None:
        """Raise what the test raised."""


def each(**parameters: Sequence[str]) -> list[Case]:
    """A case for each combination of the parameters."""
    return [Case(zip(parameters, values, strict=True)) for values in itertools.product(*parameters.values())]


def beside(cases: Sequence[Case]) -> Callable[[Body], Callable[..., None]]:
    """A test for each case, run beside others."""

    def decorate(body: Body) -> Callable[..., None]:
        @pytest.mark.parametrize("case", cases, ids=str)
        def reported(case: Case, outcomes: Outcomes, request: pytest.FixtureRequest) -> None:
            outcomes(request.node.nodeid)

        reported.__name__ = body.__name__
        reported.__doc__ = body.__doc__
        reported.body = body  # type: ignore[attr-defined]
        return reported

    return decorate


def selected(items: Iterable[pytest.Item]) -> Iterator[tuple[str, Body, Case]]:
    """Id, body and case of those of a session's tests that are run beside each other."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item.obj, "body"):
            case = item.callspec.params["case"]
            assert isinstance(case, Case)
            yield item.nodeid, item.obj.body, case


@contextmanager
def running(tests: Sequence[tuple[str, Body, Case]], site_for: SiteFor, *, at_once: int) -> Iterator[Outcomes]:
    """Run the bodies, so many at once, in order."""
    futures: dict[str, Future[None]] = {}
    with ThreadPoolExecutor(at_once) as pool:
        for node_id, body, case in tests:
            futures[node_id] = pool.submit(_run, body, case, site_for)
        try:
            yield lambda node_id: futures[node_id].result()
        finally:
            pool.shutdown(cancel_futures=True)


def _run(body: Body, case: Case, site_for: SiteFor) -> None:
    with site_for(case) as site:
        body(site, **{name: value for name, value in case.items() if name != "store"})

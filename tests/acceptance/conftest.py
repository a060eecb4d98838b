"""What runs the tests of recovery that are run beside each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.beside import Outcomes, running, selected
from tests.support.recovery_places import NEED_CASSANDRA, Places

AT_ONCE = 6


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    """Begins every test of the session that is run beside others, when the first of them is due."""
    tests = list(selected(request.session.items))
    cassandra = None
    if any(case["store"] in NEED_CASSANDRA for _, _, case in tests):
        # Here, since a thread cannot ask for fixtures.
        cassandra = request.getfixturevalue("cassandra"), request.getfixturevalue("cassandra_keyspace")
    places = Places(tmp_path_factory.mktemp("sites"), cassandra)
    with running(tests, places.site, at_once=AT_ONCE) as outcomes:
        yield outcomes

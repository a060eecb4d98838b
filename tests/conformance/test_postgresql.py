from __future__ import annotations

import pytest

from stacksaga_flask.testing.conformance import StoreConformance, StoreHarness
from tests.conformance.postgresql_harness import PostgresqlHarness
from tests.services.postgresql import Server
from tests.support.opening import SHOP, init_url

pytestmark = pytest.mark.varies


@pytest.fixture(scope="module")
def database(postgresql: Server) -> str:
    name = postgresql.create_database()
    init_url(postgresql.url(name), SHOP)
    return name


class TestPostgresqlStore(StoreConformance):
    @pytest.fixture
    def harness(self, postgresql: Server, database: str) -> StoreHarness:
        return PostgresqlHarness(postgresql, database)

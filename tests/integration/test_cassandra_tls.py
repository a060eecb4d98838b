"""Certificates are checked against the host names of the URL, and against addresses where a host has no name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import trustme
from cassandra.connection import DefaultEndPoint

from stacksaga_flask import StoreUnavailable
from stacksaga_flask.store.cassandra.endpoints import NamedEndPoint, NamedEndPoints
from tests.services.cassandra.node import Node
from tests.support.opening import SHOP, init_url, open_url
from tests.support.tls_front import tls_front

Front = Callable[[str], int]


@pytest.fixture
def front(cassandra: Node, tmp_path: Path) -> Iterator[Front]:
    """Puts TLS before the plain node, on a port of 127.0.0.1, with a certificate for a name."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with ExitStack() as running:

        def start(name: str) -> int:
            pem = tmp_path / "front.pem"
            authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(str(pem))
            return running.enter_context(tls_front(pem, cassandra.host, cassandra.port))

        yield start


@pytest.fixture
def keyspace(cassandra: Node, cassandra_keyspace: str) -> str:
    init_url(cassandra.url(cassandra_keyspace), SHOP)
    return cassandra_keyspace


def url(host: str, port: int, keyspace: str) -> str:
    return f"cassandra://{host}:{port}/{keyspace}?local_datacenter=datacenter1"


def test_a_certificate_with_a_dns_name_only_is_good_for_the_host_of_that_name(
    front: Front, keyspace: str, tmp_path: Path
) -> None:
    tls = {"store_tls": True, "store_ca_file": str(tmp_path / "ca.pem")}
    with closing(open_url(url("localhost", front("localhost"), keyspace), SHOP, **tls)) as store:
        assert store.now() > 0


@pytest.mark.parametrize(
    ("certified", "configured"), [("localhost", "127.0.0.1"), ("elsewhere.test", "localhost"), ("::1", "localhost")]
)
def test_a_certificate_without_the_host_as_it_is_configured_is_refused_with_what_it_needs(
    front: Front, keyspace: str, tmp_path: Path, certified: str, configured: str
) -> None:
    tls = {"store_tls": True, "store_ca_file": str(tmp_path / "ca.pem")}
    with pytest.raises(StoreUnavailable) as failure:
        open_url(url(configured, front(certified), keyspace), SHOP, **tls).close()
    told = str(failure.value)
    assert "CERTIFICATE_VERIFY_FAILED" in told
    assert "the certificate of a host that STACKSAGA_STORE names needs that name, and of a node that is found" in told


def test_a_node_that_another_one_tells_of_has_the_configured_name_of_its_address() -> None:
    endpoints = NamedEndPoints({"192.0.2.1": "db1.test"}, 9042)
    plain = DefaultEndPoint("192.0.2.1", 9042)
    named = endpoints.named(plain)
    assert isinstance(named, NamedEndPoint)
    assert named.ssl_options == {"server_hostname": "db1.test"}
    assert (named == plain, plain == named, hash(named) == hash(plain)) == (True, True, True)
    other = DefaultEndPoint("192.0.2.2", 9042)
    assert endpoints.named(other) is other

"""A node that wants a password and speaks TLS only."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import NoHostAvailable, Session
from cassandra.pool import _HostReconnectionHandler
from cryptography.hazmat.primitives import serialization

from stacksaga_flask import StoreRefused, StoreUnavailable
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.opening import check_store
from tests.services.cassandra.node import Node
from tests.services.plugin import network, started
from tests.support.opening import DEVELOPMENT, SHOP, init_url, open_url, settings_of
from tests.support.plain_cql import plain_session
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]


@dataclass
class Guarded:
    """The node, and the file of the authority that signed its certificate."""

    node: Node
    ca_file: str
    other_ca_file: str

    @property
    def right(self) -> dict[str, Any]:
        """Settings that fit."""
        return {
            "store_username": "cassandra",
            "store_password": "cassandra",
            "store_tls": True,
            "store_ca_file": self.ca_file,
        }


def certificate(authority: trustme.CA, name: str) -> bytes:
    """A key (PKCS#8, as Cassandra wants it) and the certificates for a name."""
    issued = authority.issue_cert(name)
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return plain + b"".join(pem.bytes() for pem in issued.cert_chain_pems)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    other.cert_pem.write_to_path(str(folder / "other.pem"))
    node = Node(run=folder / "node", network=network(2), authentication=True, tls=folder / "node.pem")
    (folder / "node.pem").write_bytes(certificate(authority, node.host))
    started(node)
    found = Guarded(node, str(folder / "ca.pem"), str(folder / "other.pem"))
    # A new cluster makes its first login a moment after it answers.
    wait_until(lambda: logs_in(found), 60)
    yield found
    node.kill()
    node.wipe()


def logs_in(guarded: Guarded) -> bool:
    """Whether the right login works; sets up the keyspace if it does."""
    try:
        init_url(guarded.node.url("shop"), SHOP, setup=DEVELOPMENT, **guarded.right)
    except StoreRefused:
        return False
    return True


def test_the_right_login_over_tls_works(guarded: Guarded) -> None:
    with closing(open_url(guarded.node.url("shop"), SHOP, **guarded.right)) as store:
        assert store.read_grid() is not None


def test_a_password_in_the_url_works_and_warns(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    url = guarded.node.url("shop").replace("//", "//cassandra:cassandra@")
    settings = {"store_tls": True, "store_ca_file": guarded.ca_file}
    check_store(settings_of(url, SHOP, **settings))
    with closing(open_url(url, SHOP, **settings)) as store:
        assert store.read_grid() is not None
    assert "STACKSAGA_STORE holds a password" in caplog.text


@pytest.mark.parametrize("changed", [{"store_password": "wrong"}, {"store_username": None, "store_password": None}])
def test_a_wrong_login_is_refused_with_the_remedy_and_without_the_password(
    guarded: Guarded, changed: dict[str, Any]
) -> None:
    settings = {key: value for key, value in {**guarded.right, **changed}.items() if value is not None}
    with pytest.raises(StoreRefused, match="STACKSAGA_STORE_PASSWORD_FILE to a login of the cluster") as failure:
        open_url(guarded.node.url("shop"), SHOP, **settings).close()
    assert "wrong" not in str(failure.value)


def test_a_certificate_of_another_authority_is_refused(guarded: Guarded) -> None:
    with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        open_url(guarded.node.url("shop"), SHOP, **{**guarded.right, "store_ca_file": guarded.other_ca_file}).close()


def test_plain_text_to_a_node_that_speaks_tls_only_is_one_error(guarded: Guarded) -> None:
    settings = {**guarded.right, "store_tls": False}
    del settings["store_ca_file"]
    with pytest.raises(StoreUnavailable, match="no node could be used"):
        open_url(guarded.node.url("shop"), SHOP, **settings).close()


def test_gevent_speaks_tls_with_a_login_from_the_environment(guarded: Guarded) -> None:
    script = (
        "from gevent import monkey; monkey.patch_all()\n"
        "import sys, uuid\n"
        "from stacksaga_flask import Engine, read_settings\n"
        "engine = Engine(read_settings({'STACKSAGA_STORE': sys.argv[1]}, application_name='shop'))\n"
        "print(engine.find(uuid.uuid4()))\n"
        "engine.close()\n"
    )
    environment = {
        "STACKSAGA_STORE_USERNAME": "cassandra",
        "STACKSAGA_STORE_PASSWORD": "cassandra",
        "STACKSAGA_STORE_TLS": "yes",
        "STACKSAGA_STORE_CA_FILE": guarded.ca_file,
    }
    ran = subprocess.run(
        [sys.executable, "-c", script, guarded.node.url("shop")],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.stdout, ran.returncode) == ("None\n", 0), ran.stderr


@contextmanager
def administration(guarded: Guarded) -> Iterator[Session]:
    """A session that may change logins."""
    login = PlainTextAuthProvider("cassandra", "cassandra")
    context = ssl.create_default_context(cafile=guarded.ca_file)
    with plain_session(guarded.node, auth_provider=login, ssl_context=context) as session:
        yield session


def set_password(guarded: Guarded, password: str) -> None:
    """Set the password of the login shop, which Cassandra allows once in five seconds."""

    def is_set() -> bool:
        try:
            session.execute(f"ALTER ROLE shop WITH PASSWORD = '{password}'")
        except NoHostAvailable as error:
            if "can only be changed every" not in str(error):
                raise
            return False
        return True

    with administration(guarded) as session:
        wait_until(is_set, 20, every=0.5)


def test_a_store_goes_on_by_itself_although_the_driver_gave_up_when_a_node_that_was_back_refused_its_login(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given_up = threading.Event()
    told = _HostReconnectionHandler.on_exception

    def watched(self: Any, error: Exception, delay: float) -> bool:
        goes_on: bool = told(self, error, delay)
        if not goes_on:
            given_up.set()
        return goes_on

    monkeypatch.setattr(_HostReconnectionHandler, "on_exception", watched)
    with administration(guarded) as session:
        session.execute("CREATE ROLE shop WITH LOGIN = true AND SUPERUSER = true AND PASSWORD = 'right'")
    login = {**guarded.right, "store_username": "shop", "store_password": "right"}
    with closing(open_url(guarded.node.url("shop"), SHOP, **login)) as store:
        assert store.now() > 0
        set_password(guarded, "another")
        guarded.node.kill()
        wait_until(lambda: not usable(store), 30)
        guarded.node.start()
        # As a node does that does not see the replicas of its logins yet.
        wait_until(lambda: not usable(store) and given_up.is_set(), 90)
        wait_until(lambda: not usable(store) and "the login was refused" in caplog.text, 30)
        set_password(guarded, "right")
        wait_until(lambda: usable(store), 30)
        assert "no node could be used for some seconds; connected anew" in caplog.text


def usable(store: Store) -> bool:
    """Whether the store answers; if not, it says that nothing was written."""
    try:
        store.now()
    except StoreUnavailable:
        return False
    return True

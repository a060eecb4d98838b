"""What a server's URL and the settings around it say."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from stacksaga_flask import ConfigurationError, Settings, read_settings
from stacksaga_flask.store.address import HostAndPort, StoreAddress, read_address
from stacksaga_flask.store.cassandra.place import read_place

EXAMPLE = "cassandra://host/keyspace?local_datacenter=dc1"
URL = "cassandra://a,b/shop?local_datacenter=dc1"


def settings(url: str = URL, environment: dict[str, str] | None = None, **others: object) -> Settings:
    keys = {f"STACKSAGA_{name.upper()}": value for name, value in others.items()}
    return read_settings({"STACKSAGA_STORE": url, **keys}, application_name="shop", environment=environment or {})


def address(url: str = URL, environment: dict[str, str] | None = None, **others: object) -> StoreAddress:
    return read_address(
        settings(url, environment, **others),
        default_port=9042,
        options=frozenset({"local_datacenter"}),
        example=EXAMPLE,
        warn=True,
    )


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("cassandra://one/shop", [("one", 9042)]),
        ("cassandra://one:9142,two,10.0.0.3:1/shop", [("one", 9142), ("two", 9042), ("10.0.0.3", 1)]),
        ("cassandra://[::1]:9142,[fe80::1]/shop", [("::1", 9142), ("fe80::1", 9042)]),
        ("cassandra://me:p%40ss@one/shop", [("one", 9042)]),
    ],
)
def test_hosts_are_read_with_their_ports(url: str, hosts: list[tuple[str, int]]) -> None:
    assert list(address(url).hosts) == [HostAndPort(*host) for host in hosts]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("cassandra:///shop", "'' is no host"),
        ("cassandra://a,,b/shop", "'' is no host"),
        ("cassandra://a:port/shop", "'a:port' is no host with a port"),
        ("cassandra://a:0/shop", "'a:0' is no host with a port"),
        ("cassandra://a:65536/shop", "'a:65536' is no host with a port"),
        ("cassandra://a/shop/more", "one name and no more"),
        ("cassandra://a/shop#more", "one name and no more"),
        ("cassandra://a/shop?datacenter=dc1", "the option 'datacenter' is unknown (known: local_datacenter)"),
    ],
)
def test_a_url_that_is_not_as_it_should_be_is_refused_with_an_example(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        address(url)
    assert told in str(failure.value)
    assert EXAMPLE in str(failure.value)


@pytest.mark.parametrize(
    "url",
    ["cassandra://me:se/cret@a/shop", "cassandra://me:se?cret@a/shop", "cassandra://me:se#cret@a/shop"],
)
def test_a_password_that_is_not_encoded_is_refused_and_no_part_of_it_is_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="%2F") as failure:
        address(url)
    assert not any(part in str(failure.value) for part in ("me:", "se/", "cret"))


def test_a_password_given_as_an_option_is_refused_and_not_shown() -> None:
    url = "cassandra://a/shop?password=secret"
    with pytest.raises(ConfigurationError, match="the option 'password' is unknown") as failure:
        address(url)
    assert "secret" not in str(failure.value) + repr(settings(url))


def test_a_password_in_the_url_works_and_warns_and_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = address("cassandra://me:p%40ss%3Aword@a/shop")
    assert (found.username, found.password) == ("me", "p@ss:word")
    assert "STACKSAGA_STORE_PASSWORD_FILE" in caplog.text
    given = settings("cassandra://me:secret@a/shop", store_password="hidden-one")
    for text in (caplog.text, str(found), repr(found), repr(given)):
        assert not any(secret in text for secret in ("p@ss", "p%40ss", "secret", "hidden-one")), text


def test_credentials_come_from_the_configuration_or_else_the_environment() -> None:
    environment = {"STACKSAGA_STORE_USERNAME": "env", "STACKSAGA_STORE_PASSWORD": "from env", "STACKSAGA_REGION": "no"}
    found = address(environment=environment)
    assert (found.username, found.password) == ("env", "from env")
    assert settings(environment=environment).region == "default", "other settings are not read from there"
    found = address(environment=environment, store_username="config")
    assert (found.username, found.password) == ("config", "from env")


def test_a_password_is_read_from_a_file_whose_last_newline_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("se cret \n")
    assert address(store_password_file=str(file)).password == "se cret "


def test_a_password_file_that_is_missing_empty_or_beside_a_password_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    with pytest.raises(ConfigurationError, match=r"STACKSAGA_STORE_PASSWORD_FILE is .*password'.* cannot be read"):
        address(store_password_file=str(file))
    file.write_text("\n")
    with pytest.raises(ConfigurationError, match="which is empty"):
        address(store_password_file=str(file))
    with pytest.raises(ConfigurationError, match="both set: remove one"):
        address(store_password_file=str(file), store_password="x")


def test_tls_checks_certificates_and_host_names() -> None:
    assert address().tls is None
    context = address(store_tls=True).tls
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"store_ca_file": "ca.pem"}, "STACKSAGA_STORE_CA_FILE is set and STACKSAGA_STORE_TLS is False"),
        ({"store_tls": True, "store_ca_file": "/nowhere/ca.pem"}, "STACKSAGA_STORE_CA_FILE='/nowhere/ca.pem'"),
        ({"store_tls": True, "store_key_file": "key.pem"}, "without STACKSAGA_STORE_CERTIFICATE_FILE"),
        ({"store_tls": True, "store_certificate_file": "/nowhere/c.pem"}, "STACKSAGA_STORE_CERTIFICATE_FILE="),
    ],
)
def test_tls_files_that_cannot_be_used_are_refused(others: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        address(**others)
    assert told in str(failure.value)


# -- Cassandra ---------------------------------------------------------------------------------------------------


def test_the_keyspace_comes_from_the_url_or_else_the_setting_in_small_letters() -> None:
    assert read_place(settings()).keyspace == "shop"
    assert read_place(settings("cassandra://a?local_datacenter=dc1")).keyspace == "stacksaga_event_store"
    assert read_place(settings("cassandra://a/?local_datacenter=dc1", keyspace="Shop")).keyspace == "shop"


@pytest.mark.parametrize(
    ("url", "others", "told"),
    [
        ("cassandra://a/shop", {}, "names no local_datacenter"),
        ("cassandra://a/shop?local_datacenter=", {}, "names no local_datacenter"),
        ("cassandra://a/1shop?local_datacenter=dc1", {}, "the keyspace '1shop'"),
        (URL, {"keyspace": "stock"}, "'shop' and STACKSAGA_KEYSPACE is 'stock': remove one"),
        ("cassandra://a:1,b:2/shop?local_datacenter=dc1", {}, "listen on one port"),
    ],
)
def test_a_place_that_is_not_whole_is_refused(url: str, others: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as failure:
        read_place(settings(url, **others))
    assert told in str(failure.value)


def test_the_place_has_the_consistency_and_the_time_out_of_the_settings() -> None:
    place = read_place(settings(read_consistency="QUORUM", write_consistency="QUORUM", request_timeout="2500ms"))
    assert (place.consistency, place.timeout, place.local_datacenter) == ("QUORUM", 2.5, "dc1")

"""What a store's URL and the settings around it say: hosts, name, credentials, TLS. Nothing is opened."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from stacksaga_flask.config import Settings
from stacksaga_flask.config_values import without_password
from stacksaga_flask.errors import ConfigurationError

logger = logging.getLogger("stacksaga_flask")

KEY: Final = "STACKSAGA_STORE"


class HostAndPort(NamedTuple):
    """A host as the URL names it."""

    host: str
    port: int


@dataclass(frozen=True)
class StoreAddress:
    """A server's address.

    Attributes:
        hosts: At least one.
        name: The keyspace or database; empty if the URL names none.
        username: None for none.
        password: None for none.
        options: What stands after the question mark.
        tls: A context that checks certificates and host names, or None for plain text.
    """

    hosts: tuple[HostAndPort, ...]
    name: str
    username: str | None
    password: str | None = field(repr=False)
    options: dict[str, str]
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        """The address as a message may show it."""
        shown = ", ".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{shown} as {self.username or 'nobody'}{' over TLS' if self.tls else ''}"


def read_address(
    settings: Settings, *, default_port: int, options: frozenset[str], example: str, warn: bool = False
) -> StoreAddress:
    """Read the address of a server out of ``STACKSAGA_STORE`` and the settings of credentials and TLS.

    Args:
        settings: The settings.
        default_port: Of a host without one.
        options: What may stand after the question mark.
        example: A URL as it should be, for messages.
        warn: Whether to warn of a password in the URL.

    Raises:
        ConfigurationError: The URL or a setting around it is not as it should be, or a file cannot be read.
    """
    shown = f"{KEY} is {without_password(settings.store)!r}"
    parts = urlsplit(settings.store)
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        raise ConfigurationError(
            f"{KEY}: in a URL write the characters /, ?, #, @ and % of a password as %2F, %3F, %23, %40 and %25, or "
            f"put it into STACKSAGA_STORE_PASSWORD"
        )
    given, at, places = parts.netloc.rpartition("@")
    hosts = tuple(_host(place, default_port, shown, example) for place in places.split(","))
    found = dict(parse_qsl(parts.query, keep_blank_values=True))
    for option in found:
        if option not in options:
            known = ", ".join(sorted(options)) or "none"
            raise ConfigurationError(f"{KEY}: the option {option!r} is unknown (known: {known}): write {example}")
    name = unquote(parts.path.removeprefix("/"))
    if "/" in name or parts.fragment:
        raise ConfigurationError(f"{shown}: after the hosts comes one name and no more: write {example}")
    username, _, password = given.partition(":") if at else ("", "", "")
    if password and warn:
        logger.warning(
            "%s holds a password, which configurations and process lists show to others: put it into "
            "STACKSAGA_STORE_PASSWORD or a file named by STACKSAGA_STORE_PASSWORD_FILE",
            KEY,
        )
    return StoreAddress(
        hosts=hosts,
        name=name,
        username=unquote(username) or settings.store_username,
        password=unquote(password) or _password(settings),
        options=found,
        tls=_tls(settings),
    )


def _host(place: str, default_port: int, shown: str, example: str) -> HostAndPort:
    host, bracket, rest = place.partition("]") if place.startswith("[") else ("", "", "")
    if bracket:
        host, port = host[1:], rest.removeprefix(":")
    else:
        host, _, port = place.partition(":")
    if not host or (port and not port.isdecimal()) or not 0 < int(port or default_port) < 65536:
        raise ConfigurationError(f"{shown}: {place!r} is no host with a port: write {example}")
    return HostAndPort(unquote(host), int(port or default_port))


def _password(settings: Settings) -> str | None:
    if settings.store_password_file is None:
        return settings.store_password
    if settings.store_password is not None:
        raise ConfigurationError(
            "STACKSAGA_STORE_PASSWORD and STACKSAGA_STORE_PASSWORD_FILE are both set: remove one of them"
        )
    try:
        password = Path(settings.store_password_file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"STACKSAGA_STORE_PASSWORD_FILE is {settings.store_password_file!r}, which cannot be read ({error}): name "
            f"a file that holds the password and that this user may read"
        ) from error
    if not password:
        raise ConfigurationError(
            f"STACKSAGA_STORE_PASSWORD_FILE is {settings.store_password_file!r}, which is empty: write the password in"
        )
    return password


def _tls(settings: Settings) -> ssl.SSLContext | None:
    files = {
        "STACKSAGA_STORE_CA_FILE": settings.store_ca_file,
        "STACKSAGA_STORE_CERTIFICATE_FILE": settings.store_certificate_file,
        "STACKSAGA_STORE_KEY_FILE": settings.store_key_file,
    }
    if not settings.store_tls:
        named = [key for key, file in files.items() if file is not None]
        if named:
            raise ConfigurationError(f"{named[0]} is set and STACKSAGA_STORE_TLS is False: set it to True")
        return None
    if settings.store_key_file is not None and settings.store_certificate_file is None:
        raise ConfigurationError(
            "STACKSAGA_STORE_KEY_FILE is set without STACKSAGA_STORE_CERTIFICATE_FILE: set both, or neither"
        )
    try:
        context = ssl.create_default_context(cafile=settings.store_ca_file)
        if settings.store_certificate_file is not None:
            context.load_cert_chain(settings.store_certificate_file, settings.store_key_file)
    except (OSError, ssl.SSLError) as error:
        given = ", ".join(f"{key}={file!r}" for key, file in files.items() if file is not None)
        raise ConfigurationError(
            f"TLS cannot be set up with {given} ({error}): name PEM files that are there"
        ) from error
    return context

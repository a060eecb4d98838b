"""The driver's HTTP client: one request, one answer, and something to do in between."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

TIMEOUT = 20
"""Seconds to wait for an answer."""


class Unanswered(click.ClickException):
    """A service did not answer a request, or not with HTTP."""


class Reply(NamedTuple):
    """An answer: its status, its headers, and its body if that is JSON."""

    status: int
    headers: HTTPMessage
    body: Any


def ask(
    url: str,
    method: str = "GET",
    *,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    meanwhile: Callable[[socket.socket], None] | None = None,
) -> Reply:
    """Send a request and return the answer.

    Args:
        url: Whom to ask.
        method: The HTTP method.
        body: Sent as JSON, if given.
        headers: Sent besides the body's.
        timeout: Seconds to wait for the answer.
        meanwhile: Called once the request is sent, with the socket on which the answer will arrive.

    Raises:
        Unanswered: There was no answer.
    """
    parts = urlsplit(url)
    data = None if body is None else json.dumps(body)
    sent = {**({"Content-Type": "application/json"} if data else {}), **(headers or {})}
    connection = HTTPConnection(parts.netloc, timeout=timeout)
    try:
        connection.request(method, parts.path, body=data, headers=sent)
        if meanwhile is not None:
            meanwhile(connection.sock)
        response = connection.getresponse()
        content = response.read()
    except (OSError, HTTPException) as error:
        raise Unanswered(f"{method} {url}: {type(error).__name__}: {error}") from error
    finally:
        connection.close()
    is_json = "json" in response.headers.get_content_type()
    return Reply(response.status, response.headers, json.loads(content) if is_json else None)

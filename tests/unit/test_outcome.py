"""What a step raised, and how errors of other libraries are read (R8)."""

from __future__ import annotations

import asyncio
import errno
import http.client
import socket
import sqlite3
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import cassandra
import cassandra.cluster
import httpx
import pytest
import requests
import sqlalchemy
import sqlalchemy.exc
import sqlalchemy.pool
import urllib3

from stacksaga_flask.errors import NotStarted, PayloadError, StackSagaError
from stacksaga_flask.saga.foreign import PassingError, passing
from stacksaga_flask.saga.outcome import (
    FailedForNow,
    FailedUnexpectedly,
    Rejected,
    Retryable,
    Succeeded,
    WasRejected,
    outcome_of,
)
from stacksaga_flask.saga.retry_after import LONGEST, parse

pytestmark = pytest.mark.varies_by_python

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND

# -- what a step raises ----------------------------------------------------------------------------------------


def test_rejected_is_a_refusal_with_its_reason() -> None:
    assert outcome_of(Rejected("card refused"), NOW) == WasRejected("card refused")


def test_a_rejection_of_the_applications_own_class_keeps_its_message() -> None:
    class CardRefused(Rejected):
        def __init__(self, code: int) -> None:
            Exception.__init__(self, f"card refused, code {code}")

    assert outcome_of(CardRefused(5), NOW) == WasRejected("card refused, code 5")


def test_a_rejection_is_never_without_a_reason() -> None:
    found = outcome_of(Rejected(""), NOW)
    assert isinstance(found, WasRejected)
    assert found.reason


@pytest.mark.parametrize(
    ("wait", "microseconds"),
    [(None, None), (2, 2 * SECOND), (0.5, 500_000), (timedelta(minutes=1), 60 * SECOND), (-3, 0)],
)
def test_retryable_is_a_passing_failure(wait: float | timedelta | None, microseconds: int | None) -> None:
    assert outcome_of(Retryable("busy", retry_after=wait), NOW) == FailedForNow("Retryable: busy", microseconds)


def test_what_steps_raise_shares_the_root_of_all_errors() -> None:
    assert issubclass(Retryable, StackSagaError)
    assert issubclass(Rejected, StackSagaError)


def test_any_other_exception_is_unexpected() -> None:
    assert outcome_of(KeyError("sku"), NOW) == FailedUnexpectedly("KeyError: 'sku'")
    assert outcome_of(PayloadError("lost"), NOW) == FailedUnexpectedly("PayloadError: lost")


def test_an_exception_without_a_message_is_told_by_its_name() -> None:
    assert outcome_of(ValueError(), NOW) == FailedUnexpectedly("ValueError")


def test_a_reason_is_bounded() -> None:
    found = outcome_of(ValueError("x" * 5000), NOW)
    assert isinstance(found, FailedUnexpectedly)
    assert (len(found.reason), found.reason[:14], found.reason[-1]) == (1000, "ValueError: xx", "…")


def test_a_reason_can_always_be_stored_as_text() -> None:
    assert outcome_of(ValueError("a\0b\ud800"), NOW) == FailedUnexpectedly("ValueError: a\\0b\\ud800")


def test_an_error_that_cannot_be_printed_is_still_an_outcome() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert outcome_of(Broken(), NOW) == FailedUnexpectedly("Broken: its message cannot be shown")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_ends_the_process_is_no_outcome_of_a_step(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        outcome_of(error, NOW)
    assert raised.value is error


def test_an_exception_raised_from_a_timeout_is_the_applications_word() -> None:
    error = LookupError("no price")
    error.__cause__ = TimeoutError("slow")
    assert outcome_of(error, NOW) == FailedUnexpectedly("LookupError: no price")


def test_outcomes_are_values() -> None:
    assert Succeeded(b"{}") == Succeeded(b"{}")
    with pytest.raises(AttributeError):
        Succeeded(b"{}").payload = b""  # type: ignore[misc]


# -- a real server ---------------------------------------------------------------------------------------------


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = int(self.path.strip("/"))
        self.send_response(status)
        self.send_header("Retry-After", "7")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextmanager
def misbehaving(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does as it is told with its only connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                behave(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join()


def hang_up(connection: socket.socket) -> None:
    connection.recv(65536)


def reset(connection: socket.socket) -> None:
    connection.recv(65536)
    # Linger of zero seconds: close sends RST.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def cut_short(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


def say_nothing(connection: socket.socket) -> None:
    # Until the client has given up and closed.
    while connection.recv(65536):
        pass


def refusing() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"


def get_by_requests(url: str) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.get(url, timeout=0.2).raise_for_status()


def get_by_httpx(url: str) -> None:
    with httpx.Client(trust_env=False, timeout=0.2) as client:
        client.get(url).raise_for_status()


def get_by_urllib3(url: str) -> None:
    with urllib3.PoolManager(retries=urllib3.Retry(0, status_forcelist=[429, 500, 502, 503, 504])) as pool:
        pool.request("GET", url, timeout=0.2)


def get_by_urllib(url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=0.2) as response:
        response.read()


def get_by_http_client(url: str) -> None:
    with closing(http.client.HTTPConnection(url.split("/")[2], timeout=0.2)) as connection:
        connection.request("GET", "/")
        connection.getresponse().read()


def error_of(call: Callable[[str], None], url: str) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - which one is what the test is about
        call(url)
    error = raised.value
    if isinstance(error, urllib.error.HTTPError):
        error.close()
    return error


CLIENTS = [get_by_requests, get_by_httpx, get_by_urllib3, get_by_urllib]


@pytest.mark.parametrize("call", [*CLIENTS, get_by_http_client])
def test_a_refused_connection_is_passing(call: Callable[[str], None]) -> None:
    assert passing(error_of(call, refusing()), NOW) == PassingError(None)


@pytest.mark.parametrize("call", [*CLIENTS, get_by_http_client])
@pytest.mark.parametrize("behave", [hang_up, reset, cut_short, say_nothing])
def test_a_connection_that_breaks_or_stays_silent_is_passing(
    call: Callable[[str], None], behave: Callable[[socket.socket], None]
) -> None:
    with misbehaving(behave) as url:
        error = error_of(call, url)
    assert passing(error, NOW) == PassingError(None)


@pytest.mark.parametrize("call", [get_by_requests, get_by_httpx, get_by_urllib])
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_passing_and_says_when_to_come_back(
    call: Callable[[str], None], status: int, url: str
) -> None:
    assert passing(error_of(call, f"{url}/{status}"), NOW) == PassingError(7 * SECOND)


@pytest.mark.parametrize("call", [get_by_requests, get_by_httpx, get_by_urllib])
@pytest.mark.parametrize("status", [400, 404, 409, 500, 501])
def test_another_status_is_not_passing(call: Callable[[str], None], status: int, url: str) -> None:
    assert passing(error_of(call, f"{url}/{status}"), NOW) is None


def test_urllib3_giving_up_on_a_busy_server_is_passing(url: str) -> None:
    assert passing(error_of(get_by_urllib3, f"{url}/503"), NOW) == PassingError(None)
    assert passing(error_of(get_by_urllib3, f"{url}/500"), NOW) is None


def test_requests_giving_up_on_a_busy_server_is_passing(url: str) -> None:
    def get(url: str) -> None:
        with requests.Session() as session:
            session.trust_env = False
            retries = urllib3.Retry(0, status_forcelist=[503])
            session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
            session.get(url, timeout=1)

    assert passing(error_of(get, f"{url}/503"), NOW) == PassingError(None)


@pytest.mark.parametrize(
    "error",
    [
        requests.exceptions.SSLError(),
        requests.exceptions.InvalidURL(),
        requests.exceptions.TooManyRedirects(),
        httpx.LocalProtocolError("x"),
        httpx.UnsupportedProtocol("x"),
        httpx.DecodingError("x"),
        urllib3.exceptions.SSLError(),
        urllib3.exceptions.MaxRetryError(None, "/", urllib3.exceptions.SSLError()),  # type: ignore[arg-type]
        urllib.error.URLError("unknown url type"),
        urllib.error.URLError(ssl.SSLCertVerificationError()),
        http.client.CannotSendRequest(),
    ],
)
def test_what_a_client_would_meet_again_is_not_passing(error: Exception) -> None:
    assert passing(error, NOW) is None


def test_a_refused_certificate_is_not_passing_where_the_client_calls_it_a_connection_error() -> None:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError()
    assert passing(error, NOW) is None


# -- Python itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        asyncio.TimeoutError(),
        ConnectionResetError(),
        BrokenPipeError(),
        OSError(errno.ENETUNREACH, "x"),
        OSError(errno.EHOSTUNREACH, "x"),
        OSError(errno.ETIMEDOUT, "x"),
        socket.gaierror(socket.EAI_AGAIN, "x"),
        ssl.SSLEOFError(),
        urllib.error.URLError(ConnectionRefusedError()),
        http.client.RemoteDisconnected(""),
        NotStarted(transaction_id=uuid4()),
    ],
)
def test_network_errors_of_python_are_passing(error: Exception) -> None:
    assert outcome_of(error, NOW) == FailedForNow(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, None
    )


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "x"), FileNotFoundError(), socket.gaierror(socket.EAI_NONAME, "x"), ssl.SSLError(1, "x")],
)
def test_other_system_errors_are_not_passing(error: Exception) -> None:
    assert passing(error, NOW) is None


# -- databases -------------------------------------------------------------------------------------------------


def locked(path: Path) -> sqlite3.OperationalError:
    with closing(sqlite3.connect(path)) as first, closing(sqlite3.connect(path, timeout=0)) as second:
        first.execute("CREATE TABLE t (x)")
        first.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as raised:
            second.execute("BEGIN IMMEDIATE")
    return raised.value


def test_a_locked_sqlite_database_is_passing(tmp_path: Path) -> None:
    error = locked(tmp_path / "shop.db")
    assert passing(error, NOW) == PassingError(None)
    assert passing(sqlalchemy.exc.OperationalError("BEGIN", None, error), NOW) == PassingError(None)


def test_a_wrong_statement_is_not_passing() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with pytest.raises(sqlalchemy.exc.OperationalError) as raised, engine.connect() as connection:
        connection.execute(sqlalchemy.text("SELECT * FROM nowhere"))
    engine.dispose()
    assert passing(raised.value, NOW) is None


def test_a_lost_connection_is_passing_by_sqlalchemys_word() -> None:
    error = sqlalchemy.exc.DBAPIError("SELECT 1", None, RuntimeError(), connection_invalidated=True)
    assert passing(error, NOW) == PassingError(None)


def test_an_exhausted_pool_is_passing() -> None:
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=sqlalchemy.pool.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01
    )
    with engine.connect(), pytest.raises(sqlalchemy.exc.TimeoutError) as raised:
        engine.connect()
    engine.dispose()
    assert passing(raised.value, NOW) == PassingError(None)


@pytest.mark.parametrize(
    "error",
    [
        cassandra.OperationTimedOut(),
        cassandra.Unavailable("x"),
        cassandra.ReadTimeout("x"),
        cassandra.WriteTimeout("x", write_type=cassandra.WriteType.SIMPLE),
        cassandra.cluster.NoHostAvailable("x", {}),
    ],
)
def test_a_busy_cassandra_is_passing(error: Exception) -> None:
    assert passing(error, NOW) == PassingError(None)


@pytest.mark.parametrize("error", [cassandra.InvalidRequest("x"), cassandra.Unauthorized("x")])
def test_a_request_that_cassandra_refuses_is_not_passing(error: Exception) -> None:
    assert passing(error, NOW) is None


# -- libraries that are not at hand ----------------------------------------------------------------------------


def look_alike(qualified: str, *bases: type[BaseException], **attributes: Any) -> Any:
    """An error of a class of that module and name, with these attributes."""
    module, _, name = qualified.rpartition(".")
    cls = type(name, bases or (Exception,), {"__module__": module})
    error = cls(*attributes.pop("args", ()))
    for key, value in attributes.items():
        setattr(error, key, value)
    return error


def aws(status: int, code: str = "InternalError", **headers: str) -> Any:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    return look_alike(
        "botocore.exceptions.ClientError", response={"ResponseMetadata": metadata, "Error": {"Code": code}}
    )


def grpc(name: str) -> Any:
    call = type(look_alike("grpc.RpcError"))
    return look_alike("grpc._channel._InactiveRpcError", call, code=lambda: SimpleNamespace(name=name))


@pytest.mark.parametrize(
    "error",
    [
        look_alike("aiohttp.client_exceptions.ClientConnectionError"),
        look_alike("aiohttp.client_exceptions.ClientResponseError", status=503),
        aws(503),
        aws(400, "ThrottlingException"),
        look_alike("botocore.exceptions.EndpointConnectionError"),
        look_alike("botocore.exceptions.ReadTimeoutError"),
        look_alike("google.api_core.exceptions.GoogleAPICallError", code=503),
        grpc("UNAVAILABLE"),
        grpc("DEADLINE_EXCEEDED"),
        grpc("RESOURCE_EXHAUSTED"),
        look_alike("redis.exceptions.ConnectionError"),
        look_alike("redis.exceptions.TimeoutError"),
        look_alike("pymongo.errors.NetworkTimeout", type(look_alike("pymongo.errors.ConnectionFailure"))),
        look_alike("psycopg.errors.AdminShutdown", type(look_alike("psycopg.Error")), sqlstate="57P01"),
        look_alike("psycopg.Error", sqlstate="08006"),
        look_alike("psycopg2.Error", pgcode="40P01"),
        look_alike("psycopg2.Error", pgcode=None, args=("server closed the connection unexpectedly",)),
        look_alike("psycopg_pool.PoolTimeout"),
        look_alike("pymysql.err.MySQLError", args=(2013, "Lost connection")),
        look_alike("mysql.connector.errors.Error", errno=1205),
        look_alike("kombu.exceptions.OperationalError"),
        look_alike("pika.exceptions.AMQPConnectionError"),
        look_alike("kafka.errors.KafkaError", retriable=True),
        look_alike("someclient.Error", response=SimpleNamespace(status_code=503, headers={})),
    ],
)
def test_passing_errors_of_other_libraries_are_known_by_their_names(error: BaseException) -> None:
    assert passing(error, NOW) == PassingError(None)


@pytest.mark.parametrize(
    "error",
    [
        look_alike("aiohttp.client_exceptions.ClientResponseError", status=404),
        aws(400, "ValidationException"),
        grpc("INVALID_ARGUMENT"),
        look_alike("redis.exceptions.AuthenticationError", type(look_alike("redis.exceptions.ConnectionError"))),
        look_alike("pymongo.errors.DuplicateKeyError"),
        look_alike("psycopg.Error", sqlstate="23505"),
        look_alike("psycopg.Error", sqlstate=None, args=("password authentication failed for user",)),
        look_alike("pymysql.err.MySQLError", args=(1062, "Duplicate entry")),
        look_alike("kafka.errors.KafkaError", retriable=False),
        look_alike("shop.errors.PaymentError", code=503, status=503),
        look_alike("someclient.Error", response=SimpleNamespace(status_code=404)),
    ],
)
def test_definite_errors_of_other_libraries_are_not_passing(error: BaseException) -> None:
    assert passing(error, NOW) is None


def test_errors_that_wrap_each_other_for_ever_are_not_passing() -> None:
    error = urllib.error.URLError("x")
    error.reason = error
    assert passing(error, NOW) is None


def test_a_timeout_of_gevent_that_a_step_set_itself_is_passing() -> None:
    import gevent

    with closing(gevent.Timeout(5)) as timeout:
        assert outcome_of(timeout, NOW) == FailedForNow("Timeout: 5 seconds", None)


# -- Retry-After -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        ("0", 0),
        ("120", 120 * SECOND),
        ("1.5", 1_500_000),
        (formatdate(NOW / SECOND + 90, usegmt=True), 90 * SECOND),
        ("Tue, 14 Nov 2023 23:13:50 +0100", 30 * SECOND),
        ("Tuesday, 14-Nov-23 22:13:50 GMT", 30 * SECOND),
        ("Mon, 01 Jan 2001 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST),
        ("9" * 400, LONGEST),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("٣", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, microseconds: int | None) -> None:
    assert parse(value, NOW) == microseconds


def test_retry_after_is_found_where_aws_puts_it() -> None:
    assert passing(aws(503, **{"retry-after": "3"}), NOW) == PassingError(3 * SECOND)

"""Passing errors of common HTTP clients and drivers, recognised without importing any of them.

An error is looked up by the names of its classes, the most derived first: ``(top-level package, class name)``. What
stands there is a verdict: passing, not passing, a function that looks at the error's attributes, and such a function
may answer with the error that this one wraps. To teach it another library, add rows to `_VERDICTS`.

Only the error itself counts and what its own library wrapped in it, not ``__cause__``: an application's own exception
that was raised *from* a timeout is the application's word, so it is unexpected unless it is `Retryable`.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from stacksaga_flask.saga import foreign_looks as look
from stacksaga_flask.saga.retry_after import retry_after

_Verdict: TypeAlias = bool | look.Look

_WRAPPED_AT_MOST = 5


class PassingError(Struct, frozen=True):
    """What is known of a passing error."""

    retry_after: int | None
    """Microseconds to wait at least, if the server said so."""


def passing(error: BaseException, now: int) -> PassingError | None:
    """What is known of the error if it is passing, or None.

    Args:
        error: What a step raised. Its ``__cause__`` is not looked at.
        now: Microseconds since 1970, UTC, which a date in ``Retry-After`` is counted from.
    """
    for _ in range(_WRAPPED_AT_MOST):
        verdict = _judge(error)
        if isinstance(verdict, BaseException):
            error = verdict
            continue
        return PassingError(retry_after(error, now)) if verdict else None
    return None


def _judge(error: BaseException) -> bool | BaseException:
    if look.busy_response(error):
        return True
    for cls in type(error).__mro__:
        verdict = _VERDICTS.get((cls.__module__.partition(".")[0], cls.__name__))
        if verdict is not None:
            return verdict if isinstance(verdict, bool) else verdict(error)
    return False


def _rows(package: str, verdict: _Verdict, *names: str) -> dict[tuple[str, str], _Verdict]:
    return {(package, name): verdict for name in names}


_VERDICTS: dict[tuple[str, str], _Verdict] = {
    # -- Python itself
    **_rows("builtins", True, "TimeoutError", "ConnectionError"),
    **_rows("builtins", look.network_errno, "OSError"),
    **_rows("socket", look.try_again_errno, "gaierror"),
    **_rows("ssl", False, "SSLCertVerificationError"),
    **_rows("ssl", True, "SSLEOFError", "SSLZeroReturnError"),
    # On Python 3.10 these are not yet the builtin one.
    **_rows("asyncio", True, "TimeoutError"),
    **_rows("concurrent", True, "TimeoutError"),
    **_rows("http", True, "IncompleteRead"),
    **_rows("urllib", look.busy_code, "HTTPError"),
    **_rows("urllib", look.reason, "URLError"),
    **_rows("sqlite3", look.sqlite_locked, "OperationalError"),
    # -- this library: a step that starts another saga
    **_rows("stacksaga_flask", True, "StoreUnavailable", "OutcomeUnknown", "NotStarted", "StartUnknown"),
    # -- HTTP clients and servers
    **_rows("requests", True, "ConnectionError", "Timeout", "ChunkedEncodingError"),
    **_rows("requests", False, "SSLError", "HTTPError"),
    **_rows("requests", look.first_argument, "RetryError"),
    **_rows("httpx", look.unless_certificate, "NetworkError"),
    **_rows("httpx", True, "TimeoutException", "ProxyError", "RemoteProtocolError"),
    **_rows("httpcore", look.unless_certificate, "NetworkError"),
    **_rows("httpcore", True, "TimeoutException", "ProxyError", "RemoteProtocolError"),
    **_rows("urllib3", True, "TimeoutError", "NewConnectionError", "ProtocolError", "IncompleteRead", "EmptyPoolError"),
    **_rows("urllib3", False, "SSLError"),
    **_rows("urllib3", look.reason, "MaxRetryError"),
    **_rows("urllib3", look.original_error, "ProxyError"),
    **_rows("urllib3", look.too_many_busy_responses, "ResponseError"),
    **_rows("aiohttp", True, "ClientConnectionError", "ClientPayloadError"),
    **_rows("aiohttp", False, "ClientSSLError", "ClientConnectorCertificateError", "ServerFingerprintMismatch"),
    **_rows("aiohttp", look.busy_status, "ClientResponseError"),
    **_rows("werkzeug", look.busy_code, "HTTPException"),
    **_rows("google", look.busy_code, "GoogleAPICallError"),
    **_rows("grpc", look.grpc_code, "RpcError"),
    **_rows("botocore", look.botocore_response, "ClientError"),
    **_rows("botocore", True, "ConnectionError", "ConnectionClosedError", "ReadTimeoutError", "ResponseStreamingError"),
    **_rows("botocore", True, "EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError"),
    **_rows("botocore", False, "SSLError"),
    # -- databases
    **_rows("sqlalchemy", True, "TimeoutError", "DisconnectionError"),
    **_rows("sqlalchemy", look.invalidated_or_original, "DBAPIError"),
    **_rows("psycopg", look.postgresql, "Error"),
    **_rows("psycopg_pool", True, "PoolTimeout"),
    **_rows("psycopg2", look.postgresql, "Error"),
    **_rows("pymysql", look.mysql_code, "MySQLError"),
    **_rows("MySQLdb", look.mysql_code, "MySQLError"),
    **_rows("mysql", look.mysql_code, "Error"),
    **_rows("cassandra", True, "OperationTimedOut", "Timeout", "Unavailable", "NoHostAvailable"),
    **_rows("cassandra", True, "OverloadedErrorMessage", "IsBootstrappingErrorMessage", "RateLimitReached"),
    **_rows("cassandra", True, "ConnectionShutdown", "ConnectionBusy", "NoConnectionsAvailable"),
    **_rows("pymongo", True, "ConnectionFailure", "ExecutionTimeout", "WTimeoutError"),
    **_rows("redis", True, "ConnectionError", "TimeoutError", "ReadOnlyError", "TryAgainError"),
    **_rows("redis", True, "ClusterDownError", "MasterDownError"),
    **_rows("redis", False, "AuthenticationError", "AuthorizationError"),
    # -- messaging, greenlets
    **_rows("kombu", True, "OperationalError"),
    **_rows("amqp", True, "RecoverableConnectionError", "RecoverableChannelError"),
    **_rows("pika", True, "AMQPConnectionError"),
    **_rows("pika", False, "AuthenticationError", "ProbableAuthenticationError", "ProbableAccessDeniedError"),
    **_rows("kafka", look.retriable, "KafkaError"),
    **_rows("gevent", True, "Timeout"),
}

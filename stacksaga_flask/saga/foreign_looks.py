"""What `foreign` looks at where an error's class alone does not tell: its attributes, or the error it wraps."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable
from typing import TypeAlias

Look: TypeAlias = Callable[[BaseException], bool | BaseException]

BUSY = frozenset({429, 502, 503, 504})
"""HTTP statuses of a server that may answer another time."""

_NETWORK = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ENETDOWN, errno.EHOSTDOWN, errno.ENETRESET}
)
_TOO_MANY = re.compile(r"too many (429|502|503|504) error responses")
_GRPC = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})
_THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "SlowDown",
    }
)
_POSTGRESQL = frozenset({"57P01", "57P02", "57P03", "40001", "40P01", "53300"})
# libpq reports a lost or refused connection without an SQLSTATE, and a wrong password just the same.
_LIBPQ = re.compile(
    r"connection refused|could not connect|server closed the connection|connection reset|broken pipe"
    r"|timeout expired|connection timeout|timed out|connection (is|was|already|has been) (closed|lost)"
    r"|closed unexpectedly|terminating connection|temporary failure in name resolution|no route to host"
    r"|network is unreachable|the database system is (starting up|shutting down|in recovery mode)",
    re.IGNORECASE,
)
# 1040 too many connections, 1053 shutdown, 1205 lock wait, 1213 deadlock, 2002-2006, 2013, 2055 connection.
_MYSQL = frozenset({1040, 1053, 1205, 1213, 2002, 2003, 2006, 2013, 2055})


# -- statuses --------------------------------------------------------------------------------------------------


def busy_response(error: BaseException) -> bool:
    """Whether the error carries a response, in the shape that HTTP clients share, whose status is in `BUSY`."""
    response = getattr(error, "response", None)
    return _is_busy(getattr(response, "status_code", None)) or _is_busy(getattr(response, "status", None))


def busy_code(error: BaseException) -> bool:
    """Whether ``code`` is an HTTP status in `BUSY`."""
    return _is_busy(getattr(error, "code", None))


def busy_status(error: BaseException) -> bool:
    """Whether ``status`` is an HTTP status in `BUSY`."""
    return _is_busy(getattr(error, "status", None))


def _is_busy(status: object) -> bool:
    return isinstance(status, int) and status in BUSY


def too_many_busy_responses(error: BaseException) -> bool:
    """Whether urllib3 gave up after repeated statuses in `BUSY`."""
    return _TOO_MANY.search(str(error)) is not None


def grpc_code(error: BaseException) -> bool:
    """Whether the code of a gRPC call is a passing one."""
    code = getattr(error, "code", None)
    return getattr(code() if callable(code) else code, "name", None) in _GRPC


def botocore_response(error: BaseException) -> bool:
    """Whether AWS answered with a status in `BUSY`, or throttled the request."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return False
    status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    return _is_busy(status) or (response.get("Error") or {}).get("Code") in _THROTTLED


# -- networks --------------------------------------------------------------------------------------------------


def network_errno(error: BaseException) -> bool:
    """Whether the system says that a host or network could not be reached."""
    return getattr(error, "errno", None) in _NETWORK


def try_again_errno(error: BaseException) -> bool:
    """Whether the resolver could not be asked. A name that does not exist is not passing."""
    return getattr(error, "errno", None) == socket.EAI_AGAIN


def unless_certificate(error: BaseException) -> bool:
    """Whether something else than a refused certificate is behind a failed connection."""
    cause: BaseException | None = error
    seen = 0
    while cause is not None and seen < 8:
        if any(cls.__name__ == "SSLCertVerificationError" for cls in type(cause).__mro__):
            return False
        cause = cause.__cause__ or cause.__context__
        seen += 1
    return True


# -- databases and brokers -------------------------------------------------------------------------------------


def sqlite_locked(error: BaseException) -> bool:
    """Whether another connection held the database, or a table, for longer than the time-out."""
    message = str(error)
    return "is locked" in message or "is busy" in message


def postgresql(error: BaseException) -> bool:
    """Whether a connection was lost, the server is coming or going, or another transaction was in the way."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is not None:
        return str(state).startswith("08") or state in _POSTGRESQL
    return _LIBPQ.search(str(error)) is not None


def mysql_code(error: BaseException) -> bool:
    """Whether the code says that a connection was lost or another transaction was in the way."""
    code = getattr(error, "errno", None) or (error.args[0] if error.args else None)
    return isinstance(code, int) and code in _MYSQL


def retriable(error: BaseException) -> bool:
    """Whether the client's own word is that it may be tried again."""
    return getattr(error, "retriable", False) is True


# -- errors that wrap another ----------------------------------------------------------------------------------


def reason(error: BaseException) -> bool | BaseException:
    """The error in ``reason``."""
    return _wrapped(getattr(error, "reason", None))


def original_error(error: BaseException) -> bool | BaseException:
    """The error in ``original_error``."""
    return _wrapped(getattr(error, "original_error", None))


def first_argument(error: BaseException) -> bool | BaseException:
    """The error that is the first argument."""
    return _wrapped(error.args[0] if error.args else None)


def invalidated_or_original(error: BaseException) -> bool | BaseException:
    """Whether SQLAlchemy found the connection lost; otherwise the driver's error."""
    return getattr(error, "connection_invalidated", False) is True or _wrapped(getattr(error, "orig", None))


def _wrapped(inner: object) -> bool | BaseException:
    return inner if isinstance(inner, BaseException) else False

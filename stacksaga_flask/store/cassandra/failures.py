"""What the driver's and the server's errors mean: unavailable, refused, or nobody knows.

Of a write, only what is certain to come before it was done counts as not written. A conditional write (R16) goes
through rounds of its own before it commits, and may fail in each with any of these errors after it was accepted.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Collection
from typing import Final

from cassandra import (
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    RequestValidationException,
    Unauthorized,
    Unavailable,
)
from cassandra.cluster import NoHostAvailable
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, SyntaxException

from stacksaga_flask.errors import OutcomeUnknown, SchemaMissing, StoreError, StoreRefused, StoreUnavailable

REMEDY: Final = "run `flask stacksaga init-schema`"
_LACKS: Final = re.compile(
    r"unconfigured table|does not exist|Undefined column name|Unknown identifier|Undefined name|unknown keyspace",
    re.IGNORECASE,
)


class Kind(enum.Enum):
    """What was asked for."""

    READ = "read"
    WRITE = "write"
    CONDITIONAL_WRITE = "conditional write"


def meaning(error: Exception, kind: Kind, place: str) -> StoreError:
    """The store's error for one of the driver's, which is its cause.

    Args:
        error: What the driver raised.
        kind: What was asked for.
        place: The cluster and keyspace, for the message.
    """
    result = _meaning(error, kind, place)
    result.__cause__ = error
    return result


def _meaning(error: Exception, kind: Kind, place: str) -> StoreError:
    told = f"{place}: {describe(error)}"
    if isinstance(error, (RequestValidationException, SyntaxException)):
        # The server checks a request before it does anything.
        return _refused(error, told)
    if isinstance(error, NoHostAvailable):
        # Each node was given up before the request was sent to it: nothing is sent again after that.
        return StoreUnavailable(f"{told}; nothing was written. The driver goes on trying to connect")
    if kind is Kind.READ:
        return StoreUnavailable(told)
    if kind is Kind.WRITE and isinstance(error, (Unavailable, IsBootstrappingErrorMessage)):
        return StoreUnavailable(f"{told}; nothing was written")
    return OutcomeUnknown(f"{told}; the {kind.value} may or may not have been applied")


def _refused(error: Exception, told: str) -> StoreError:
    if isinstance(error, Unauthorized):
        return StoreRefused(f"{told}: grant this user SELECT and MODIFY on the keyspace; nothing was written")
    if isinstance(error, InvalidRequest) and _LACKS.search(str(error)):
        return SchemaMissing(f"{told}: {REMEDY}")
    return StoreRefused(f"{told}; nothing was written")


def describe(error: Exception) -> str:
    """One line on an error, with each node that was tried and why it failed."""
    if isinstance(error, NoHostAvailable):
        told = "; ".join(f"{_node(node)}: {describe(each)}" for node, each in _tried(error).items())
        return f"no node could be used ({told or 'none is known to be up in the local data centre'})"
    if isinstance(error, OperationTimedOut):
        return "the request timed out here, after longer than the server waits itself"
    if isinstance(error, (ReadTimeout, ReadFailure, Unavailable)):
        return f"{type(error).__name__}: {error.args[0] if error.args else error}"
    text = str(error).strip() or type(error).__name__
    if isinstance(error, AuthenticationFailed):
        return f"the login was refused ({text})"
    if "certificate is not valid for" in text:
        return (
            f"{text} (the certificate of a host that STACKSAGA_STORE names needs that name, and of a node that is "
            f"found through it its address, so give certificates both)"
        )
    return text if isinstance(error, OSError) else f"{type(error).__name__.removesuffix('Message')}: {text}"


def reasons(error: NoHostAvailable) -> Collection[Exception]:
    """Why each node that was tried could not be used."""
    return _tried(error).values()


def found_no_node(error: Exception) -> bool:
    """Whether no node could be asked at all. One that refuses a read for its load was asked."""
    return isinstance(error, NoHostAvailable) and not any(isinstance(each, ErrorMessage) for each in reasons(error))


def _tried(error: NoHostAvailable) -> dict[object, Exception]:
    # A list of nodes, not a dict of errors, if the driver's policy wants none of them.
    return error.errors if isinstance(error.errors, dict) else {}


def _node(node: object) -> str:
    return str(getattr(node, "endpoint", node))

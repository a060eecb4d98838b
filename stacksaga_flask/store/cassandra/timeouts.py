"""Whether a request waits for longer than the server does (R16)."""

from __future__ import annotations

from typing import Final

from cassandra import Unauthorized
from cassandra.cluster import Session

from stacksaga_flask.errors import StoreRefused
from stacksaga_flask.store.address import logger
from stacksaga_flask.store.cassandra.place import Place

COMPARED: Final = ("write_request_timeout_in_ms", "cas_contention_timeout_in_ms")
"""Time-outs of the server."""


def check_timeout(session: Session, place: Place, profile: str, cluster: str) -> None:
    """Refuse a time-out that is not above the server's, which would leave outcomes open that the server knows (R16).

    Args:
        session: Where to ask.
        place: Holds the time-out.
        profile: The execution profile of reads.
        cluster: The cluster as messages name it.

    Raises:
        StoreRefused: It is not.
    """
    names = ", ".join(f"'{name}'" for name in COMPARED)
    query = f"SELECT name, value FROM system_views.settings WHERE name IN ({names})"
    try:
        found = dict(session.execute(query, execution_profile=profile))
    except Unauthorized as error:
        logger.info("the time-outs of the server cannot be compared with STACKSAGA_REQUEST_TIMEOUT: %s", error)
        return
    for name in COMPARED:
        if name not in found:
            logger.warning(
                "%s: the server does not tell its %s, so nobody knows whether STACKSAGA_REQUEST_TIMEOUT (%g ms) is "
                "above it, as it must be (R16): compare them by hand",
                *(cluster, name, place.timeout * 1000),
            )
        elif place.timeout * 1000 <= int(found[name]):
            raise StoreRefused(
                f"{cluster}: STACKSAGA_REQUEST_TIMEOUT is {place.timeout * 1000:g} ms and the server's {name} is "
                f"{found[name]}: a request must wait for longer than the server does (R16); raise the first"
            )

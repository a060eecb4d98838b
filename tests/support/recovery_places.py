"""Where the shops of the recovery tests keep their event stores, and how these are taken away from them."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from io import FileIO
from pathlib import Path

import pytest

from stacksaga_flask.store.contract import Scope
from tests.services.cassandra.node import Node
from tests.services.postgresql import PASSWORD, USERNAME, Server
from tests.support.beside import Case
from tests.support.cql_proxy import CqlProxy, cql_proxy
from tests.support.recovery_site import Outage, Site
from tests.support.waiting import wait_until

CASSANDRA, CASSANDRA_AWAY = "cassandra", "cassandra which is cut off"
SQLITE, SQLITE_FULL, SQLITE_LIMITED = "sqlite", "sqlite on a full disk", "sqlite over a limit"
POSTGRESQL_AWAY = "postgresql which is stopped"
NEED_CASSANDRA = (CASSANDRA, CASSANDRA_AWAY)
_LITTLE = 16 * 1024 * 1024


class Places:
    """Makes shops.

    Args:
        base: Where their folders lie.
        cassandra: A node and a keyspace on it, if one is needed.
    """

    def __init__(self, base: Path, cassandra: tuple[Node, str] | None) -> None:
        self._base = base
        self._cassandra = cassandra

    @contextmanager
    def site(self, case: Case) -> Iterator[Site]:
        """A shop on the store of a case."""
        service = f"shop-{uuid.uuid4().hex[:8]}"
        folder, scope = self._base / service, Scope("default", "default", service)
        folder.mkdir()
        with ExitStack() as stack:
            site = self._site(stack, case["store"], folder, scope)
            site.set_up()
            with closing(site):
                yield site

    def _site(self, stack: ExitStack, store: str, folder: Path, scope: Scope) -> Site:
        if store in NEED_CASSANDRA:
            assert self._cassandra is not None
            node, keyspace = self._cassandra
            if store == CASSANDRA:
                return Site(folder, node.url(keyspace), scope, place=store)
            proxy = stack.enter_context(cql_proxy(node))
            return Site(
                folder, proxy.url(keyspace), scope, place=store, outage=CutOff(proxy), test_url=node.url(keyspace)
            )
        if store == POSTGRESQL_AWAY:
            server = Server.create(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postgresql-"))))
            stack.callback(server.stop)
            url = f"postgresql://127.0.0.1:{server.port}/{server.create_database()}"
            login = {"store_username": USERNAME, "store_password": PASSWORD}
            return Site(folder, url, scope, place=store, outage=Stopped(server), **login)
        outage: Outage | None = None
        database = folder
        if store == SQLITE_FULL:
            database = stack.enter_context(small_disk(folder / "disk"))
            outage = FullDisk(database)
        elif store == SQLITE_LIMITED:
            outage = Limit()
        return Site(folder, f"sqlite:///{database}/shop.db", scope, place=store, outage=outage)


class CutOff:
    """Connections to Cassandra end, and none are taken."""

    def __init__(self, proxy: CqlProxy) -> None:
        self._proxy = proxy

    def begin(self, process_ids: Iterable[int]) -> None:
        self._proxy.accept(False)
        self._proxy.close_all()

    def end(self) -> None:
        self._proxy.accept(True)


class Stopped:
    """A PostgreSQL server is stopped."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def begin(self, process_ids: Iterable[int]) -> None:
        self._server.stop()

    def end(self) -> None:
        self._server.start()


class FullDisk:
    """Somebody fills the disk of the database."""

    def __init__(self, disk: Path) -> None:
        self._ballast = disk / "ballast"

    def begin(self, process_ids: Iterable[int]) -> None:
        with self._ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            _fill(file)

    def end(self) -> None:
        self._ballast.unlink()


def _fill(file: FileIO) -> None:
    while True:
        file.write(bytes(4096))


class Limit:
    """The files that the processes write may not grow, as with a quota."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int]] = {}

    def begin(self, process_ids: Iterable[int]) -> None:
        for process_id in process_ids:
            soft, hard = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
            self._before[process_id] = soft, hard
            # More than their logs have, and less than the database.
            resource.prlimit(process_id, resource.RLIMIT_FSIZE, (48 * 1024, hard))

    def end(self) -> None:
        for process_id, limits in self._before.items():
            resource.prlimit(process_id, resource.RLIMIT_FSIZE, limits)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few megabytes in memory, where this may be mounted."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={_LITTLE},uid={os.getuid()}", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True)
    if mounted.returncode:
        # Not a service that could be started; a file that may not grow is tried in any case.
        pytest.skip(f"no small disk can be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        # Processes that were killed may still have files there.
        wait_until(lambda: subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0)

"""A proxy between the driver and a node, which makes faults that are real on the wire."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from tests.services.cassandra.node import Node

ROOT = Path(__file__).parents[2]

Action: TypeAlias = Literal["lose_answer", "answer", "apply_then_answer", "close", "hold"]


class Counts(NamedTuple):
    """What went through since the last `reset`.

    Attributes:
        requests: By the names of the protocol: PREPARE, EXECUTE, BATCH, QUERY.
        rounds: How many requests began while none was under way: sequential round trips. One whose answer was lost
            in silence stays under way until its connection ends.
        hits: How many requests met each rule.
    """

    requests: dict[str, int]
    rounds: int
    hits: list[int]


class CqlProxy:
    """The proxy's process. The driver is given its host and port instead of the node's."""

    def __init__(self, node: Node, process: subprocess.Popen[str]) -> None:
        self.host = node.host
        self._node = node
        self._process = process
        self.port: int = self._answer()["port"]

    def url(self, keyspace: str = "") -> str:
        """The URL of a store behind it."""
        return f"cassandra://{self.host}:{self.port}/{keyspace}?local_datacenter={self._node.local_datacenter}"

    def rule(
        self,
        action: Action,
        *,
        times: int = 1,
        opcode: str | None = None,
        conditional: bool | None = None,
        table: str | None = None,
        error: str = "",
        then: Literal["close", "silence"] = "close",
    ) -> None:
        """Do something with the next requests of a kind.

        Args:
            action: ``lose_answer`` passes the request on and drops the answer, ``answer`` answers with an error
                instead of passing it on, ``apply_then_answer`` passes it on and answers with an error, ``close`` closes
                the connection instead of passing it on, ``hold`` passes it on after `release`.
            times: How many requests.
            opcode: EXECUTE, BATCH, QUERY or PREPARE; any of them unless given.
            conditional: Whether the statement's text has a condition.
            table: A table in the statement's text.
            error: Overloaded, Unavailable, IsBootstrapping, ServerError, ReadTimeout, Unprepared or
                ``WriteTimeout:SIMPLE``, ``WriteTimeout:BATCH``, ``WriteTimeout:CAS``.
            then: Whether a lost answer ends the connection (once those to the other requests under way on it have
                arrived), or the driver waits for it.
        """
        told = {"action": action, "times": times, "opcode": opcode, "conditional": conditional, "table": table}
        self._tell("rule", **told, error=error, then=then)

    def forget_rules(self) -> None:
        """Pass everything on."""
        self._tell("forget_rules")

    def release(self) -> None:
        """Pass on what is held."""
        self._tell("release")

    def delay(self, seconds: float) -> None:
        """Let each answer wait, so that requests which go out together are all there before the first answer."""
        self._tell("delay", seconds=seconds)

    def accept(self, accepting: bool) -> None:
        """Whether new connections are served."""
        self._tell("accepting", accepting=accepting)

    def close_all(self) -> None:
        """End every connection of the driver."""
        self._tell("close_all")

    def reset(self) -> None:
        """Count anew."""
        self._tell("reset")

    def counts(self) -> Counts:
        """What went through."""
        told = self._tell("count")
        return Counts(told["counts"], told["rounds"], told["hits"])

    def _tell(self, what: str, **more: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the proxy has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def cql_proxy(node: Node) -> Iterator[CqlProxy]:
    """A proxy before the node, on another port of its address."""
    command = [sys.executable, "-m", "tests.support.cql_proxy_server", node.host, node.host, str(node.port)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield CqlProxy(node, process)
        finally:
            process.kill()

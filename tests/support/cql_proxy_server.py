"""``python -m tests.support.cql_proxy_server LISTEN HOST PORT``: a proxy before a node, told what to do on its input.

It counts requests, and *rounds*: a request that comes while no other is under way begins a new one. See `cql_proxy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.support.cql_frames import (
    HEADER,
    NAMES,
    PREPARE,
    QUERY,
    VERSION,
    Frame,
    error,
    prepared_id,
    prepared_text,
    statements,
    wrong_version,
)

TOGETHER = 0.005
"""Seconds within which the requests of one call have come."""


@dataclass
class Rule:
    """What to do with the next requests of a kind; see `CqlProxy.rule`."""

    action: str
    times: int
    opcode: str | None = None
    conditional: bool | None = None
    table: str | None = None
    error: str = ""
    then: str = "close"
    hit: int = 0

    def matches(self, opcode: str, text: str) -> bool:
        """Whether it is for this request."""
        return (
            self.hit < self.times
            and self.opcode in (None, opcode)
            and self.conditional in (None, " IF " in text)
            and (self.table is None or re.search(rf"\b{self.table}\b", text) is not None)
        )


@dataclass
class State:
    """What the proxy knows and was told."""

    texts: dict[bytes, str] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    under_way: int = 0
    delay: float = 0
    accepting: bool = True
    links: set[asyncio.StreamWriter] = field(default_factory=set)
    released: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Asked:
    """A request that is under way."""

    counted: bool
    statement_id: bytes
    text: str
    preparing: bool
    rule: Rule | None
    lost: bool = False


class Link:
    """One connection of the driver."""

    def __init__(self, state: State, driver: asyncio.StreamWriter, node: asyncio.StreamWriter) -> None:
        self.state, self.driver, self.node = state, driver, node
        self.asked: dict[int, Asked] = {}

    async def request(self, frame: Frame) -> None:
        """Deal with a request of the driver."""
        if frame.version != VERSION:
            self.answer(wrong_version(frame))
            return
        asked = self.look_at(frame)
        self.asked[frame.stream] = asked
        rule = asked.rule
        if rule is not None and rule.action == "hold":
            await self.state.released.wait()
        if rule is not None and rule.action == "close":
            self.close()
        elif rule is not None and rule.action == "answer":
            self.answer(error(frame.stream, rule.error, asked.statement_id))
        else:
            self.node.write(frame.encoded())

    def look_at(self, frame: Frame) -> Asked:
        """Count a request, and find the rule for it."""
        state, opcode = self.state, NAMES.get(frame.opcode)
        run = list(statements(frame))
        ids = [each for each in run if isinstance(each, bytes)]
        text = " ; ".join(state.texts[each] if isinstance(each, bytes) else each for each in run)
        if frame.opcode in (PREPARE, QUERY):
            text = prepared_text(frame)
        # What the driver asks about the cluster by itself is no business of the test's.
        if opcode is None or (frame.opcode == QUERY and " system" in text):
            return Asked(False, b"", text, False, None)
        state.counts[opcode] += 1
        state.rounds += state.under_way == 0
        state.under_way += 1
        rule = next((rule for rule in state.rules if rule.matches(opcode, text)), None)
        if rule is not None:
            rule.hit += 1
        return Asked(True, ids[0] if ids else b"", text, frame.opcode == PREPARE, rule)

    async def response(self, frame: Frame) -> None:
        """Deal with an answer of the node."""
        asked = self.asked.get(frame.stream)
        if asked is not None and asked.preparing and (statement_id := prepared_id(frame)) is not None:
            self.state.texts[statement_id] = asked.text
        rule = None if asked is None else asked.rule
        if rule is not None and asked is not None and rule.action == "lose_answer":
            await asyncio.sleep(TOGETHER)
            asked.lost = True
            self.close_if_lost()
            return
        if rule is not None and asked is not None and rule.action == "apply_then_answer":
            frame = error(frame.stream, rule.error, asked.statement_id)
        if self.state.delay:
            await asyncio.sleep(self.state.delay)
        self.answer(frame)

    def answer(self, frame: Frame) -> None:
        """Send an answer to the driver."""
        asked = self.asked.pop(frame.stream, None)
        if asked is not None and asked.counted:
            self.state.under_way -= 1
        if not self.driver.is_closing():
            self.driver.write(frame.encoded())
        self.close_if_lost()

    def close_if_lost(self) -> None:
        """End the connection once every answer that is still owed is a lost one, so that the others do arrive."""
        owed = self.asked.values()
        if all(asked.lost for asked in owed) and any(asked.rule and asked.rule.then == "close" for asked in owed):
            self.close()

    def close(self) -> None:
        """End the connection to the driver; the one to the node stays until the node has done what it was asked."""
        self.state.under_way -= sum(asked.counted for asked in self.asked.values())
        self.asked.clear()
        self.driver.close()


async def frames(reader: asyncio.StreamReader) -> Any:
    """The frames that come in, until the other side closes."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            version, flags, stream, opcode, length = HEADER.unpack(await reader.readexactly(HEADER.size))
            yield Frame(version, flags, stream, opcode, await reader.readexactly(length))


async def serve(state: State, host: str, port: int, reader: asyncio.StreamReader, driver: asyncio.StreamWriter) -> None:
    """One connection of the driver, from its beginning to its end."""
    if not state.accepting:
        driver.close()
        return
    try:
        node_reader, node = await asyncio.open_connection(host, port)
    except OSError:
        driver.close()
        return
    state.links.add(driver)
    link = Link(state, driver, node)
    tasks: set[asyncio.Task[None]] = set()

    def begin(coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def answers() -> None:
        async for frame in frames(node_reader):
            # Late answers may overtake each other, as the protocol allows.
            begin(link.response(frame))
        driver.close()

    answering = asyncio.ensure_future(answers())
    async for frame in frames(reader):
        asked_to_wait = any(rule.action == "hold" and rule.hit < rule.times for rule in state.rules)
        begin(link.request(frame)) if asked_to_wait else await link.request(frame)
    state.links.discard(driver)
    link.close()
    if tasks:
        await asyncio.wait(tasks)
    node.close()
    answering.cancel()


def command(state: State, told: dict[str, Any]) -> dict[str, Any]:
    """Do what the test says, and tell what it asks for."""
    what = told.pop("do")
    if what == "rule":
        state.released.clear()
        state.rules.append(Rule(**told))
    elif what == "forget_rules":
        state.rules.clear()
    elif what == "release":
        state.released.set()
    elif what == "delay":
        state.delay = told["seconds"]
    elif what == "accepting":
        state.accepting = told["accepting"]
    elif what == "close_all":
        for driver in list(state.links):
            driver.transport.abort()
    elif what == "reset":
        state.counts.clear()
        state.rounds = 0
    return {"counts": dict(state.counts), "rounds": state.rounds, "hits": [rule.hit for rule in state.rules]}


async def main() -> None:
    """Serve until the input ends."""
    listen, host, port = sys.argv[1:]
    state = State()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(state, host, int(port), reader, writer)

    server = await asyncio.start_server(connected, listen, 0)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        print(json.dumps(command(state, json.loads(line))), flush=True)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())

"""As much of Cassandra's native protocol, version 4, as a proxy between a driver and a node needs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

HEADER: Final = struct.Struct(">BBhBi")
VERSION: Final = 4
ERROR, QUERY, RESULT, PREPARE, EXECUTE, BATCH = 0x00, 0x07, 0x08, 0x09, 0x0A, 0x0D
NAMES: Final = {QUERY: "QUERY", PREPARE: "PREPARE", EXECUTE: "EXECUTE", BATCH: "BATCH"}
"""The requests that ask for something."""
RESPONSE: Final = 0x80 | VERSION
WARNING: Final = 0x08
PREPARED: Final = 4
BY_ID: Final = 1
LOCAL_QUORUM: Final = 6

ERRORS: Final = {
    "ServerError": (0x0000, b""),
    "Unavailable": (0x1000, struct.pack(">hii", LOCAL_QUORUM, 2, 1)),
    "Overloaded": (0x1001, b""),
    "IsBootstrapping": (0x1002, b""),
    "ReadTimeout": (0x1200, struct.pack(">hiib", LOCAL_QUORUM, 0, 1, 0)),
}
PROTOCOL_ERROR: Final = 0x000A
WRITE_TIMEOUT: Final = 0x1100
UNPREPARED: Final = 0x2500


class Frame(NamedTuple):
    """A frame in either direction."""

    version: int
    flags: int
    stream: int
    opcode: int
    body: bytes

    def encoded(self) -> bytes:
        """The frame's bytes."""
        return HEADER.pack(self.version, self.flags, self.stream, self.opcode, len(self.body)) + self.body


def error(stream: int, name: str, statement_id: bytes) -> Frame:
    """An error as a node would send it; ``WriteTimeout:CAS`` names the write type too."""
    name, _, write_type = name.partition(":")
    if name == "WriteTimeout":
        code, more = WRITE_TIMEOUT, struct.pack(">hii", LOCAL_QUORUM, 0, 1) + _string(write_type or "SIMPLE")
    elif name == "Unprepared":
        code, more = UNPREPARED, struct.pack(">h", len(statement_id)) + statement_id
    else:
        code, more = ERRORS[name]
    return _error(stream, code, f"{name}, by the proxy", more)


def wrong_version(frame: Frame) -> Frame:
    """What a node answers to a version that it doesn't speak; the driver then tries the one below."""
    told = f"Invalid or unsupported protocol version ({frame.version}); the proxy speaks {VERSION}"
    return _error(frame.stream, PROTOCOL_ERROR, told)


def prepared_text(frame: Frame) -> str:
    """The text of a PREPARE request or a QUERY."""
    (length,) = struct.unpack_from(">i", frame.body)
    return frame.body[4 : 4 + length].decode()


def prepared_id(frame: Frame) -> bytes | None:
    """The id in an answer to PREPARE, or None if it is another answer."""
    at = _after_warnings(frame)
    if frame.opcode != RESULT or struct.unpack_from(">i", frame.body, at) != (PREPARED,):
        return None
    return _short_bytes(frame.body, at + 4)[0]


def statements(frame: Frame) -> Iterator[bytes | str]:
    """What an EXECUTE or a BATCH runs: ids of prepared statements, and texts."""
    if frame.opcode == EXECUTE:
        yield _short_bytes(frame.body, 0)[0]
    if frame.opcode == BATCH:
        yield from _batched(frame)


def _batched(frame: Frame) -> Iterator[bytes | str]:
    (count,) = struct.unpack_from(">h", frame.body, 1)
    at = 3
    for _ in range(count):
        if frame.body[at] == BY_ID:
            statement_id, at = _short_bytes(frame.body, at + 1)
            yield statement_id
        else:
            (length,) = struct.unpack_from(">i", frame.body, at + 1)
            at += 5 + length
            yield frame.body[at - length : at].decode()
        (values,) = struct.unpack_from(">h", frame.body, at)
        at += 2
        for _ in range(values):
            (length,) = struct.unpack_from(">i", frame.body, at)
            at += 4 + max(0, length)


def _error(stream: int, code: int, told: str, more: bytes = b"") -> Frame:
    return Frame(RESPONSE, 0, stream, ERROR, struct.pack(">i", code) + _string(told) + more)


def _after_warnings(frame: Frame) -> int:
    """Where the message itself begins."""
    if not frame.flags & WARNING:
        return 0
    (count,), at = struct.unpack_from(">H", frame.body), 2
    for _ in range(count):
        (length,) = struct.unpack_from(">H", frame.body, at)
        at += 2 + length
    return at


def _short_bytes(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">h", body, at)
    return body[at + 2 : at + 2 + length], at + 2 + length


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()

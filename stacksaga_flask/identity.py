"""Who this process is (R11)."""

from __future__ import annotations

import os
import re
import socket
import uuid

import mmh3

_NOT_PLAIN = re.compile(r"[^A-Za-z0-9-]+")


def new_instance_id() -> str:
    """A new instance id, ASCII: host, process id and a random part. Made anew after each fork (R11)."""
    host = _NOT_PLAIN.sub("-", socket.gethostname())[:40] or "host"
    return f"{host}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def token(text: str) -> int:
    """Cassandra's Murmur3 token of an ASCII text (R11).

    Raises:
        UnicodeEncodeError: The text is not ASCII, where mmh3 and Cassandra differ.
    """
    value: int = mmh3.hash64(text.encode("ascii"), signed=True)[0]
    return 2**63 - 1 if value == -(2**63) else value

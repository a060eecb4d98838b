"""``python -m tests.support.tls_front PEM HOST PORT``: TLS before a server that speaks plain text.

It prints its port on 127.0.0.1 and serves until its input ends. The PEM file holds a key and its certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def tls_front(pem: Path, host: str, port: int) -> Iterator[int]:
    """The port of a front that runs within the block."""
    command = [sys.executable, "-m", "tests.support.tls_front", str(pem), host, str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until the end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main() -> None:
    """Serve until the input ends."""
    pem, host, port = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond_reader, beyond = await asyncio.open_connection(host, int(port))
        await asyncio.gather(passed_on(reader, beyond), passed_on(beyond_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())

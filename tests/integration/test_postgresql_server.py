"""The server that the tests use leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.services.postgresql import Server
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
STARTS = """
import signal, sys
from pathlib import Path
from tests.services.postgresql import Server
print(Server.create(Path(sys.argv[1])).process_id(), flush=True)
signal.pause()
"""


def test_a_server_ends_with_a_test_run_that_is_killed(postgresql: Server) -> None:
    assert Path(f"/proc/{postgresql.process_id()}").exists()
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        command = [sys.executable, "-c", STARTS, folder]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            server = Path(f"/proc/{int(run.stdout.readline())}")
            assert server.exists()
            run.kill()
        wait_until(lambda: not server.exists())

"""Every code block of the README is run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.readme import ROOT, block_of, blocks, write_files
from tests.support.waiting import wait_until

SERVICES = """
class Service:
    calls = []

    def __getattr__(self, name):
        def call(*arguments, key=None):
            Service.calls.append((name, *arguments))
            if name == "charge" and arguments[0] == "refused":
                from stacksaga_flask import Rejected
                raise Rejected("card refused")
            return f"{name}-1"
        return call

stock = payments = shipping = Service()
"""


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Run a command and return what it printed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_block_is_known_to_a_test_below() -> None:
    kinds = [(block.language, block.file) for block in blocks()]
    assert kinds == [
        ("sh", None),
        ("sh", None),
        ("python", "orders.py"),
        ("python", "shop.py"),
        ("console", None),
        ("python", "plain.py"),
        ("diff", None),
        ("python", "test_shop.py"),
        ("python", "wsgi.py"),
        ("sh", None),
    ]


@contextmanager
def flask_server(folder: Path, command: str) -> Iterator[str]:
    """Run the README's server on a free port, and yield its address once it answers."""
    port = free_port()
    arguments = [sys.executable, "-m", *command.split(), "--port", str(port)]
    with subprocess.Popen(arguments, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        lines = iter(server.stderr.readline, "")
        seen = [next((line for line in lines if "Running on" in line), "")]
        rest = threading.Thread(target=lambda: seen.extend(lines))
        rest.start()
        try:
            assert seen[0], "the server did not start"
            yield f"localhost:{port}"
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=20)
            rest.join()


def test_the_first_saga_answers_as_the_console_shows(tmp_path: Path) -> None:
    write_files(tmp_path, "orders.py", "shop.py")
    server_line, *lines = block_of("console").text.splitlines()
    commands = [line for line in lines if line.startswith("$ ")]
    shown = [line for line in lines if not line.startswith("$ ")]
    assert (len(commands), len(shown)) == (2, 2)
    with flask_server(tmp_path, server_line.removeprefix("$ ")) as address:
        for command, expected in zip(commands, shown, strict=True):
            shell = command.removeprefix("$ ").replace("localhost:5000", address)
            printed = run("bash", "-c", shell, cwd=tmp_path)
            pattern = re.escape(expected).replace("…", "[0-9a-f-]{36}")
            assert re.fullmatch(pattern, printed.strip()), printed
    assert (tmp_path / "stacksaga.db").exists(), "the event store is the file beside it"


def orders_of(folder: Path, order: dict[str, str]) -> tuple[int, Any, list[list[str]]]:
    """Place an order at the application in ``plain.py``: status, body, and the services' calls."""
    script = f"""
import json, services, plain
answer = plain.app.test_client().post("/orders", json={order!r})
print(json.dumps([answer.status_code, answer.get_json(silent=True), services.Service.calls]))
plain.app.extensions.get("stacksaga") and plain.app.extensions["stacksaga"].engine.close()
"""
    status, body, calls = json.loads(run(sys.executable, "-c", script, cwd=folder).splitlines()[-1])
    return status, body, calls


def test_the_plain_view_and_the_same_view_as_a_saga_both_work(tmp_path: Path) -> None:
    write_files(tmp_path, "plain.py")
    (tmp_path / "services.py").write_text(SERVICES)
    order = {"sku": "book", "card": "4711", "total": "9.50", "address": "here"}
    reserve, charge, ship = ["reserve", "book"], ["charge", "4711", "9.50"], ["ship", "book", "here"]
    assert orders_of(tmp_path, order) == (200, {"parcel": "ship-1"}, [reserve, charge, ship])

    (tmp_path / "saga.diff").write_text(block_of("diff").text)
    run("patch", "-p1", "--fuzz=0", "-i", "saga.diff", cwd=tmp_path)
    assert orders_of(tmp_path, order) == (200, {"parcel": "ship-1"}, [reserve, charge, ship])
    status, body, calls = orders_of(tmp_path, {**order, "card": "refused"})
    assert (status, body["detail"]) == (422, "card refused")
    assert calls == [reserve, ["charge", "refused", "9.50"], ["release", "book"]]


def test_the_tests_of_the_readme_pass(tmp_path: Path) -> None:
    write_files(tmp_path, "orders.py", "shop.py", "test_shop.py")
    printed = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", ".", cwd=tmp_path)
    assert "2 passed" in printed


def test_the_plain_wsgi_application_answers(tmp_path: Path) -> None:
    write_files(tmp_path, "wsgi.py")
    script = """
import io, json, wsgi
seen = []
def post(total, **environ):
    body = io.BytesIO(json.dumps({"total": total}).encode())
    statuses = []
    answer = wsgi.application({"wsgi.input": body, **environ}, lambda status, headers: statuses.append(status))
    return [statuses[0], json.loads(b"".join(answer))]
keyed = [post(9, HTTP_IDEMPOTENCY_KEY="k") for _ in range(2)]
other = {"wsgi.input": io.BytesIO(b'{"total": 10}'), "HTTP_IDEMPOTENCY_KEY": "k"}
wsgi.application(other, lambda status, headers: seen.append(status))
print(json.dumps([post(9), post(900), *keyed, *seen]))
wsgi.engine.close()
"""
    done, refused, *keyed, conflict = json.loads(run(sys.executable, "-W", "error", "-c", script, cwd=tmp_path))
    assert done == ["200 OK", {"status": "PROCESS_COMPLETED", "reason": None}]
    assert refused == ["422 Unprocessable Entity", {"status": "REVERT_COMPLETED", "reason": "card refused"}]
    assert keyed == [done, done]
    assert conflict == "409 Conflict"


def test_the_daemon_finishes_an_order_that_was_left_to_it(tmp_path: Path) -> None:
    write_files(tmp_path, "orders.py", "shop.py")
    start = """
from decimal import Decimal
from orders import Order, place_order
from shop import app
from tests.support.daemon import engine_of_earlier
engine = engine_of_earlier(app.extensions["stacksaga"].engine.settings, place_order, minutes=5)
print(engine.start(place_order, Order("book", Decimal("9.50"))).transaction_id)
engine.close()
"""
    transaction_id = run(sys.executable, "-c", start, cwd=tmp_path, PYTHONPATH=str(ROOT)).strip()
    command, *arguments = blocks()[-1].text.split()
    assert command == "stacksagad"
    daemon = [sys.executable, "-m", command, *arguments]
    with subprocess.Popen(daemon, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        find = f"""
from uuid import UUID
from shop import app
engine = app.extensions["stacksaga"].engine
print(engine.find(UUID("{transaction_id}")).status.value)
engine.close()
"""
        try:
            wait_until(lambda: run(sys.executable, "-c", find, cwd=tmp_path).strip() == "PROCESS_COMPLETED", 100, 1)
        finally:
            process.terminate()
    assert process.returncode == 0


def test_the_first_command_runs_the_demo_on_a_clean_clone(tmp_path: Path) -> None:
    if "CI" not in os.environ:
        pytest.skip("installs the package anew, which takes the package registry and a minute: set CI to run it")
    clone = tmp_path / "clone"
    run("git", "clone", "-q", str(ROOT), str(clone), cwd=tmp_path)
    command = blocks()[0].text.strip()
    printed = run("bash", "-c", command, cwd=clone, NO_COLOR="1")
    assert "every order ended as it should" in printed.lower(), printed


def test_the_second_command_is_the_one_that_ci_runs() -> None:
    command = blocks()[1].text.strip()
    pattern = re.search(r"grep -E '(.*)' README.md", (ROOT / ".ci" / "run").read_text())
    assert pattern is not None
    found = [line for line in (ROOT / "README.md").read_text().splitlines() if re.search(pattern[1], line)]
    assert found == [command]

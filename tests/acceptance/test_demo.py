"""The demo, run as its users run it. Nothing it started may outlive it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from flask.testing import FlaskClient

from stacksaga_flask.demo.orders import orders
from stacksaga_flask.demo.participants import Participant, Payments, Stock, create_app
from stacksaga_flask.demo.screen import Screen, wants_colour
from tests.services.cassandra.node import Node
from tests.services.postgresql import PASSWORD, USERNAME, Server
from tests.support.plain_cql import drop_keyspace

LONGEST = 90
"""Seconds that the demo may take on a busy machine."""


@dataclass
class Demo:
    """Runs of the demo that leave a mark in the environment of every process that they start."""

    directory: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(
        self, *options: str, command: tuple[str, ...] = ("-m", "stacksaga_flask.demo"), warnings: str = "error"
    ) -> subprocess.Popen[str]:
        """Start the demo with its temporary files in `directory`."""
        return subprocess.Popen(
            [sys.executable, "-W", warnings, *command, *options],
            env={**os.environ, "DEMO_MARK": self.mark, "TMPDIR": str(self.directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, *options: str, command: tuple[str, ...] = ("-m", "stacksaga_flask.demo")
    ) -> subprocess.CompletedProcess[str]:
        """Run the demo to its end."""
        with self.start(*options, command=command) as process:
            out, err = process.communicate(timeout=LONGEST)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def running(self) -> list[str]:
        """Command lines of the processes that bear the mark and run."""
        processes = (each for each in Path("/proc").iterdir() if each.name.isdigit())
        return [line for each in processes if (line := self._marked(each))]

    def _marked(self, directory: Path) -> str:
        try:
            if f"DEMO_MARK={self.mark}".encode() not in (directory / "environ").read_bytes():
                return ""
            return (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return ""


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return Demo(tmp_path)


Finished: TypeAlias = tuple[Demo, subprocess.CompletedProcess[str]]

WHOLE_RUNS = {
    "undisturbed": (),
    "kept": ("--keep", "--store", "sqlite:///{directory}/own.db"),
    "charges twice": ("--sabotage", "double-charge"),
}
"""Options of the runs that are made at the same time, since each mostly waits."""


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    demos = {name: Demo(tmp_path_factory.mktemp("demo")) for name in WHOLE_RUNS}
    with ThreadPoolExecutor(len(demos)) as pool:
        runs = {
            name: pool.submit(demo.run, *(option.format(directory=demo.directory) for option in WHOLE_RUNS[name]))
            for name, demo in demos.items()
        }
        return {name: (demos[name], run.result()) for name, run in runs.items()}


@pytest.fixture(scope="module")
def finished(whole_runs: dict[str, Finished]) -> Finished:
    """One undisturbed run, for all tests that only look at it."""
    return whole_runs["undisturbed"]


def section(output: str, heading: str) -> list[str]:
    """The lines from the one that begins with the heading to the next empty line."""
    lines = output.splitlines()
    begin = next(n for n, line in enumerate(lines) if line.startswith(heading))
    return lines[begin : lines.index("", begin)]


# -- a run that goes as it should ------------------------------------------------------------------------------


def test_the_demo_exits_0_and_says_that_every_order_ended_as_it_should(
    finished: Finished,
) -> None:
    _, ended = finished
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith("\nEvery order ended as it should.\n")
    assert "WRONG" not in ended.stdout


def test_every_order_has_a_timeline_and_a_line_in_the_last_tables(
    finished: Finished,
) -> None:
    _, ended = finished
    answers = section(ended.stdout, "What the shop answered")
    effects = section(ended.stdout, "What stock, payments and shipping say")
    for number, placed in enumerate(orders(), 1):
        shown = section(ended.stdout, f"{number}. {placed.name}: ")
        assert shown[1].startswith("     -> POST /orders ")
        answer = f"<- {placed.expected.answer} " if placed.expected.answer else "<- no answer"
        assert [line for line in shown if line.startswith(f"     {answer}")]
        assert [line for line in answers if line.startswith(f"  {placed.name} ") and line.endswith("  ok")]
        assert [line for line in effects if line.startswith(f"  {placed.name} ") and line.endswith("  ok")]


def test_a_compensation_is_shown_step_by_step_in_reverse_order(
    finished: Finished,
) -> None:
    _, ended = finished
    shown = section(ended.stdout, "3. no courier")
    timeline = [re.sub(r" +", " ", line[15:]) for line in shown if re.match(r" +\d+\.\d{3} s  ", line)]
    told = [re.sub(r" attempt 1, \d+ ms.*| transaction .*| no courier goes there", "", line) for line in timeline]
    assert told == [
        "= PROCESSING",
        "+ process reserve SUCCEEDED",
        "+ process charge SUCCEEDED",
        "x process ship REJECTED",
        "= REVERTING",
        "< revert charge SUCCEEDED",
        "< revert reserve SUCCEEDED",
        "= REVERT_COMPLETED",
    ]


def test_the_worker_that_is_killed_in_a_step_is_recovered_by_the_node_within_seconds(
    finished: Finished,
) -> None:
    _, ended = finished
    shown = section(ended.stdout, "8. worker killed")
    killed = next(n for n, line in enumerate(shown) if line.endswith("(the web worker)"))
    assert shown[killed + 1] == "     <- no answer: the connection was lost"
    recovered = [line for line in shown[killed:] if "[node, " in line]
    assert [re.sub(r" *\d+\.\d{3} s  | attempt.*|  \[node.*", "", line).split() for line in recovered] == [
        ["+", "process", "charge", "SUCCEEDED"],
        ["+", "process", "ship", "SUCCEEDED"],
        ["+", "process", "confirm", "SUCCEEDED"],
        ["=", "PROCESS_COMPLETED"],
    ]


def test_the_paused_order_is_finished_by_the_node_once_payments_answer_again(
    finished: Finished,
) -> None:
    _, ended = finished
    shown = "\n".join(section(ended.stdout, "9. payments away"))
    assert re.search(r"<- 202 PROCESS_PAUSED, Location: /orders/[0-9a-f-]{36}, Retry-After: \d+\n", shown)
    assert re.search(r"window that opens at \d\d:\d\d:\d[05] UTC", shown)
    finishing = section(ended.stdout, "What is left is finished by the retry node")
    assert any("= PROCESS_COMPLETED  [node, " in line for line in finishing)
    assert finishing[-1] == "     Every transaction has ended."
    endings = section(ended.stdout, "What became of every order")
    assert [line.split()[-1] for line in endings[2:]] == ["ok"] * len(orders())
    assert sum("PROCESS_COMPLETED by the node" in line for line in endings) == 2


def test_output_that_is_no_terminal_has_no_colour(finished: Finished) -> None:
    _, ended = finished
    assert "\x1b" not in ended.stdout


def test_nothing_is_left_behind(finished: Finished) -> None:
    demo, _ = finished
    assert demo.running() == []
    assert list(demo.directory.iterdir()) == []


def test_with_keep_and_a_store_of_ones_own_the_files_stay(whole_runs: dict[str, Finished]) -> None:
    demo, ended = whole_runs["kept"]
    store = demo.directory / "own.db"
    assert ended.returncode == 0
    kept = Path(ended.stdout.splitlines()[-1].removeprefix("The services' logs are in "))
    names = {f"{each}.log" for each in ("stock", "payments", "shipping", "shop", "node")}
    assert {each.name for each in kept.iterdir()} == {*names, "run"}
    assert store.stat().st_size > 0


# -- a run that does not ---------------------------------------------------------------------------------------


def test_a_participant_that_charges_twice_is_noticed(whole_runs: dict[str, Finished]) -> None:
    demo, ended = whole_runs["charges twice"]
    assert ended.returncode == 1
    assert "  completes: expected reserve charge ship confirm, got reserve charge charge ship confirm\n" in ended.stdout
    assert "  charged: expected 148.00, got 296.00\n" in ended.stdout
    assert "Every order ended as it should." not in ended.stdout
    assert demo.running() == []


def test_a_participant_that_refuses_wrongly_is_noticed(demo: Demo) -> None:
    ended = demo.run("--sabotage", "no-stock")
    assert ended.returncode == 1
    assert "  completes: expected 200 PROCESS_COMPLETED, got 422 REVERT_COMPLETED\n" in ended.stdout
    assert demo.running() == []


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "  payments"),
        (signal.SIGINT, "      0.000 s  = PROCESSING"),
        (signal.SIGTERM, "     <- 200 "),
        (signal.SIGHUP, "  shop"),
    ],
)
def test_a_demo_that_is_interrupted_leaves_nothing_running(demo: Demo, number: signal.Signals, moment: str) -> None:
    # An interruption may fall between the making of a socket and the block that closes it.
    with demo.start(warnings="ignore") as process:
        assert process.stdout is not None
        assert any(line.startswith(moment) for line in process.stdout)
        assert len(demo.running()) >= 5
        process.send_signal(number)
        process.send_signal(number)
        _, err = process.communicate(timeout=LONGEST)
    assert (process.returncode, err) == (128 + number, "\nInterrupted: all services are stopped.\n")
    assert demo.running() == []
    assert list(demo.directory.iterdir()) == []


def test_without_gunicorn_the_demo_says_what_to_install(demo: Demo) -> None:
    hidden = (
        "import runpy, sys; sys.modules['gunicorn'] = None; runpy.run_module('stacksaga_flask.demo', None, '__main__')"
    )
    ended = demo.run(command=("-c", hidden))
    assert ended.returncode == 1
    assert ended.stderr == ('Error: the demo serves its shop with gunicorn: pip install "stacksaga-flask[demo]"\n')


@pytest.mark.parametrize(
    ("store", "status", "says"),
    [
        ("memory://", 2, "is gone with its process, and the shop has two"),
        ("oracle://shop", 2, "oracle"),
        ("cassandra://127.0.0.1/shop", 2, "local_datacenter"),
        ("sqlite:////no/such/directory/shop.db", 1, "the directory /no/such/directory does not exist"),
        ("cassandra://127.0.0.1:1/shop?local_datacenter=dc1", 1, "see that the hosts and the port are right"),
        ("postgresql://127.0.0.1:1/shop", 1, "see that host and port are right"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_before_anything_is_started(
    demo: Demo, store: str, status: int, says: str
) -> None:
    ended = demo.run("--store", store)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert says in ended.stderr
    assert ended.stderr.count("Error: ") == 1
    assert list(demo.directory.iterdir()) == []


# -- colour ----------------------------------------------------------------------------------------------------


def test_colour_needs_a_terminal_and_is_refused_by_option_and_by_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not wants_colour(refused=False)
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0), os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert wants_colour(refused=False)
        assert not wants_colour(refused=True)
        monkeypatch.setenv("NO_COLOR", "1")
        assert not wants_colour(refused=False)
        monkeypatch.undo()


def test_colour_only_adds() -> None:
    assert re.sub(r"\x1b\[\d+m", "", Screen(colour=True).paint("x refused", "red")) == "x refused"
    assert Screen(colour=False).paint("x refused", "red") == "x refused"


# -- participants ----------------------------------------------------------------------------------------------


def client(participant: Participant) -> FlaskClient:
    return create_app(participant, work=0).test_client()


def post(service: FlaskClient, action: str, key: str, **body: object) -> tuple[int, dict[str, object]]:
    response = service.post(f"/{action}", json={"order": "one", **body}, headers={"Idempotency-Key": key})
    return response.status_code, response.get_json()


def done(service: FlaskClient) -> list[str]:
    return [effect["effect"] for effect in service.get("/effects").get_json()["effects"]]


def test_a_key_has_one_effect_and_one_answer() -> None:
    payments = client(Payments())
    first = post(payments, "charge", "k1", amount="9.90")
    assert first == (200, {"number": "charge-1"})
    assert post(payments, "charge", "k1", amount="9.90") == first
    assert done(payments) == ["charge"]


def test_a_refusal_belongs_to_its_key_too() -> None:
    payments = client(Payments())
    payments.patch("/told", json={"refuse": "no"})
    refused = post(payments, "charge", "k1", amount="9.90")
    payments.patch("/told", json={"refuse": None})
    assert refused == (402, {"reason": "no"})
    assert post(payments, "charge", "k1", amount="9.90") == refused
    assert done(payments) == []


def test_a_charge_that_arrives_after_its_refund_is_refused() -> None:
    payments = client(Payments())
    assert post(payments, "refund", "k2") == (200, {})
    assert post(payments, "charge", "k1", amount="9.90")[0] == 402
    assert done(payments) == []


def test_a_reservation_that_arrives_after_its_release_is_refused_and_the_stock_is_whole() -> None:
    stock = client(Stock())
    assert post(stock, "release", "k2") == (200, {})
    assert post(stock, "reserve", "k1", item="mug", quantity=1)[0] == 409
    assert stock.get("/effects").get_json() == {"effects": [], "left": {"mug": 10, "lamp": 3}}


def test_a_release_gives_the_stock_back() -> None:
    stock = client(Stock())
    assert post(stock, "reserve", "k1", item="lamp", quantity=3)[0] == 200
    assert post(stock, "reserve", "k3", item="lamp", quantity=1, order="two")[0] == 409
    assert post(stock, "release", "k2")[0] == 200
    assert stock.get("/effects").get_json()["left"] == {"mug": 10, "lamp": 3}


def test_an_unavailable_service_does_nothing_and_the_key_may_come_again() -> None:
    payments = client(Payments())
    payments.patch("/told", json={"unavailable": True})
    away = payments.post("/charge", json={"order": "one", "amount": "9.90"}, headers={"Idempotency-Key": "k1"})
    assert (away.status_code, away.headers["Retry-After"]) == (503, "5")
    assert done(payments) == []
    payments.patch("/told", json={"unavailable": False})
    assert post(payments, "charge", "k1", amount="9.90")[0] == 200


# -- other stores ----------------------------------------------------------------------------------------------


def test_two_demos_set_up_one_keyspace_and_run_on_it_side_by_side(demo: Demo, cassandra: Node) -> None:
    keyspace = f"test_{uuid.uuid4().hex[:12]}"
    try:
        # The second one begins when the first one has made the keyspace; both are shops of their own.
        with demo.start("--store", cassandra.url(keyspace)) as process:
            assert process.stdout is not None
            first = ""
            for line in process.stdout:
                first += line
                if line.startswith("  store "):
                    break
            second = demo.run("--store", cassandra.url(keyspace))
            rest, err = rest_of(process)
    finally:
        drop_keyspace(cassandra, keyspace)
    first += rest
    assert (process.returncode, err) == (0, ""), first
    assert (second.returncode, second.stderr) == (0, ""), second.stdout
    for out in (first, second.stdout):
        assert out.endswith("\nEvery order ended as it should.\n")
        assert f"  store     {cassandra.url(keyspace)}\n" in out
    assert f"creating keyspace {keyspace} " in first
    assert f"keyspace {keyspace} is there already" in second.stdout
    assert service_name(first) != service_name(second.stdout)


def test_the_demo_sets_up_a_database_and_logs_in_with_a_password_of_the_environment(
    demo: Demo, postgresql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgresql://{USERNAME}@127.0.0.1:{postgresql.port}/{postgresql.create_database()}"
    monkeypatch.setenv("STACKSAGA_STORE_PASSWORD", PASSWORD)
    ended = demo.run("--store", url)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert ended.stdout.endswith("\nEvery order ended as it should.\n")
    assert f"applied settings of default/default/{service_name(ended.stdout)}\n" in ended.stdout


def test_a_password_in_the_url_is_neither_on_the_screen_nor_in_the_command_line_of_a_service(
    demo: Demo, postgresql: Server
) -> None:
    url = postgresql.url(postgresql.create_database())
    with demo.start("--store", url) as process:
        assert process.stdout is not None
        begin = []
        for line in process.stdout:
            begin.append(line)
            if line.startswith("  store "):
                break
        services = [line for line in demo.running() if "stacksaga_flask.demo --store" not in line]
        # It logged in; another test sees that all goes well then.
        rest = next(line for line in process.stdout if line.startswith("     <- 200 "))
        process.send_signal(signal.SIGINT)
        more, err = rest_of(process)
        rest += more
    assert begin[-1] == f"  store     postgresql:***@127.0.0.1:{postgresql.port}/{url.rpartition('/')[2]}\n"
    assert process.returncode == 128 + signal.SIGINT, rest + err
    assert sum("-m gunicorn" in line for line in services) >= 2
    assert sum("demo.participants" in line for line in services) == 3
    for secret in (PASSWORD, PASSWORD.replace(" ", "%20")):
        assert not [line for line in (*begin, *services, rest, err) if secret in line]


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it still prints, after some lines were read."""
    assert process.stdout is not None
    assert process.stderr is not None
    rest, err = process.stdout.read(), process.stderr.read()
    process.wait(LONGEST)
    return rest, err


def service_name(output: str) -> str:
    """The service whose shop a run's output says it was."""
    found = re.search(r"the shop is its service (shop-[0-9a-f]{8});", output)
    assert found is not None
    return found[1]

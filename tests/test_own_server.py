"""A server of the user's own in a campaign: it runs already, has its own path and limits, and is never stopped."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S, RAN
from strict_server import echo_server

from wsbench.analysis.reading import load
from wsbench.checks import conformance
from wsbench.cli import exits
from wsbench.experiments import experiment
from wsbench.host.installation import ROOT
from wsbench.metrics import measure
from wsbench.metrics.trial_data import TrialData
from wsbench.records.rundir import RunFolder
from wsbench.report import document
from wsbench.run import preparing
from wsbench.servers.manifest import PATHS

OWN = Path(__file__).with_name("own_server.py")
MANIFEST = """
language = "Python"
library = "our chat"
scenarios = ["echo", "ping"]
default = "known"
limits = {{ message_bytes = 1048576 }}
[variants.known]
url = "ws://localhost:{port}/chat"
pid = {pid}
[variants.unknown]
url = "ws://127.0.0.1:{port}/chat"
[variants.started]
library_version = "websockets"
paths = {{ echo = "/chat", ping = "/chat" }}
build = []
run = ["{python}", "{server}"]
version = ["{python}", "-c", "import websockets; print('websockets', websockets.__version__)"]
env = {{ PYTHONPATH = "{path}" }}
[variants.away]
url = "ws://127.0.0.1:9/chat"
[variants.lost]
url = "ws://127.0.0.1:{port}/nowhere"
"""
EXPERIMENT = """
question = "Which?"
reading  = "Nothing here is a result."
servers  = [{servers}]
scenario = "echo"
loop     = "closed"
headline = "messages_per_s"
[load]
connections = 4
[sweep]
payload_bytes = [{sizes}]
[timing]
measure_s = 0.6
rounds = 2
again = 0
"""


@pytest.fixture
def own():
    """A running server of the user's own: its process and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(OWN)], env={**os.environ, "HOST": "127.0.0.1", "PORT": str(port)})
    until = time.monotonic() + PATIENCE_S
    while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
        assert time.monotonic() < until
        time.sleep(0.02)
    yield process, port
    assert process.poll() is None, "it was never stopped"
    process.kill()
    process.wait()


@pytest.fixture
def catalogue(tmp_path, environment, own):
    process, port = own
    (tmp_path / "mine" / "chat").mkdir(parents=True)
    text = MANIFEST.format(port=port, pid=process.pid, python=sys.executable, server=OWN, path=os.environ.get("PYTHONPATH", ""))
    (tmp_path / "mine" / "chat" / "server.toml").write_text(text)
    environment["WSBENCH_SERVERS"] += os.pathsep + str(tmp_path / "mine")
    return tmp_path / "mine"


def written(folder: Path, servers: str, sizes: str) -> str:
    file = folder / "which.toml"
    file.write_text(EXPERIMENT.format(servers=", ".join(f'"{one}"' for one in servers.split()), sizes=sizes))
    return str(file)


@pytest.mark.system
def test_a_campaign_of_servers_that_run_and_that_are_started(wsbench, catalogue, own, tmp_path):
    process, port = own
    before = os.sched_getaffinity(process.pid)
    names = "chat@known chat@unknown chat@started chat@away chat@lost"
    done = wsbench("run", written(tmp_path, names, "16, 1048576, 2097152"), "--no-control")
    assert done.returncode in RAN, done.stderr
    assert os.sched_getaffinity(process.pid) == before
    assert "chat@known is left out of 1 of 3 cells: it takes messages of at most 1,048,576 bytes" in done.stdout
    assert "skipped chat@away: ws://127.0.0.1:9/chat does not answer" in done.stdout
    assert "skipped chat@lost: ws://" in done.stdout
    assert "answers /nowhere with status 404" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    run = RunFolder(folder)
    rows = {row.variant: row for row in run.servers}
    assert rows["known"].running.model_dump() == {"url": f"ws://localhost:{port}/chat", "pid": process.pid}
    assert rows["started"].running is None
    asked = {check.name for check in rows["known"].conformance}
    assert {"echo_returns_text", "echo_returns_1_mib"} <= asked
    assert not asked & {"echo_returns_16_mib", "ends_within_five_seconds", "unmasked_frame_is_refused"}
    assert {"echo_returns_text", "ends_within_five_seconds", "unmasked_frame_is_refused"} <= {
        check.name for check in rows["started"].conformance
    }
    order = run.order
    assert {one.cell["payload_bytes"] for one in order} == {16, 1048576}
    assert len(order) == 2 * 2 * 3
    for trial, record in run.finished():
        assert record.outcome == "ok", record.reason
        found = measure(TrialData(trial, record))
        assert found.values["messages_per_s"] > 0
        sampled = found.values["server_rss_bytes_max"] is not None
        assert sampled == (record.variant != "unknown")
        assert record.restarted == (record.variant == "started") == (found.values["ready_s"] is not None)
        if record.variant == "unknown":
            assert record.server_cpus == []
            for name in ("server_rss_bytes_max", "server_cpu_us_per_message", "server_pss_bytes_ready"):
                assert found.reasons[name] == "the server was not sampled: its process is unknown"
        if record.variant != "started":
            assert found.reasons["ready_s"] == "the server ran already and was not started"
            assert record.server_exit == "was not stopped: it ran already"
        plan = trial.plan
        assert (plan.target.path, plan.target.host.partition(":")[0]) == (
            "/chat",
            "localhost" if record.variant == "known" else "127.0.0.1",
        )
    known = next(record for _, record in run.finished() if record.variant == "known")
    if len(before) > 1:
        assert known.server_cpus == sorted(before)[: (len(before) + 1) // 2]
    html = document.build(run).read_text(encoding="utf-8")
    assert f"one process, not restarted: it ran already at ws://localhost:{port}/chat, process {process.pid}" in html
    assert load(run).missing == []


@pytest.mark.nightly
def test_in_a_heat_a_server_that_ran_already_is_never_frozen(wsbench, catalogue, own, tmp_path):
    file = Path(written(tmp_path, "chat@known chat@started", "16, 2097152"))
    text = file.read_text().replace("measure_s = 0.6", "measure_s = 0.4\nwarmup_s = 0.2\nslice_s = 0.1\nlead_s = 0.05")
    file.write_text(text.replace("[load]", 'arrangement = "slices"\n[load]'))
    done = wsbench("run", str(file), "--no-control")
    assert done.returncode in RAN, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    trials = list(RunFolder(folder).finished())
    assert [record.outcome for _, record in trials] == ["ok"] * 4, "two rounds of the cell within the limits"
    assert {record.variant: trial.plan.slices.frozen for trial, record in trials} == {"known": False, "started": True}


@pytest.mark.system
def test_the_catalogue_lists_it_and_nothing_starts_it(wsbench, catalogue, own):
    listed = wsbench("list", "servers").stdout
    assert f"runs already at ws://localhost:{own[1]}/chat, process {own[0].pid}" in listed
    assert f"Your own servers: {catalogue} (WSBENCH_SERVERS)" in listed
    assert "reference@websocket" in listed
    assert wsbench("build", "chat").stdout.rstrip().endswith("1 runs already")
    refused = wsbench("start", "chat")
    assert (refused.returncode, refused.stderr) == (
        2,
        f"wsbench: chat@known runs already, at ws://localhost:{own[1]}/chat\n",
    )


@pytest.mark.system
def test_check_reports_everything_up_to_its_limits(wsbench, catalogue):
    found = json.loads(wsbench("check", "chat@known", "--json").stdout)["servers"][0]
    asked = {one["name"] for one in found["checks"]}
    assert {"listens_nowhere_else", "echo_returns_1_mib", "unmasked_frame_is_refused", "still_serves"} <= asked
    assert not asked & {"echo_returns_16_mib", "ends_within_five_seconds"}
    assert found["outcome"] == "passes", [one for one in found["checks"] if one["required"] and not one["passed"]]


@pytest.mark.nightly
def test_a_process_that_does_not_exist_leaves_it_out(wsbench, catalogue, tmp_path):
    file = catalogue / "chat" / "server.toml"
    pid = file.read_text().partition("pid = ")[2].partition("\n")[0]
    file.write_text(file.read_text().replace(f"pid = {pid}", "pid = 4194303"))
    done = wsbench("run", written(tmp_path, "chat", "16"))
    assert done.returncode == 2
    assert "process 4194303: No such process" in done.stderr


# ---- what an experiment asks -----------------------------------------------------------------------------------------


def use_of(tmp_path, text: str):
    file = tmp_path / "one.toml"
    file.write_text('question = "?"\nreading = "."\nservers = ["reference"]\nheadline = "messages_per_s"\n' + text)
    asked = experiment.read(file)
    return preparing.use_of(asked, asked.cells())


def test_what_is_asked_follows_from_the_cells(tmp_path):
    timing = "[timing]\nmeasure_s = 1\n"
    found = use_of(tmp_path, 'scenario = "echo"\nloop = "closed"\n[sweep]\npayload_bytes = [1, 70000]\ndepth = [1, 2]\n' + timing)
    assert (found.sizes, found.opcodes, found.bursts, found.replaced) == ([1, 70000], ["text"], True, False)
    found = use_of(
        tmp_path, 'scenario = "echo"\nloop = "closed"\n[load]\nmessages_per_connection = 5\nopcode = "binary"\n' + timing
    )
    assert (found.opcodes, found.bursts, found.replaced) == (["binary"], False, True)
    found = use_of(tmp_path, 'scenario = "echo"\nloop = "open"\n[load]\nrate_per_s = 5\n' + timing)
    assert found.bursts, "an open loop without a depth may have several messages in flight"
    found = use_of(tmp_path, 'scenario = "idle"\nloop = "none"\n[load]\nconnections = 9\n' + timing)
    assert (found.sizes, found.opcodes, found.largest, found.connections) == ([], [], -1, 9)
    found = use_of(tmp_path, 'scenario = "doc"\nloop = "closed"\n[sweep]\npersistent = [false]\n' + timing)
    assert (found.persistent, found.closing, found.largest) == (False, True, 128)


# ---- a server without a handler for errors ---------------------------------------------------------------------------

NODE_ECHO = Path(__file__).with_name("node_echo.js")
MODULES = ROOT / "servers" / "node-ws" / "build" / "node_modules"
SHORT = ("--path", "/ws", "--warmup", "100ms", "--seed", "1")


def node_echo(**env: str) -> str:
    """The words that start it; it ends at the first violation of the protocol."""
    return " ".join(
        ["env", *(f"{key}={value}" for key, value in {"NODE_PATH": str(MODULES), **env}.items()), "node", str(NODE_ECHO)]
    )


@pytest.fixture
def tender(tmp_path, environment):
    """A catalogue with that server, and one of plain TCP that is sound."""
    folder = tmp_path / "servers"
    shutil.copytree(Path(__file__).parent / "servers" / "fragile", folder / "fragile", ignore=shutil.ignore_patterns("build"))
    (folder / "tender").mkdir()
    run = json.dumps(node_echo().split())
    (folder / "tender" / "server.toml").write_text(
        f"""
language  = "JavaScript"
library   = "ws"
homepage  = "https://github.com/websockets/ws"
scenarios = ["echo"]
default   = "plain"
[paths]
echo = "/ws"
[variants.plain]
library_version = "v"
build   = []
run     = {run}
version = ["node", "--version"]
"""
    )
    environment["WSBENCH_SERVERS"] = str(folder)
    return folder


@pytest.mark.system
def test_a_server_that_ends_in_its_check_is_a_row_and_the_others_are_checked(wsbench, tender):
    done = wsbench("check", "tender", "fragile", "--json")
    assert done.returncode == exits.BREACHED, done.stdout + done.stderr
    rows = {one["server"]: one for one in json.loads(done.stdout)["servers"]}
    assert {name: one["outcome"] for name, one in rows.items()} == {"tender@plain": "fails", "fragile@steady": "passes"}
    (ended,) = [one for one in rows["tender@plain"]["checks"] if one["name"] == "stays_alive"]
    assert ended["required"]
    assert "it had ended by itself with exit code 1; it wrote: " in ended["detail"]
    assert "WS_ERR_EXPECTED_MASK" in ended["detail"]


@pytest.mark.system
def test_a_server_that_ends_in_its_check_is_left_out_and_the_others_are_measured(wsbench, tender, tmp_path):
    file = tmp_path / "one.toml"
    text = 'question = "?"\nreading = "."\nservers = ["tender", "reference"]\nscenario = "echo"\nloop = "closed"\n'
    file.write_text(
        text + 'headline = "messages_per_s"\n[load]\nconnections = 2\n[timing]\nmeasure_s = 0.3\nrounds = 1\nagain = 0\n'
    )
    done = wsbench("run", str(file), "--no-control")
    assert done.returncode in RAN, done.stderr
    assert "skipped tender@plain: fails stays_alive (contract): it had ended by itself with exit code 1" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert [(one.server, one.outcome) for _, one in RunFolder(folder).finished()] == [("reference", "ok")]


@pytest.mark.system
def test_a_check_of_the_sockets_of_a_process_that_has_ended_fails_and_ends_nothing():
    with subprocess.Popen(["true"]) as gone:
        pass
    with echo_server() as (address, _):
        host, _, port = address.rpartition(":")
        found = conformance.check(host, int(port), ["echo"], "websocket", pid=gone.pid, paths={**PATHS, "echo": "/"})
    of = {one.name: one for one in found}
    for name in ("listens_nowhere_else", "ended_connections_are_released"):
        assert (of[name].passed, of[name].detail) == (False, "its process has ended")


@pytest.mark.system
def test_duel_and_capacity_send_a_users_server_nothing_but_their_load(wsbench, tmp_path):
    done = wsbench("duel", node_echo(A="1"), node_echo(B="1"), "-c", "4", "--measure", "500ms", "--budget", "1s", *SHORT)
    assert done.returncode in RAN, done.stderr
    promise = ("--slo", "response.p99 < 1s", "--start", "3000", "--budget", "1s", "--rung", "400ms")
    done = wsbench("capacity", node_echo(), "-c", "4", *promise, *SHORT)
    assert done.returncode in RAN, done.stderr
    for folder in (tmp_path / "runs").iterdir():
        run = RunFolder(folder)
        assert all({one.name for one in row.conformance} == {"echo_exchange"} for row in run.servers)
        trials = list(run.finished())
        assert trials
        for trial, record in trials:
            assert (record.outcome, record.log_tail) == ("ok", [])
            assert trial.events()[-1].measured.answered > 0


@pytest.mark.system
def test_a_server_that_runs_already_sees_handshakes_and_the_messages_of_the_load(wsbench):
    with echo_server() as (address, seen):
        done = wsbench(
            "duel", f"ws://{address}/", node_echo(), "-c", "3", "--size", "77", "--measure", "500ms", "--budget", "1s", *SHORT
        )
        assert done.returncode in RAN, done.stderr
    assert set(seen["messages"]) == {(str, 77)}
    assert {code for code, _ in seen["closes"]} <= {1000, 1006}, "a question for readiness ends without a Close frame"

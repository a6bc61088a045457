"""`wsbench load` and the server's side: `--start`, `--pid`, and what is said if neither is given."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PATIENCE_S, WSBENCH, child

from wsbench.cli import exits
from wsbench.host import running
from wsbench.records.engine_files import Plan
from wsbench.records.frozen import read_json
from wsbench.records.rundir import TrialFolder, TrialRecord
from wsbench.run import target
from wsbench.servers import serving

OWN = Path(__file__).with_name("own_server.py")
COMMAND = shlex.join([sys.executable, str(OWN)])
EVERY = sorted(os.sched_getaffinity(0))
SERVER, ENGINE = EVERY[: (len(EVERY) + 1) // 2], EVERY[(len(EVERY) + 1) // 2 :]
several = pytest.mark.skipif(len(EVERY) < 2, reason="needs two CPUs")
QUICK = ("-c", "3", "-t", "0.5", "--warmup", "0")


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def own(port):
    process = subprocess.Popen(
        [sys.executable, str(OWN)], env={**os.environ, "HOST": "127.0.0.1", "PORT": str(port), "OWN_CHILD": "1"}
    )
    until = time.monotonic() + PATIENCE_S
    while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
        assert time.monotonic() < until
        time.sleep(0.02)
    yield process
    for pid in [*map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.wait()


def of_each_thread(pid: int, call: Callable) -> list:
    """What `call` gives for each thread; those of ended connections end meanwhile."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            found.append(call(int(task.name)))
    assert found
    return found


def cpus(pid: int) -> list[list[int]]:
    return [sorted(one) for one in of_each_thread(pid, os.sched_getaffinity)]


def record_of(folder: Path) -> TrialRecord:
    return TrialFolder(next((folder / "runs").iterdir())).record


def is_free(port: int) -> bool:
    return socket.socket().connect_ex(("127.0.0.1", port)) != 0


# ---- a command that starts it ----------------------------------------------------------------------------------------


@pytest.mark.system
def test_a_command_is_started_on_cpus_of_its_own_and_stopped_after_the_load(wsbench, environment, port, tmp_path):
    environment["MINE"] = "kept"
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, *QUICK)
    assert done.returncode in (0, 4), done.stderr + done.stdout
    record = record_of(tmp_path)
    log = next(tmp_path.glob("runs/*/server.log")).read_text().splitlines()
    on = SERVER if ENGINE else EVERY
    assert log[0] == f"threads {len(on)}, cpus {on}, mine kept", "with the contract's variables and the user's own"
    assert (record.server_cpus, record.engine_cpus) == (on, ENGINE)
    assert record.server_env == {"HOST": "127.0.0.1", "PORT": str(port), "THREADS": str(len(on))}, "no secret is written down"
    assert record.ready_s > 0
    assert record.server_exit.startswith("ended with SIGTERM")
    assert f"started `{COMMAND}`" in done.stderr
    assert is_free(port)


@pytest.mark.system
def test_its_process_is_sampled(wsbench, port):
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, *QUICK, "--json")
    found = json.loads(done.stdout)
    assert found["metrics"]["server_rss_bytes_max"]["value"] > 1e6
    assert found["metrics"]["ready_s"]["value"] > 0
    assert found["ledger"]["answered"] > 0


@pytest.mark.system
@several
def test_a_server_that_runs_already_is_found_by_its_port(wsbench, own, port, tmp_path):
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", *QUICK)
    record = record_of(tmp_path)
    assert (record.server_cpus, record.engine_cpus) == (SERVER, ENGINE), done.stderr
    assert re.search(rf"^during the load: server, python\S* \(process {own.pid}\), on CPU", done.stderr, re.M)
    assert all(one == EVERY for one in cpus(own.pid)), "afterwards it has all of them again"


@pytest.mark.system
def test_a_server_that_is_found_keeps_its_cpus_if_asked(wsbench, own, port, tmp_path):
    found = json.loads(wsbench("load", f"ws://127.0.0.1:{port}/chat", "--no-pin", *QUICK, "--json").stdout)
    assert record_of(tmp_path).engine_cpus == []
    assert found["metrics"]["server_rss_bytes_max"]["value"] > 1e6


def test_nothing_is_said_of_processes_where_none_is_known(tmp_path):
    asked = target.Asked("192.0.2.1", 80, "192.0.2.1", serving.Question(None), [], (), None, True, [])
    with target.Side(asked, TrialFolder(tmp_path)) as side:
        assert (side.notes, side.pids) == ([], [])


def test_a_program_that_listens_here_for_this_process_is_not_its_server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert running.serving("127.0.0.1", listening.getsockname()[1]) == []


@pytest.mark.nightly
def test_without_pins_it_may_use_every_cpu(wsbench, port, tmp_path):
    wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, "--no-pin", *QUICK)
    assert (record_of(tmp_path).server_cpus, record_of(tmp_path).engine_cpus) == (EVERY, [])


@pytest.mark.system
def test_one_that_ends_early_shows_its_last_lines(wsbench, environment, port, tmp_path):
    environment["OWN_DIES"] = "1"
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, *QUICK)
    assert done.returncode == exits.NOTHING_USABLE, done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == ["failed: the server ended before it was ready, with exit code 7", "  first line", "  the database is away"]
    found = json.loads(wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, *QUICK, "--json").stdout)
    assert found["server"]["log_tail"] == ["first line", "the database is away"]
    assert (found["outcome"], found["metrics"]["messages_per_s"]["value"]) == ("failed", None)


@pytest.mark.system
def test_one_that_ends_during_the_load_shows_its_last_lines(wsbench, environment, port):
    environment["OWN_MOST"] = "50"
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, *QUICK)
    assert done.returncode == exits.NOTHING_USABLE, done.stderr
    said = done.stdout.partition("failed: ")[2].splitlines()
    assert said[0] == "the server ended during the load, with exit code 5"
    assert "  no more, I am tired" in said
    assert any(line.endswith("3 of 3 connections") for line in said)
    (answered,) = re.findall(r" = (\d+) answered", "\n".join(said))
    assert int(answered) > 40, "what was measured until then"
    assert any(line.split()[:2] == ["service", answered] for line in said)
    assert "No throughput or latency of this measurement can be used." in said
    found = json.loads(wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, *QUICK, "--json").stdout)
    assert found["cause"] == "the server ended during the load, with exit code 5"
    assert found["ledger"]["answered"] == found["times_ns"]["service"]["count"] > 40


def test_one_that_would_fill_the_disk_with_its_log_ends_the_load(wsbench, port, monkeypatch):
    monkeypatch.setattr(serving, "LARGEST_LOG", 8)
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, "-c", "3", "-t", "60")
    assert done.returncode == exits.NOTHING_USABLE, done.stderr
    assert "failed: the server's log exceeds" in done.stdout


@pytest.mark.nightly
def test_in_a_closed_loop_the_time_limit_alone_says_which_replies_are_lost(wsbench, environment, port):
    """The load ends after half a second. Each of its three messages is answered after three, and the limit is ten."""
    environment["OWN_LATE_S"] = "3"
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, *QUICK, "--json")
    ledger = json.loads(done.stdout)["ledger"]
    assert (ledger["sent"], ledger["answered"], ledger["unanswered"], ledger["failed"]) == (3, 3, 0, 0)


@pytest.mark.system
def test_a_path_that_it_refuses_is_told_at_once(wsbench, port):
    done = wsbench("load", f"ws://127.0.0.1:{port}/elsewhere", "--start", COMMAND, *QUICK)
    assert done.returncode == exits.NOTHING_USABLE
    assert "failed: the server was not ready: it answers /elsewhere with status 404; is the path right?" in done.stdout
    assert is_free(port)


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGKILL])
def test_it_ends_with_wsbench(environment, port, tmp_path, number):
    typed = ["load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND, "-t", "60"]
    asking = subprocess.Popen([*WSBENCH, *typed], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    until = time.monotonic() + PATIENCE_S
    while not any('"measure"' in file.read_text() for file in tmp_path.glob("runs/*/events.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.05)
    asking.send_signal(number)
    asking.wait(PATIENCE_S)
    while not is_free(port):
        assert time.monotonic() < until + PATIENCE_S
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["--start", "no-such-program --fast"], "found no program 'no-such-program'"),
        (["--start", "'open"], "no closing quotation"),
        (["--start", " "], "found no words"),
        (["--start", "true", "--pid", "1"], "--start and --pid exclude each other"),
        (["--start", "true", "--replica", "127.0.0.1:1"], "omit --cluster and --replica"),
        (["--pid", "4194303"], "process 4194303: No such process; name a process that runs on this machine"),
        (["--pid", "me"], "found 'me', allowed: the number of a process"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_no_folder(wsbench, port, tmp_path, typed, line):
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", *typed)
    assert done.returncode == 2, done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert line in done.stderr
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.system
def test_a_port_in_use_and_a_host_elsewhere_start_nothing(wsbench, own, port):
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--start", COMMAND)
    assert (done.returncode, f"port {port} is in use; stop its listener, or load it with --pid" in done.stderr) == (2, True)
    done = wsbench("load", "ws://192.0.2.1:9/chat", "--mine", "192.0.2.1", "--start", COMMAND)
    assert (done.returncode, "192.0.2.1:9 is not a loopback address" in done.stderr) == (2, True)


# ---- processes that run already --------------------------------------------------------------------------------------


@pytest.mark.system
@several
def test_named_processes_are_kept_off_the_engines_cpus_and_put_back(environment, own, port, tmp_path):
    typed = ["load", f"ws://127.0.0.1:{port}/chat", "--pid", str(own.pid), "--pid", str(own.pid), *QUICK[:2], "-t", "60"]
    asking = subprocess.Popen([*WSBENCH, *typed], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + PATIENCE_S
    while not any('"measure"' in file.read_text() for file in tmp_path.glob("runs/*/events.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert all(one == SERVER for one in cpus(own.pid))
    plan = read_json(Plan, next(tmp_path.glob("runs/*/plan.json")))
    assert plan.cpus == ENGINE
    asking.send_signal(signal.SIGINT)
    _, said = asking.communicate(timeout=PATIENCE_S)
    assert asking.returncode == 130
    assert all(one == EVERY for one in cpus(own.pid))
    assert own.poll() is None
    assert "during the load: server on CPU" in said
    assert (record_of(tmp_path).server_cpus, record_of(tmp_path).server_exit) == (SERVER, None)


@pytest.mark.nightly
@several
def test_the_engine_leaves_the_cpus_to_a_server_that_keeps_to_some(wsbench, own, port, tmp_path):
    of_each_thread(own.pid, lambda thread: os.sched_setaffinity(thread, EVERY[-1:]))
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--pid", str(own.pid), *QUICK)
    assert done.returncode in (0, 4), done.stderr
    assert (record_of(tmp_path).server_cpus, record_of(tmp_path).engine_cpus) == (EVERY[-1:], EVERY[:-1])
    assert all(one == EVERY[-1:] for one in cpus(own.pid))


@pytest.mark.nightly
def test_without_pins_a_named_process_is_only_sampled(wsbench, own, port, tmp_path):
    done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--pid", str(own.pid), "--no-pin", *QUICK, "--json")
    assert json.loads(done.stdout)["metrics"]["server_rss_bytes_max"]["value"] > 1e6
    assert (record_of(tmp_path).server_cpus, record_of(tmp_path).engine_cpus) == (EVERY, [])
    assert json.loads(done.stdout)["hint"] is None


@pytest.mark.nightly
def test_a_process_that_does_not_listen_there_is_told(wsbench, own, port):
    with child(["sleep", "60"]) as other:
        done = wsbench("load", f"ws://127.0.0.1:{port}/chat", "--pid", str(other.pid), *QUICK)
        other.kill()
    assert f"process {other.pid} does not listen at port {port}: is it the server?" in done.stderr
    assert running.listens([own.pid], port) is True


# ---- the hint --------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_what_to_type_is_told_where_the_wait_was_long_and_nothing_separates(wsbench, own, port, tmp_path):
    wsbench("load", f"ws://127.0.0.1:{port}/chat", *QUICK)
    record = record_of(tmp_path)
    plan = read_json(Plan, next(tmp_path.glob("runs/*/plan.json")))
    assert "add --start 'COMMAND' or --pid PID" in target.hint(plan, record, 60.0)
    assert target.hint(plan, record, 0.2) is None
    assert target.hint(plan, record, None) is None
    assert target.hint(None, record, 60.0) is None
    assert target.hint(plan, record.model_copy(update={"server_cpus": [0]}), 60.0) is None
    elsewhere = plan.model_copy(update={"target": plan.target.model_copy(update={"address": "192.0.2.1:80"})})
    assert target.hint(elsewhere, record, 60.0) is None

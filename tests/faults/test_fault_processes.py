"""Processes that are killed: whatever a server has started ends with it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from conftest import RAN, WSBENCH, started_by

from wsbench.host import leftovers
from wsbench.host.process import Server
from wsbench.records.errors import TrialFailed
from wsbench.servers import serving

pytestmark = pytest.mark.nightly

#: A server with workers: one as usual, one in a session of its own, one whose parent has gone.
FORKING = """
import os, sys, time
def worker(name):
    time.sleep(300)
if os.fork() == 0:
    worker("child")
if os.fork() == 0:
    os.setsid()
    worker("session")
between = os.fork()
if between == 0:
    if os.fork() == 0:
        os.setsid()
        worker("orphan")
    os._exit(0)
os.waitpid(between, 0)
print("all there", flush=True)
time.sleep(300)
"""


@pytest.fixture
def server(tmp_path):
    log = tmp_path / "log"
    made = Server([sys.executable, "-c", FORKING], tmp_path, {}, [], log)
    until = time.monotonic() + 20
    while "all there" not in log.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert len(left(made)) == 4, "the server and its three"
    yield made
    made.stop()


def left(server: Server) -> list[int]:
    """What there is of a server, without its leash."""
    return [one.pid for one in leftovers.marked() if one.mark == server.mark and "leash.py" not in one.command]


def none_left(server: Server, within_s: float = 20) -> bool:
    until = time.monotonic() + within_s
    while left(server) and time.monotonic() < until:
        time.sleep(0.05)
    return not left(server)


@pytest.mark.fault("R3", "the leash is killed by -9, a server with workers", "all end when the server is stopped")
def test_a_killed_leash(server):
    os.kill(server._leash.pid, signal.SIGKILL)
    server._leash.wait()
    assert server.stop() == "had ended by itself with exit code -9"
    assert none_left(server)


@pytest.mark.fault("R3", "the server itself is killed by -9, or stopped", "its workers end")
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_killed_server(server, how):
    if how == "killed":
        os.kill(server.pid, signal.SIGKILL)
    else:
        server.stop()
    assert none_left(server)


HARNESS = """
import sys
from pathlib import Path
from wsbench.host.process import Server
server = Server([sys.executable, "-c", sys.argv[1]], Path("."), {}, [], Path("log"))
print(server._leash.pid, server.mark, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def harness(tmp_path):
    """A wsbench that holds a server with workers: itself, its leash, the server's mark."""
    running = subprocess.Popen(
        [sys.executable, "-c", HARNESS, FORKING], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    leash, mark = running.stdout.readline().split()
    until = time.monotonic() + 20
    while sum(one.mark == mark for one in leftovers.marked()) < 5 and time.monotonic() < until:
        time.sleep(0.02)
    yield running, int(leash), mark
    running.kill()
    running.communicate()
    leftovers.end({mark})


@pytest.mark.fault("R3", "wsbench is killed by -9", "the leash ends all")
def test_a_killed_harness(harness):
    running, _, mark = harness
    running.kill()
    until = time.monotonic() + 20
    while any(one.mark == mark for one in leftovers.marked()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(one.mark == mark for one in leftovers.marked())


@pytest.mark.alone
@pytest.mark.fault("R3", "wsbench and the leash are killed by -9", "the next wsbench ends what is left, and says so")
def test_both_killed(harness, tmp_path, wsbench, experiment):
    running, leash, mark = harness
    os.kill(leash, signal.SIGSTOP)
    running.kill()
    running.wait()
    os.kill(leash, signal.SIGKILL)
    time.sleep(0.2)
    assert any(one.mark == mark for one in leftovers.orphans()), "workers are left"
    done = wsbench("run", str(experiment), "--rounds", "1", "--no-report")
    assert "ended processes of an earlier wsbench: " in done.stdout, done.stdout + done.stderr
    assert not any(one.mark == mark for one in leftovers.marked())


def test_what_runs_is_nobodys_leftover(server):
    assert not any(one.mark == server.mark for one in leftovers.orphans())
    leftovers.end({one.mark for one in leftovers.orphans()})
    assert len(left(server)) == 4


@pytest.mark.fault("R3", "the engine is killed by -9 while it loads", "a failed row that says so; nothing is left")
def test_a_killed_engine(tmp_path, environment, experiment):
    text = experiment.read_text().replace("measure_s = 0.6", "measure_s = 30").replace("rounds = 2", "rounds = 1")
    experiment.write_text(text.replace("[2, 4]", "[2]"))
    with subprocess.Popen(
        [*WSBENCH, "run", str(experiment), "--no-report"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        engines = []
        until = time.monotonic() + 60
        while not engines and time.monotonic() < until:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(running.pid).children(recursive=True)
                engines = [one for one in children if one.name() == "wsbench-engine"]
            time.sleep(0.05)
        time.sleep(1)
        engines[0].kill()
        said = running.stdout.read()
    record = json.loads(next(tmp_path.glob("runs/*/0001/trial.json")).read_text())
    assert (record["outcome"], running.returncode) == ("failed", 4), said
    assert "SIGKILL" in record["reason"]


@pytest.mark.fault(
    "R3", "SIGINT, SIGTERM, SIGKILL at random instants of a campaign", "it is resumed, and no trial is lost", slow=True
)
def test_signals_at_random_instants(tmp_path, environment, experiment, wsbench):
    import random

    draw, finished, pids = random.Random(2), set(), []
    words = ["run", str(experiment), "--no-report"]
    for number in range(12):
        with subprocess.Popen([*WSBENCH, *words], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as running:
            pids.append(running.pid)
            time.sleep(draw.uniform(0.5, 6))
            running.send_signal(draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL]))
        found = sorted(tmp_path.glob("runs/*/campaign.json"))
        if not found:
            continue
        run = found[-1].parent
        words = ["run", "--resume", str(run), "--no-report"]
        now = {file.parent.name for file in run.glob("*/trial.json")}
        assert finished <= now, number
        finished = now
    done = wsbench(*words)
    assert done.returncode in RAN, done.stderr
    run = sorted(tmp_path.glob("runs/*/campaign.json"))[-1].parent
    assert {file.parent.name for file in run.glob("*/trial.json")} >= {"0001", "0002", "0003", "0004"}
    assert not any(started_by(pid) for pid in pids)


@pytest.mark.fault("R8", "a server writes its log without end", "the trial fails at a gigabyte; the disk is not filled")
def test_a_log_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "LARGEST_LOG", 16 << 20)
    shout = "import os\nwhile True: os.write(1, b'x' * (1 << 20))"
    log = tmp_path / serving.LOG
    shouting = Server([sys.executable, "-c", shout], tmp_path, {}, [], log)
    with shouting, pytest.raises(TrialFailed, match="log exceeds 16 MiB"):
        looked_at(log, 60)


def looked_at(log: Path, seconds: float) -> None:
    """As a trial looks, again and again."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        serving.require_small(log)
        time.sleep(0.01)

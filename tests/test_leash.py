"""The leash sleeps while its server runs, and ends with it."""

import os
import signal
import sys
import time

import psutil
import pytest
from conftest import PATIENCE_S

from wsbench.host import leftovers
from wsbench.host.process import Server

pytestmark = pytest.mark.system

SLEEPS = [sys.executable, "-c", "import time; time.sleep(300)"]
IGNORES = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print("deaf", flush=True); time.sleep(300)'
DEAF = [sys.executable, "-c", IGNORES]


@pytest.fixture
def started(tmp_path):
    made = []

    def start(argv):
        made.append(Server(argv, tmp_path, {}, [], tmp_path / "log"))
        return made[-1]

    yield start
    for one in made:
        one.stop()


def test_a_leash_never_wakes_while_its_server_runs(started):
    leash = psutil.Process(started(SLEEPS)._leash.pid)
    asleep = leash.num_ctx_switches().voluntary
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        before, asleep = asleep, leash.num_ctx_switches().voluntary
        if before == asleep and leash.status() == psutil.STATUS_SLEEPING:
            break
        time.sleep(0.5)
    time.sleep(1)
    assert leash.num_ctx_switches().voluntary == asleep


@pytest.mark.parametrize(("how", "words"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV")])
def test_a_leash_ends_with_its_server_and_tells_how(started, how, words):
    server = started(SLEEPS)
    os.kill(server.pid, how)
    server._leash.wait(20)
    assert server.exit_words == words


def test_a_server_that_ignores_sigterm_is_killed_after_the_grace(started, tmp_path):
    server = started(DEAF)
    while "deaf" not in (tmp_path / "log").read_text():
        time.sleep(0.02)
    assert server.stop().startswith("ended with SIGKILL ")


def test_what_a_server_leaves_behind_is_reaped_while_it_runs(started):
    orphan = "import os, time\nif os.fork() == 0:\n    if os.fork() == 0:\n        os._exit(0)\n    os._exit(0)\ntime.sleep(300)"
    server = started([sys.executable, "-c", orphan])
    leash = psutil.Process(server._leash.pid)
    until = time.monotonic() + PATIENCE_S
    while any(one.pid != server.pid for one in leash.children()) and time.monotonic() < until:
        time.sleep(0.05)
    assert [one.pid for one in leash.children()] == [server.pid]


def test_a_wsbench_started_below_a_dead_leash_ends_neither_itself_nor_its_shell(tmp_path, monkeypatch):
    """In a /proc made here: any wsbench of this machine may end a process that really has a dead mark."""
    (tmp_path / "namespace").write_text("")

    def process(pid: int, mark: str) -> None:
        folder = tmp_path / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "ns" / "pid").symlink_to(tmp_path / "namespace")
        (folder / "environ").write_text(f"HOME=/root\0{leftovers.NAME}={mark}\0")
        (folder / "cmdline").write_text("a\0command")

    own, shell, left = os.getpid(), 999_999_001, 999_999_002
    process(own, "1.1.1")
    process(shell, "1.1.1")
    process(left, "1.1.2")
    monkeypatch.setattr(leftovers, "PROC", tmp_path)
    assert {one.pid for one in leftovers.marked()} == {own, shell, left}
    assert [one.pid for one in leftovers.orphans()] == [left]

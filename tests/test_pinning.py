"""Processes that run already are kept on some CPUs, and get back what they had, however the one that asked ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from wsbench.host import running
from wsbench.host.machine import Placement
from wsbench.host.process import Pinned
from wsbench.records.errors import UserError

EVERY = sorted(os.sched_getaffinity(0))
several = pytest.mark.skipif(len(EVERY) < 2, reason="needs two CPUs")
#: A process with a second thread, which keeps to the last CPU, and a child. It says when all are there. Told to, it starts one more
#: thread and one more child.
CROWD = """
import os, subprocess, sys, threading, time
def kept():
    os.sched_setaffinity(0, {%d})
    told.set()
    time.sleep(300)
told = threading.Event()
threading.Thread(target=kept, daemon=True).start()
told.wait()
first = subprocess.Popen(["sleep", "300"])
print(first.pid, flush=True)
sys.stdin.readline()
threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
second = subprocess.Popen(["sleep", "300"])
print(second.pid, flush=True)
sys.stdin.readline()
first.kill(), second.kill()
os._exit(0)
"""


@pytest.fixture
def crowd():
    made = subprocess.Popen([sys.executable, "-c", CROWD % EVERY[-1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    made.child = int(made.stdout.readline())
    yield made
    made.communicate("\n\n", timeout=PATIENCE_S)


def grow(crowd) -> int:
    crowd.stdin.write("\n")
    crowd.stdin.flush()
    return int(crowd.stdout.readline())


def cpus(*pids: int) -> list[list[int]]:
    return sorted(sorted(os.sched_getaffinity(int(task.name))) for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())


@pytest.mark.system
@several
def test_every_thread_and_child_is_moved_and_put_back(crowd):
    before = cpus(crowd.pid, crowd.child)
    assert before == sorted([EVERY, EVERY, EVERY[-1:]])
    with Pinned([crowd.pid], EVERY[:1]):
        assert cpus(crowd.pid, crowd.child) == [EVERY[:1]] * 3
        later = grow(crowd)
        assert cpus(crowd.pid, crowd.child, later) == [EVERY[:1]] * 5, "what begins meanwhile inherits it"
    assert cpus(crowd.pid, crowd.child, later) == sorted([*before, EVERY, EVERY])


@pytest.mark.system
@several
def test_a_thread_that_chose_other_cpus_meanwhile_keeps_them(crowd):
    with Pinned([crowd.pid], EVERY[:1]):
        os.sched_setaffinity(crowd.child, EVERY[1:])
    assert cpus(crowd.child) == [EVERY[1:]]


@pytest.mark.system
@several
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None])
def test_they_are_put_back_however_the_one_that_asked_ends(crowd, how):
    before = cpus(crowd.pid, crowd.child)
    code = (
        "import signal, sys, time; from wsbench.host.process import Pinned\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"with Pinned([{crowd.pid}], [{EVERY[0]}]):\n"
        f"    print('on', flush=True)\n"
        f"    {'time.sleep(300)' if how else 'raise ValueError'}"
    )
    asking = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert asking.stdout.readline() == "on\n"
    if how is not None:
        assert cpus(crowd.pid, crowd.child) == [EVERY[:1]] * 3
        asking.send_signal(how)
    asking.wait()
    until = time.monotonic() + PATIENCE_S
    while cpus(crowd.pid, crowd.child) != before:
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.system
def test_a_process_that_may_not_be_moved_is_one_line(crowd):
    with pytest.raises(UserError, match=rf"process {crowd.pid} cannot be kept on CPUs of its own: Invalid argument"):
        Pinned([crowd.pid], [4000]).__enter__()
    assert cpus(crowd.child) == [EVERY]


@pytest.mark.parametrize(
    ("chosen", "theirs", "found"),
    [
        ([], {0, 1, 2, 3}, ([0, 1], [2, 3])),
        ([], set(), ([0, 1], [2, 3])),
        ([3], {0, 1, 2, 3}, ([0, 1, 2], [3])),
        ([3], {1}, ([1], [3])),
        ([], {2}, ([2], [0, 1, 3])),
        ([3], {3}, ([0, 1, 2], [3])),
        ([0, 1, 2, 3], {0}, None),
    ],
)
def test_both_sides_get_cpus_and_a_server_that_keeps_to_some_stays(chosen, theirs, found):
    place = running.parted(Placement([0, 1], [2, 3]), chosen, theirs)
    assert (None if place is None else (place.server, place.engine)) == found


def test_one_cpu_cannot_be_parted():
    assert running.parted(Placement([0], [0]), [], {0}) is None

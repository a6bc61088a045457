"""The sampler against real processes whose CPU time, memory and children are known."""

import contextlib
import json
import os
import subprocess
import sys
import time

import pytest

from wsbench.monitoring import kernel, programs, sampler
from wsbench.monitoring.programs import Used
from wsbench.records.rundir import TrialFolder
from wsbench.records.samples import MachineSample, ProcessSample, Program, ProgramsSample, parse_sample

BUSY = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def process():
    """Starts Python with a program; everything it started is gone afterwards."""
    running = []

    def start(program: str) -> subprocess.Popen:
        argv = [sys.executable, "-S", "-c", program]
        running.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True))
        return running[-1]

    yield start
    for one in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, 9)
        one.wait()


@pytest.mark.system
def test_the_cpu_clock_counts_threads_that_have_ended(process):
    program = (
        "import threading, time\n"
        f"def busy():\n  {BUSY.format(0.2).replace(chr(10), chr(10) + '  ')}\n"
        "thread = threading.Thread(target=busy); thread.start(); thread.join()\n"
        "print(time.process_time(), flush=True); input()"
    )
    child = process(program)
    told_s = float(child.stdout.readline())
    assert told_s > 0.2
    assert kernel.cpu_clock_ns(child.pid) / 1e9 == pytest.approx(told_s, abs=0.02)


def test_a_process_that_is_gone_has_no_sample_and_no_clock(process):
    child = process("pass")
    child.wait()
    assert kernel.cpu_clock_ns(child.pid) is None
    assert sampler.Tree("server", child.pid).sample() is None
    assert sampler.children_of(child.pid) == []


@pytest.mark.system
def test_children_are_found_and_what_they_used_stays_when_they_have_ended(process):
    child = process(
        "import subprocess, sys, time\n"
        f"one = subprocess.Popen([sys.executable, '-S', '-c', {BUSY.format(0.3) + 'print(flush=True); input()'!r}],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "one.stdout.readline(); print(one.pid, flush=True); input(); one.communicate(b'\\n'); print(flush=True); input()"
    )
    grandchild = int(child.stdout.readline())
    tree = sampler.Tree("server", child.pid)
    tree.look_for_children()
    both = tree.sample()
    assert sampler.children_of(child.pid) == [grandchild]
    assert both.processes == 2
    assert both.cpu_ns > 0.3e9
    child.stdin.write(b"\n")
    child.stdin.flush()
    child.stdout.readline()
    alone = tree.sample()
    assert alone.processes == 1
    assert alone.cpu_ns > both.cpu_ns - 0.03e9


@pytest.mark.alone
def test_a_short_run_is_sampled_finely_and_a_longer_one_more_coarsely(process, tmp_path):
    child = process("input()")
    with sampler.Sampler(tmp_path / "resources.jsonl", child.pid) as running:
        running.watch_engine(tmp_path / "events.jsonl", 0, os.getpid())
        time.sleep(1.5)
    samples = TrialFolder(tmp_path).samples()
    server = [s for s in samples if isinstance(s, ProcessSample) and s.of == "server"]
    began = server[0].t_ns
    early = [s for s in server if s.t_ns - began < 0.5e9]
    late = [s for s in server if 1.0e9 <= s.t_ns - began < 1.5e9]
    assert 8 <= len(early) <= 21
    assert 4 <= len(late) <= 11
    assert abs(sum(isinstance(s, MachineSample) for s in samples) - len(server)) <= 1
    assert 4 <= sum(s.of == "engine" for s in samples) <= 9
    assert {s.of for s in samples} == {"server", "engine", "machine", "network", "switches", "pss", "sampler", "programs"}


@pytest.mark.system
@pytest.mark.parametrize("most", [sampler.MOST_WAITING, 5])
def test_what_was_read_is_written_when_sampling_ends_or_too_much_waits(process, tmp_path, monkeypatch, most):
    monkeypatch.setattr(sampler, "MOST_WAITING", most)
    child, file = process("input()"), tmp_path / "resources.jsonl"
    made = []
    monkeypatch.setattr(
        sampler.Tree, "_parse", lambda _, t_ns, read, parse=sampler.Tree._parse: made.append(t_ns) or parse(_, t_ns, read)
    )
    with sampler.Sampler(file, child.pid):
        time.sleep(1.0)
        assert bool(made) == (most == 5), "nothing is parsed while a server is measured"
    told = [sample.t_ns for sample in TrialFolder(tmp_path).samples() if sample.of == "server"]
    assert told == sorted(set(made))
    assert len(told) >= 3


@pytest.mark.alone
def test_a_silent_stretch_is_looked_into_in_its_middle_and_finely_at_its_end(process, tmp_path):
    child = process("input()")
    events = tmp_path / "events.jsonl"
    with sampler.Sampler(tmp_path / "resources.jsonl", child.pid) as running:
        running.watch_engine(events, 4.0, os.getpid())
        began = time.monotonic_ns()
        phases = [("connect", began - 10**9), ("measure", began)]
        rows = [{"event": "phase", "t_ns": t_ns, "phase": phase} for phase, t_ns in phases]
        events.write_text("".join(json.dumps(row) + "\n" for row in rows))
        time.sleep(4.3)
    samples = TrialFolder(tmp_path).samples()
    (idle,) = [s for s in samples if s.of == "pss" and s.moment == "idle"]
    assert 2.0e9 <= idle.t_ns - began < 2.4e9
    assert [s.moment for s in samples if s.of == "pss"] == ["ready", "idle", "ended"]
    at = [(s.t_ns - began) / 1e9 for s in samples if s.of == "server"]
    assert sum(2.5 <= t < 3.5 for t in at) <= 8 < sum(3.7 <= t < 4.3 for t in at)


@pytest.mark.alone
def test_the_busiest_programs_beside_a_trial_are_named(process, tmp_path):
    """A server that waits, and a shell that is none of the trial's."""
    server = process("input()")
    file = tmp_path / "resources.jsonl"
    with sampler.Sampler(file, server.pid):
        beside = subprocess.Popen(["sh", "-c", "while :; do :; done"])
        time.sleep(0.5)
    beside.kill()
    beside.wait()
    (told,) = (one for one in map(parse_sample, file.read_bytes().splitlines()) if isinstance(one, ProgramsSample))
    assert "sh" in {one.name for one in told.programs}
    assert next(one.cpu_s for one in told.programs if one.name == "sh") >= 0.1
    assert told.began_ns < told.t_ns


def test_what_belongs_to_the_trial_or_used_nothing_is_not_named():
    before = {
        (1, 0): Used("init", 5.0, 1),
        (2, 7): Used("old", 9.0, 1),
        (3, 8): Used("server", 1.0, 1),
        (9, 0): Used("kworker", 2.0, 1),
    }
    after = {
        (1, 0): Used("init", 5.0, 1),
        (2, 80): Used("new", 0.5, 1),  # another process with the number of the old one
        (3, 8): Used("server", 4.0, 1),
        (4, 81): Used("new", 0.25, 1),
        (9, 0): Used("kworker", 2.5, 1),
    }
    found = programs.busiest(before, after, {3})
    assert found == [Program(name="new", cpu_s=0.75), Program(name="kworker", cpu_s=0.5)]


def test_what_children_had_used_before_is_not_counted_for_the_parent_that_waited_for_them():
    before = {
        (1, 0): Used("init", 5.0, 0),
        (5, 1): Used("make", 1.0, 1),
        (6, 2): Used("cc", 3.0, 5),  # it ends, then make ends: init takes over both
        (7, 3): Used("forgotten", 9.0, 8),  # nobody waited for it
        (8, 4): Used("careless", 2.0, 1),
    }
    after = {(1, 0): Used("init", 9.25, 0), (8, 4): Used("careless", 2.0, 1)}
    assert programs.busiest(before, after, ()) == [Program(name="init", cpu_s=0.25)]


def test_all_other_programs_are_added_up_without_the_kernel_s_errands():
    before = {(1, 0): Used("init", 5.0, 1), (3, 8): Used("server", 1.0, 1)}
    more = {(4, 81): Used("backup", 0.25, 1), (9, 0): Used("kworker", 2.5, 1)}
    after = {(1, 0): Used("init", 5.5, 1), (3, 8): Used("server", 4.0, 1)} | more
    assert programs.spent_s(before, after, {3}) == 0.75
    assert programs.spent_s(after, before, {3}) == 0.0, "what ended is not subtracted from nothing"


def test_a_worker_of_the_kernel_keeps_its_time_when_it_takes_another_name(tmp_path, monkeypatch):
    """It is named after its work: without care its whole life would count for the trial."""
    (tmp_path / "44").mkdir()
    monkeypatch.setattr(programs, "PROC", tmp_path)
    seen = []
    for name, ticks in (("kworker/0:1-events", 500), ("kworker/0:1-mm_percpu_wq", 503)):
        (tmp_path / "44/stat").write_text(f"44 ({name}) I 2 0 0 0 -1 69238880 0 0 0 0 0 {ticks} 0 0 20 0 1 0 17 0 0")
        seen.append(programs.used())
    assert programs.busiest(*seen, ()) == [Program(name="kworker", cpu_s=0.03)]

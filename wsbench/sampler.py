"""Samples of what a trial uses: the server's process tree, the engine, the machine, as lines of `resources.jsonl`.

A thread of the harness on the same clock as the engine's events; it never touches a message. It looks only, and ends when
it is told to.

How often: the server every 5 % of the time since the engine began, but not more often than every 25 ms nor less often than
every 250 ms; which processes it consists of, the engine and the machine every 250 ms. CPU over a window is interpolated between
the samples around its edges (`view.server_cpu_s`), which is off by up to a quarter of their distance at each edge: so a run that
ends by a count after 0.3 s is measured as well as one of a minute, and none is looked at more than its length asks for.

From where: a process's CPU clock, clock_getcpuclockid(3), is the scheduler's own account in nanoseconds, threads that have
ended included, in 2 µs a reading. `/proc/PID/task/*/schedstat` has the same number, but of living threads only and in 8 µs for
each; the cpuacct controller would need a control group for each server, and privileges. Only what ended children have used
comes in ticks of 10 ms, from `/proc/PID/stat`.

What it costs, measured on a 2-core virtual machine as CPU time of the thread, waking up (0.12 ms) included: 0.4 ms a sample of
the server, the same for a JVM of 43 threads and for one process of two; 1.3 ms and 1.1 ms every 250 ms with all the rest. That is
2 % of a core in the first half second and 0.5 % from the fifth second on. (psutil's walk over all processes took 5.6 ms.)
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

import psutil

from wsbench.samples import MachineCpu, MachineSample, ProcessSample

SHARE_OF_ELAPSED = 0.05
SHORTEST_S, LONGEST_S = 0.025, 0.25
COARSE_S = 0.25
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CHILDREN_ARE_LISTED = Path("/proc/thread-self/children").exists()
LIBC = ctypes.CDLL(None, use_errno=True)


class Sampler:
    """Samples from entry to exit of its context. `server_pid` is the root of the server's process tree; None where the
    server is not known."""

    def __init__(self, file: Path, server_pid: int | None):
        self._file = file.open("w", encoding="utf-8")
        self._server = None if server_pid is None else Tree("server", server_pid)
        self._engine: Tree | None = None
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join()
        self._coarse()
        self._fine()
        self._file.close()

    def watch_engine(self, pid: int) -> None:
        self._began = time.monotonic()
        self._engine = Tree("engine", pid)

    def _run(self) -> None:
        next_coarse = 0.0
        while not self._stop.is_set():
            now = time.monotonic()
            if now >= next_coarse:
                self._coarse()
                next_coarse = now + COARSE_S
            self._fine()
            self._stop.wait(min(LONGEST_S, max(SHORTEST_S, SHARE_OF_ELAPSED * (now - self._began))))

    def _fine(self) -> None:
        if self._server is not None:
            self._write(self._server.sample())
        self._file.flush()

    def _coarse(self) -> None:
        if self._server is not None:
            self._server.look_for_children()
        if self._engine is not None:
            self._write(self._engine.sample())
        self._write(_machine())

    def _write(self, sample: ProcessSample | MachineSample | None) -> None:
        if sample is not None:
            self._file.write(sample.model_dump_json() + "\n")


class Tree:
    """A process and those below it, as far as they were last looked for."""

    def __init__(self, of: str, root: int):
        self._of = of
        self._root = root
        self._pids = [root]

    def look_for_children(self) -> None:
        found, new = [], [self._root]
        while new:
            found += new
            new = [child for pid in new for child in children_of(pid)]
        self._pids = found

    def sample(self) -> ProcessSample | None:
        """All of the tree at one instant; None once nothing of it is left."""
        t_ns = time.monotonic_ns()
        parts = [part for pid in self._pids if (part := _process(pid)) is not None]
        if not parts:
            return None
        threads, files, rss, user, system, exact = zip(*parts, strict=True)
        return ProcessSample(
            t_ns=t_ns,
            of=self._of,
            processes=len(parts),
            threads=sum(threads),
            fds=None if None in files else sum(files),
            rss_bytes=sum(rss),
            cpu_ns=None if None in exact else sum(exact),
            cpu_user_s=sum(user),
            cpu_system_s=sum(system),
        )


def children_of(pid: int) -> list[int]:
    """From each thread's list; where the kernel keeps none, from every process's parent (2 ms)."""
    found = []
    for thread in _listed(f"/proc/{pid}/task"):
        listed = _read(f"/proc/{pid}/task/{thread}/children")
        if listed is None:
            if not CHILDREN_ARE_LISTED:
                return [child.pid for child in _children_by_parent(pid)]
            continue  # that thread has just ended
        found += map(int, listed.split())
    return found


def _children_by_parent(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.Error:
        return []


def _process(pid: int) -> tuple[int, int | None, int, float, float, int | None] | None:
    """Threads, open files, resident bytes, user and system seconds, CPU in ns; None once it is gone.

    What its ended and awaited children have used is part of its CPU: a server may fork.
    """
    stat = _read(f"/proc/{pid}/stat")
    if stat is None:
        return None
    # The second field is the name in parentheses, which may hold anything; proc(5) counts from 1.
    fields = stat[stat.rindex(b")") + 2 :].split()
    user, system, ended_user, ended_system = (int(field) for field in fields[11:15])
    exact = cpu_clock_ns(pid)
    if exact is not None:
        exact += (ended_user + ended_system) * 1_000_000_000 // TICKS_PER_S
    seconds = (user + ended_user) / TICKS_PER_S, (system + ended_system) / TICKS_PER_S
    return int(fields[17]), _open_files(pid), int(fields[21]) * PAGE_BYTES, *seconds, exact


def _read(path: str) -> bytes | None:
    """A file of /proc; None once it is gone. A fifth of the cost of a Path."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(file, 1 << 16)
    except OSError:
        return None
    finally:
        os.close(file)


def _listed(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208
    except OSError:
        return []


def cpu_clock_ns(pid: int) -> int | None:
    """CPU time of a process and all threads it ever had, from its CPU clock; None where it is gone or has no such clock."""
    clock = ctypes.c_int()
    if LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)) != 0:
        return None
    try:
        return time.clock_gettime_ns(clock.value)
    except OSError:
        return None


def _open_files(pid: int) -> int | None:
    """Since Linux 6.2 the folder's size is the count (measured: 0.035 ms, against 30 ms for listing 15,000)."""
    try:
        size = os.stat(f"/proc/{pid}/fd").st_size  # noqa: PTH116
    except OSError:
        return None
    return size or None


def _machine() -> MachineSample:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, idle, iowait, irq, softirq, steal = (int(field) / TICKS_PER_S for field in fields[:8])
    cpu = MachineCpu(user=user + nice, system=system, idle=idle, iowait=iowait, steal=steal, irq=irq, softirq=softirq)
    return MachineSample(t_ns=time.monotonic_ns(), of="machine", cpu_s=cpu, throttled_s=_throttled_s())


def _throttled_s() -> float | None:
    """How long a CPU quota has held this control group back; None where there is no quota to tell of."""
    for file, key, per_s in (
        ("/sys/fs/cgroup/cpu.stat", "throttled_usec", 1e6),
        ("/sys/fs/cgroup/cpu/cpu.stat", "throttled_time", 1e9),
    ):
        try:
            fields = dict(line.split() for line in Path(file).read_text().splitlines())
        except (OSError, ValueError):
            continue
        if key in fields:
            return int(fields[key]) / per_s
    return None

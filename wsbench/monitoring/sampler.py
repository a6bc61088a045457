"""Samples the server's process tree, the engine and the machine during a trial. Writes them to `resources.jsonl`.

The sampler is a thread of the harness on the clock of the engine's events. It never touches a message. The code that reads kernel
and JVM counters is in `kernel` and `hsperf`. The sampler may have to share the server's CPU, so it only reads while it samples.
What it read is parsed and written when sampling ends: parsing takes as much CPU time as reading.

Intervals: the server, its heap and the machine are sampled every 5 % of the time since the engine began, within 25 to 250 ms. The
list of processes, the engine and the server's control group are sampled every 250 ms. CPU time over a span is interpolated between
the samples around its edges (`trial_data.growth`); the error at each edge is at most a quarter of their distance. So a run that
ends by a count after 0.3 s is measured as well as a run of a minute. No run is sampled more often than its length requires. If a
plan is idle at first, the elapsed time starts again at its first message.

Sources: a process's CPU clock, clock_getcpuclockid(3), is the scheduler's own account in nanoseconds. It includes ended threads and
takes 1 µs to read. `/proc/PID/task/*/schedstat` has the same number for living threads only, at 8 µs each. Only the CPU time of
ended children has a resolution of 10 ms ticks (`/proc/PID/stat`). The kernel reports context switches per thread only, so the
interval between sweeps over all threads grows with their duration. The proportional set size is read only while no latency is
measured: before the load, in the middle of an idle stretch, and after the load.

Every trial records the cost of sampling: the CPU time of the harness, which does nothing else during a trial but wait.
results/instrument.md has figures.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from pathlib import Path

import psutil

from wsbench.monitoring import hsperf, kernel, programs
from wsbench.monitoring.kernel import Standing
from wsbench.records.engine_files import Open, PhaseBegin, Plan, parse_event
from wsbench.records.files import named
from wsbench.records.samples import (
    HeapSample,
    ProcessSample,
    ProgramsSample,
    Sample,
    SamplerCost,
    SharedMemorySample,
    SwitchesSample,
)

SHARE_OF_ELAPSED = 0.05
SHORTEST_S, LONGEST_S = 0.025, 0.25
COARSE_S = 0.25
#: Sweeps over all threads, for children and for context switches: minimum interval, and maximum share of one CPU for each kind.
#: For a server with a thread for each of 5,000 connections, a sweep takes 0.1 s.
CHILDREN_S, SWITCHES_S = 0.25, 1.0
SWEEP_SHARE = 0.0005
#: Most readings that wait to be written: about 40 MB with two CPUs, after a quarter of an hour.
MOST_WAITING = 20_000
#: Shortest idle stretch in which the proportional set size is read.
SHORTEST_QUIET_S = 2.0
#: Two samples for each of the engine's ticks tell which of them were disturbed.
SAMPLES_PER_TICK = 2
CHILDREN_ARE_LISTED = Path("/proc/thread-self/children").exists()
#: Makes a sample of what was read. None if there is nothing to tell.
Reading = Callable[[], Sample | None]


class Sampler:
    """Samples while its context is active. `server_pids` are the roots of the server's process trees; empty if unknown. `cpus`: the
    CPUs of server and engine; empty if either may use all. `server_cpus`: likewise of the server.

    Not `alone`: servers take turns, and it samples only when asked, so that no server is sampled while another one is measured.
    """

    def __init__(
        self, file: Path, *server_pids: int, cpus: Iterable[int] = (), server_cpus: Iterable[int] = (), alone: bool = True
    ):
        self._alone, self._spent_ns, self._began_ns = alone, 0, time.monotonic_ns()
        self._path, self._file = file, file.open("w", encoding="utf-8")
        self._waiting: list[Reading] = []
        self._server = Tree("server", *server_pids) if server_pids else None
        self._engine: Tree | None = None
        self._quiet: Quiet | None = None
        self._longest_s = LONGEST_S
        self._group = kernel.own_group(server_pids[0]) if server_pids else None
        self.cpus = tuple(cpus)
        self._machine = kernel.Machine(self.cpus, server_cpus)
        self._programs = programs.used()
        self._beside: set[int] = set()
        self._began = time.monotonic()
        self._next_coarse = self._next_children = self._next_switches = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._failed: OSError | None = None

    def __enter__(self) -> Sampler:
        self._look_at_shared_memory("ready")
        if self._alone:
            self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        """Stops sampling. OSError if the samples could not be written."""
        if self._alone:
            self._stop.set()
            self._thread.join()
        with named(self._path):
            try:
                if not self._alone:
                    self._keep(self._cost())
                self._look_at_shared_memory("ended")
                self.tell(self._other_programs())
                self._write()
            finally:
                self._close()
            if self._failed is not None:
                raise self._failed

    def watch_engine(self, events: Path, quiet_s: float, *pids: int, longest_s: float = LONGEST_S) -> None:
        """Starts sampling the engine processes on this host, at intervals of at most `longest_s`. The engine is idle for `quiet_s`
        after connecting (0: not idle)."""
        self._began, self._longest_s = time.monotonic(), longest_s
        self._engine = Tree("engine", *pids)
        self._quiet = Quiet(events, quiet_s) if quiet_s >= SHORTEST_QUIET_S else None

    @property
    def server_pids(self) -> list[int]:
        """The server's processes, as of the last search for children."""
        return [] if self._server is None else self._server.pids

    @property
    def engine_pids(self) -> list[int]:
        return [] if self._engine is None else self._engine.pids

    def run_beside(self, *pids: int) -> None:
        """Processes of other trials that run at the same time, or of wsbench: they are not other programs."""
        self._beside.update(pids)

    def look(self, fully: bool) -> int | None:
        """Samples the server, the engine and the machine now; `fully` also what is slow to read. Returns the CPU time of server and
        engine so far in ns, None if one of them is unknown."""
        used_ns = time.thread_time_ns()
        server = None if self._server is None else self._server.sample()
        engine = None if self._engine is None else self._engine.sample()
        self.tell(server)
        self.tell(engine)
        self._keep(self._machine.take())
        if fully and self._server is not None:
            self._server.look_for_children()
            self.tell(self._server.heap())
            self._keep(self._machine.take_network())
        self._spent_ns += time.thread_time_ns() - used_ns
        known = [None if sample is None else sample.cpu_ns for sample in (server, engine)]
        return None if None in known else sum(known)

    def tell(self, sample: Sample | None) -> None:
        """Keeps a sample to be written. None is nothing to tell."""
        if sample is not None:
            self._keep(lambda: sample)

    def _run(self) -> None:
        try:
            self._look_on()
        except OSError as error:
            self._failed = error

    def _look_on(self) -> None:
        self._began_ns, began_ns = time.monotonic_ns(), time.process_time_ns()
        while not self._stop.is_set():
            now = time.monotonic()
            self._coarse(now)
            self._fine()
            if self._quiet is not None:
                self._look_into(self._quiet, now)
            self._spent_ns = time.process_time_ns() - began_ns
            self._keep(self._cost())
            self._stop.wait(min(self._longest_s, max(SHORTEST_S, SHARE_OF_ELAPSED * (now - self._began))))
        self._next_coarse = self._next_children = self._next_switches = 0.0
        self._coarse(time.monotonic())
        self._fine()

    def _cost(self) -> Reading:
        return partial(SamplerCost, t_ns=time.monotonic_ns(), of="sampler", began_ns=self._began_ns, cpu_ns=self._spent_ns)

    def _fine(self) -> None:
        if self._server is not None:
            self._keep(self._server.take())
            self.tell(self._server.heap())
        self._keep(self._machine.take())

    def _coarse(self, now: float) -> None:
        if now < self._next_coarse:
            return
        self._next_coarse = now + COARSE_S
        if self._server is not None and now >= self._next_children:
            self._server.look_for_children()
            self._next_children = now + _sweep_again_s(CHILDREN_S, now)
        if self._engine is not None:
            self._keep(self._engine.take())
        if self._group is not None:
            self._keep(self._group.take())
        self._keep(self._machine.take_network())
        if now >= self._next_switches:
            self._look_at_switches(time.monotonic())

    def _look_at_switches(self, now: float) -> None:
        for tree in (self._server, self._engine):
            if tree is not None:
                self.tell(tree.switches())
        self._next_switches = now + _sweep_again_s(SWITCHES_S, now)

    def _look_at_shared_memory(self, moment: str) -> None:
        if self._server is not None:
            self.tell(self._server.shared_memory(moment))

    def _other_programs(self) -> ProgramsSample:
        ours = {os.getpid(), *self._beside}.union(*(tree.pids for tree in (self._server, self._engine) if tree is not None))
        return programs.since(self._began_ns, self._programs, ours)

    def _look_into(self, quiet: Quiet, now: float) -> None:
        quiet.look()
        if quiet.middle_has_come():
            self._look_at_shared_memory("idle")
        if quiet.is_over():
            self._began, self._quiet = now, None

    def _keep(self, reading: Reading) -> None:
        self._waiting.append(reading)
        if len(self._waiting) >= MOST_WAITING:
            self._write()

    def _write(self) -> None:
        """Makes samples of all readings that wait."""
        for reading in self._waiting:
            if (sample := reading()) is not None:
                self._file.write(sample.model_dump_json() + "\n")
        self._waiting.clear()

    def _close(self) -> None:
        for one in (self._server, self._engine, self._group, self._machine, self._file):
            if one is not None:
                one.close()


def longest_s(plan: Plan) -> float:
    """The interval at which a trial is sampled in the end."""
    # Where ticks choose what counts (`metrics.quiet`), the host must have been sampled between them.
    return min(LONGEST_S, plan.tick_s / SAMPLES_PER_TICK) if isinstance(plan.loop, Open) else LONGEST_S


def _sweep_again_s(at_most_every_s: float, began: float) -> float:
    return max(at_most_every_s, (time.monotonic() - began) / SWEEP_SHARE)


class Quiet:
    """The idle stretch after connecting, on the clock of the engine's events."""

    def __init__(self, events: Path, seconds: float):
        self._events = events
        self._ns = round(seconds * 1e9)
        self._read_to = 0
        self._begin_ns: int | None = None
        self._middle_was_told = False

    def look(self) -> None:
        """Reads new events until the end of connecting is known."""
        if self._begin_ns is not None or not self._events.exists():
            return
        with self._events.open("rb") as file:
            file.seek(self._read_to)
            whole = file.read().rpartition(b"\n")[0]
        self._read_to += len(whole) + 1 if whole else 0
        for event in map(parse_event, whole.splitlines()):
            if isinstance(event, PhaseBegin) and event.phase != "connect" and self._begin_ns is None:
                self._begin_ns = event.t_ns

    def middle_has_come(self) -> bool:
        """True in one call only: the first after the middle."""
        come = self._begin_ns is not None and time.monotonic_ns() >= self._begin_ns + self._ns // 2
        first, self._middle_was_told = come and not self._middle_was_told, come
        return first

    def is_over(self) -> bool:
        """True from 0.3 s before the end, so that the first message is already sampled at short intervals."""
        return self._begin_ns is not None and time.monotonic_ns() >= self._begin_ns + self._ns - 300_000_000


class Tree:
    """Root processes and their descendants, as of the last search for children."""

    def __init__(self, of: str, *roots: int):
        self._of = of
        self._roots = list(roots)
        self._stats = {root: Standing(f"/proc/{root}/stat") for root in roots}
        self._heaps = {root: hsperf.heap_of(root) for root in roots}
        self._switches: dict[int, tuple[int, int]] = {}

    @property
    def pids(self) -> list[int]:
        return list(self._stats)

    def look_for_children(self) -> None:
        found, new = [], self._roots
        while new:
            found += new
            new = [child for pid in new for child in children_of(pid)]
        for gone in self._stats.keys() - set(found):
            self._forget(gone)
        for pid in found:
            if pid not in self._stats:
                self._stats[pid] = Standing(f"/proc/{pid}/stat")
                self._heaps[pid] = hsperf.heap_of(pid)

    def sample(self) -> ProcessSample | None:
        return self.take()()

    def take(self) -> Callable[[], ProcessSample | None]:
        """Reads the whole tree at one instant. The result parses what was read; None once all its processes have ended."""
        t_ns = time.monotonic_ns()
        read = [(stat.read(), kernel.cpu_clock_ns(pid), kernel.open_files(pid)) for pid, stat in list(self._stats.items())]
        return partial(self._parse, t_ns, read)

    def _parse(self, t_ns: int, read: list[tuple[bytes | None, int | None, int | None]]) -> ProcessSample | None:
        parts = [_process(*one) for one in read if one[0]]
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

    def heap(self) -> HeapSample | None:
        """The sum over all JVMs in the tree. None if there is none."""
        found = [sample for heap in self._heaps.values() if heap is not None and (sample := heap.sample()) is not None]
        if not found:
            return None
        used = [one.used_bytes for one in found]
        return HeapSample(
            t_ns=found[0].t_ns,
            of="heap",
            used_bytes=None if None in used else sum(used),
            committed_bytes=sum(one.committed_bytes for one in found),
        )

    def switches(self) -> SwitchesSample | None:
        """Sums over every thread ever seen, at its last reading, so that they never decrease."""
        t_ns = time.monotonic_ns()
        for pid in self._stats:
            self._switches |= kernel.switches(pid)
        if not self._switches:
            return None
        voluntary, involuntary = (sum(counts) for counts in zip(*self._switches.values(), strict=True))
        return SwitchesSample(t_ns=t_ns, of="switches", who=self._of, voluntary=voluntary, involuntary=involuntary)

    def shared_memory(self, moment: str) -> SharedMemorySample | None:
        """None if a size is unavailable or all processes have ended."""
        began = time.monotonic_ns()
        self.look_for_children()
        sizes = [kernel.pss_bytes(pid) for pid in self._stats]
        if None in sizes:
            return None
        took_s = (time.monotonic_ns() - began) / 1e9
        return SharedMemorySample(t_ns=began, of="pss", moment=moment, pss_bytes=sum(sizes), took_s=took_s)

    def close(self) -> None:
        for pid in list(self._stats):
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        for one in (self._stats.pop(pid), self._heaps.pop(pid)):
            if one is not None:
                one.close()


def children_of(pid: int) -> list[int]:
    """From each thread's list of children. Without CONFIG_PROC_CHILDREN, from every process's parent (2 ms)."""
    threads = kernel.listed(f"/proc/{pid}/task")
    texts = [kernel.read(f"/proc/{pid}/task/{thread}/children") for thread in threads]
    if not CHILDREN_ARE_LISTED and None in texts:
        return [child.pid for child in _children_by_parent(pid)]
    return [int(child) for child in chain.from_iterable((text or b"").split() for text in texts)]


def _children_by_parent(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.Error:
        return []


def _process(stat: bytes, clock_ns: int | None, files: int | None) -> tuple[int, int | None, int, float, float, int | None]:
    """Threads, open files, resident bytes, user and system seconds, CPU time in ns.

    CPU time includes ended children that were waited for, because a server may fork.
    """
    # The second field is the name in parentheses, which may contain any character; proc(5) counts from 1.
    fields = stat[stat.rindex(b")") + 2 :].split()
    user, system, ended_user, ended_system = (int(field) for field in fields[11:15])
    exact = None if clock_ns is None else clock_ns + (ended_user + ended_system) * 1_000_000_000 // kernel.TICKS_PER_S
    seconds = (user + ended_user) / kernel.TICKS_PER_S, (system + ended_system) / kernel.TICKS_PER_S
    return int(fields[17]), files, int(fields[21]) * kernel.PAGE_BYTES, *seconds, exact

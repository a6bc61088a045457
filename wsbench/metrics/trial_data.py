"""A trial as metrics and verdict see it: its files, read once and when they are needed, and what follows from them at
once.

A `TrialFolder` in, a `TrialData` out. It computes no metric. What a trial does not have is None here; whoever needs it
for a number says so with `known`, and `Unmeasured` carries the reason to the reader.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, TypeVar

from wsbench.engine import histogram
from wsbench.engine.histogram import Histogram
from wsbench.metrics import spans
from wsbench.metrics.spans import NO_WINDOW, NS_PER_S, Span
from wsbench.monitoring.runtime_logs import probes
from wsbench.monitoring.runtime_logs.record import Telemetry
from wsbench.records.engine_files import Broadcast, Doc, End, Measured, Open, PhaseBegin, Plan, Push, Seconds, Tick
from wsbench.records.rundir import HostRecord, TrialFolder, TrialRecord
from wsbench.records.samples import MachineSample, ProcessSample

CPU_ERROR = 0.05  # below it the spread between repeats hides it
IDLE_ERROR = 0.1  # of all CPU time: the study that reports it does so in steps of 5 %
TICK_S = 0.01  # of /proc/PID/stat: USER_HZ is 100 wherever Linux runs
NO_PLAN = "the trial has no plan"
NO_END = "the engine wrote no end of its record"

Value = TypeVar("Value")


class Unmeasured(Exception):
    """A number that this trial does not have; the message says why."""


def known(value: Value | None, otherwise: str) -> Value:
    """The value, or Unmeasured with that reason."""
    if value is None:
        raise Unmeasured(otherwise)
    return value


@dataclass(frozen=True)
class TrialData:
    """One finished trial; every file is read once, when it is needed."""

    folder: TrialFolder
    record: TrialRecord

    @cached_property
    def plan(self) -> Plan | None:
        return self.folder.plan

    @cached_property
    def events(self) -> list:
        return self.folder.events()

    @cached_property
    def samples(self) -> list:
        return self.folder.samples()

    @cached_property
    def histograms(self) -> dict[str, Histogram]:
        """The latencies of the measured window by tag, the warm-up's aside; nothing where no log was written."""
        log = self.folder.latency_log
        return histogram.read_merged(log, without=("warmup-",)) if log.exists() else {}

    @cached_property
    def end(self) -> End | None:
        return next((event for event in self.events if isinstance(event, End)), None)

    @cached_property
    def measured(self) -> Measured | None:
        return self.end.measured if self.end else None

    @cached_property
    def ticks(self) -> list[Tick]:
        return [event for event in self.events if isinstance(event, Tick)]

    @cached_property
    def begins(self) -> dict[str, int]:
        """When each phase began."""
        return {event.phase: event.t_ns for event in self.events if isinstance(event, PhaseBegin)}

    @cached_property
    def window(self) -> tuple[int, int] | None:
        """The measured window on the monotonic clock: from `measure` to `drain`, or as long as the ledger says."""
        begins = self.begins
        if "measure" not in begins:
            return None
        if "drain" in begins:
            return begins["measure"], begins["drain"]
        if self.measured is None or self.measured.window_ns is None:
            return None
        return begins["measure"], begins["measure"] + self.measured.window_ns

    @cached_property
    def connection_per_request(self) -> bool:
        return self.plan is not None and isinstance(self.plan.scenario, Doc) and not self.plan.scenario.persistent

    @cached_property
    def times(self) -> Histogram | None:
        """The latencies that describe this trial: whole requests where each has its own connection, copies of a broadcast,
        else service times."""
        push = self.plan is not None and isinstance(self.plan.scenario, Push)
        return self.histograms.get("push" if push else "request" if self.connection_per_request else "service")

    @cached_property
    def counted(self) -> int | None:
        """The messages that the rate counts: replies inside the window, or all answered where a count ends the run."""
        if self.plan is None or self.measured is None:
            return None
        by_time = isinstance(self.plan.measure, Seconds)
        return self.measured.replies_in_window if by_time else self.measured.answered

    @cached_property
    def reported_times(self) -> Histogram | None:
        """What users would have waited: from the due time where messages have one, else `times`."""
        return self.histograms.get("response", self.times)

    @cached_property
    def open_loop(self) -> Open | None:
        return self.plan.loop if self.plan is not None and isinstance(self.plan.loop, Open) else None

    @cached_property
    def broadcasts(self) -> list[Broadcast]:
        """Those that were triggered inside the measured window."""
        start, end = self.window or (0, 0)
        return [event for event in self.events if isinstance(event, Broadcast) and start <= event.t_ns < end]

    @cached_property
    def left_in_window(self) -> int | None:
        """Messages (broadcasts, where the scenario is push) that left inside the window, whenever they were due."""
        if self.window is None or self.plan is None:
            return None
        if isinstance(self.plan.scenario, Push):
            return len(self.broadcasts)
        at = {tick.t_ns: tick.sent for tick in self.ticks}
        start, end = self.window
        return at[end] - at[start] if start in at and end in at else None

    @cached_property
    def due_in_window(self) -> int | None:
        """Messages (broadcasts) of an open loop that were due in the window, sent or not."""
        if self.open_loop is None or self.measured is None or self.plan is None:
            return None
        sent = len(self.broadcasts) if isinstance(self.plan.scenario, Push) else self.measured.sent
        return sent + self.measured.unsent

    @cached_property
    def planned_in_window(self) -> float | None:
        """Messages that the plan's rate makes due in the window; it begins with the first phase after `connect`."""
        if self.open_loop is None or self.window is None or not isinstance(self.plan.measure, Seconds):
            return None
        began = self.begins.get("warmup", self.begins["measure"])
        first, last = ((edge - began) / NS_PER_S for edge in self.window)
        return self.open_loop.due_before(last) - self.open_loop.due_before(first)

    @cached_property
    def spans(self) -> dict[str, Span | str]:
        """Every span by name (see `spans`), or in its place the reason why this trial has none."""
        if self.plan is None:
            return dict.fromkeys(spans.NAMES, NO_PLAN)
        last = max((event.t_ns for event in self.events if isinstance(event, Tick | End)), default=None)
        broadcasts = [event for event in self.events if isinstance(event, Broadcast)]
        return spans.find(self.plan, spans.Instants(self.begins, self.window, last, broadcasts))

    def span(self, name: str) -> Span:
        """A span that the trial has; Unmeasured with the reason otherwise."""
        found = self.spans[name]
        if isinstance(found, str):
            raise Unmeasured(found)
        return found

    @cached_property
    def runtime(self) -> Telemetry | str:
        """What the server's runtime told of itself, or the reason why there is nothing."""
        return probes.read(self.record.probe, self.folder.path, self.record.server_started_ns)

    def processes(self, of: Literal["server", "engine"]) -> list[ProcessSample]:
        return self._processes[of]

    @cached_property
    def _processes(self) -> dict[str, list[ProcessSample]]:
        found: dict[str, list[ProcessSample]] = {"server": [], "engine": []}
        for sample in self.samples_of(ProcessSample):
            found[sample.of].append(sample)
        return found

    @cached_property
    def server_in_window(self) -> list[ProcessSample]:
        """The server's samples inside the measured window."""
        if self.window is None:
            return []
        start, end = self.window
        return [sample for sample in self.processes("server") if start <= sample.t_ns <= end]

    @property
    def machine(self) -> list[MachineSample]:
        return self.samples_of(MachineSample)

    @cached_property
    def hosts(self) -> list[tuple[HostRecord, TrialFolder]]:
        """The hosts of a cluster that took part, each with its folder; none where the trial ran on one machine."""
        return [(folder.host, folder) for folder in self.folder.hosts()]

    @cached_property
    def machines(self) -> dict[str, list[MachineSample]]:
        """The samples of every machine that took part, by what it is called. The trial's own are those of the server's host."""
        own = next((f"host {host.name}" for host, _ in self.hosts if host.role == "serve"), "the machine")
        others = {
            f"host {host.name}": [sample for sample in folder.samples() if isinstance(sample, MachineSample)]
            for host, folder in self.hosts
            if host.role == "load"
        }
        return {own: self.machine} | others

    def samples_of(self, kind: type[Value]) -> list[Value]:
        return self._by_kind.get(kind, [])

    @cached_property
    def _by_kind(self) -> dict[type, list]:
        found: dict[type, list] = {}
        for sample in self.samples:
            found.setdefault(type(sample), []).append(sample)
        return found

    @cached_property
    def _server_cpu(self) -> Track:
        samples = self.processes("server")
        return Track([sample.t_ns for sample in samples], [cpu_s(sample) for sample in samples])

    @cached_property
    def _machine_cpu(self) -> tuple[Track, Track]:
        """CPU time of the machine: idle, and in all."""
        at = [sample.t_ns for sample in self.machine]
        return Track(at, [idle_s(one) for one in self.machine]), Track(at, [whole_s(one) for one in self.machine])

    @cached_property
    def server_cpu_s(self) -> float:
        """CPU seconds of the server inside the measured window; Unmeasured where more than CPU_ERROR of it may be wrong."""
        start, end = known(self.window, NO_WINDOW)
        return self.server_cpu_s_over(Span("measured", start, end))

    def server_cpu_s_over(self, span: Span) -> float:
        around = _around(self._server_cpu, span, "the server", "the measured window")
        rounding = _cpu_rounding_s(self.processes("server")[around])
        used = growth(self._server_cpu, around, span, rounding)
        if used.falls:
            raise Unmeasured("a process of the server ended, and nobody was told what it had used")
        if used.error > CPU_ERROR * used.total:
            share = f"{used.error / used.total:.0%} of it" if used.total > 0 else "all of it"
            raise Unmeasured(f"too few samples of the server for its CPU time: up to {share} might be wrong")
        return used.total

    def cpu_idle_share_over(self, span: Span) -> float:
        """Share of all CPU time of the machine in which nothing ran; Unmeasured where it may be wrong by more than IDLE_ERROR."""
        around = _around(self._machine_cpu[0], span, "the machine")
        idle, whole = (growth(track, around, span, TICK_S * 2) for track in self._machine_cpu)
        if whole.total <= 0 or idle.error > IDLE_ERROR * whole.total:
            raise Unmeasured(f"{span.seconds:.2g} s are too short for the machine's CPU time, which is sampled")
        return min(1.0, max(0.0, idle.total / whole.total))

    @cached_property
    def window_s(self) -> float | None:
        """The window that rates are divided by; None where it never began or has no length."""
        window_ns = self.measured.window_ns if self.measured else None
        return window_ns / NS_PER_S if window_ns else None


@dataclass(frozen=True)
class Track:
    """A cumulative quantity as it was sampled: instants, and what had been counted by then."""

    at_ns: list[int]
    counts: list[float]

    @cached_property
    def grown(self) -> list[float]:
        """By how much it grew from each sample to the next."""
        return [after - before for before, after in pairwise(self.counts)]

    @cached_property
    def seconds(self) -> list[float]:
        """The distance of each sample from the next."""
        return [(until - since) / NS_PER_S for since, until in pairwise(self.at_ns)]

    @cached_property
    def rates(self) -> list[float]:
        """Growth a second; two samples of one instant tell of none."""
        pairs = zip(self.grown, self.seconds, strict=True)
        return [grown / seconds if seconds > 0 else 0.0 for grown, seconds in pairs]


def _around(track: Track, span: Span, of: str, where: str | None = None) -> slice:
    """The samples inside a span and one beyond each of its edges; Unmeasured where they do not enclose it."""
    at = track.at_ns
    if not at or at[0] > span.begin_ns or at[-1] < span.end_ns:
        raise Unmeasured(f"the samples of {of} do not enclose {where or f'the span `{span.name}`'}")
    return slice(bisect_right(at, span.begin_ns) - 1, bisect_left(at, span.end_ns) + 1)


@dataclass(frozen=True)
class Growth:
    """By how much a cumulative quantity grew over a span, how wrong that may be, and whether it ever fell."""

    total: float
    error: float
    falls: bool


def growth(track: Track, around: slice, span: Span, rounding: float) -> Growth:
    """From the samples inside a span and one beyond each of its edges (`around`), interpolated at both of these.

    Where use is steady on either side of an edge, the straight line between the two samples around it is off by at most
    a quarter of their distance times the difference of the two rates; no rate is above the highest that was seen. To that
    comes what the source rounds away.
    """
    at, counts, steps = track.at_ns[around], track.counts[around], slice(around.start, around.stop - 1)
    total = _between(span.end_ns, at[-2:], counts[-2:]) - _between(span.begin_ns, at[:2], counts[:2])
    seconds = track.seconds[steps]
    edges_s = seconds[0] + seconds[-1] if len(seconds) > 1 else sum(seconds)
    error = edges_s / 4 * max(track.rates[steps], default=0.0) + rounding
    return Growth(total, error, min(track.grown[steps], default=0.0) < -rounding)


def _between(t_ns: int, at: list[int], counts: list[float]) -> float:
    """On the straight line between two samples, or at the only one."""
    if at[0] == at[-1]:
        return counts[0]
    return counts[0] + (counts[-1] - counts[0]) * (t_ns - at[0]) / (at[-1] - at[0])


def idle_s(sample: MachineSample) -> float:
    """Cumulative seconds of all CPUs in which nothing ran, waiting for a disk included."""
    return sample.cpu_s.idle + sample.cpu_s.iowait


def whole_s(sample: MachineSample) -> float:
    """Cumulative seconds of all CPUs."""
    return sum(vars(sample.cpu_s).values())


def cpu_s(sample: ProcessSample) -> float:
    """Cumulative CPU seconds, from the scheduler's account where there is one."""
    return sample.cpu_user_s + sample.cpu_system_s if sample.cpu_ns is None else sample.cpu_ns / NS_PER_S


def _cpu_rounding_s(samples: list[ProcessSample]) -> float:
    """What a difference of two samples may lose: user and system ticks of each process, none from the CPU clocks.

    Where processes came or went, what they had used has moved into their parents' ticks.
    """
    processes = [sample.processes for sample in samples]
    exact = all(sample.cpu_ns is not None for sample in samples) and len(set(processes)) == 1
    return 0.0 if exact else 2 * TICK_S * max(processes)

"""A trial as input of metrics and verdict: its files, each read once and on demand, and values derived directly from them.

Takes a `TrialFolder` and provides a `TrialData`. It computes no metric. Missing data is None here. A metric that needs it calls
`known`, and `Unmeasured` carries the reason to the reader.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from wsbench.engine import histogram
from wsbench.engine.histogram import Histogram
from wsbench.metrics import slices, spans
from wsbench.metrics.slices import Slice
from wsbench.metrics.spans import NO_WINDOW, NS_PER_S, Span
from wsbench.monitoring.runtime_logs import probes
from wsbench.monitoring.runtime_logs.record import Telemetry
from wsbench.records.engine_files import Broadcast, Doc, End, Measured, Open, PhaseBegin, Plan, Push, Seconds, Tick
from wsbench.records.rundir import HostRecord, TrialFolder, TrialRecord
from wsbench.records.samples import MachineSample, ProcessSample, SamplerCost, Tree, TurnSample

CPU_ERROR = 0.05  # the spread between repeats hides a smaller error
MOST_SAMPLED = 0.5  # with fewer slices, their CPU time is not that of the trial
IDLE_ERROR = 0.1  # share of all CPU time: the study that reports it does so in steps of 5 %
TICK_S = 0.01  # of /proc/PID/stat: USER_HZ is 100 on every Linux
TOOK_TURNS = "the server took turns with others, and was measured only in its slices"
NO_PLAN = "the trial has no plan"
NO_END = "the engine's record has no end event"
NOT_SAMPLED = "the server was not sampled: its process is unknown"

Value = TypeVar("Value")


class Unmeasured(Exception):
    """The trial has no value for a metric; the message is the reason."""


def known(value: Value | None, otherwise: str) -> Value:
    """The value. If it is None: Unmeasured with that reason."""
    if value is None:
        raise Unmeasured(otherwise)
    return value


@dataclass(frozen=True)
class TrialData:
    """One finished trial. Every file is read once, on demand."""

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
        """Latencies of the measured window by tag, without the warm-up. Empty if no log was written."""
        if self.slices is None or not self.folder.latency_log.exists():
            return self.recorded
        origin_ns, kept = self.begins["connect"], self.kept_slices
        intervals = (one for one in histogram.read_log(self.folder.latency_log) if not one.tag.startswith("warmup-"))
        return histogram.merge(one for one in intervals if any(slice_.holds(one.start_s, origin_ns) for slice_ in kept))

    @cached_property
    def recorded(self) -> dict[str, Histogram]:
        """The same with the slices of turns that do not count."""
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
        """Start of each phase."""
        return {event.phase: event.t_ns for event in self.events if isinstance(event, PhaseBegin)}

    @cached_property
    def window(self) -> tuple[int, int] | None:
        """The measured window on the monotonic clock: from `measure` to `drain`, or for the duration in the ledger."""
        begins = self.begins
        if "measure" not in begins:
            return None
        if "drain" in begins:
            return begins["measure"], begins["drain"]
        if self.measured is None or self.measured.window_ns is None:
            return None
        return begins["measure"], begins["measure"] + self.measured.window_ns

    @cached_property
    def slices(self) -> list[Slice] | None:
        """The measured slices of a trial that took turns with others. None for any other trial."""
        began = self.begins.get("warmup", self.begins.get("measure"))
        if self.plan is None or self.plan.slices is None or began is None:
            return None
        return slices.of(self.plan, began, self.ticks, self.processes("server"), self.samples_of(TurnSample))

    @cached_property
    def kept_slices(self) -> list[Slice]:
        """The slices of turns that count."""
        return [one for one in self.slices or [] if one.spoilt is None]

    @cached_property
    def connection_per_request(self) -> bool:
        return self.plan is not None and isinstance(self.plan.scenario, Doc) and not self.plan.scenario.persistent

    @cached_property
    def times(self) -> Histogram | None:
        """The latencies that describe this trial: whole requests if each has its own connection, copies of broadcasts for push,
        otherwise service times."""
        push = self.plan is not None and isinstance(self.plan.scenario, Push)
        return self.histograms.get("push" if push else "request" if self.connection_per_request else "service")

    @cached_property
    def counted(self) -> int | None:
        """Messages that the rate counts: replies inside the window or, if a count ends the run, all answered messages."""
        if self.plan is None or self.measured is None:
            return None
        by_time = isinstance(self.plan.measure, Seconds)
        if self.slices is not None:
            return sum(one.counted for one in self.kept_slices)
        return self.measured.replies_in_window if by_time else self.measured.answered

    @cached_property
    def reported_times(self) -> Histogram | None:
        """The latency that users would see: from the due time if messages have one, otherwise `times`."""
        return self.histograms.get("response", self.times)

    @cached_property
    def open_loop(self) -> Open | None:
        return self.plan.loop if self.plan is not None and isinstance(self.plan.loop, Open) else None

    @cached_property
    def broadcasts(self) -> list[Broadcast]:
        """Broadcasts that were triggered inside the measured window."""
        start, end = self.window or (0, 0)
        return [event for event in self.events if isinstance(event, Broadcast) and start <= event.t_ns < end]

    @cached_property
    def left_in_window(self) -> int | None:
        """Messages (broadcasts in scenario push) that were sent inside the window, whenever they were due."""
        if self.window is None or self.plan is None:
            return None
        if isinstance(self.plan.scenario, Push):
            return len(self.broadcasts)
        at = {tick.t_ns: tick.sent for tick in self.ticks}
        if self.slices is not None:
            return sum(at[one.close_ns] - at[one.open_ns] for one in self.slices)
        start, end = self.window
        return at[end] - at[start] if start in at and end in at else None

    @property
    def cut_messages(self) -> int:
        """The most messages of a schedule that the edges of its windows can cut: one of each worker, and one."""
        return (self.plan.threads + 1) * (len(self.slices) if self.slices else 1)

    @cached_property
    def due_in_window(self) -> int | None:
        """Messages (broadcasts) of an open loop that were due in the window, sent or not."""
        if self.open_loop is None or self.measured is None or self.plan is None:
            return None
        sent = len(self.broadcasts) if isinstance(self.plan.scenario, Push) else self.measured.sent
        return sent + self.measured.unsent

    @cached_property
    def planned_in_window(self) -> float | None:
        """Messages due in the window by the plan's rate, which starts with the first phase after `connect`."""
        if self.open_loop is None or self.window is None or not isinstance(self.plan.measure, Seconds):
            return None
        if self.slices is not None:
            return slices.planned(self.plan, self.open_loop)
        began = self.begins.get("warmup", self.begins["measure"])
        first, last = ((edge - began) / NS_PER_S for edge in self.window)
        return self.open_loop.due_before(last) - self.open_loop.due_before(first)

    @cached_property
    def spans(self) -> dict[str, Span | str]:
        """Every span by name (see `spans`), or the reason why this trial does not have it."""
        if self.plan is None:
            return dict.fromkeys(spans.NAMES, NO_PLAN)
        last = max((event.t_ns for event in self.events if isinstance(event, Tick | End)), default=None)
        broadcasts = [event for event in self.events if isinstance(event, Broadcast)]
        return spans.find(self.plan, spans.Instants(self.begins, self.window, last, broadcasts))

    def span(self, name: str) -> Span:
        """The span of this name. Unmeasured with the reason if there is none."""
        if self.slices is not None and name != "connect":
            raise Unmeasured(TOOK_TURNS)
        found = self.spans[name]
        if isinstance(found, str):
            raise Unmeasured(found)
        return found

    @cached_property
    def runtime(self) -> Telemetry | str:
        """Telemetry of the server's runtime, or the reason why there is none."""
        return probes.read(self.record.probe, self.folder.path, self.record.server_started_ns)

    def processes(self, of: Tree) -> list[ProcessSample]:
        return self._processes[of]

    @cached_property
    def _processes(self) -> dict[str, list[ProcessSample]]:
        return by_tree(self.samples_of(ProcessSample))

    def require_sampled(self) -> None:
        """Unmeasured if the server's process is unknown, so that nothing was sampled of it."""
        if not self.processes("server"):
            raise Unmeasured(NOT_SAMPLED)

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
        """The cluster hosts of the trial, each with its folder. Empty if it ran on one machine."""
        return [(folder.host, folder) for folder in self.folder.hosts()]

    @cached_property
    def machines(self) -> dict[str, MachineTrace]:
        """The samples of every machine of the trial, by name. The trial folder itself has those of the server's host."""
        own = next((f"host {host.name}" for host, _ in self.hosts if host.role == "serve"), "the machine")
        # Hosts of a cluster may share a machine, where each sees only its own processes.
        alone = not self.hosts and self.record.heat is None
        complete = alone and bool(self.processes("server")) and bool(self.processes("engine"))
        found = {own: MachineTrace(self.machine, self._processes, self.samples_of(SamplerCost), complete)}
        for host, folder in self.hosts:
            if host.role == "load":
                machine = [sample for sample in folder.samples() if isinstance(sample, MachineSample)]
                found[f"host {host.name}"] = MachineTrace(machine, {}, [], complete=False)
        return found

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
        """Cumulative CPU time of the machine: idle, and total."""
        at = [sample.t_ns for sample in self.machine]
        return Track(at, [idle_s(one) for one in self.machine]), Track(at, [whole_s(one) for one in self.machine])

    @cached_property
    def server_cpu_s(self) -> float:
        """CPU seconds of the server inside the measured window, or in its slices. Unmeasured if its error may exceed the share
        CPU_ERROR."""
        if self.slices is not None:
            return sum(one.cpu_s for one in self._sampled_slices)
        start, end = known(self.window, NO_WINDOW)
        return self.server_cpu_s_over(Span("measured", start, end))

    @cached_property
    def _sampled_slices(self) -> list[Slice]:
        """The slices that count and whose CPU time is known. Unmeasured if there are too few."""
        known_ = [one for one in self.kept_slices if one.cpu_s is not None]
        if not known_ or len(known_) < MOST_SAMPLED * len(self.kept_slices):
            raise Unmeasured(f"the server's CPU time is known in {len(known_)} of {len(self.kept_slices)} slices")
        return known_

    @cached_property
    def server_cpu_s_per_message(self) -> float:
        """CPU seconds of the server for one reply: over the window, or over its slices with all replies of each."""
        replies = self.counted if self.slices is None else sum(one.replies for one in self._sampled_slices)
        return self.server_cpu_s / known(replies or None, "no message was answered")

    @cached_property
    def loaded_s(self) -> float:
        """The seconds to which `server_cpu_s` belongs."""
        if self.slices is not None:
            return sum(one.end_ns - one.start_ns for one in self._sampled_slices) / NS_PER_S
        start, end = known(self.window, NO_WINDOW)
        return (end - start) / NS_PER_S

    def server_cpu_s_over(self, span: Span) -> float:
        self.require_sampled()
        around = _around(self._server_cpu, span, "the server", "the measured window")
        rounding = cpu_rounding_s(self.processes("server")[around])
        used = growth(self._server_cpu, around, span, rounding)
        if used.falls:
            raise Unmeasured("a process of the server ended and its CPU time was not added to its parent's")
        if used.error > CPU_ERROR * used.total:
            share = f"{used.error / used.total:.0%} of it" if used.total > 0 else "all of it"
            raise Unmeasured(f"too few samples of the server for its CPU time: up to {share} might be wrong")
        return used.total

    def cpu_idle_share_over(self, span: Span) -> float:
        """Idle share of the machine's CPU time. Unmeasured if its error may exceed IDLE_ERROR."""
        around = _around(self._machine_cpu[0], span, "the machine")
        idle, whole = (growth(track, around, span, TICK_S * 2) for track in self._machine_cpu)
        if whole.total <= 0 or idle.error > IDLE_ERROR * whole.total:
            raise Unmeasured(f"{span.seconds:.2g} s are too short to sample the machine's CPU time")
        return min(1.0, max(0.0, idle.total / whole.total))

    @cached_property
    def window_s(self) -> float | None:
        """The duration of the window, by which rates are divided. None if it never began or has no length."""
        if self.slices is not None:
            return sum(one.seconds for one in self.kept_slices) or None
        window_ns = self.measured.window_ns if self.measured else None
        return window_ns / NS_PER_S if window_ns else None


@dataclass(frozen=True)
class MachineTrace:
    """The samples of one machine: of the whole, and of every process tree that is known there, by its kind.

    `complete`: these trees are all that the trial ran on this machine, so the rest of its CPU time is foreign.
    """

    samples: list[MachineSample]
    processes: dict[Tree, list[ProcessSample]]
    sampler: list[SamplerCost]
    complete: bool


def by_tree(samples: list[ProcessSample]) -> dict[Tree, list[ProcessSample]]:
    """The samples of each kind of process tree, in order."""
    found: dict[Tree, list[ProcessSample]] = {"server": [], "engine": [], "rival": []}
    for sample in samples:
        found[sample.of].append(sample)
    return found


@dataclass(frozen=True)
class Track:
    """Samples of a cumulative quantity: times, and the counts so far."""

    at_ns: list[int]
    counts: list[float]

    @cached_property
    def grown(self) -> list[float]:
        """Growth from each sample to the next."""
        return [after - before for before, after in pairwise(self.counts)]

    @cached_property
    def seconds(self) -> list[float]:
        """Seconds from each sample to the next."""
        return [(until - since) / NS_PER_S for since, until in pairwise(self.at_ns)]

    @cached_property
    def rates(self) -> list[float]:
        """Growth per second; 0 between two samples of the same time."""
        pairs = zip(self.grown, self.seconds, strict=True)
        return [grown / seconds if seconds > 0 else 0.0 for grown, seconds in pairs]


def _around(track: Track, span: Span, of: str, where: str | None = None) -> slice:
    """The samples inside a span and one beyond each of its edges. Unmeasured if they do not enclose the span."""
    at = track.at_ns
    if not at or at[0] > span.begin_ns or at[-1] < span.end_ns:
        raise Unmeasured(f"the samples of {of} do not enclose {where or f'the span `{span.name}`'}")
    return slice(bisect_right(at, span.begin_ns) - 1, bisect_left(at, span.end_ns) + 1)


@dataclass(frozen=True)
class Growth:
    """Growth of a cumulative quantity over a span, its largest error, and whether the quantity ever fell."""

    total: float
    error: float
    falls: bool


def growth(track: Track, around: slice, span: Span, rounding: float) -> Growth:
    """Growth from the samples inside a span and one beyond each of its edges (`around`), interpolated at both edges.

    If use is steady on either side of an edge, the straight line between the two samples around it is off by at most a quarter of
    their distance times the difference of the two rates. No rate exceeds the highest one seen. The rounding of the source is added.
    """
    at, counts, steps = track.at_ns[around], track.counts[around], slice(around.start, around.stop - 1)
    total = _between(span.end_ns, at[-2:], counts[-2:]) - _between(span.begin_ns, at[:2], counts[:2])
    seconds = track.seconds[steps]
    edges_s = seconds[0] + seconds[-1] if len(seconds) > 1 else sum(seconds)
    error = edges_s / 4 * max(track.rates[steps], default=0.0) + rounding
    return Growth(total, error, min(track.grown[steps], default=0.0) < -rounding)


def _between(t_ns: int, at: list[int], counts: list[float]) -> float:
    """Linear interpolation between two samples, or the value of the only one."""
    if at[0] == at[-1]:
        return counts[0]
    return counts[0] + (counts[-1] - counts[0]) * (t_ns - at[0]) / (at[-1] - at[0])


def idle_s(sample: MachineSample) -> float:
    """Cumulative idle seconds of all CPUs, including time waiting for a disk."""
    return sample.cpu_s.idle + sample.cpu_s.iowait


def whole_s(sample: MachineSample) -> float:
    """Cumulative seconds of all CPUs."""
    return sum(vars(sample.cpu_s).values())


def cpu_s(sample: ProcessSample) -> float:
    """Cumulative CPU seconds, from the scheduler's account if there is one."""
    return sample.cpu_user_s + sample.cpu_system_s if sample.cpu_ns is None else sample.cpu_ns / NS_PER_S


def cpu_rounding_s(samples: list[ProcessSample]) -> float:
    """Largest error of a difference of two samples: user and system ticks of each process, none with the CPU clocks.

    If processes came or went, their CPU time has moved into their parents' ticks.
    """
    processes = [sample.processes for sample in samples]
    exact = all(sample.cpu_ns is not None for sample in samples) and len(set(processes)) == 1
    return 0.0 if exact else 2 * TICK_S * max(processes)

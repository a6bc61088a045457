"""A trial as input of metrics and verdict: its files, each read once and on demand, and values derived directly from them.

Takes a `TrialFolder` and provides a `TrialData`. It computes no metric. Missing data is None here. A metric that needs it calls
`known`, and `Unmeasured` carries the reason to the reader.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from wsbench.engine import histogram
from wsbench.engine.histogram import Histogram, Interval
from wsbench.metrics import quiet, slices, spans
from wsbench.metrics.ladder import LEFT, Rung
from wsbench.metrics.quiet import Stretch
from wsbench.metrics.slices import Slice
from wsbench.metrics.spans import NO_WINDOW, NS_PER_S, Span
from wsbench.metrics.tracks import TICK_S, MachineTrace, Track, around, by_tree, cpu_rounding_s, cpu_s, growth, idle_s, whole_s
from wsbench.metrics.unmeasured import Unmeasured, Value, known
from wsbench.monitoring.runtime_logs import probes
from wsbench.monitoring.runtime_logs.record import Telemetry
from wsbench.records.engine_files import Anchor, Broadcast, Doc, End, Measured, NoLoop, Open, PhaseBegin, Plan, Push, Seconds, Tick
from wsbench.records.hosts import HostRecord
from wsbench.records.rundir import TrialFolder, TrialRecord
from wsbench.records.samples import MachineSample, ProcessSample, ProgramsSample, SamplerCost, Tree, TurnSample
from wsbench.records.session_table import Session

CPU_ERROR = 0.05  # the spread between repeats hides a smaller error
#: A server that uses this share of its CPUs is full: because of sampling and kernel work, a saturated tree seldom shows more.
SERVER_BUSY = 0.9
MOST_SAMPLED = 0.5  # with fewer slices, their CPU time is not that of the trial
IDLE_ERROR = 0.1  # share of all CPU time: the study that reports it does so in steps of 5 %
#: Times of the phase before the window.
OF_CONNECTING = ("connect", "setup")
TOOK_TURNS = "the server took turns with others, and was measured only in its slices"
#: The tag of the time until the last member of a room receives a message.
LAST = "push_last"
NO_PLAN = "the trial has no plan"
NO_ORIGIN = "when the engine's histograms began is unknown"
NO_END = "the engine's record has no end event"
NOT_SAMPLED = "the server was not sampled: its process is unknown"


class TickMean(NamedTuple):
    """Replies between two ticks of the engine: the times of the ticks on the monotonic clock, and the mean service time, in ns."""

    begin_ns: float
    end_ns: float
    replies: int
    mean_ns: float


@dataclass(frozen=True)
class TrialData:
    """One finished trial, whose files have their checksums: Altered if they do not. Every file is read on demand."""

    folder: TrialFolder
    record: TrialRecord

    def __post_init__(self) -> None:
        self.folder.verify()

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
        if not self.folder.latency_log.exists():
            return {}
        if self.origin_ns is None and (self.slices is not None or self.quiet is not None):
            return {}
        if self.slices is not None:
            origin_ns, kept = self.origin_ns, self.kept_slices
            return self._histograms_of(lambda one: any(slice_.holds(one.start_s, origin_ns) for slice_ in kept))
        if self.quiet is not None:
            return self._histograms_of(lambda one: one.tag in OF_CONNECTING or self._is_quiet(one))
        return self.recorded

    def _intervals(self) -> Iterable[Interval]:
        """Of the latency log. Those of short ticks are kept: they are read more than once, and between two trials."""
        return histogram.read_log(self.folder.latency_log) if self.plan is None or self.plan.tick_s >= 1 else self._short_intervals

    @cached_property
    def _short_intervals(self) -> list[Interval]:
        return list(histogram.read_log(self.folder.latency_log))

    def _histograms_of(self, counts: Callable[[Interval], bool]) -> dict[str, Histogram]:
        """The same of the intervals that count."""
        intervals = (one for one in self._intervals() if not one.tag.startswith("warmup-"))
        return histogram.merge(one for one in intervals if counts(one))

    @cached_property
    def rungs(self) -> list[Rung]:
        """What each load of a ladder gave. Unmeasured for any other trial, or where its times are unknown."""
        asked, plan = known(self.record.ladder, "only a ladder has rungs"), known(self.plan, NO_PLAN)
        (begin_ns, _), origin_ns = known(self.window, NO_WINDOW), known(self.origin_ns, NO_ORIGIN)
        warmup_s = plan.measure.seconds - len(asked.rates) * asked.step_s if asked.connections is not None else 0.0
        begins = [
            begin_ns + round((warmup_s + place * asked.step_s + asked.open_s) * NS_PER_S) for place in range(len(asked.rates))
        ]
        lasts_ns = round((asked.rung_s + asked.gap_s) * NS_PER_S)
        own: list[list[Interval]] = [[] for _ in asked.rates]
        reached = [0] * len(begins)
        for one in self._intervals():
            middle_ns = origin_ns + round((one.start_s + one.length_s / 2) * NS_PER_S)
            place = bisect_right(begins, middle_ns) - 1
            if place < 0 or middle_ns >= begins[place] + lasts_ns:
                continue
            reached[place] += one.histogram.count if one.tag == LAST else 0
            if self.quiet is None or self._is_quiet(one):
                own[place].append(one)
        return [
            self._rung(place, (begin, begin + lasts_ns), histogram.merge(own[place]), reached[place])
            for place, begin in enumerate(begins)
        ]

    def _rung(self, place: int, edges: Stretch, times: dict[str, Histogram], reached: int) -> Rung:
        """`reached`: messages in rooms that every member received."""
        asked, plan = self.record.ladder, self.plan
        first, last = self._ticks_around(*edges)
        seconds = (last.t_ns - first.t_ns) / NS_PER_S
        quiet_s = seconds if self.quiet is None else quiet.seconds(quiet.inside(self.quiet, edges))
        busy = None if plan.busy_poll or seconds <= 0 else (last.cpu_ns - first.cpu_ns) / NS_PER_S / seconds / plan.threads
        sent, failed = last.sent - first.sent, last.failed - first.failed
        if isinstance(plan.scenario, Push):
            found = [one for one in self.broadcasts if edges[0] <= one.t_ns < edges[1]]
            whole = [one.last_ns - one.t_ns for one in found if one.received >= one.expected and one.last_ns is not None]
            times, left, behind = times | {LAST: histogram.of_values(whole)}, 0, 0
            sent, failed = len(found), len(found) - len(whole)
        else:
            left, behind = self._behind(last), self._behind(first)
            if isinstance(plan.scenario, Session) and plan.scenario.rooms is not None:
                left = max(left, sent - failed - reached)
        return Rung(
            load=asked.loads[place],
            times=times,
            sent=sent,
            # A few of the light load are always under way.
            failed=failed + (left if left > LEFT else 0),
            engine_busy=busy,
            server_full=self._server_share(edges[0], edges[0] + round(asked.rung_s * NS_PER_S)) >= SERVER_BUSY,
            quiet=quiet_s * NS_PER_S / (edges[1] - edges[0]),
            behind=behind,
            missing=0 if asked.connections is None else max(0, asked.connections[place] - first.open),
        )

    def _behind(self, tick: Tick) -> int:
        """Messages that were due before a tick and are not answered: under way, or surely not sent. Random arrivals scatter; four
        deviations are allowed."""
        began = self.begins.get("warmup", self.begins["measure"])
        due = self.open_loop.due_before((tick.t_ns - began) / NS_PER_S)
        unsent = max(0.0, due - tick.sent - 4 * math.sqrt(due))
        return round(unsent) + tick.sent - tick.answered - tick.failed

    def _ticks_around(self, begin_ns: int, end_ns: int) -> tuple[Tick, Tick]:
        """The ticks nearest to both instants."""
        ticks = [tick for tick in self.ticks if tick.phase in ("warmup", "measure", "drain")]
        if not ticks:
            raise Unmeasured("the engine's record has no ticks")
        return tuple(min(ticks, key=lambda tick, at=at: abs(tick.t_ns - at)) for at in (begin_ns, end_ns))

    def _server_share(self, begin_ns: int, end_ns: int) -> float:
        """The server's CPU use between two instants, as a share of its CPUs; 0 if it is unknown."""
        track, cpus = self._server_cpu, len(self.record.server_cpus)
        if len(track.at_ns) < 2 or not cpus:
            return 0.0
        first, last = np.interp([begin_ns, end_ns], track.at_ns, track.counts)
        return float(last - first) * NS_PER_S / (end_ns - begin_ns) / cpus

    @cached_property
    def tick_means(self) -> list[TickMean]:
        """Every stretch between two ticks in the measured window that has replies and counts, in order. Unmeasured if it is unknown
        when they were."""
        origin_ns = known(self.origin_ns, NO_ORIGIN)
        found = (one for one in self._intervals() if one.tag == "service" and one.histogram.count)
        kept = [one for one in found if self.quiet is None or self._is_quiet(one)]
        begin = [origin_ns + one.start_s * NS_PER_S for one in kept]
        return [
            TickMean(at, at + one.length_s * NS_PER_S, one.histogram.count, one.histogram.mean)
            for at, one in zip(begin, kept, strict=True)
        ]

    def _is_quiet(self, one: Interval) -> bool:
        return quiet.holds(self.quiet, self.origin_ns + (one.start_s + one.length_s / 2) * NS_PER_S)

    @cached_property
    def recorded(self) -> dict[str, Histogram]:
        """The same with turns and stretches that do not count."""
        log = self.folder.latency_log
        if self.plan is not None and self.plan.tick_s < 1 and log.exists():
            return self._histograms_of(lambda one: True)
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
    def origin_ns(self) -> int | None:
        """The instant from which the log of histograms counts: the start of `connect`. A trial without this phase, whose requests
        open connections of their own, has it in the log's heading, to the millisecond. None if neither says it."""
        if "connect" in self.begins:
            return self.begins["connect"]
        anchor, log = next((event for event in self.events if isinstance(event, Anchor)), None), self.folder.latency_log
        began_s = histogram.began_unix_s(log) if log.exists() else None
        return None if anchor is None or began_s is None else anchor.t_ns + round(began_s * NS_PER_S) - anchor.unix_ns

    @cached_property
    def window(self) -> tuple[int, int] | None:
        """The measured window on the monotonic clock: from `measure` to `drain`, or for the duration in the ledger. None if it
        never began or has no length."""
        begin = self.begins.get("measure")
        end = self.begins.get("drain")
        if begin is not None and end is None and self.measured is not None and self.measured.window_ns is not None:
            end = begin + self.measured.window_ns
        return None if begin is None or end is None or end <= begin else (begin, end)

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
        return [one for one in self.slices or [] if one.disturbed is None or self.record.as_is]

    @cached_property
    def quiet(self) -> list[Stretch] | None:
        """The stretches whose times count, in a trial that has short ticks to leave out the others. None for any other trial."""
        if self.plan is None or self.window is None or self.record.as_is:
            return None
        machines = [trace.samples for trace in self.machines.values()]
        if quiet.is_fine(self.plan):
            return quiet.of(self.ticks, self.window[0], machines)
        return quiet.of_periods(self.ticks, self.window, machines) if quiet.has_periods(self.plan) else None

    @property
    def holds_only(self) -> bool:
        """Whether no message is ever due: connections are held, and what the server sends of its own accord arrives."""
        return self.plan is not None and isinstance(self.plan.loop, NoLoop)

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

    @property
    def bytes_sent(self) -> int | None:
        """On the wire in the measured window, or in its slices that count."""
        return self._counted_bytes("bytes_sent")

    @property
    def bytes_received(self) -> int | None:
        """The same for the other direction."""
        return self._counted_bytes("bytes_received")

    def _counted_bytes(self, direction: Literal["bytes_sent", "bytes_received"]) -> int | None:
        if self.measured is None:
            return None
        parts = [self.measured] if self.slices is None else self.kept_slices
        return sum(getattr(part, direction) for part in parts)

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
        programs = next(iter(self.samples_of(ProgramsSample)), None)
        found = {own: MachineTrace(self.machine, self._processes, self.samples_of(SamplerCost), complete, programs)}
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
            return sum(one.cpu.slice_s for one in self._sampled_slices)
        start, end = known(self.window, NO_WINDOW)
        return self.server_cpu_s_over(Span("measured", start, end))

    @cached_property
    def _sampled_slices(self) -> list[Slice]:
        """The slices that count and whose CPU time is known. Unmeasured if there are too few."""
        known_ = [one for one in self.kept_slices if None not in (one.cpu.slice_s, one.cpu.loaded_s)]
        if not known_ or len(known_) < MOST_SAMPLED * len(self.kept_slices):
            raise Unmeasured(f"the server's CPU time is known in {len(known_)} of {len(self.kept_slices)} slices")
        return known_

    @cached_property
    def server_cpu_s_per_message(self) -> float:
        """CPU seconds of the server for one reply: over the window, or over its slices with all replies of each."""
        replies = self.counted if self.slices is None else sum(one.replies for one in self._sampled_slices)
        return self.server_cpu_s / known(replies or None, "no message was answered")

    @cached_property
    def server_cpu_share(self) -> float:
        """CPU seconds of the server per second of load: of the measured window, or of its slices without their tails."""
        if self.slices is not None:
            loaded_ns = sum(one.close_ns - one.start_ns for one in self._sampled_slices)
            return sum(one.cpu.loaded_s for one in self._sampled_slices) * NS_PER_S / loaded_ns
        start, end = known(self.window, NO_WINDOW)
        return self.server_cpu_s * NS_PER_S / (end - start)

    def server_cpu_s_over(self, span: Span) -> float:
        self.require_sampled()
        inside = around(self._server_cpu, span, "the server", "the measured window")
        rounding = cpu_rounding_s(self.processes("server")[inside])
        used = growth(self._server_cpu, inside, span, rounding)
        if used.falls:
            raise Unmeasured("a process of the server ended and its CPU time was not added to its parent's")
        if used.error > CPU_ERROR * used.total:
            share = f"{used.error / used.total:.0%} of it" if used.total > 0 else "all of it"
            raise Unmeasured(f"too few samples of the server for its CPU time: up to {share} might be wrong")
        return used.total

    def cpu_idle_share_over(self, span: Span) -> float:
        """Idle share of the machine's CPU time. Unmeasured if its error may exceed IDLE_ERROR."""
        inside = around(self._machine_cpu[0], span, "the machine")
        idle, whole = (growth(track, inside, span, TICK_S * 2) for track in self._machine_cpu)
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

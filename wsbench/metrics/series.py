"""Time series of a trial for charts: samples, engine counters and runtime telemetry on one time axis.

Seconds count from the start of the phase `connect`. A series is either a line or events with a length. The points of a line are
rates over the step that ends there, or levels at that instant. Missing data is left out, never filled in or smoothed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from wsbench.metrics.spans import NS_PER_S, Span
from wsbench.metrics.tracks import cpu_s, idle_s, whole_s
from wsbench.metrics.trial_data import TrialData
from wsbench.records.samples import HeapSample, MachineSample

NS_PER_MS = 1e6


@dataclass(frozen=True)
class Series:
    """Points in order of time: seconds since the engine began to connect or to request, and values in the unit."""

    name: str
    title: str
    unit: str
    kind: Literal["line", "events"]
    seconds: list[float]
    values: list[float]


def of(trial: TrialData) -> dict[str, Series]:
    """Every series of the trial, by name. Empty if the trial never began."""
    origin = trial.origin_ns
    if origin is None:
        return {}
    found = [*_server(trial), *_machine(trial), *_engine(trial), *_runtime(trial)]
    return {
        name: Series(name, title, unit, kind, [(t_ns - origin) / NS_PER_S for t_ns, _ in points], [v for _, v in points])
        for name, title, unit, kind, points in found
        if points
    }


def marks(trial: TrialData) -> dict[str, tuple[float, float]]:
    """The trial's spans by name, in seconds on the same axis."""
    origin = trial.origin_ns
    if origin is None:
        return {}
    spans = {name: span for name, span in trial.spans.items() if isinstance(span, Span)}
    return {name: ((span.begin_ns - origin) / NS_PER_S, (span.end_ns - origin) / NS_PER_S) for name, span in spans.items()}


Points = list[tuple[int, float]]
Row = tuple[str, str, str, Literal["line", "events"], Points]


def _server(trial: TrialData) -> list[Row]:
    samples = trial.processes("server")
    return [
        ("server_cpu_percent", "CPU of the server", "%", "line", _rate(samples, cpu_s, 100)),
        ("server_rss_bytes", "resident memory of the server", "bytes", "line", _level(samples, lambda s: s.rss_bytes)),
        ("server_threads", "threads of the server", "count", "line", _level(samples, lambda s: s.threads)),
        ("server_fds", "open files of the server", "count", "line", _level(samples, lambda s: s.fds)),
    ]


def _machine(trial: TrialData) -> list[Row]:
    samples = trial.machine
    idle: Points = []
    for before, after in pairwise(samples):
        whole = whole_s(after) - whole_s(before)
        if whole > 0:
            # The counter of idle time may be a tick ahead of the clock.
            idle.append((after.t_ns, min(100.0, 100 * (idle_s(after) - idle_s(before)) / whole)))
    with_memory = [one for one in samples if one.memory is not None]
    with_sockets = [one for one in samples if one.sockets is not None]
    return [
        ("cpu_idle_percent", "idle CPU of the machine", "%", "line", idle),
        _of_memory("memory_available_bytes", "available memory", with_memory, lambda m: m.available_bytes),
        _of_memory("memory_free_bytes", "free memory", with_memory, lambda m: m.free_bytes),
        _of_memory("slab_bytes", "kernel slab", with_memory, lambda m: m.slab_bytes),
        (
            "socket_buffer_bytes",
            "TCP buffers of the machine",
            "bytes",
            "line",
            _level(with_sockets, lambda one: one.sockets.tcp_buffer_bytes),
        ),
    ]


def _engine(trial: TrialData) -> list[Row]:
    ticks = trial.ticks
    return [
        ("open_connections", "open connections", "count", "line", _level(ticks, lambda tick: tick.open)),
        ("answered_per_s", "answered messages", "messages/s", "line", _rate(ticks, lambda tick: tick.answered)),
        ("sent_per_s", "sent messages", "messages/s", "line", _rate(ticks, lambda tick: tick.sent)),
        (
            "engine_cpu_percent",
            "CPU of the engine",
            "%",
            "line",
            _rate(ticks, lambda tick: tick.cpu_ns / NS_PER_S, 100),
        ),
    ]


def _runtime(trial: TrialData) -> list[Row]:
    told = None if isinstance(trial.runtime, str) else trial.runtime
    read = [(one.t_ns, one.used_bytes, one.committed_bytes) for one in trial.samples_of(HeapSample)]
    told_heap = [] if told is None else [(one.t_ns, one.used_bytes, one.committed_bytes) for one in told.heap]
    heap = sorted(read + told_heap, key=lambda point: point[0])
    rows: list[Row] = [
        ("heap_used_bytes", "heap in use", "bytes", "line", [(t, used) for t, used, _ in heap if used is not None]),
        (
            "heap_committed_bytes",
            "committed heap",
            "bytes",
            "line",
            [(t, size) for t, _, size in heap if size is not None],
        ),
    ]
    if told is None:
        return rows
    delays = sorted((one.t_ns, one.ns / NS_PER_MS) for one in told.delays or [])
    return [
        *rows,
        ("gc_pause_ms", "garbage collection pauses", "ms", "events", _lengths(told.pauses)),
        ("safepoint_ms", "safepoints (all threads stopped)", "ms", "events", _lengths(told.safepoints or [])),
        ("event_loop_delay_ms", "delay of the event loop", "ms", "line", delays),
    ]


def _of_memory(name: str, title: str, samples: list[MachineSample], of: Callable) -> Row:
    return name, title, "bytes", "line", _level(samples, lambda sample: of(sample.memory))


def _lengths(pauses: Iterable) -> Points:
    return sorted((pause.begin_ns, pause.ns / NS_PER_MS) for pause in pauses)


def _level(found: Iterable, of: Callable) -> Points:
    return [(one.t_ns, value) for one in found if (value := of(one)) is not None]


def _rate(found: list, of: Callable, scale: float = 1.0) -> Points:
    """Rate per second over each step. Skips steps without duration and steps in which the count fell."""
    steps = ((after.t_ns, after.t_ns - before.t_ns, of(after) - of(before)) for before, after in pairwise(found))
    return [(t_ns, scale * grown / (ns / NS_PER_S)) for t_ns, ns, grown in steps if ns > 0 and grown >= 0]

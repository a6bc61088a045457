"""Telemetry of the server's runtime over the measured window: garbage collections, pauses, heap, event loop.

Collections and pauses per span are registered with `stretches.per_span`. A runtime that does not distinguish a kind of collection
has no count of it: Go and Z (before JDK 21) have no generations.
"""

from __future__ import annotations

from bisect import bisect_left

from wsbench.metrics.parts import NS_PER_MS, NS_PER_US, at_rank, tick_means
from wsbench.metrics.registry import metric
from wsbench.metrics.spans import Span
from wsbench.metrics.stretches import per_span
from wsbench.metrics.trial_data import NO_PLAN, TickMean, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.monitoring.runtime_logs.record import Collection, Delay, HeapPoint, Kind, Pause, Telemetry
from wsbench.records.samples import HeapSample

#: Ticks longer than this contain too much beside a pause.
LONGEST_TICK_S = 0.1
#: So long after a pause the server may still be answering what came during it.
QUEUE_NS = 500_000_000
NO_HEAP = "there is no heap value inside the span `{}`"


def _count(kind: Kind, text: str) -> None:
    def compute(trial: TrialData) -> int:
        return collections(trial, trial.span("measured"), kind)

    compute.__name__, compute.__doc__ = f"gc_{kind}", text
    metric("count", "lower", "counts")(compute)


_count("minor", "Garbage collections of the young generation only.")
_count(
    "mixed",
    "Garbage collections of the young and part of the old generation (G1); `jstat` counts them as young collections.",
)
_count("full", "Garbage collections of the whole heap during which the server was paused.")
_count("concurrent", "Garbage collections of the whole heap or the old generation, concurrent with the server.")


@metric("ms", "lower", "body")
def gc_pause_ms_sum(trial):
    """Total time in which the server was paused for garbage collection."""
    return sum(one.ns for one in pauses(trial, trial.span("measured"))) / NS_PER_MS


@metric("ms", "lower", "tail")
def gc_pause_ms_max(trial):
    """Longest pause of the server for garbage collection."""
    return max(one.ns for one in _some(pauses(trial, trial.span("measured")))) / NS_PER_MS


@metric("ms", "lower", "tail")
def gc_pause_ms_p99(trial):
    """99th percentile of the server's pauses for garbage collection."""
    return at_rank([one.ns for one in _some(pauses(trial, trial.span("measured")))], "0.99") / NS_PER_MS


@metric("%", "lower", "body")
def gc_pause_percent(trial):
    """Share of the measured window in which the server was paused for garbage collection."""
    span = trial.span("measured")
    return 100 * sum(one.ns for one in pauses(trial, span)) / (span.end_ns - span.begin_ns)


@metric("%", "neither", "body")
def near_gc_replies_percent(trial):
    """Share of replies that came near a pause for garbage collection: during one, or up to 0.5 s after it.

    To the nearest tick of the engine; ticks may be at most 0.1 s apart.
    """
    near, apart = _by_pause(trial)
    return 100 * _replies(near) / (_replies(near) + _replies(apart))


@metric("%", "lower", "body")
def near_gc_service_percent(trial):
    """Share of the total service time that replies near a pause for garbage collection took (see `near_gc_replies_percent`)."""
    near, apart = _by_pause(trial)
    return 100 * _total_ns(near) / (_total_ns(near) + _total_ns(apart))


@metric("µs", "lower", "body")
def service_us_mean_apart_from_gc(trial):
    """Mean service time of the replies that did not come near a pause for garbage collection (see `near_gc_replies_percent`)."""
    apart = known(_by_pause(trial)[1] or None, "every reply came near a pause")
    return _total_ns(apart) / _replies(apart) / NS_PER_US


def _by_pause(trial: TrialData) -> tuple[list[TickMean], list[TickMean]]:
    """The ticks near a pause, and the others."""
    stops = told(trial).pauses
    if (tick_s := known(trial.plan, NO_PLAN).tick_s) > LONGEST_TICK_S:
        raise Unmeasured(f"the engine ticks every {tick_s:g} s: too seldom to see a pause")
    # Pauses never overlap, so the last one that began decides.
    began = sorted(one.begin_ns for one in stops)
    ended = sorted(one.end_ns for one in stops)
    near: list[TickMean] = []
    apart: list[TickMean] = []
    for tick in tick_means(trial):
        place = bisect_left(began, tick.end_ns)
        (near if place and tick.begin_ns < ended[place - 1] + QUEUE_NS else apart).append(tick)
    return near, apart


def _replies(ticks: list[TickMean]) -> int:
    return sum(one.replies for one in ticks)


def _total_ns(ticks: list[TickMean]) -> float:
    return sum(one.replies * one.mean_ns for one in ticks)


@metric("ms", "lower", "body")
def safepoint_ms_sum(trial):
    """Total time in which a JVM stopped all its threads or waited for them to stop, for any reason."""
    return sum(one.ns for one in _safepoints(trial)) / NS_PER_MS


@metric("ms", "lower", "tail")
def safepoint_ms_max(trial):
    """Longest time in which a JVM stopped all its threads or waited for them to stop."""
    return max((one.ns for one in _safepoints(trial)), default=0) / NS_PER_MS


@metric("bytes", "lower", "memory")
def heap_used_bytes_max(trial):
    """Largest heap in use: observed at collections, and between them by samples at most a quarter of a second apart."""
    return heap_used_bytes(trial, trial.span("measured"))


@metric("bytes", "neither", "memory")
def heap_committed_bytes_max(trial):
    """Most memory that the runtime had committed for its heap."""
    span = trial.span("measured")
    sizes = [point.committed_bytes for point in heap(trial, span) if point.committed_bytes is not None]
    return known(max(sizes, default=None), NO_HEAP.format(span.name))


@metric("bytes", "lower", "memory")
def heap_after_gc_bytes_max(trial):
    """Largest heap in use right after a garbage collection: live objects, and garbage that the collection left."""
    span = trial.span("measured")
    sizes = [point.used_bytes for point in heap(trial, span) if point.after and point.used_bytes is not None]
    return known(max(sizes, default=None), "no collection in the measured window reported the heap it left")


def _delay(statistic: str, text: str) -> None:
    def compute(trial: TrialData) -> float:
        found = [one.ns for one in _delays(trial)]
        return (max(found) if statistic == "max" else at_rank(found, "0." + statistic[1:])) / NS_PER_MS

    compute.__name__, compute.__doc__ = f"event_loop_delay_ms_{statistic}", text
    metric("ms", "lower", "body" if statistic == "p50" else "tail")(compute)


_delay("p50", "Median delay of a timer of the server's event loop, set every 20 ms.")
_delay("p99", "99th percentile of the delay of a timer of the server's event loop.")
_delay("max", "Longest delay of a timer of the server's event loop.")


@per_span("gc_minor", "count", "lower", "counts", "Garbage collections of the young generation only")
def _minor(trial: TrialData, span: Span) -> int:
    return collections(trial, span, "minor")


@per_span("gc_full", "count", "lower", "counts", "Garbage collections of the whole heap during which the server was paused,")
def _full(trial: TrialData, span: Span) -> int:
    return collections(trial, span, "full")


@per_span("gc_concurrent", "count", "lower", "counts", "Garbage collections of the whole or old heap, concurrent with the server,")
def _concurrent(trial: TrialData, span: Span) -> int:
    return collections(trial, span, "concurrent")


@per_span("gc_pause_ms_sum", "ms", "lower", "body", "Total time in which the server was paused for garbage collection")
def _pause_ms(trial: TrialData, span: Span) -> float:
    return sum(one.ns for one in pauses(trial, span)) / NS_PER_MS


@per_span("heap_used_bytes_max", "bytes", "lower", "memory", "Largest heap in use")
def heap_used_bytes(trial: TrialData, span: Span) -> int:
    sizes = [point.used_bytes for point in heap(trial, span) if point.used_bytes is not None]
    return known(max(sizes, default=None), NO_HEAP.format(span.name))


def collections(trial: TrialData, span: Span, kind: Kind) -> int:
    """Number of collections that ended inside the span. Unmeasured if the runtime does not distinguish this kind."""
    record = told(trial)
    if kind not in record.kinds:
        raise Unmeasured(f"the collector of {record.runtime} has no {kind} collections")
    return sum(one.kind == kind for one in inside(record.collections, span))


def pauses(trial: TrialData, span: Span) -> list[Pause]:
    return inside(told(trial).pauses, span)


def heap(trial: TrialData, span: Span) -> list[HeapPoint]:
    """Heap values inside the span: those that the runtime reported and those read from a JVM's counters."""
    told_points = [] if isinstance(trial.runtime, str) else trial.runtime.heap
    read = [HeapPoint(one.t_ns, one.used_bytes, one.committed_bytes) for one in trial.samples_of(HeapSample)]
    if not told_points and not read:
        told(trial)
    return inside([*told_points, *read], span)


def told(trial: TrialData) -> Telemetry:
    if isinstance(trial.runtime, str):
        raise Unmeasured(trial.runtime)
    return trial.runtime


def inside(found: list, span: Span) -> list:
    return [one for one in found if span.holds(_at(one))]


def _at(one: Collection | Pause | HeapPoint | Delay) -> int:
    return one.end_ns if isinstance(one, Pause) else one.t_ns


def _some(found: list[Pause]) -> list[Pause]:
    return known(found or None, "there was no pause in the measured window")


def _safepoints(trial: TrialData) -> list[Pause]:
    record = told(trial)
    return inside(known(record.safepoints, f"{record.runtime} has no safepoints"), trial.span("measured"))


def _delays(trial: TrialData) -> list[Delay]:
    record = told(trial)
    every = known(record.delays, f"{record.runtime} does not report an event loop")
    return known(inside(every, trial.span("measured")) or None, "no timer fired inside the measured window")

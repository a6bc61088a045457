"""What the server's runtime did beside serving: garbage collections, pauses, heap, event loop; over the measured window.

`gc_minor`, `gc_full` and the pauses of each span are in `stretches`. A runtime that does not tell a kind of collection apart has no
count of it: Go's and Z's (before JDK 21) have no generations.
"""

from __future__ import annotations

from wsbench.metrics.parts import NS_PER_MS, at_rank
from wsbench.metrics.registry import metric
from wsbench.metrics.stretches import per_span
from wsbench.samples import HeapSample
from wsbench.spans import Span
from wsbench.telemetry.record import Collection, Delay, HeapPoint, Kind, Pause, Telemetry
from wsbench.view import TrialView, Unmeasured, known

NO_HEAP = "nothing told of the heap inside the span `{}`"


def _count(kind: Kind, text: str) -> None:
    def compute(view: TrialView) -> int:
        return collections(view, view.span("measured"), kind)

    compute.__name__, compute.__doc__ = f"gc_{kind}", text
    metric("count", "lower")(compute)


_count("minor", "Garbage collections of the young generation alone.")
_count(
    "mixed",
    "Garbage collections of the young and some of the old generation (G1); `jstat` counts them among the young ones.",
)
_count("full", "Garbage collections of the whole heap for which the server stood still.")
_count("concurrent", "Garbage collections of the whole or the old heap that ran beside the server.")


@metric("ms", "lower")
def gc_pause_ms_sum(view):
    """Time in which the server stood still for its garbage collector."""
    return sum(one.ns for one in pauses(view, view.span("measured"))) / NS_PER_MS


@metric("ms", "lower")
def gc_pause_ms_max(view):
    """Longest time in which the server stood still for its garbage collector."""
    return max(one.ns for one in _some(pauses(view, view.span("measured")))) / NS_PER_MS


@metric("ms", "lower")
def gc_pause_ms_p99(view):
    """99th percentile of the times in which the server stood still for its garbage collector."""
    return at_rank([one.ns for one in _some(pauses(view, view.span("measured")))], "0.99") / NS_PER_MS


@metric("%", "lower")
def gc_pause_percent(view):
    """Share of the measured window in which the server stood still for its garbage collector."""
    span = view.span("measured")
    return 100 * sum(one.ns for one in pauses(view, span)) / (span.end_ns - span.begin_ns)


@metric("ms", "lower")
def safepoint_ms_sum(view):
    """Time in which a JVM had stopped all of its threads or waited for them to stop, for whatever reason."""
    return sum(one.ns for one in _safepoints(view)) / NS_PER_MS


@metric("ms", "lower")
def safepoint_ms_max(view):
    """Longest time in which a JVM had stopped all of its threads or waited for them to stop."""
    return max((one.ns for one in _safepoints(view)), default=0) / NS_PER_MS


@metric("bytes", "lower")
def heap_used_bytes_max(view):
    """Largest heap in use that was seen: at collections, and between them by a sample a quarter of a second apart at most."""
    return heap_used_bytes(view, view.span("measured"))


@metric("bytes", "neither")
def heap_committed_bytes_max(view):
    """Most memory that the runtime had set aside for its heap."""
    span = view.span("measured")
    sizes = [point.committed_bytes for point in heap(view, span) if point.committed_bytes is not None]
    return known(max(sizes, default=None), NO_HEAP.format(span.name))


@metric("bytes", "lower")
def heap_after_gc_bytes_max(view):
    """Largest heap in use right after a garbage collection: what was alive, and what that collection left."""
    span = view.span("measured")
    sizes = [point.used_bytes for point in heap(view, span) if point.after and point.used_bytes is not None]
    return known(max(sizes, default=None), "no collection told what it left of the heap in the measured window")


def _delay(statistic: str, text: str) -> None:
    def compute(view: TrialView) -> float:
        found = [one.ns for one in _delays(view)]
        return (max(found) if statistic == "max" else at_rank(found, "0." + statistic[1:])) / NS_PER_MS

    compute.__name__, compute.__doc__ = f"event_loop_delay_ms_{statistic}", text
    metric("ms", "lower")(compute)


_delay("p50", "Median of the time by which a timer of the server's event loop fired late, one every 20 ms.")
_delay("p99", "99th percentile of the time by which a timer of the server's event loop fired late.")
_delay("max", "Longest time by which a timer of the server's event loop fired late.")


@per_span("gc_minor", "count", "lower", "Garbage collections of the young generation alone,")
def _minor(view: TrialView, span: Span) -> int:
    return collections(view, span, "minor")


@per_span("gc_full", "count", "lower", "Garbage collections for which the server stood still as a whole,")
def _full(view: TrialView, span: Span) -> int:
    return collections(view, span, "full")


@per_span(
    "gc_concurrent", "count", "lower", "Garbage collections of the whole or the old heap that ran beside the server,"
)
def _concurrent(view: TrialView, span: Span) -> int:
    return collections(view, span, "concurrent")


@per_span("gc_pause_ms_sum", "ms", "lower", "Time in which the server stood still for its garbage collector,")
def _pause_ms(view: TrialView, span: Span) -> float:
    return sum(one.ns for one in pauses(view, span)) / NS_PER_MS


@per_span("heap_used_bytes_max", "bytes", "lower", "Largest heap in use that was seen")
def heap_used_bytes(view: TrialView, span: Span) -> int:
    sizes = [point.used_bytes for point in heap(view, span) if point.used_bytes is not None]
    return known(max(sizes, default=None), NO_HEAP.format(span.name))


def collections(view: TrialView, span: Span, kind: Kind) -> int:
    """Those that ended inside the span."""
    record = told(view)
    if kind not in record.kinds:
        raise Unmeasured(f"the collector of {record.runtime} has no collections that are {kind}")
    return sum(one.kind == kind for one in inside(record.collections, span))


def pauses(view: TrialView, span: Span) -> list[Pause]:
    return inside(told(view).pauses, span)


def heap(view: TrialView, span: Span) -> list[HeapPoint]:
    """What the runtime told, and what was read from a JVM's counters, inside the span."""
    told_points = [] if isinstance(view.runtime, str) else view.runtime.heap
    read = [HeapPoint(one.t_ns, one.used_bytes, one.committed_bytes) for one in view.samples_of(HeapSample)]
    if not told_points and not read:
        told(view)
    return inside([*told_points, *read], span)


def told(view: TrialView) -> Telemetry:
    if isinstance(view.runtime, str):
        raise Unmeasured(view.runtime)
    return view.runtime


def inside(found: list, span: Span) -> list:
    return [one for one in found if span.holds(_at(one))]


def _at(one: Collection | Pause | HeapPoint | Delay) -> int:
    return one.end_ns if isinstance(one, Pause) else one.t_ns


def _some(found: list[Pause]) -> list[Pause]:
    return known(found or None, "there was no pause in the measured window")


def _safepoints(view: TrialView) -> list[Pause]:
    record = told(view)
    return inside(known(record.safepoints, f"{record.runtime} has no safepoints"), view.span("measured"))


def _delays(view: TrialView) -> list[Delay]:
    record = told(view)
    every = known(record.delays, f"{record.runtime} does not tell of an event loop")
    return known(inside(every, view.span("measured")) or None, "no timer fired inside the measured window")

"""A trial over time: all its data on one axis of equal buckets, and its latencies as a heat map.

Takes a trial and returns a `Timeline`. A missing series is listed with the reason. Seconds count from the engine's first event. A
bucket lasts one second, like the engine's intervals, or longer if there would be too many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wsbench.engine import histogram
from wsbench.engine.histogram import Histogram, Interval
from wsbench.metrics import series as over_time
from wsbench.metrics.registry import plain
from wsbench.metrics.tracks import cpu_s
from wsbench.metrics.trial_data import NS_PER_S, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.engine_files import Anchor, Plan, Push

MOST_BUCKETS, MOST_COLUMNS, MOST_ROWS = 1200, 300, 60
ROWS_PER_DECADE = (12, 6, 4, 3)
NO_EVENTS = "the engine wrote no ticks"
NO_SAMPLES = "the server was not sampled"

Values = list[float | int | None]


@dataclass(frozen=True)
class Heat:
    """Messages by time and latency: column i has `(row, count)` pairs; row r starts at 10^(r/per_decade) ns."""

    width_s: int
    per_decade: int
    columns: list[list[tuple[int, int]]]


@dataclass(frozen=True)
class Timeline:
    """`series[name][i]` covers `width_s` seconds from `i·width_s` on. None if the bucket has no value."""

    width_s: int
    buckets: int
    phases: list[tuple[str, float]]
    series: dict[str, Values]
    absent: dict[str, str]
    heat: Heat | None


def timeline(trial: TrialData) -> Timeline | None:
    """None if the engine wrote no anchor or no tick, and for a server that took turns with others."""
    anchor = next((event for event in trial.events if isinstance(event, Anchor)), None)
    if anchor is None or not trial.ticks or trial.slices is not None:
        return None
    zero, end = anchor.t_ns, trial.ticks[-1].t_ns
    seconds = max((end - zero) / NS_PER_S, 1e-3)
    width = max(1, math.ceil(seconds / MOST_BUCKETS))
    edges = np.minimum(np.arange(0, math.ceil(seconds / width) + 1) * width, seconds)
    series, absent = {}, {}
    for name, found in SERIES.items():
        try:
            series[name] = found(trial, edges, zero)
        except Unmeasured as reason:
            absent[name] = str(reason)
    intervals = _intervals(trial)
    for name, values in _told(trial, edges).items():
        (absent if isinstance(values, str) else series)[name] = values
    by_bucket = _by_bucket(intervals, width, len(edges) - 1)
    for name, of in LATENCIES.items():
        if by_bucket:
            series[name] = [of(by_bucket[i]) if i in by_bucket else None for i in range(len(edges) - 1)]
        else:
            absent[name] = "no latency was recorded"
    phases = [(phase, round((t_ns - zero) / NS_PER_S, 3)) for phase, t_ns in trial.begins.items()]
    rounded = {name: [_short(value) for value in values] for name, values in series.items()}
    return Timeline(width, len(edges) - 1, phases, rounded, absent, _heat(intervals, seconds))


# ---- series --------------------------------------------------------------------------------------------------------


def _asked(trial: TrialData, edges: np.ndarray, zero: int) -> Values:
    plan = known(trial.plan, "the trial has no plan")
    return [_asked_at(plan, float(at)) for at in edges[1:]]


def _asked_at(plan: Plan, second: float) -> float:
    """Number of connections that the plan requests at this second."""
    if plan.stages is None:
        return plan.connections
    before, passed = 0, 0.0
    for stage in plan.stages:
        if second < passed + stage.over_s:
            return before + (stage.to - before) * (second - passed) / stage.over_s
        before, passed = stage.to, passed + stage.over_s
    return before


def _open(trial: TrialData, edges: np.ndarray, zero: int) -> Values:
    at = [(tick.t_ns - zero) / NS_PER_S for tick in trial.ticks]
    latest = np.searchsorted(at, edges[1:] + 1e-9, side="right") - 1
    return [trial.ticks[place].open if place >= 0 else None for place in latest]


def _per_second(of: str) -> Callable:
    """A tick counter as a rate, assumed constant between two ticks."""

    def rate(trial: TrialData, edges: np.ndarray, zero: int) -> Values:
        at = [0.0, *((tick.t_ns - zero) / NS_PER_S for tick in trial.ticks)]
        counted = np.interp(edges, at, [0, *(getattr(tick, of) for tick in trial.ticks)])
        return list(np.diff(counted) / np.diff(edges))

    return rate


def _cpu(trial: TrialData, edges: np.ndarray, zero: int) -> Values:
    """Percent of one core. None if the samples do not enclose the bucket."""
    samples = known(trial.processes("server") or None, NO_SAMPLES)
    at = [(sample.t_ns - zero) / NS_PER_S for sample in samples]
    used = np.interp(edges, at, [cpu_s(sample) for sample in samples])
    shares = 100 * np.diff(used) / np.diff(edges)
    enclosed = (edges[:-1] >= at[0]) & (edges[1:] <= at[-1])
    return [float(share) if inside and share >= 0 else None for share, inside in zip(shares, enclosed, strict=True)]


def _rss(trial: TrialData, edges: np.ndarray, zero: int) -> Values:
    samples = known(trial.processes("server") or None, NO_SAMPLES)
    found: Values = [None] * (len(edges) - 1)
    for sample in samples:
        place = int(np.searchsorted(edges, (sample.t_ns - zero) / NS_PER_S, side="right")) - 1
        if 0 <= place < len(found):
            found[place] = max(found[place] or 0, sample.rss_bytes)
    return found


SERIES: dict[str, Callable[[TrialData, np.ndarray, int], Values]] = {
    "asked": _asked,
    "open": _open,
    "rate": _per_second("answered"),
    "errors": _per_second("failed"),
    "cpu": _cpu,
    "rss": _rss,
}
LATENCIES: dict[str, Callable[[Histogram], float | None]] = {
    "mean": lambda found: found.mean,
    "p50": lambda found: found.quantile("0.5"),
    "p99": lambda found: found.quantile("0.99"),
    "max": lambda found: found.max,
}


# ---- telemetry of the runtime --------------------------------------------------------------------------------------

TOLD = {
    "heap": "heap_used_bytes",
    "heap_size": "heap_committed_bytes",
    "gc": "gc_pause_ms",
    "loop": "event_loop_delay_ms",
}


def _told(trial: TrialData, edges: np.ndarray) -> dict[str, Values | str]:
    """For each bucket the highest level, or the sum of its events per second. For a missing series, the reason."""
    found = over_time.of(trial)
    why = trial.runtime if isinstance(trial.runtime, str) else "the server's runtime does not report it"
    return {name: _bucketed(found[told], edges) if told in found else why for name, told in TOLD.items()}


def _bucketed(line: over_time.Series, edges: np.ndarray) -> Values:
    places = np.searchsorted(edges, line.seconds, side="right") - 1
    events = line.kind == "events"
    found: Values = [0.0 if events else None] * (len(edges) - 1)
    for place, value in zip(places, line.values, strict=True):
        if 0 <= place < len(found):
            found[place] = found[place] + value if events else max(found[place] or 0.0, value)
    widths = np.diff(edges) if events else np.ones(len(found))
    return [None if value is None else float(value / width) for value, width in zip(found, widths, strict=True)]


# ---- latencies over time -------------------------------------------------------------------------------------------


def reported(trial: TrialData) -> str:
    """The tag of the latency that users would see, as in `trial.reported_times`."""
    if "response" in trial.histograms:
        return "response"
    if trial.plan is not None and isinstance(trial.plan.scenario, Push):
        return "push"
    return "request" if trial.connection_per_request else "service"


def _intervals(trial: TrialData) -> list[Interval]:
    """Intervals of this latency, including the warm-up."""
    if not trial.folder.latency_log.exists():
        return []
    tags = {reported(trial), f"warmup-{reported(trial)}"}
    found = histogram.read_log(trial.folder.latency_log)
    return [interval for interval in found if interval.tag in tags and interval.histogram.count]


def _by_bucket(intervals: list[Interval], width_s: float, buckets: int) -> dict[int, Histogram]:
    """Histograms by bucket. An interval belongs to the bucket of its middle."""
    found: dict[int, Histogram] = {}
    for interval in intervals:
        place = min(int((interval.start_s + interval.length_s / 2) / width_s), buckets - 1)
        found[place] = found[place] + interval.histogram if place in found else interval.histogram
    return found


def _heat(intervals: list[Interval], seconds: float) -> Heat | None:
    width = max(1, math.ceil(seconds / MOST_COLUMNS))
    columns = math.ceil(seconds / width)
    by_column = _by_bucket(intervals, width, columns)
    if not by_column:
        return None
    low, high = min(found.min for found in by_column.values()), max(found.max for found in by_column.values())
    decades = math.log10(max(high, 2) / max(low, 1))
    per_decade = next((per for per in ROWS_PER_DECADE if decades * per <= MOST_ROWS - 1), ROWS_PER_DECADE[-1])
    return Heat(width, per_decade, [_column(by_column.get(place), per_decade) for place in range(columns)])


def _column(found: Histogram | None, per_decade: int) -> list[tuple[int, int]]:
    if found is None:
        return []
    used = np.flatnonzero(found.counts)
    middles = (found.lower_bounds[used] + found.upper_bounds[used]) / 2
    rows = np.floor(np.log10(np.maximum(middles, 1)) * per_decade).astype(int)
    counts = np.bincount(rows, weights=found.counts[used])
    return [(int(row), int(counts[row])) for row in np.flatnonzero(counts)]


def _short(value: float | int | None) -> float | int | None:
    """Rounds to four significant digits, as displayed."""
    return None if value is None else plain(float(f"{value:.4g}"))

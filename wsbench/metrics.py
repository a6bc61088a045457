"""Metrics: one trial in, one number out. Each is a function with a name, a unit, a direction and a docstring for
people.

A `TrialView` reads a trial's files when they are first asked for. None means not applicable or not measured, never
zero: nothing is filled in and nothing is extrapolated. It computes no quantile itself and never runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from wsbench import histogram
from wsbench.histogram import Histogram
from wsbench.rundir import (
    Doc,
    End,
    MachineSample,
    Measured,
    PhaseBegin,
    Plan,
    ProcessSample,
    Seconds,
    Tick,
    TrialFolder,
    TrialRecord,
)

Direction = Literal["higher", "lower", "neither"]
NS_PER_S = 1e9
NS_PER_US = 1e3
NS_PER_MS = 1e6


@dataclass(frozen=True)
class TrialView:
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
        """The whole trial's latencies by tag; nothing where no log was written."""
        log = self.folder.latency_log
        return histogram.merge(histogram.read_log(log)) if log.exists() else {}

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
    def window(self) -> tuple[int, int] | None:
        """The measured window on the monotonic clock: from `measure` to `drain`, or as long as the ledger says."""
        begins = {event.phase: event.t_ns for event in self.events if isinstance(event, PhaseBegin)}
        if "measure" not in begins:
            return None
        if "drain" in begins:
            return begins["measure"], begins["drain"]
        return (begins["measure"], begins["measure"] + self.measured.window_ns) if self.measured else None

    @cached_property
    def connection_per_request(self) -> bool:
        return self.plan is not None and isinstance(self.plan.scenario, Doc) and not self.plan.scenario.persistent

    @cached_property
    def counted(self) -> int | None:
        """The messages that the rate counts: replies inside the window, or all answered where a count ends the run."""
        if self.plan is None or self.measured is None:
            return None
        by_time = isinstance(self.plan.measure, Seconds)
        return self.measured.replies_in_window if by_time else self.measured.answered

    def processes(self, of: Literal["server", "engine"]) -> list[ProcessSample]:
        return [sample for sample in self.samples if isinstance(sample, ProcessSample) and sample.of == of]

    def server_in_window(self) -> list[ProcessSample]:
        """The server's samples inside the measured window."""
        if self.window is None:
            return []
        start, end = self.window
        return [sample for sample in self.processes("server") if start <= sample.t_ns <= end]

    @cached_property
    def machine(self) -> list[MachineSample]:
        return [sample for sample in self.samples if isinstance(sample, MachineSample)]

    @cached_property
    def server_cpu_s(self) -> float | None:
        """CPU seconds of the server inside the window, from cumulative samples interpolated at both of its edges.

        None where a sample is missing beyond an edge, or where fewer than two lie between them: the edges would then
        decide the number.
        """
        samples = self.processes("server")
        if len(self.server_in_window()) < 2:
            return None
        start, end = self.window
        at = [sample.t_ns - start for sample in samples]
        if at[0] > 0 or at[-1] < end - start:
            return None
        used = [_cpu_s(sample) for sample in samples]
        return float(np.interp(end - start, at, used) - np.interp(0, at, used))

    @cached_property
    def window_s(self) -> float | None:
        return self.measured.window_ns / NS_PER_S if self.measured and self.measured.window_ns > 0 else None


# ---- the registry --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A named number computed from a trial."""

    name: str
    unit: str
    direction: Direction
    text: str
    compute: Callable[[TrialView], float | int | None]

    @property
    def summary(self) -> str:
        return self.text.splitlines()[0]


METRICS: dict[str, Metric] = {}


def metric(unit: str, direction: Direction):
    """Registers a function under its own name."""

    def register(compute):
        assert compute.__doc__, f"metric {compute.__name__} has no docstring"
        assert compute.__name__ not in METRICS
        METRICS[compute.__name__] = Metric(compute.__name__, unit, direction, compute.__doc__, compute)
        return compute

    return register


def values(view: TrialView, names: Iterable[str] | None = None) -> dict[str, float | int | None]:
    """Metrics of one trial by name; all None where the trial failed."""
    chosen = list(METRICS if names is None else names)
    if view.record.outcome == "failed":
        return {name: view.record.ready_s if name == "ready_s" else None for name in chosen}
    return {name: METRICS[name].compute(view) for name in chosen}


def _latency(tag: str, unit: str, ns_per_unit: float, statistic: str, text: str) -> None:
    """Registers `<tag>_<unit>_<statistic>`: p50, p999, max or mean of one tag of the histogram log."""

    def compute(view: TrialView) -> float | None:
        found = view.histograms.get(tag)
        if found is None or not found.count:
            return None
        whole = statistic in ("max", "mean")
        return (getattr(found, statistic) if whole else found.quantile("0." + statistic[1:])) / ns_per_unit

    compute.__name__ = f"{tag}_{unit}_{statistic}"
    compute.__doc__ = text
    metric("µs" if unit == "us" else unit, "lower")(compute)


# ---- rates ---------------------------------------------------------------------------------------------------------


@metric("messages/s", "higher")
def messages_per_s(view):
    """Right replies per second of the measured window.

    Where time ends the run: replies that arrived inside the window. Where a count ends it: all answered messages.
    """
    return view.counted / view.window_s if view.counted is not None and view.window_s else None


@metric("requests/s", "higher")
def requests_per_s(view):
    """Answered HTTP requests per second; what ApacheBench calls "Requests per second"."""
    return messages_per_s(view) if _is_doc(view) else None


@metric("ms", "lower")
def time_per_request_ms(view):
    """Concurrency × window / answered requests; what ApacheBench calls "Time per request (mean)"."""
    rate = requests_per_s(view)
    return 1000 * view.plan.connections / rate if rate else None


@metric("ms", "lower")
def time_per_request_across_ms(view):
    """Window / answered requests; ApacheBench's "Time per request (mean, across all concurrent requests)"."""
    rate = requests_per_s(view)
    return 1000 / rate if rate else None


@metric("ms", "lower")
def served_90_ms(view):
    """Time within which 90 % of the HTTP requests were served; ApacheBench's "90%" line.

    With a connection per request it counts from `connect()` to the close, otherwise from the request to its reply.
    """
    if not _is_doc(view):
        return None
    found = view.histograms.get("request" if view.connection_per_request else "service")
    return found.quantile("0.9") / NS_PER_MS if found is not None and found.count else None


@metric("bytes/s", "higher")
def received_bytes_per_s(view):
    """Bytes received on the wire per second of the measured window, framing and heads included."""
    return view.measured.bytes_received / view.window_s if view.window_s else None


# ---- latencies -----------------------------------------------------------------------------------------------------

_SERVICE = "the time from sending a message to its complete reply"
for _statistic, _words in [
    ("p50", "Median of"),
    ("p90", "90th percentile of"),
    ("p99", "99th percentile of"),
    ("p999", "99.9th percentile of"),
    ("max", "Longest of"),
    ("mean", "Mean of"),
]:
    _latency("service", "us", NS_PER_US, _statistic, f"{_words} {_SERVICE}.")
for _statistic, _words in [("p50", "Median"), ("p99", "99th percentile of the")]:
    _latency("connect", "us", NS_PER_US, _statistic, f"{_words} time from `connect()` to a usable connection.")
for _statistic, _words in [("p50", "Median"), ("p90", "90th percentile of the"), ("p99", "99th percentile of the")]:
    _latency("request", "us", NS_PER_US, _statistic, f"{_words} time from `connect()` to the server's close.")
_latency("request", "us", NS_PER_US, "max", "Longest time from `connect()` to the server's close.")


# ---- errors --------------------------------------------------------------------------------------------------------


@metric("count", "lower")
def errors(view):
    """Messages that failed or stayed unanswered, and kept connections that were never established."""
    if view.measured is None:
        return None
    return view.measured.failed + view.measured.unanswered + missing_connections(view)


@metric("fraction", "lower")
def error_fraction(view):
    """Failed and unanswered messages, as a share of the messages sent in the measured window."""
    if view.measured is None or not view.measured.sent:
        return None
    return (view.measured.failed + view.measured.unanswered) / view.measured.sent


# ---- resources -----------------------------------------------------------------------------------------------------


@metric("µs", "lower")
def server_cpu_us_per_message(view):
    """CPU time of the server's process tree per counted message."""
    return 1e6 * view.server_cpu_s / view.counted if view.server_cpu_s is not None and view.counted else None


@metric("%", "neither")
def server_cpu_percent_mean(view):
    """CPU use of the server's process tree over the measured window; 100 is one core."""
    if view.server_cpu_s is None:
        return None
    start, end = view.window
    return 100 * view.server_cpu_s / ((end - start) / NS_PER_S)


@metric("%", "neither")
def server_cpu_percent_max(view):
    """Highest CPU use of the server between two consecutive samples inside the window; 100 is one core."""
    inside = view.server_in_window()
    shares = [
        100 * (_cpu_s(after) - _cpu_s(before)) / ((after.t_ns - before.t_ns) / NS_PER_S)
        for before, after in pairwise(inside)
        if after.t_ns > before.t_ns
    ]
    return max(shares) if shares else None


@metric("bytes", "lower")
def server_rss_bytes_max(view):
    """Largest resident memory of the server's process tree in the measured window."""
    return max((sample.rss_bytes for sample in view.server_in_window()), default=None)


@metric("bytes", "lower")
def server_rss_bytes_start(view):
    """Resident memory of the server's process tree at the first sample of the measured window."""
    return next((sample.rss_bytes for sample in view.server_in_window()), None)


@metric("count", "neither")
def server_threads_max(view):
    """Most threads of the server's process tree in the measured window."""
    return max((sample.threads for sample in view.server_in_window()), default=None)


@metric("count", "neither")
def server_fds_max(view):
    """Most open file descriptors of the server's process tree in the measured window."""
    return max((sample.fds for sample in view.server_in_window() if sample.fds is not None), default=None)


@metric("%", "neither")
def engine_cpu_percent_mean(view):
    """CPU use of the engine's workers over the measured window; 100 is one core."""
    if view.end is None or not view.end.threads or not all(worker.wall_ns for worker in view.end.threads):
        return None
    return sum(100 * worker.cpu_ns / worker.wall_ns for worker in view.end.threads)


@metric("%", "lower")
def engine_wait_percent(view):
    """Time that the engine's workers were ready to run but did not, as a share of the time they ran or waited to."""
    threads = view.end.threads if view.end else []
    busy = sum(worker.cpu_ns + worker.wait_ns for worker in threads)
    return 100 * sum(worker.wait_ns for worker in threads) / busy if busy else None


@metric("s", "lower")
def ready_s(view):
    """Time from starting the server to its first accepted handshake."""
    return view.record.ready_s


# ---- shared by metrics and verdict ---------------------------------------------------------------------------------


def missing_connections(view: TrialView) -> int:
    """Kept connections that were asked for and not established; 0 where every request has its own."""
    if view.end is None or view.connection_per_request:
        return 0
    return max(0, view.end.connections.asked - view.end.connections.established)


def _is_doc(view: TrialView) -> bool:
    return view.plan is not None and isinstance(view.plan.scenario, Doc)


def _cpu_s(sample: ProcessSample) -> float:
    return sample.cpu_user_s + sample.cpu_system_s

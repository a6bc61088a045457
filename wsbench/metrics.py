"""Metrics: one trial in, one number out. Each is a function with a name, a unit, a direction and a docstring for
people.

A number that does not apply or was not measured is None with a reason, never zero: nothing is filled in and nothing is
extrapolated. Inside a metric, `known` and `Unmeasured` give the reason; called by its name a metric returns None. It
computes no quantile itself and never runs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import Literal

from wsbench.engine_files import Doc, Worker
from wsbench.histogram import Histogram
from wsbench.view import NO_END, NO_WINDOW, NS_PER_S, TrialView, Unmeasured, cpu_s, known

Direction = Literal["higher", "lower", "neither"]
Number = float | int
NS_PER_US = 1e3
NS_PER_MS = 1e6
PEAK_S = 0.2  # a little less than the longest distance of samples, which varies by a few milliseconds
NOT_HTTP = "the scenario has no HTTP requests"
NO_SAMPLES = "no sample of the server lies inside the measured window"
NO_SCHEDSTAT = "this kernel does not tell how long a thread waits for a CPU (no schedstat)"


# ---- the registry --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A named number computed from a trial."""

    name: str
    unit: str
    direction: Direction
    text: str
    compute: Callable[[TrialView], Number]

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

        @wraps(compute)
        def number(view: TrialView) -> Number | None:
            try:
                return compute(view)
            except Unmeasured:
                return None

        return number

    return register


@dataclass(frozen=True)
class Numbers:
    """Metrics of one trial by name, and for each that is None the reason."""

    values: dict[str, Number | None]
    reasons: dict[str, str]


def measure(view: TrialView, names: Iterable[str] | None = None) -> Numbers:
    """The chosen metrics of one trial, or all; only `ready_s` where the trial failed."""
    found = Numbers({}, {})
    for name in METRICS if names is None else names:
        try:
            if view.record.outcome == "failed" and name != "ready_s":
                raise Unmeasured(f"the trial failed: {view.record.reason}")
            found.values[name] = METRICS[name].compute(view)
        except Unmeasured as reason:
            found.values[name], found.reasons[name] = None, str(reason)
    return found


def values(view: TrialView, names: Iterable[str] | None = None) -> dict[str, Number | None]:
    return measure(view, names).values


def _latency(tag: str, unit: str, ns_per_unit: float, statistic: str, text: str) -> None:
    """Registers `<tag>_<unit>_<statistic>`: p50, p999, max or mean of one tag of the histogram log."""

    def compute(view: TrialView) -> float:
        found = _recorded(view, tag)
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
    return known(view.counted, NO_END) / known(view.window_s, NO_WINDOW)


@metric("requests/s", "higher")
def requests_per_s(view):
    """Answered HTTP requests per second; what ApacheBench calls "Requests per second"."""
    _require_doc(view)
    return known(view.counted, NO_END) / known(view.window_s, NO_WINDOW)


@metric("ms", "lower")
def time_per_request_ms(view):
    """Concurrency × window / answered requests; what ApacheBench calls "Time per request (mean)"."""
    return _ms_per_request(view) * view.plan.connections


@metric("ms", "lower")
def time_per_request_across_ms(view):
    """Window / answered requests; ApacheBench's "Time per request (mean, across all concurrent requests)"."""
    return _ms_per_request(view)


@metric("ms", "lower")
def served_90_ms(view):
    """Time within which 90 % of the HTTP requests were served; ApacheBench's "90%" line.

    With a connection per request it counts from `connect()` to the close, otherwise from the request to its reply.
    """
    _require_doc(view)
    return _recorded(view, "request" if view.connection_per_request else "service").quantile("0.9") / NS_PER_MS


@metric("bytes/s", "higher")
def received_bytes_per_s(view):
    """Bytes received on the wire per second of the measured window, framing and heads included."""
    return known(view.measured, NO_END).bytes_received / known(view.window_s, NO_WINDOW)


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
    """Messages that failed, stayed unanswered or were never sent, and kept connections that were never established."""
    ledger = known(view.measured, NO_END)
    return ledger.failed + ledger.unanswered + ledger.unsent + missing_connections(view)


@metric("fraction", "lower")
def error_fraction(view):
    """Failed, unanswered and unsent messages, as a share of the messages that were due in the measured window."""
    ledger = known(view.measured, NO_END)
    due = known((ledger.sent + ledger.unsent) or None, "no message was due in the measured window")
    return (ledger.failed + ledger.unanswered + ledger.unsent) / due


# ---- resources -----------------------------------------------------------------------------------------------------


@metric("µs", "lower")
def server_cpu_us_per_message(view):
    """CPU time of the server's process tree per counted message."""
    return 1e6 * view.server_cpu_s / known(view.counted or None, "no message was answered")


@metric("%", "neither")
def server_cpu_percent_mean(view):
    """CPU use of the server's process tree over the measured window; 100 is one core."""
    start, end = known(view.window, NO_WINDOW)
    return 100 * view.server_cpu_s / ((end - start) / NS_PER_S)


@metric("%", "neither")
def server_cpu_percent_max(view):
    """Highest CPU use of the server over any quarter of a second between samples inside the window; 100 is one core."""
    pieces = []
    for sample in view.server_in_window():
        if not pieces or sample.t_ns - pieces[-1].t_ns >= PEAK_S * NS_PER_S:
            pieces.append(sample)
    shares = [
        100 * (cpu_s(after) - cpu_s(before)) / ((after.t_ns - before.t_ns) / NS_PER_S)
        for before, after in pairwise(pieces)
    ]
    return known(max(shares, default=None), "no quarter of a second lies between samples inside the measured window")


@metric("bytes", "lower")
def server_rss_bytes_max(view):
    """Largest resident memory of the server's process tree in the measured window."""
    return known(max((sample.rss_bytes for sample in view.server_in_window()), default=None), NO_SAMPLES)


@metric("bytes", "lower")
def server_rss_bytes_start(view):
    """Resident memory of the server's process tree at the first sample of the measured window."""
    return known(next((sample.rss_bytes for sample in view.server_in_window()), None), NO_SAMPLES)


@metric("count", "neither")
def server_threads_max(view):
    """Most threads of the server's process tree in the measured window."""
    return known(max((sample.threads for sample in view.server_in_window()), default=None), NO_SAMPLES)


@metric("count", "neither")
def server_fds_max(view):
    """Most open file descriptors of the server's process tree in the measured window."""
    counts = [sample.fds for sample in view.server_in_window() if sample.fds is not None]
    return known(max(counts, default=None), "no sample inside the measured window could count the server's files")


@metric("%", "neither")
def engine_cpu_percent_mean(view):
    """CPU use of the engine's workers over the measured window; 100 is one core."""
    return sum(100 * worker.cpu_ns / known(worker.wall_ns or None, NO_WINDOW) for worker in _workers(view))


@metric("%", "lower")
def engine_wait_percent(view):
    """Largest share of the measured window in which one of the engine's workers was ready to run but did not."""
    workers = _workers(view)
    return max(100 * known(one.wait_ns, NO_SCHEDSTAT) / known(one.wall_ns or None, NO_WINDOW) for one in workers)


@metric("µs", "lower")
def engine_wait_us_per_message(view):
    """Mean time that a message waited for the engine to get a CPU; part of its service time.

    The workers' wait, divided by the counted messages, times the messages that one wait held up: those of a wake-up on
    average, at least one, at most one a connection.
    """
    workers = _workers(view)
    waited_ns = sum(known(one.wait_ns, NO_SCHEDSTAT) for one in workers)
    messages = known(view.counted or None, "no message was answered")
    waits = sum(one.voluntary_switches + one.involuntary_switches for one in workers)
    held_up = min(view.plan.connections, max(1.0, messages / waits) if waits else view.plan.connections)
    return waited_ns / messages * held_up / NS_PER_US


@metric("s", "lower")
def ready_s(view):
    """Time from starting the server to its first accepted handshake."""
    return known(view.record.ready_s, "the server was never ready")


# ---- shared by metrics and verdict ---------------------------------------------------------------------------------


def missing_connections(view: TrialView) -> int:
    """Kept connections that were asked for and not established; 0 where every request has its own."""
    if view.end is None or view.connection_per_request:
        return 0
    return max(0, view.end.connections.asked - view.end.connections.established)


def _require_doc(view: TrialView) -> None:
    if not isinstance(known(view.plan, "the trial has no plan").scenario, Doc):
        raise Unmeasured(NOT_HTTP)


def _ms_per_request(view: TrialView) -> float:
    _require_doc(view)
    counted = known(view.counted, NO_END)
    return 1000 * known(view.window_s, NO_WINDOW) / known(counted or None, "no request was answered")


def _recorded(view: TrialView, tag: str) -> Histogram:
    found = view.histograms.get(tag)
    return known(found if found is not None and found.count else None, f"no {tag} time was recorded")


def _workers(view: TrialView) -> list[Worker]:
    return known(known(view.end, NO_END).threads or None, "the engine told nothing of its workers")

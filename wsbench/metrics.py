"""Metrics: one trial in, one number out. Each is a function with a name, a unit, a direction and a docstring for
people.

A number that does not apply or was not measured is None with a reason, never zero: nothing is filled in and nothing is
extrapolated. Inside a metric, `known` and `Unmeasured` give the reason; called by its name a metric returns None. It
computes no quantile itself and never runs anything.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from wsbench.engine_files import Broadcast, Doc, Push, Worker
from wsbench.histogram import Histogram
from wsbench.registry import METRICS, Metric, Numbers, measure, metric, values
from wsbench.view import NO_END, NO_WINDOW, NS_PER_S, TrialView, Unmeasured, cpu_s, known

__all__ = ["METRICS", "Metric", "Numbers", "measure", "values"]
NS_PER_US = 1e3
NS_PER_MS = 1e6
PEAK_S = 0.2  # a little less than the longest distance of samples, which varies by a few milliseconds
NO_PLAN = "the trial has no plan"
NOT_HTTP = "the scenario has no HTTP requests"
NOT_OPEN = "the loop is not open: nothing is due but by a reply"
NOT_PUSH = "the scenario has no broadcasts"
SHORTEST_CONNECT_S = 0.1  # the engine ends this phase 2 ms after the last connection, so that all workers see its end
NO_SAMPLES = "no sample of the server lies inside the measured window"
NO_SCHEDSTAT = "this kernel does not tell how long a thread waits for a CPU (no schedstat)"


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


@metric("bytes/s", "higher")
def sent_bytes_per_s(view):
    """Bytes sent on the wire per second of the measured window, framing and heads included."""
    return known(view.measured, NO_END).bytes_sent / known(view.window_s, NO_WINDOW)


@metric("connections/s", "higher")
def connects_per_s(view):
    """Connections made per second before the first message, over the whole phase in which they were opened.

    Only for a phase of at least 0.1 s: two milliseconds of it are the engine's own.
    """
    if known(view.plan, NO_PLAN).stages is not None or view.connection_per_request:
        raise Unmeasured("connections are not opened in a phase of their own")
    began = known(view.begins.get("connect"), "the engine wrote no phase `connect`")
    ticks = known([tick for tick in view.ticks if tick.phase == "connect"] or None, "the phase `connect` has no tick")
    seconds = (ticks[-1].t_ns - began) / NS_PER_S
    if seconds < SHORTEST_CONNECT_S:
        raise Unmeasured(f"connecting took {seconds:.3g} s, too short for a rate (less than {SHORTEST_CONNECT_S:g} s)")
    return ticks[-1].open / seconds


@metric("ratio", "neither")
def rate_ratio(view):
    """Open loop: messages (broadcasts) that left inside the measured window, over those that were due in it.

    Due are those of the schedule, sent or not. Below 1 the load was lighter than asked.
    """
    due = known(view.due_in_window, _no_open_loop(view) or NO_END)
    left = known(view.left_in_window, "the engine wrote no tick at an edge of the window")
    return left / known(due or None, "no message was due in the measured window")


@metric("ratio", "neither")
def planned_rate_ratio(view):
    """Open loop: messages due in the measured window by the engine's count, over the plan's rate integrated over it.

    Of Poisson arrivals the plan knows only the mean, so with n messages this scatters by 1/√n.
    """
    planned = known(view.planned_in_window, _no_open_loop(view) or "the run was not ended by time, or never began")
    return known(view.due_in_window, NO_END) / known(planned or None, "no message was planned for the measured window")


# ---- latencies -----------------------------------------------------------------------------------------------------

_SERVICE = "the time from sending a message to its complete reply"
_RESPONSE = "the time from when a message was due to its complete reply (open loops and pauses)"
_SEND_LAG = "the time by which messages left later than they were due (open loops and pauses)"
_PUSH = "the time from triggering a broadcast to one receiver's copy"
for _statistic, _words in [
    ("p50", "Median of"),
    ("p90", "90th percentile of"),
    ("p99", "99th percentile of"),
    ("p999", "99.9th percentile of"),
    ("max", "Longest of"),
    ("mean", "Mean of"),
]:
    _latency("service", "us", NS_PER_US, _statistic, f"{_words} {_SERVICE}.")
    _latency("response", "us", NS_PER_US, _statistic, f"{_words} {_RESPONSE}.")
    _latency("send_lag", "us", NS_PER_US, _statistic, f"{_words} {_SEND_LAG}.")
    _latency("push", "us", NS_PER_US, _statistic, f"{_words} {_PUSH}.")
for _statistic, _words in [("p50", "Median"), ("p99", "99th percentile of the")]:
    _latency("connect", "us", NS_PER_US, _statistic, f"{_words} time from `connect()` to a usable connection.")
for _statistic, _words in [("p50", "Median"), ("p90", "90th percentile of the"), ("p99", "99th percentile of the")]:
    _latency("request", "us", NS_PER_US, _statistic, f"{_words} time from `connect()` to the server's close.")
_latency("request", "us", NS_PER_US, "max", "Longest time from `connect()` to the server's close.")


# ---- broadcasts ----------------------------------------------------------------------------------------------------


@metric("fraction", "higher")
def push_reach(view):
    """Copies received, over the copies expected: a broadcast's are the connections open and reading when it was triggered."""
    broadcasts = _broadcasts(view)
    expected = known(sum(one.expected for one in broadcasts) or None, "nobody was there to receive a broadcast")
    return sum(one.received for one in broadcasts) / expected


@metric("µs", "lower")
def push_spread_us(view):
    """From a broadcast's first receiver to its last, median over the broadcasts that reached all."""
    return median(one.last_ns - one.first_ns for one in _complete(view)) / NS_PER_US


@metric("µs", "lower")
def push_last_us_p50(view):
    """From triggering a broadcast to its last receiver, median over the broadcasts that reached all."""
    return median(one.last_ns - one.t_ns for one in _complete(view)) / NS_PER_US


@metric("µs", "lower")
def push_last_us_max(view):
    """From triggering a broadcast to its last receiver, longest over the broadcasts that reached all."""
    return max(one.last_ns - one.t_ns for one in _complete(view)) / NS_PER_US


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


@metric("count", "lower")
def connections_lost(view):
    """Kept connections that were established and no longer open at the end, although nothing had closed them."""
    plan, end = known(view.plan, NO_PLAN), known(view.end, NO_END)
    comes_and_goes = plan.stages is not None or getattr(plan.loop, "messages_per_connection", None) is not None
    if view.connection_per_request or comes_and_goes or end.control.reconnects:
        raise Unmeasured("connections come and go in this load")
    return max(0, end.connections.established - end.connections.open)


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
    """Kept connections that were asked for and not established; 0 where every request has its own.

    Where stages say how many there are, those of the highest; who comes again counts again, so it is at least so many.
    """
    if view.end is None or view.connection_per_request:
        return 0
    stages = view.plan.stages if view.plan is not None else None
    asked = view.end.connections.asked if stages is None else max(stage.to for stage in stages)
    return max(0, asked - view.end.connections.established)


def _require_doc(view: TrialView) -> None:
    if not isinstance(known(view.plan, NO_PLAN).scenario, Doc):
        raise Unmeasured(NOT_HTTP)


def _ms_per_request(view: TrialView) -> float:
    _require_doc(view)
    counted = known(view.counted, NO_END)
    return 1000 * known(view.window_s, NO_WINDOW) / known(counted or None, "no request was answered")


def _no_open_loop(view: TrialView) -> str | None:
    return NOT_OPEN if view.open_loop is None else None


def _broadcasts(view: TrialView) -> list[Broadcast]:
    if not isinstance(known(view.plan, NO_PLAN).scenario, Push):
        raise Unmeasured(NOT_PUSH)
    return known(view.broadcasts or None, "no broadcast was triggered in the measured window")


def _complete(view: TrialView) -> list[Broadcast]:
    """Broadcasts with a last receiver: one that somebody missed has none."""
    whole = [one for one in _broadcasts(view) if one.received >= one.expected and one.last_ns is not None]
    return known(whole or None, "no broadcast reached all of its receivers")


def _recorded(view: TrialView, tag: str) -> Histogram:
    found = view.histograms.get(tag)
    return known(found if found is not None and found.count else None, f"no {tag} time was recorded")


def _workers(view: TrialView) -> list[Worker]:
    return known(known(view.end, NO_END).threads or None, "the engine told nothing of its workers")

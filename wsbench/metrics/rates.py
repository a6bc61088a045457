"""Rates of messages, bytes and connections, and how closely an open loop followed its schedule."""

from __future__ import annotations

from wsbench.metrics.parts import NO_PLAN, NS_PER_MS, NS_PER_US, no_open_loop, recorded, require_doc
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import NO_END, NO_WINDOW, NS_PER_S, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.engine_files import PhaseBegin

SHORTEST_CONNECT_S = 0.1  # the engine ends this phase 2 ms after the last connection, so that all workers see its end


@metric("messages/s", "higher", "throughput")
def messages_per_s(trial):
    """Correct replies per second of the measured window.

    If time ends the run: replies that arrived inside the window. If a message count ends it: all answered messages.
    """
    return known(trial.counted, NO_END) / known(trial.window_s, NO_WINDOW)


@metric("requests/s", "higher", "throughput")
def requests_per_s(trial):
    """Answered HTTP requests per second; ApacheBench's "Requests per second"."""
    require_doc(trial)
    return known(trial.counted, NO_END) / known(trial.window_s, NO_WINDOW)


@metric("ms", "lower", "throughput")
def time_per_request_ms(trial):
    """Concurrency × window / answered requests; ApacheBench's "Time per request (mean)"."""
    return ms_per_request(trial) * trial.plan.connections


@metric("ms", "lower", "throughput")
def time_per_request_across_ms(trial):
    """Window / answered requests; ApacheBench's "Time per request (mean, across all concurrent requests)"."""
    return ms_per_request(trial)


@metric("ms", "lower", "body")
def served_90_ms(trial):
    """Time within which 90 % of the HTTP requests were served; ApacheBench's "90%" line.

    With a connection per request, it counts from `connect()` to the close; otherwise from the request to its reply.
    """
    require_doc(trial)
    return recorded(trial, "request" if trial.connection_per_request else "service").quantile("0.9") / NS_PER_MS


@metric("µs", "lower", "throughput")
def elapsed_us_per_message(trial):
    """Measured window / answered messages of all connections.

    The 2013 comparison of TCP and WebSocket calls this the average round trip. The time of a single message is longer, by a factor
    of about the number of connections.
    """
    counted = known(trial.counted, NO_END)
    return 1e6 * known(trial.window_s, NO_WINDOW) / known(counted or None, "no message was answered")


@metric("bytes/s", "higher", "throughput")
def received_bytes_per_s(trial):
    """Bytes received on the wire per second of the measured window, including framing and headers."""
    return known(trial.bytes_received, NO_END) / known(trial.window_s, NO_WINDOW)


@metric("bytes/s", "higher", "throughput")
def sent_bytes_per_s(trial):
    """Bytes sent on the wire per second of the measured window, including framing and headers."""
    return known(trial.bytes_sent, NO_END) / known(trial.window_s, NO_WINDOW)


@metric("connections/s", "higher", "connect")
def connects_per_s(trial):
    """Connections opened per second before the first message, over the whole connect phase.

    Only for a phase of at least 0.1 s, because the engine itself takes two milliseconds of it.
    """
    if known(trial.plan, NO_PLAN).stages is not None or trial.connection_per_request:
        raise Unmeasured("the load has no separate phase for opening connections")
    began = known(trial.begins.get("connect"), "the engine wrote no phase `connect`")
    ticks = known([tick for tick in trial.ticks if tick.phase == "connect"] or None, "the phase `connect` has no tick")
    seconds = (ticks[-1].t_ns - began) / NS_PER_S
    if seconds < SHORTEST_CONNECT_S:
        raise Unmeasured(f"connecting took {seconds:.3g} s, too short for a rate (less than {SHORTEST_CONNECT_S:g} s)")
    return ticks[-1].open / seconds


@metric("µs", "lower", "counts")
def start_spread_us(trial):
    """Time from the start of the measured window until the last worker of all engine processes had entered it."""
    began = known(next((one for one in trial.events if isinstance(one, PhaseBegin) and one.phase == "measure"), None), NO_WINDOW)
    return (known(began.entered_ns, "the engine did not record when its workers entered the window") - began.t_ns) / NS_PER_US


@metric("ratio", "neither", "counts")
def rate_ratio(trial):
    """Open loop: messages (broadcasts) sent inside the measured window / those due in it by the schedule, sent or not.

    Below 1 the load was lighter than requested.
    """
    due = known(trial.due_in_window, no_open_loop(trial) or NO_END)
    left = known(trial.left_in_window, "the engine wrote no tick at an edge of the window")
    return left / known(due or None, "no message was due in the measured window")


@metric("ratio", "neither", "counts")
def planned_rate_ratio(trial):
    """Open loop: messages due in the measured window by the engine's count / the plan's rate integrated over the window.

    For Poisson arrivals the plan determines only the mean, so with n messages this scatters by 1/√n.
    """
    planned = known(trial.planned_in_window, no_open_loop(trial) or "the run was not ended by time, or never began")
    return known(trial.due_in_window, NO_END) / known(planned or None, "no message was planned for the measured window")


def ms_per_request(trial: TrialData) -> float:
    require_doc(trial)
    counted = known(trial.counted, NO_END)
    return 1000 * known(trial.window_s, NO_WINDOW) / known(counted or None, "no request was answered")

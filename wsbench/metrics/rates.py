"""How much was carried in a second, and how near an open loop came to its schedule."""

from __future__ import annotations

from wsbench.metrics.parts import NO_PLAN, NS_PER_MS, no_open_loop, recorded, require_doc
from wsbench.metrics.registry import metric
from wsbench.view import NO_END, NO_WINDOW, NS_PER_S, TrialView, Unmeasured, known

SHORTEST_CONNECT_S = 0.1  # the engine ends this phase 2 ms after the last connection, so that all workers see its end


@metric("messages/s", "higher")
def messages_per_s(view):
    """Right replies per second of the measured window.

    Where time ends the run: replies that arrived inside the window. Where a count ends it: all answered messages.
    """
    return known(view.counted, NO_END) / known(view.window_s, NO_WINDOW)


@metric("requests/s", "higher")
def requests_per_s(view):
    """Answered HTTP requests per second; what ApacheBench calls "Requests per second"."""
    require_doc(view)
    return known(view.counted, NO_END) / known(view.window_s, NO_WINDOW)


@metric("ms", "lower")
def time_per_request_ms(view):
    """Concurrency × window / answered requests; what ApacheBench calls "Time per request (mean)"."""
    return ms_per_request(view) * view.plan.connections


@metric("ms", "lower")
def time_per_request_across_ms(view):
    """Window / answered requests; ApacheBench's "Time per request (mean, across all concurrent requests)"."""
    return ms_per_request(view)


@metric("ms", "lower")
def served_90_ms(view):
    """Time within which 90 % of the HTTP requests were served; ApacheBench's "90%" line.

    With a connection per request it counts from `connect()` to the close, otherwise from the request to its reply.
    """
    require_doc(view)
    return recorded(view, "request" if view.connection_per_request else "service").quantile("0.9") / NS_PER_MS


@metric("µs", "lower")
def elapsed_us_per_message(view):
    """The measured window, divided by the answered messages of all connections together.

    No message's own time, but what the comparison of TCP and WebSocket of 2013 calls the average round trip: a message's own
    time is about as many times longer as there are connections.
    """
    counted = known(view.counted, NO_END)
    return 1e6 * known(view.window_s, NO_WINDOW) / known(counted or None, "no message was answered")


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
    due = known(view.due_in_window, no_open_loop(view) or NO_END)
    left = known(view.left_in_window, "the engine wrote no tick at an edge of the window")
    return left / known(due or None, "no message was due in the measured window")


@metric("ratio", "neither")
def planned_rate_ratio(view):
    """Open loop: messages due in the measured window by the engine's count, over the plan's rate integrated over it.

    Of Poisson arrivals the plan knows only the mean, so with n messages this scatters by 1/√n.
    """
    planned = known(view.planned_in_window, no_open_loop(view) or "the run was not ended by time, or never began")
    return known(view.due_in_window, NO_END) / known(planned or None, "no message was planned for the measured window")


def ms_per_request(view: TrialView) -> float:
    require_doc(view)
    counted = known(view.counted, NO_END)
    return 1000 * known(view.window_s, NO_WINDOW) / known(counted or None, "no request was answered")

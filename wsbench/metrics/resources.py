"""What the load cost the server, and what the engine used itself."""

from __future__ import annotations

from itertools import pairwise

from wsbench.metrics.parts import NO_SAMPLES, NO_SCHEDSTAT, NS_PER_US, workers_of
from wsbench.metrics.registry import metric
from wsbench.view import NO_WINDOW, NS_PER_S, cpu_s, known

PEAK_S = 0.2  # a little less than the longest distance of samples, which varies by a few milliseconds


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
    return sum(100 * worker.cpu_ns / known(worker.wall_ns or None, NO_WINDOW) for worker in workers_of(view))


@metric("%", "lower")
def engine_wait_percent(view):
    """Largest share of the measured window in which one of the engine's workers was ready to run but did not."""
    workers = workers_of(view)
    return max(100 * known(one.wait_ns, NO_SCHEDSTAT) / known(one.wall_ns or None, NO_WINDOW) for one in workers)


@metric("µs", "lower")
def engine_wait_us_per_message(view):
    """Mean time that a message waited for the engine to get a CPU; part of its service time.

    The workers' wait, divided by the counted messages, times the messages that one wait held up: those of a wake-up on
    average, at least one, at most one a connection.
    """
    workers = workers_of(view)
    waited_ns = sum(known(one.wait_ns, NO_SCHEDSTAT) for one in workers)
    messages = known(view.counted or None, "no message was answered")
    waits = sum(one.voluntary_switches + one.involuntary_switches for one in workers)
    held_up = min(view.plan.connections, max(1.0, messages / waits) if waits else view.plan.connections)
    return waited_ns / messages * held_up / NS_PER_US


@metric("s", "lower")
def ready_s(view):
    """Time from starting the server to its first accepted handshake."""
    return known(view.record.ready_s, "the server was never ready")

"""Resource use of the server, the engine and the machine."""

from __future__ import annotations

from itertools import pairwise

from wsbench.metrics.parts import NO_SAMPLES, workers_of
from wsbench.metrics.registry import metric
from wsbench.metrics.tracks import cpu_s
from wsbench.metrics.trial_data import NO_WINDOW, NS_PER_S, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.samples import GroupSample, ProcessSample, SamplerCost, SharedMemorySample, SwitchesSample

PEAK_S = 0.2  # slightly less than the longest sampling interval, which varies by a few milliseconds


@metric("µs", "lower", "cpu")
def server_cpu_us_per_message(trial):
    """CPU time of the server's process tree per counted message."""
    return 1e6 * trial.server_cpu_s_per_message


@metric("%", "neither", "cpu")
def server_cpu_percent_mean(trial):
    """CPU use of the server's process tree over the measured window; 100 is one core."""
    return 100 * trial.server_cpu_share


@metric("%", "neither", "cpu")
def server_cpu_percent_max(trial):
    """Highest CPU use of the server over about a quarter of a second, between samples inside the window; 100 is one core."""
    pieces = []
    for sample in _seen(trial):
        if not pieces or sample.t_ns - pieces[-1].t_ns >= PEAK_S * NS_PER_S:
            pieces.append(sample)
    shares = [100 * (cpu_s(after) - cpu_s(before)) / ((after.t_ns - before.t_ns) / NS_PER_S) for before, after in pairwise(pieces)]
    return known(max(shares, default=None), "the samples inside the window span less than a quarter of a second")


@metric("bytes", "lower", "memory")
def server_rss_bytes_max(trial):
    """Largest resident memory (RSS) of the server's process tree in the measured window."""
    return known(max((sample.rss_bytes for sample in _seen(trial)), default=None), NO_SAMPLES)


@metric("bytes", "lower", "memory")
def server_rss_bytes_start(trial):
    """Resident memory (RSS) of the server's process tree at the first sample of the measured window."""
    return known(next((sample.rss_bytes for sample in _seen(trial)), None), NO_SAMPLES)


@metric("count", "neither", "counts")
def server_threads_max(trial):
    """Most threads of the server's process tree in the measured window."""
    return known(max((sample.threads for sample in _seen(trial)), default=None), NO_SAMPLES)


@metric("count", "neither", "counts")
def server_fds_max(trial):
    """Most open file descriptors of the server's process tree in the measured window."""
    counts = [sample.fds for sample in _seen(trial) if sample.fds is not None]
    return known(max(counts, default=None), "no sample inside the measured window contains the server's open files")


@metric("switches/s", "lower", "cpu")
def server_voluntary_switches_per_s(trial):
    """Voluntary context switches per second of the server's threads: a thread was idle or waited."""
    return _switches_per_s(trial, "server", "voluntary")


@metric("switches/s", "lower", "cpu")
def server_involuntary_switches_per_s(trial):
    """Involuntary context switches per second of the server's threads: a thread lost its CPU to another."""
    return _switches_per_s(trial, "server", "involuntary")


@metric("switches/s", "neither", "cpu")
def engine_voluntary_switches_per_s(trial):
    """Voluntary context switches per second of the engine's workers, over the measured window."""
    return sum(one.voluntary_switches / (known(one.wall_ns or None, NO_WINDOW) / NS_PER_S) for one in workers_of(trial))


@metric("switches/s", "neither", "cpu")
def engine_involuntary_switches_per_s(trial):
    """Involuntary context switches per second of the engine's workers, over the measured window."""
    return sum(one.involuntary_switches / (known(one.wall_ns or None, NO_WINDOW) / NS_PER_S) for one in workers_of(trial))


@metric("bytes", "lower", "memory")
def server_pss_bytes_ready(trial):
    """Proportional set size of the server's process tree before the load. It includes the server's share of shared pages."""
    return _pss_bytes(trial, "ready")


@metric("bytes", "lower", "memory")
def server_pss_bytes_idle(trial):
    """Proportional set size of the server in the middle of the idle span (all connections open, no message due)."""
    return _pss_bytes(trial, "idle")


@metric("bytes", "lower", "memory")
def server_pss_bytes_ended(trial):
    """Proportional set size of the server after the load. Its connections are closed; most of its memory is still allocated."""
    return _pss_bytes(trial, "ended")


@metric("bytes", "lower", "memory")
def server_group_bytes_max(trial):
    """Most memory charged to the server's control group in the measured window, including kernel memory for its sockets."""
    return max(one.memory_bytes for one in _groups(trial))


@metric("bytes", "lower", "memory")
def server_group_socket_bytes_max(trial):
    """Most socket buffer memory charged to the server's control group in the measured window."""
    sizes = [one.socket_bytes for one in _groups(trial) if one.socket_bytes is not None]
    return known(max(sizes, default=None), "the control group does not report socket buffers")


@metric("bytes", "lower", "memory")
def server_group_kernel_bytes_max(trial):
    """Most kernel memory charged to the server's control group: its slab (version 2) or all of it (version 1)."""
    sizes = [one.kernel_bytes for one in _groups(trial) if one.kernel_bytes is not None]
    return known(max(sizes, default=None), "the control group does not report kernel memory")


@metric("%", "higher", "cpu")
def cpu_idle_percent(trial):
    """Idle share of the machine's CPU time over the measured window."""
    return 100 * trial.cpu_idle_share_over(trial.span("measured"))


@metric("bytes", "higher", "memory")
def memory_available_bytes_min(trial):
    """Least memory of the machine that a program could still get in the measured window."""
    span = trial.span("measured")
    found = [one.memory.available_bytes for one in trial.machine if one.memory is not None and span.holds(one.t_ns)]
    return known(min(found, default=None), "no sample inside the measured window contains the machine's memory")


@metric("%", "lower", "cpu")
def sampling_cpu_percent(trial):
    """CPU use of wsbench itself while it samples; 100 is one core. Of its sampling thread alone in older runs."""
    found = trial.samples_of(SamplerCost)
    cost = known(found[-1] if found else None, "the sampler did not finish")
    return 100 * cost.cpu_ns / (cost.t_ns - cost.began_ns)


@metric("%", "neither", "cpu")
def engine_cpu_percent_mean(trial):
    """CPU use of the engine's workers over the measured window; 100 is one core."""
    return sum(100 * worker.cpu_ns / known(worker.wall_ns or None, NO_WINDOW) for worker in workers_of(trial))


@metric("s", "lower", "connect")
def ready_s(trial):
    """Time from starting the server to its first accepted handshake."""
    if not trial.record.restarted:
        raise Unmeasured("the server ran already and was not started")
    return known(trial.record.ready_s, "the server was never ready")


def _seen(trial: TrialData) -> list[ProcessSample]:
    """The server's samples inside the measured window."""
    trial.require_sampled()
    return trial.server_in_window


def _switches_per_s(trial: TrialData, who: str, kind: str) -> float:
    """Rate between the first and the last sample inside the window, which are at least a second apart."""
    if who == "server":
        trial.require_sampled()
    span = trial.span("measured")
    seen = [one for one in trial.samples_of(SwitchesSample) if one.who == who and span.holds(one.t_ns)]
    if len(seen) < 2:
        raise Unmeasured("context switches were sampled less than twice in the measured window")
    return (getattr(seen[-1], kind) - getattr(seen[0], kind)) / ((seen[-1].t_ns - seen[0].t_ns) / NS_PER_S)


def _pss_bytes(trial: TrialData, moment: str) -> int:
    trial.require_sampled()
    found = [one.pss_bytes for one in trial.samples_of(SharedMemorySample) if one.moment == moment]
    return known(found[0] if found else None, f"the proportional set size was not read at the moment `{moment}`")


def _groups(trial: TrialData) -> list[GroupSample]:
    trial.require_sampled()
    span = trial.span("measured")
    found = [one for one in trial.samples_of(GroupSample) if span.holds(one.t_ns)]
    return known(found or None, "the server has no control group of its own")

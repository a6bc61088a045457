"""The number of connections, and the cost of opening them for the engine."""

from __future__ import annotations

from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import NS_PER_S, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.samples import NetworkSample

NO_TICK = "the engine wrote no tick"
NOT_SAMPLED = "the network was not sampled"
NOT_TOLD = "overflows of listen queues were not sampled"
NO_QUEUES = "drops at the CPUs' queues were not sampled"


@metric("connections", "higher", "counts")
def connections_reached(trial):
    """Most persistent connections open at once, at the engine's ticks. For a stopped trial: until it was stopped."""
    if trial.connection_per_request:
        raise Unmeasured("every request has its own connection")
    return known(max((tick.open for tick in trial.ticks), default=None), NO_TICK)


@metric("connects", "lower", "counts")
def listen_overflows(trial):
    """Connects that the server's kernel dropped during the trial because the queue of a listening socket was full.

    The client's kernel retries after a second, and again until the queue has room. That delay in a connect or a request, and the
    lost throughput, are caused by the server's backlog. Counted for all sockets of the server's network namespace
    (`ListenOverflows`).
    """
    counts = known([sample.listen_overflows for sample in trial.samples_of(NetworkSample)] or None, NOT_SAMPLED)
    return known(counts[-1], NOT_TOLD) - known(counts[0], NOT_TOLD)


@metric("packets", "lower", "counts")
def backlog_drops(trial):
    """Packets that the server's machine dropped during the trial because the queue of a CPU was full.

    On loopback every packet passes such a queue (`net.core.netdev_max_backlog`). TCP resends a dropped segment after 0.2 s or more,
    and a connect after a second. This delay is caused by the machine, not by the server. Counted for the whole machine
    (/proc/net/softnet_stat).
    """
    counts = known([sample.backlog_dropped for sample in trial.samples_of(NetworkSample)] or None, NOT_SAMPLED)
    return known(counts[-1], NO_QUEUES) - known(counts[0], NO_QUEUES)


@metric("%", "neither", "cpu")
def engine_cpu_percent_connecting(trial):
    """CPU use of the engine's workers while connections were opened, before the first message; 100 is one core."""
    return 100 * _connecting(trial).cpu_ns / NS_PER_S / _connecting_s(trial)


def _connecting(trial: TrialData):
    ticks = [tick for tick in trial.ticks if tick.phase == "connect"]
    return known(ticks[-1] if ticks else None, "the phase `connect` has no tick")


def _connecting_s(trial: TrialData) -> float:
    began = known(trial.begins.get("connect"), "the engine wrote no phase `connect`")
    seconds = (_connecting(trial).t_ns - began) / NS_PER_S
    return known(seconds if seconds > 0 else None, "connecting took no time")

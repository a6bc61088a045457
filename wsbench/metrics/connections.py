"""How many connections there were, and what opening them cost the engine."""

from __future__ import annotations

from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import NS_PER_S, TrialData, Unmeasured, known
from wsbench.records.samples import NetworkSample

NO_TICK = "the engine wrote no tick"
NOT_SAMPLED = "the network was not sampled"
NOT_TOLD = "the overflows of listen queues were not sampled"
NO_QUEUES = "what the queues of the CPUs dropped was not sampled"


@metric("connections", "higher")
def connections_reached(trial):
    """Most kept connections that were open at once, seen at the engine's ticks. Of a trial that was stopped: until then."""
    if trial.connection_per_request:
        raise Unmeasured("every request has a connection of its own")
    return known(max((tick.open for tick in trial.ticks), default=None), NO_TICK)


@metric("connects", "lower")
def listen_overflows(trial):
    """Times that the server's kernel dropped a connect, over the trial, because the queue of a listening socket was full.

    The client's kernel tries again after a second, and again until there is room: such a time in a connect or a request, and
    the throughput that it costs, are the doing of the server's backlog. Counted for all sockets of that network namespace
    (`ListenOverflows`).
    """
    counts = known([sample.listen_overflows for sample in trial.samples_of(NetworkSample)] or None, NOT_SAMPLED)
    return known(counts[-1], NOT_TOLD) - known(counts[0], NOT_TOLD)


@metric("packets", "lower")
def backlog_drops(trial):
    """Packets that the server's machine dropped, over the trial, because the queue of a CPU was full.

    On loopback every packet goes through such a queue (`net.core.netdev_max_backlog`). TCP sends a dropped segment again after
    0.2 s or more, a connect after a second: that is the machine's doing, not the server's. Counted for the whole machine
    (/proc/net/softnet_stat).
    """
    counts = known([sample.backlog_dropped for sample in trial.samples_of(NetworkSample)] or None, NOT_SAMPLED)
    return known(counts[-1], NO_QUEUES) - known(counts[0], NO_QUEUES)


@metric("%", "neither")
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

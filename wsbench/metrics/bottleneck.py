"""Which side of a trial had no CPU left, and whether an open loop met its rate. The verdict uses both."""

from __future__ import annotations

import math

from wsbench import metrics
from wsbench.metrics.findings import Bottleneck
from wsbench.metrics.limits import LIMITS
from wsbench.metrics.trial_data import SERVER_BUSY, TrialData


def bottleneck(trial: TrialData) -> Bottleneck:
    """The side that had no CPU left: the busier one, if it is past its limit. "neither" if an open loop's rate was met: nothing
    limited it, and its throughput is no lower bound, even if the engine was full. "none" for connections that are only held, and
    for a ladder, each of whose rungs has its own.

    "neither" also covers a server with fewer busy threads than CPUs, because samples are of whole process trees.
    """
    if trial.holds_only or trial.record.ladder is not None:
        return "none"
    if rate_met(trial):
        return "neither"
    engine, server = engine_busy(trial), server_busy(trial)
    server_full = server is not None and server >= SERVER_BUSY
    if engine_full(trial) and server is not None and engine > server:
        return "engine"
    if server_full:
        return "server"
    return "neither" if engine is not None and server is not None else "unknown"


def engine_full(trial: TrialData) -> bool:
    """Whether the busiest worker had no CPU left. False if that is unknown."""
    busy = engine_busy(trial)
    return busy is not None and busy >= LIMITS["engine_busy"].suspect


def may_lose(trial: TrialData) -> bool:
    """Whether lost messages can be the engine's: it was the limit, or full although it met the rate. Never where the server was
    the limit."""
    return bottleneck(trial) == "engine" or (engine_full(trial) and rate_met(trial))


def rate_met(trial: TrialData) -> bool:
    """Whether an open loop's messages left at the rate at which they were due."""
    short = shortfall(trial)
    return short is not None and abs(short) <= LIMITS["rate"].suspect


def engine_busy(trial: TrialData) -> float | None:
    """CPU share of the engine's busiest worker. It limits its own connections even if another worker is idle.

    None if workers poll without sleeping: the share is then always 1 and has no meaning.
    """
    if trial.plan is not None and trial.plan.busy_poll:
        return None
    threads = trial.end.threads if trial.end else []
    return max((worker.cpu_ns / worker.wall_ns for worker in threads if worker.wall_ns), default=None)


def server_busy(trial: TrialData) -> float | None:
    """The server's CPU use as a share of its CPUs."""
    percent, cpus = metrics.resources.server_cpu_percent_mean(trial), len(trial.record.server_cpus)
    return percent / 100 / cpus if percent is not None and cpus else None


def shortfall(trial: TrialData) -> float | None:
    """Share of due messages that were not sent in the window. Negative if more were sent than due (a backlog).

    Allows for one message per worker on its way to the socket at either edge.
    """
    left, due = trial.left_in_window, trial.due_in_window
    if left is None or not due:
        return None
    gap = max(0, abs(due - left) - trial.cut_messages)
    return math.copysign(gap / due, due - left)

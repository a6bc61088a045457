"""Delivery ratio and latency of broadcasts."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from wsbench.metrics.parts import NO_PLAN, NS_PER_US, crossing_error_ns, require_close
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.engine_files import Broadcast, Push

NOT_PUSH = "the scenario has no broadcasts"


@metric("fraction", "higher", "counts")
def push_reach(trial):
    """Delivery ratio: copies received / copies expected, one per connection open and reading when the broadcast was triggered."""
    broadcasts = _broadcasts(trial)
    expected = known(sum(one.expected for one in broadcasts) or None, "no broadcast had a receiver")
    return sum(one.received for one in broadcasts) / expected


@metric("µs", "lower", "body")
def push_spread_us(trial):
    """Time from a broadcast's first receiver to its last: median over the broadcasts that reached all receivers."""
    return median(_times(trial, lambda one: one.last_ns - one.first_ns)) / NS_PER_US


@metric("µs", "lower", "body")
def push_last_us_p50(trial):
    """Time from triggering a broadcast to its last receiver: median over the broadcasts that reached all receivers."""
    return median(_times(trial, lambda one: one.last_ns - one.t_ns)) / NS_PER_US


@metric("µs", "lower", "tail")
def push_last_us_max(trial):
    """Time from triggering a broadcast to its last receiver: maximum over the broadcasts that reached all receivers."""
    return max(_times(trial, lambda one: one.last_ns - one.t_ns)) / NS_PER_US


def _broadcasts(trial: TrialData) -> list[Broadcast]:
    if not isinstance(known(trial.plan, NO_PLAN).scenario, Push):
        raise Unmeasured(NOT_PUSH)
    return known(trial.broadcasts or None, "no broadcast was triggered in the measured window")


def _times(trial: TrialData, of: Callable[[Broadcast], int]) -> list[int]:
    """Times of the complete broadcasts. Unmeasured if receivers are on hosts whose clocks are too far apart."""
    found = [of(one) for one in _complete(trial)]
    require_close(crossing_error_ns([host for host, _ in trial.hosts]), median(found))
    return found


def _complete(trial: TrialData) -> list[Broadcast]:
    """Broadcasts that reached all receivers; the others have no last receiver."""
    whole = [one for one in _broadcasts(trial) if one.received >= one.expected and one.last_ns is not None]
    return known(whole or None, "no broadcast reached all of its receivers")

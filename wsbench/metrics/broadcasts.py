"""Delivery ratio and latency of broadcasts, and of messages that a session publishes in rooms."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from wsbench.engine.histogram import Histogram
from wsbench.metrics.parts import NO_PLAN, NS_PER_US, crossing_error_ns, recorded, require_close
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import LAST, NO_END, NO_WINDOW, NS_PER_S, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.engine_files import Broadcast, Push
from wsbench.records.session_table import Session, SessionCounts

NOT_PUSH = "the scenario has no broadcasts"
NOT_SESSION = "the scenario is no session"


@metric("fraction", "higher", "counts")
def push_reach(trial):
    """Delivery ratio: copies received / copies expected.

    A copy of a broadcast is expected for each connection that was open and reading when it was triggered; of a message published in
    a room, for each member that was open.
    """
    if (counts := _in_rooms(trial)) is not None:
        return counts.copies_received / known(counts.copies_expected or None, "no message was published in the measured window")
    broadcasts = _broadcasts(trial)
    expected = known(sum(one.expected for one in broadcasts) or None, "no broadcast had a receiver")
    return sum(one.received for one in broadcasts) / expected


@metric("µs", "lower", "body")
def push_spread_us(trial):
    """Time from a broadcast's first receiver to its last: median over the broadcasts that reached all receivers."""
    return median(_times(trial, lambda one: one.last_ns - one.first_ns)) / NS_PER_US


@metric("µs", "lower", "body")
def push_last_us_p50(trial):
    """Time from triggering a broadcast, or publishing in a room, to the last receiver: median over those that reached all."""
    if _in_rooms(trial) is not None:
        return _last_in_rooms(trial).quantile("0.5") / NS_PER_US
    return median(_times(trial, lambda one: one.last_ns - one.t_ns)) / NS_PER_US


@metric("µs", "lower", "tail")
def push_last_us_max(trial):
    """Time from triggering a broadcast, or publishing in a room, to the last receiver: maximum over those that reached all."""
    if _in_rooms(trial) is not None:
        return _last_in_rooms(trial).max / NS_PER_US
    return max(_times(trial, lambda one: one.last_ns - one.t_ns)) / NS_PER_US


@metric("messages/s", "higher", "throughput")
def pushes_per_s(trial):
    """Messages of a session that arrived without a request, per second of the measured window: copies in rooms, and all others."""
    end = known(trial.end, NO_END)
    counts = known(end.session, NOT_SESSION)
    return counts.pushes_in_window / (known(end.measured.window_ns, NO_WINDOW) / NS_PER_S)


@metric("µs", "lower", "cpu")
def server_cpu_us_per_push(trial):
    """CPU time of the server's process tree per message that arrived without a request: in rooms, per copy delivered."""
    counts = known(known(trial.end, NO_END).session, NOT_SESSION)
    return 1e6 * trial.server_cpu_s / known(counts.pushes_in_window or None, "no message arrived without a request")


def _in_rooms(trial: TrialData) -> SessionCounts | None:
    """The counts of a session with rooms. None for any other trial."""
    scenario = known(trial.plan, NO_PLAN).scenario
    if not isinstance(scenario, Session) or scenario.rooms is None:
        return None
    return known(known(trial.end, NO_END).session, NOT_SESSION)


def _last_in_rooms(trial: TrialData) -> Histogram:
    """Times until the last member had a message. Unmeasured if the slowest are missing."""
    if left_out := _in_rooms(trial).last_unknown:
        raise Unmeasured(f"of {left_out:,} messages it is not known when the last member had them")
    return recorded(trial, LAST)


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

"""Shared parts of metric modules. Each function returns a value or raises Unmeasured with the reason."""

from __future__ import annotations

import math
from fractions import Fraction

from wsbench.engine.histogram import Histogram
from wsbench.metrics.trial_data import NO_END, NO_PLAN, TickMean, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.engine_files import Doc, Messages, Seconds, Stage, Worker
from wsbench.records.hosts import HostRecord

NS_PER_US = 1e3
NS_PER_MS = 1e6
#: The only histogram of times between two clocks, and the largest clock error allowed, as a share of the median.
ONE_WAY = "push_stamp"
ONE_WAY_ERROR = 0.2
#: From the kernel's timestamp until the engine reads: both by the wall clock of one host.
BY_WALL_CLOCK = "receive_delay"
#: The kernel adjusts a running clock by at most 0.05 %, 0.5 ms between two ticks of a second. A clock that moves further was set.
SET_NS = 1_000_000
NOT_HTTP = "the scenario has no HTTP requests"
NOT_OPEN = "the loop is not open: no message is due on a schedule"
NO_SAMPLES = "no sample of the server inside the measured window"
NO_SCHEDSTAT = "this kernel does not report how long a thread waits for a CPU (no schedstat)"


def require_doc(trial: TrialData) -> None:
    if not isinstance(known(trial.plan, NO_PLAN).scenario, Doc):
        raise Unmeasured(NOT_HTTP)


def no_open_loop(trial: TrialData) -> str | None:
    return NOT_OPEN if trial.open_loop is None else None


def at_rank(numbers: list[int], q: str) -> int:
    """The number at rank ⌈q·n⌉. `q` is read in decimal."""
    return sorted(numbers)[max(1, math.ceil(Fraction(q) * len(numbers))) - 1]


def recorded(trial: TrialData, tag: str) -> Histogram:
    found = trial.histograms.get(tag)
    found = known(found if found is not None and found.count else None, f"no {tag} time was recorded")
    if tag == ONE_WAY:
        _require_one_clock(trial, found.quantile("0.5"))
    if tag == BY_WALL_CLOCK and (moved_ns := _wall_moved_ns(trial)) > SET_NS:
        raise Unmeasured(f"the wall clock was set during the measurement: it moved by {moved_ns / NS_PER_US:,.3g} µs")
    return found


def tick_means(trial: TrialData) -> list[TickMean]:
    recorded(trial, "service")
    if trial.slices is not None:
        raise Unmeasured("in slices no stretch of time is whole")
    return trial.tick_means


def _wall_moved_ns(trial: TrialData) -> int:
    return (trial.end.wall_moved_ns or 0) if trial.end is not None else 0


def _require_one_clock(trial: TrialData, median_ns: int) -> None:
    """Unmeasured if the wall clocks of the server's stamp and the receivers may be too far apart, or if a clock was set during the
    measurement."""
    error_ns = wall_error_ns([host for host, _ in trial.hosts])
    if error_ns is None:
        raise Unmeasured("the offset between the wall clocks of the server's host and the load hosts is unknown")
    moved_ns = _wall_moved_ns(trial)
    if moved_ns > ONE_WAY_ERROR * median_ns:
        raise Unmeasured(
            f"the wall clock moved by {moved_ns / NS_PER_US:,.3g} µs during the measurement: "
            f"more than {ONE_WAY_ERROR:.0%} of the median ({median_ns / NS_PER_US:,.3g} µs)"
        )
    require_close(error_ns, median_ns)


def require_close(error_ns: int, median_ns: float) -> None:
    """Unmeasured if the clock error of a time between two hosts may be too large a share of the median."""
    if error_ns > ONE_WAY_ERROR * median_ns:
        raise Unmeasured(
            f"the clocks of the two hosts may differ by {error_ns / NS_PER_US:,.3g} µs: "
            f"more than {ONE_WAY_ERROR:.0%} of the median ({median_ns / NS_PER_US:,.3g} µs)"
        )


def crossing_error_ns(hosts: list[HostRecord]) -> int:
    """Largest error of a time between two load hosts, from the clock offsets before and after the trial; 0 with one load host. All
    times were moved by a host's first offset."""
    errors = [
        max(one.bound_ns + abs(one.offset_ns - host.clocks[0].offset_ns) for one in (host.clocks[0], host.clocks[-1]))
        for host in hosts
        if host.engines
    ]
    return sum(sorted(errors)[-2:]) if len(errors) > 1 else 0


def wall_error_ns(hosts: list[HostRecord]) -> int | None:
    """Largest difference of the wall clocks of a load host and the server's host, from the offsets before and after the trial. 0
    without hosts, None if no host serves."""
    if not hosts:
        return 0
    served = [_wall(host) for host in hosts if host.role == "serve"]
    if not served:
        return None
    (low, high), loads = served[0], [_wall(host) for host in hosts if host.engines]
    return max((max(abs(most - low), abs(least - high)) for least, most in loads), default=None)


def _wall(host: HostRecord) -> tuple[int, int]:
    """Lower and upper bound in ns by which the host's wall clock is ahead of our monotonic clock."""
    found = (host.clocks[0], host.clocks[-1])
    return (
        host.epoch_ns + min(one.offset_ns - one.bound_ns for one in found),
        host.epoch_ns + max(one.offset_ns + one.bound_ns for one in found),
    )


def workers_of(trial: TrialData) -> list[Worker]:
    return known(known(trial.end, NO_END).threads or None, "the engine recorded no workers")


def missing_connections(trial: TrialData) -> int:
    """Persistent connections requested but not established; 0 if every request has its own connection.

    With stages: compared with the highest stage. A connection that is opened again counts again, so this is a lower bound.
    """
    if trial.end is None or trial.connection_per_request:
        return 0
    stages = trial.plan.stages if trial.plan is not None else None
    asked = trial.end.connections.asked if stages is None else _most_due(stages, trial.plan.measure)
    return max(0, asked - trial.end.connections.established)


def _most_due(stages: list[Stage], measure: Seconds | Messages) -> int:
    """The most connections that are due before the measurement ends. A chunk joins together, when its last one is due."""
    left_s, users, most = measure.seconds if isinstance(measure, Seconds) else math.inf, 0, 0
    for stage in stages:
        total = abs(stage.to - users)
        due = total if left_s > stage.over_s else max(0, math.ceil(total * left_s / stage.over_s) - 1 if stage.over_s else 0)
        moved = due if due == total else due // stage.chunk * stage.chunk
        users, left_s = users + (moved if stage.to > users else -moved), left_s - stage.over_s
        most = max(most, users)
        if left_s <= 0:
            break
    return most

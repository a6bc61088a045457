"""What several rooms of metrics need of a trial: each gives the thing, or the reason why there is none."""

from __future__ import annotations

import math
from fractions import Fraction

from wsbench.engine.histogram import Histogram
from wsbench.metrics.trial_data import NO_END, NO_PLAN, TrialData, Unmeasured, known
from wsbench.records.engine_files import Doc, Messages, Seconds, Stage, Worker
from wsbench.records.rundir import HostRecord

NS_PER_US = 1e3
NS_PER_MS = 1e6
#: The one histogram of times by two clocks, and how much of a median two clocks may make wrong.
ONE_WAY = "push_stamp"
ONE_WAY_ERROR = 0.2
NOT_HTTP = "the scenario has no HTTP requests"
NOT_OPEN = "the loop is not open: nothing is due but by a reply"
NO_SAMPLES = "no sample of the server lies inside the measured window"
NO_SCHEDSTAT = "this kernel does not tell how long a thread waits for a CPU (no schedstat)"


def require_doc(trial: TrialData) -> None:
    if not isinstance(known(trial.plan, NO_PLAN).scenario, Doc):
        raise Unmeasured(NOT_HTTP)


def no_open_loop(trial: TrialData) -> str | None:
    return NOT_OPEN if trial.open_loop is None else None


def at_rank(numbers: list[int], q: str) -> int:
    """The number at rank ⌈q·n⌉ of those that are there; `q` by its decimal notation."""
    return sorted(numbers)[max(1, math.ceil(Fraction(q) * len(numbers))) - 1]


def recorded(trial: TrialData, tag: str) -> Histogram:
    found = trial.histograms.get(tag)
    found = known(found if found is not None and found.count else None, f"no {tag} time was recorded")
    if tag == ONE_WAY:
        _require_one_clock(trial, found.quantile("0.5"))
    return found


def _require_one_clock(trial: TrialData, median_ns: int) -> None:
    """Unmeasured where the server's stamp and a receiver's may be by wall clocks that are too far apart, or the clock was set
    between the two."""
    error_ns = wall_error_ns([host for host, _ in trial.hosts])
    if error_ns is None:
        raise Unmeasured("how far the server's wall clock is from those of the hosts that load is not known")
    moved_ns = trial.end.wall_moved_ns if trial.end is not None and trial.end.wall_moved_ns is not None else 0
    if moved_ns > ONE_WAY_ERROR * median_ns:
        raise Unmeasured(
            f"the wall clock moved by {moved_ns / NS_PER_US:,.3g} µs while it was measured by it: "
            f"more than {ONE_WAY_ERROR:.0%} of the median ({median_ns / NS_PER_US:,.3g} µs)"
        )
    require_close(error_ns, median_ns)


def require_close(error_ns: int, median_ns: float) -> None:
    """A time from one host to another is as wrong as their clocks: Unmeasured where that may be too much of the median."""
    if error_ns > ONE_WAY_ERROR * median_ns:
        raise Unmeasured(
            f"it is by the clocks of two hosts, which may differ by {error_ns / NS_PER_US:,.3g} µs: "
            f"more than {ONE_WAY_ERROR:.0%} of the median ({median_ns / NS_PER_US:,.3g} µs)"
        )


def crossing_error_ns(hosts: list[HostRecord]) -> int:
    """How wrong a time may be from an instant on one host that loads to one on another, by what was found before and after the
    trial; 0 where only one loads. Instants were moved by the first of a host's offsets."""
    errors = [
        max(one.bound_ns + abs(one.offset_ns - host.clocks[0].offset_ns) for one in (host.clocks[0], host.clocks[-1]))
        for host in hosts
        if host.engines
    ]
    return sum(sorted(errors)[-2:]) if len(errors) > 1 else 0


def wall_error_ns(hosts: list[HostRecord]) -> int | None:
    """The most by which the wall clock of a host that loads may differ from that of the one that serves, by what was found
    before and after the trial; 0 where there are no hosts, None where none of them serves."""
    if not hosts:
        return 0
    served = [_wall(host) for host in hosts if host.role == "serve"]
    if not served:
        return None
    (low, high), loads = served[0], [_wall(host) for host in hosts if host.engines]
    return max((max(abs(most - low), abs(least - high)) for least, most in loads), default=None)


def _wall(host: HostRecord) -> tuple[int, int]:
    """Between what bounds its wall clock is ahead of our monotonic one."""
    found = (host.clocks[0], host.clocks[-1])
    return (
        host.epoch_ns + min(one.offset_ns - one.bound_ns for one in found),
        host.epoch_ns + max(one.offset_ns + one.bound_ns for one in found),
    )


def workers_of(trial: TrialData) -> list[Worker]:
    return known(known(trial.end, NO_END).threads or None, "the engine told nothing of its workers")


def missing_connections(trial: TrialData) -> int:
    """Kept connections that were asked for and not established; 0 where every request has its own.

    Where stages say how many there are, those of the highest; who comes again counts again, so it is at least so many.
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
        due = (
            total
            if left_s > stage.over_s
            else max(0, math.ceil(total * left_s / stage.over_s) - 1 if stage.over_s else 0)
        )
        moved = due if due == total else due // stage.chunk * stage.chunk
        users, left_s = users + (moved if stage.to > users else -moved), left_s - stage.over_s
        most = max(most, users)
        if left_s <= 0:
            break
    return most

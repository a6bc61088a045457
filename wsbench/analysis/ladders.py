"""What the ladders of a campaign say of a server: its capacity under each SLO, latency over the load, and what followed.

`Results` in, frozen values out. The unit is a process: each ladder is a curve, and a curve of a server is the mean of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import isotonic_regression

from wsbench import metrics
from wsbench.analysis import slo, stats
from wsbench.analysis.dataset import Cell, TrialResult
from wsbench.analysis.results import Results
from wsbench.metrics import capacities
from wsbench.metrics.ladder import NOT_KEPT, Step, bound_us
from wsbench.records.rundir import FollowUp, Slo

Statistic = Literal["p50", "p99", "p999"]
#: A curve is drawn at so many loads, each covered by so many ladders.
DRAWN, COVERED = 24, 3
#: A capacity lies on a plateau if it moves by more than this when the bound moves by that much.
MOVES, BOUND_MOVES = 1.5, 4 / 3
UNITS = {"rate": "messages/s", "connections": "connections"}
#: How long the trials after the rounds last.
CONFIRMATION_S, RECOVERY_S = 12.0, 16.0
#: So many ladders in a row whose lowest load was not kept show that the server does not carry it.
SHOWN = 2


@dataclass(frozen=True)
class CurvePoint:
    """A load, and the mean time of the ladders that cover it, in µs, with its interval (None: of fewer than three)."""

    load: float
    time_us: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Capacity:
    """The capacity of a server in a cell under the SLO at `place`. `lowest`: a load at which its ladders began and did not keep it,
    if that is all they show. `held`: confirmed loads; `recovery`: seconds until it had recovered, or why not."""

    server: str
    cell: Cell
    place: int
    slo: Slo
    estimate: stats.Estimate
    lowest: float | None
    held: float | None
    not_held: float | None
    recovery_s: float | None
    recovery: str | None
    plateau: str | None
    #: Why there is no capacity, in the words of the last ladder; and whether the host or the load generator spoiled all of them.
    why: str | None
    unusable: bool

    @property
    def within(self) -> float | None:
        """The half width of the interval as a share."""
        found = self.estimate
        return None if None in (found.mean, found.high) else found.high / found.mean - 1


def slos(results: Results) -> list[Slo]:
    return list(map(slo.parse, results.climb.slos))


def of(results: Results, name: str, cell: Cell, place: int) -> Capacity:
    asked = slos(results)[place]
    metric = capacities.name_of(results.climb.over, place)
    estimate = results.estimate(name, cell, metric)
    after = [trial for trial in results.data.trials if trial.record.follow_up and (trial.record.name, trial.cell) == (name, cell)]
    recovery = next((one for one in after if one.record.follow_up.purpose == "recovery"), None) if place == 0 else None
    confirmed = [one for one in after if one.record.follow_up.purpose == "confirmation" and one.record.follow_up.slo == asked]
    judged = [(one.record.follow_up.load, slo.judge(asked, one)) for one in confirmed]
    return Capacity(
        server=name,
        cell=cell,
        place=place,
        slo=asked,
        estimate=estimate,
        lowest=None if estimate.values else _lowest(results.group(name, cell), metric),
        held=max((load for load, said in judged if said == "kept"), default=None),
        not_held=min((load for load, said in judged if said == "broken"), default=None),
        recovery_s=None if recovery is None else recovery.value("recovery_s"),
        recovery=None if recovery is None else recovery.reason("recovery_s"),
        why=None if estimate.values else _why(results.group(name, cell), metric),
        unusable=not results.counted(name, cell, metric),
        plateau=_plateau(curve(results, name, cell, "p99"), bound_us(asked), estimate.mean, UNITS[results.climb.over]),
    )


def _lowest(trials: Sequence[TrialResult], metric: str) -> float | None:
    """The lowest load of the last ladders, if none of them kept it."""
    last = [one for one in trials if one.record.ladder is not None][-SHOWN:]
    if len(last) < SHOWN or not all((one.reason(metric) or "").startswith(NOT_KEPT) for one in last):
        return None
    return min(min(one.record.ladder.loads) for one in last)


def _why(trials: Sequence[TrialResult], metric: str) -> str | None:
    """Why the last ladder says nothing of a capacity."""
    if not trials:
        return None
    because = trials[-1].verdict.because(metrics.METRICS[metric].family)
    return because[0].seen if because else trials[-1].reason(metric)


def follow_ups(results: Results, name: str, cell: Cell) -> list[FollowUp]:
    """The trials that follow the rounds: under each SLO a longer load at the lower end of its capacity, and an overload of the
    first, unless its capacity is only a lower bound."""
    wanted = []
    for place, asked in enumerate(slos(results)):
        found = results.estimate(name, cell, capacities.name_of(results.climb.over, place))
        load = found.mean if found.at_least else found.low
        if load is None:  # nothing that a longer load could confirm
            continue
        whole = round(load) if results.climb.over == "connections" else float(f"{load:.4g}")
        wanted.append(FollowUp(purpose="confirmation", load=whole, seconds=CONFIRMATION_S, slo=asked))
        if place == 0 and not found.at_least and bound_us(asked) is not None:
            wanted.append(FollowUp(purpose="recovery", load=float(f"{found.mean:.4g}"), seconds=RECOVERY_S, slo=asked))
    return wanted


def climbed(results: Results, name: str, cell: Cell) -> list[tuple[int, list[Step]]]:
    """The number and the rungs of each ladder of a server that is not coarse."""
    found = [one.record for one in results.group(name, cell) if one.record.ladder is not None and not one.record.ladder.coarse]
    known = results.data.ladders
    return [(record.number, known[record.number]) for record in found if record.number in known]


def curve(results: Results, name: str, cell: Cell, statistic: Statistic) -> list[CurvePoint]:
    """The mean of the curves of a server's processes, where at least three of them reach. Empty for fewer ladders."""
    lines = [line for _, steps in climbed(results, name, cell) if (line := _monotone(steps, statistic)) is not None]
    if len(lines) < COVERED:
        return []
    low = sorted(loads[0] for loads, _ in lines)[COVERED - 1]
    high = sorted(loads[-1] for loads, _ in lines)[-COVERED]
    points = []
    for load in np.linspace(low, high, DRAWN) if low < high else ():
        times = [float(np.interp(load, loads, logs)) for loads, logs in lines if loads[0] <= load <= loads[-1]]
        if len(times) >= COVERED:
            found = stats.estimate([math.exp(one) for one in times])
            points.append(CurvePoint(math.exp(load), found.mean, found.low, found.high))
    return points


def _monotone(steps: Sequence[Step], statistic: Statistic) -> tuple[np.ndarray, np.ndarray] | None:
    """Log load and log time of one process, which never falls; None for fewer than two rungs."""
    usable = sorted((one.load, getattr(one, statistic)) for one in steps if not one.unused and getattr(one, statistic))
    if len(usable) < 2:
        return None
    loads, times = np.log(np.array(usable)).T
    return loads, isotonic_regression(times).x


def _plateau(points: Sequence[CurvePoint], bound: float | None, capacity: float | None, unit: str) -> str | None:
    """In words, if the capacity moves a lot when the bound moves a little: then the bound and not the server sets it."""
    if bound is None or capacity is None or len(points) < 2:
        return None
    loads, times = np.log([one.load for one in points]), np.log([one.time_us for one in points])
    for factor, which in ((BOUND_MOVES, "higher"), (1 / BOUND_MOVES, "lower")):
        wanted = math.log(bound * factor)
        if times[0] < wanted < times[-1]:
            moved = float(np.exp(np.interp(wanted, times, loads)))
            if max(moved / capacity, capacity / moved) > MOVES:
                return f"on a plateau: with a bound that is a third {which} it is {moved:,.4g} {unit}"
    return None

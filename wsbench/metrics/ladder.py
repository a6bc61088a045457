"""The capacity of one process: the highest load at which it keeps an SLO, from a ladder of rates or numbers of connections.

In: the histograms and counts of each rung. Out: where the curve of the SLO's quantity over the load crosses its bound. The curve is
monotone (isotonic regression of log time on log load). A rung that the load generator spoiled breaks nothing: above it the
capacity is only known to be at least the highest load that was kept.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from wsbench.engine.histogram import Histogram
from wsbench.metrics.limits import LIMITS
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.rundir import Slo

OPERATORS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
TIME = re.compile(r"(?P<tag>\w+)_us_(?P<statistic>p\d+|max|mean)")
#: Times further from their bound than these logarithms tell no more of where it is crossed.
LEAST, MOST = -3.0, 1.0
#: A load is well below another up to this share of it.
WELL_BELOW = 0.8
#: Of a rung that the hypervisor disturbed for longer than this share, nothing is used.
DISTURBED = 0.5
#: An earlier rung may leave this share of the messages behind, or so many.
BEHIND, LEFT = 0.002, 10
COARSE = "a coarse ladder only finds where the capacity lies"
NOT_KEPT = "the lowest load of the ladder"


@dataclass(frozen=True)
class Rung:
    """What one load gave, the light load behind it included. `load`: messages per second, or connections. `sent` and `failed` count
    messages, in push broadcasts; those without an answer by the end, or that did not reach everybody, have failed. `engine_busy`:
    share of a worker's CPU, None if unknown. `server_full`: it used all of its CPUs. `quiet`: the share of it in which the host
    took nothing. `behind`: messages that were due before it began, and were not answered by then. `missing`: connections that were
    not open when it began."""

    load: float
    times: dict[str, Histogram]
    sent: int
    failed: int
    engine_busy: float | None
    server_full: bool
    quiet: float
    behind: int
    missing: int = 0

    @property
    def is_own(self) -> bool:
        """Whether its times are those of its own rate: not of the host, nor of what an earlier rung left behind."""
        return self.quiet >= DISTURBED and self.behind <= max(LEFT, BEHIND * self.sent)

    def time_us(self, tag: str, statistic: str) -> float | None:
        of = self.times.get(tag)
        if of is None or not of.count:
            return None
        return (getattr(of, statistic) if statistic in ("max", "mean") else of.quantile(f"0.{statistic[1:]}")) / 1e3

    def own_us(self, tag: str) -> float:
        """What the engine adds to the slowest hundredth of these times. A full server makes messages leave late, too, and only a
        response counts from when it was due. Unmeasured if it is unknown."""
        read_us = known(self.time_us("receive_delay", "p99"), "how late the engine reads is unknown")
        if self.server_full or tag != "response":
            return read_us
        return read_us + known(self.time_us("send_lag", "p99"), "how late the engine sends is unknown")

    def is_limited(self, tag: str = "", bound_us: float | None = None) -> bool:
        """Whether the load generator was at its limit, or adds too much to a time that is to be within this bound."""
        if (self.engine_busy or 0.0) >= LIMITS["engine_busy"].suspect:
            return True
        return bound_us is not None and self.own_us(tag) / bound_us > LIMITS["own_part"].invalid


@dataclass(frozen=True)
class Step:
    """A rung as it is stored: quantiles in µs of the time that the first SLO is about (None where nothing arrived), and in one word
    why it says nothing of its load: `host`, `behind` or `generator`; empty if it does."""

    load: float
    p50: float | None
    p99: float | None
    p999: float | None
    sent: int
    failed: int
    unused: str


def steps(rungs: Sequence[Rung], slos: Sequence[Slo]) -> list[Step]:
    """Every rung of a ladder under these SLOs, in the order in which they were carried."""
    tag, bound = timed(slos)
    found = []
    for rung in rungs:
        times = (rung.time_us(tag, name) for name in ("p50", "p99", "p999"))
        found.append(Step(rung.load, *times, rung.sent, rung.failed, _unused(rung, tag, bound)))
    return found


def timed(slos: Sequence[Slo]) -> tuple[str, float | None]:
    """The time that the first SLO with one is about, and the highest bound on it in µs, None if there is none."""
    found = [(match["tag"], number) for one in slos for name, _, number in one.conditions if (match := TIME.fullmatch(name))]
    tag = found[0][0] if found else "response"
    return tag, max((number for of, number in found if of == tag), default=None)


def _unused(rung: Rung, tag: str, bound: float | None) -> str:
    if not rung.is_own:
        return "host" if rung.quiet < DISTURBED else "behind"
    return "generator" if rung.is_limited(tag, bound) else ""


class Beyond(Unmeasured):
    """The capacity lies beyond the ladder, whose end on that side is `load`."""

    def __init__(self, text: str, load: float):
        super().__init__(text)
        self.load = load


class Above(Beyond):
    """The highest load was kept."""


class Point(NamedTuple):
    """`over`: by how much a rung's quantity is over its bound, as a logarithm; at most 0 if the condition is kept."""

    load: float
    over: float
    limited: bool


class Capacity(NamedTuple):
    """`at_least`: a lower bound, because the load generator ended the ladder, or no higher load was allowed."""

    load: float
    at_least: bool


def capacity(rungs: Sequence[Rung], slo: Slo, most: float | None = None) -> Capacity:
    """Under all conditions; `most`: the highest load that is allowed. Beyond if the ladder did not reach it."""
    found, higher = [], None
    for condition in slo.conditions:
        try:
            found.append(_crossing(_points(rungs, *condition)))
        except Above as above:  # another condition may be reached
            higher = above
    if not found and most is not None and higher.load >= most:
        return Capacity(higher.load, at_least=True)
    if not found:
        raise higher
    return min(found, key=lambda one: (one.load, one.at_least))


def bound_us(slo: Slo) -> float | None:
    """The bound of its first condition on a time, in µs; None if it has none."""
    return next((number for name, sign, number in slo.conditions if TIME.fullmatch(name) and sign in ("<", "<=")), None)


def _points(rungs: Sequence[Rung], metric: str, sign: str, number: float) -> list[Point]:
    keeps = OPERATORS[sign]
    timed = TIME.fullmatch(metric)
    points = []
    for rung in rungs:
        if not rung.is_own:
            continue
        lost = rung.failed / rung.sent if rung.sent else 1.0
        if rung.missing:
            points.append(Point(rung.load, MOST, rung.is_limited()))
            continue
        if timed is None:
            value = {"errors": float(rung.failed), "error_fraction": lost, "push_reach": 1 - lost}.get(metric)
            if value is None:
                raise Unmeasured(f"a ladder has no {metric}: name a time, or `lost`")
            over = LEAST if keeps(value, number) else MOST
            points.append(Point(rung.load, over, rung.is_limited()))
            continue
        value = rung.time_us(timed["tag"], timed["statistic"])
        if value is None and lost < 1:
            raise Unmeasured(f"no {timed['tag']} time was recorded")
        # A message without an answer took longer than any bound.
        if value is None or lost > beyond(timed["statistic"]):
            over = MOST
        else:
            over = min(MOST, max(LEAST, math.log(max(value, 1e-3) / number)))
        points.append(Point(rung.load, over, rung.is_limited(timed["tag"], number)))
    return points


def beyond(statistic: str) -> float:
    """The share of messages that may take longer than this statistic."""
    return 1 - float(f"0.{statistic[1:]}") if statistic.startswith("p") else 0.0 if statistic == "max" else 1.0


def _unharmed(points: list[Point]) -> list[Point]:
    """Without the rungs that an overload spoiled: if after it a load is far over its bound that is well below one kept before it,
    the server has not recovered, and what it does from then on is no capacity. In the order in which they were carried."""
    broken = next((place for place, one in enumerate(points) if one.over > 0 and not one.limited), len(points))
    kept = max((one.load for one in points[:broken] if one.over <= 0), default=0.0)
    stuck = any(one.over >= MOST and not one.limited and one.load <= WELL_BELOW * kept for one in points[broken + 1 :])
    return points[: broken + 1] if stuck else points


def _crossing(carried: list[Point]) -> Capacity:
    points = _unharmed(carried)
    usable = sorted(one for one in points if one.over <= 0 or not one.limited)
    kept = [one.load for one in usable if one.over <= 0]
    if len(usable) < 2 and not kept:
        raise Unmeasured("too few rungs of the ladder can be used")
    loads = np.log([one.load for one in usable])
    fitted = isotonic_regression([one.over for one in usable]).x
    if fitted[-1] <= 0:
        if any(one.limited and one.load > usable[-1].load for one in points):
            return Capacity(max(kept), at_least=True)
        highest = usable[-1].load
        raise Above(f"the highest load of the ladder, {highest:,.0f}, was kept", highest)
    place = int(np.searchsorted(fitted, 0.0, side="right"))
    if place == 0:
        lowest = usable[0].load
        raise Beyond(f"{NOT_KEPT}, {lowest:,.4g}, was not kept", lowest)
    share = -fitted[place - 1] / (fitted[place] - fitted[place - 1])
    return Capacity(float(np.exp(loads[place - 1] + share * (loads[place] - loads[place - 1]))), at_least=False)

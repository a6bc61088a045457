"""The capacity of one process: the highest rate at which it keeps an SLO, from a ladder of rates in random order.

In: the histograms and counts of each rung. Out: where the curve of the SLO's quantity over the rate crosses its bound. The curve is
monotone (isotonic regression of log time on log rate). A rung that the load generator spoiled breaks nothing: above it the
capacity is only known to be at least the highest rate that was kept.
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

OPERATORS = {"<": operator.lt, "<=": operator.le, "==": operator.eq, ">": operator.gt, ">=": operator.ge}
TIME = re.compile(r"(?P<tag>\w+)_us_(?P<statistic>p\d+|max|mean)")
#: Times further from their bound than these logarithms tell no more of where it is crossed.
LEAST, MOST = -3.0, 1.0
#: Of a rung that the hypervisor disturbed for longer than this share, nothing is used.
DISTURBED = 0.5
#: An earlier rung may leave this share of the messages behind, or so many.
BEHIND, LEFT = 0.002, 10
COARSE = "a coarse ladder only finds where the capacity lies"


@dataclass(frozen=True)
class Rung:
    """What one rate gave, the light load behind it included. `sent` and `failed` count messages; those without an answer by the
    end have failed. `engine_busy`: share of a worker's CPU, None if unknown. `server_full`: it used all of its CPUs. `quiet`: the
    share of it in which the host took nothing. `behind`: messages that were due before it began, and were not answered by then."""

    rate: float
    times: dict[str, Histogram]
    sent: int
    failed: int
    engine_busy: float | None
    server_full: bool
    quiet: float
    behind: int

    @property
    def is_own(self) -> bool:
        """Whether its times are those of its own rate: not of the host, nor of what an earlier rung left behind."""
        return self.quiet >= DISTURBED and self.behind <= max(LEFT, BEHIND * self.sent)

    def time_us(self, tag: str, statistic: str) -> float | None:
        of = self.times.get(tag)
        if of is None or not of.count:
            return None
        return (getattr(of, statistic) if statistic in ("max", "mean") else of.quantile(f"0.{statistic[1:]}")) / 1e3

    def own_us(self) -> float:
        """What the engine adds to the slowest hundredth of the times. A full server makes messages leave late, too. Unmeasured if
        it is unknown."""
        read_us = known(self.time_us("receive_delay", "p99"), "how late the engine reads is unknown")
        if self.server_full:
            return read_us
        return read_us + known(self.time_us("send_lag", "p99"), "how late the engine sends is unknown")

    def is_limited(self, bound_us: float | None) -> bool:
        """Whether the load generator was at its limit, or adds too much to a time that is to be within this bound."""
        if (self.engine_busy or 0.0) >= LIMITS["engine_busy"].suspect:
            return True
        return bound_us is not None and self.own_us() / bound_us > LIMITS["own_part"].invalid


class Beyond(Unmeasured):
    """The capacity lies beyond the ladder, whose end on that side is `rate`."""

    def __init__(self, text: str, rate: float):
        super().__init__(text)
        self.rate = rate


class Above(Beyond):
    """The highest rate was kept."""


class Point(NamedTuple):
    """`over`: by how much a rung's quantity is over its bound, as a logarithm; at most 0 if the condition is kept."""

    rate: float
    over: float
    limited: bool


class Capacity(NamedTuple):
    """In messages per second. `at_least`: a lower bound, because the load generator ended the ladder."""

    per_s: float
    at_least: bool


def capacity(rungs: Sequence[Rung], slo: Slo) -> Capacity:
    """Under all conditions. Beyond if the ladder did not reach it."""
    found, higher = [], None
    for condition in slo.conditions:
        try:
            found.append(_crossing(_points(rungs, *condition)))
        except Above as above:  # another condition may be reached
            higher = above
    if not found:
        raise higher
    return min(found, key=lambda one: (one.per_s, one.at_least))


def _points(rungs: Sequence[Rung], metric: str, sign: str, number: float) -> list[Point]:
    keeps = OPERATORS[sign]
    timed = TIME.fullmatch(metric)
    points = []
    for rung in rungs:
        if not rung.is_own:
            continue
        lost = rung.failed / rung.sent if rung.sent else 1.0
        if timed is None:
            value = {"errors": float(rung.failed), "error_fraction": lost}.get(metric)
            if value is None:
                raise Unmeasured(f"a ladder has no {metric}: name a time, or `lost`")
            over = LEAST if keeps(value, number) else MOST
            points.append(Point(rung.rate, over, rung.is_limited(None)))
            continue
        value = rung.time_us(timed["tag"], timed["statistic"])
        if value is None and lost < 1:
            raise Unmeasured(f"no {timed['tag']} time was recorded")
        # A message without an answer took longer than any bound.
        if value is None or lost > _beyond(timed["statistic"]):
            over = MOST
        else:
            over = min(MOST, max(LEAST, math.log(max(value, 1e-3) / number)))
        points.append(Point(rung.rate, over, rung.is_limited(number)))
    return points


def _beyond(statistic: str) -> float:
    """The share of messages that may take longer than this statistic."""
    return 1 - float(f"0.{statistic[1:]}") if statistic.startswith("p") else 0.0 if statistic == "max" else 1.0


def _crossing(points: list[Point]) -> Capacity:
    usable = sorted(one for one in points if one.over <= 0 or not one.limited)
    kept = [one.rate for one in usable if one.over <= 0]
    if len(usable) < 2 and not kept:
        raise Unmeasured("too few rungs of the ladder can be used")
    rates = np.log([one.rate for one in usable])
    fitted = isotonic_regression([one.over for one in usable]).x
    if fitted[-1] <= 0:
        if any(one.limited and one.rate > usable[-1].rate for one in points):
            return Capacity(max(kept), at_least=True)
        highest = usable[-1].rate
        raise Above(f"the highest rate of the ladder, {highest:,.0f}/s, was kept", highest)
    place = int(np.searchsorted(fitted, 0.0, side="right"))
    if place == 0:
        lowest = usable[0].rate
        raise Beyond(f"the lowest rate of the ladder, {lowest:,.0f}/s, was not kept", lowest)
    share = -fitted[place - 1] / (fitted[place] - fitted[place - 1])
    return Capacity(float(np.exp(rates[place - 1] + share * (rates[place] - rates[place - 1]))), at_least=False)

"""Capacities compared: by their probes, not by how estimates differ from round to round.

A search for a capacity has an interval of its own, so one search each can decide. The null hypothesis "A carries at most k times as
much as B" says that for every load t, A's capacity is at most k t or B's is at least t. It is rejected where some t contradicts
both. A's lower and B's upper end may each be wrong, so they share the error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from wsbench.analysis.stats.crossing import ERROR, Evidence
from wsbench.analysis.stats.estimates import Estimate


class Searched(dict[int, float | None]):
    """A series of capacities: by round the estimate, as any series, and what the probes of all rounds show together.

    `estimate`: of all rounds together; None where the loads around it are far apart, or one end is not known.
    """

    def __init__(self, by_round: Mapping[int, float | None], evidence: Evidence, estimate: float | None) -> None:
        super().__init__(by_round)
        self.evidence, self.estimate = evidence, estimate

    def pooled(self, otherwise: str) -> Estimate:
        """The capacity of all rounds together, with the interval of its probes. Where only one end is shown, it stands alone: the
        estimate may be far from it. `otherwise`: why there may be no mean."""
        low, high = (side(ERROR / 2) for side in (self.evidence.low, self.evidence.high))
        values = tuple(float(value) for value in self.values() if value is not None)
        return Estimate(values, self.mean, low, high, otherwise if self.mean is None else None)

    @property
    def mean(self) -> float | None:
        """The estimate, unless one end alone is shown."""
        shown = [side(ERROR / 2) is not None for side in (self.evidence.low, self.evidence.high)]
        return self.estimate if shown[0] == shown[1] else None

    def place(self, higher: bool) -> tuple[bool, float]:
        """For sorting, the best first: by the mean, or else by the end that is shown; last those that are only shown to be bad."""
        found = self.pooled("")
        good, bad = (found.low, found.high) if higher else (found.high, found.low)
        value = next((one for one in (found.mean, good, bad) if one is not None), 0.0)
        return found.mean is None and good is None, -value if higher else value

    def measured(self) -> Searched:
        """The same without rounds that have no estimate."""
        return Searched({at: float(value) for at, value in self.items() if value is not None}, self.evidence, self.estimate)


@dataclass(frozen=True)
class Exactly:
    """A stated capacity, to compare with."""

    load: float

    @property
    def loads(self) -> list[float]:
        return [self.load]

    def above(self, load: float) -> float:
        return 0.0 if load < self.load else 1.0

    def below(self, load: float) -> float:
        return 0.0 if load > self.load else 1.0

    def low(self, error: float) -> float:
        return self.load

    def high(self, error: float) -> float:
        return self.load


@dataclass(frozen=True)
class Bracketed:
    """`one` − `other` on logarithms. `estimates`: of both; None where a side has none. `rounds`: searches of the one with fewer."""

    one: Evidence | Exactly
    other: Evidence | Exactly
    estimates: tuple[float | None, float | None]
    rounds: int

    @cached_property
    def estimate(self) -> float:
        """Infinite where a side has only a bound and that is beyond the other's estimate: the ratio then has no size."""
        one, other = self.estimates
        if one is not None and other is not None:
            return math.log(one / other)
        tail = self.limits(0.5)
        return math.inf if tail[0] > 0 else -math.inf if tail[1] < 0 else math.nan

    def above(self, bound: float) -> float:
        """The p value of "the difference is at most `bound`"."""
        return _p_value(self.one, self.other, math.exp(bound))

    def below(self, bound: float) -> float:
        """The p value of "the difference is at least `bound`"."""
        return _p_value(self.other, self.one, math.exp(-bound))

    def limits(self, tail: float) -> tuple[float, float]:
        """The limits that the difference exceeds on either side with at most this probability."""
        low, high = (
            None if None in ends else math.log(ends[0] / ends[1])
            for ends in ((self.one.low(tail / 2), self.other.high(tail / 2)), (self.one.high(tail / 2), self.other.low(tail / 2)))
        )
        return -math.inf if low is None else low, math.inf if high is None else high

    @property
    def reason(self) -> str:
        return "by the intervals of both capacities"


def _p_value(one: Evidence | Exactly, other: Evidence | Exactly, times: float) -> float:
    """Of "`one` is at most so many `times` `other`"."""
    candidates = [*(load / times for load in one.loads), *other.loads]
    return min(1.0, 2 * min((max(one.above(times * at), other.below(at)) for at in candidates), default=1.0))

"""Means over repeats and ratios between servers, with intervals. `decision` says what follows from them.

The unit is one trial; messages are never pooled as repeats. All estimates use logarithms, because rates and times vary by
factors: a geometric mean with a t interval keeps its nominal coverage from 3 repeats on, a bootstrap interval does not. Two
servers are compared round by round, which cancels effects that a round shares (heat, neighbours).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from scipy import special

LEVEL = 0.95
#: Of an interval whose width ended the rounds. By simulation it then holds in 95 to 97 % of campaigns, one of 95 % in 92 to 95.
STOPPED_LEVEL = 0.97
INTERVAL_REPEATS = 3  # with 2 repeats t is 12.7, and the interval says nothing


@dataclass(frozen=True)
class Estimate:
    """A geometric mean over repeats with its interval. `reason` says why there is no interval or no mean. `at_least`: values are
    lower bounds, and so is the mean."""

    values: tuple[float, ...]
    mean: float | None
    low: float | None
    high: float | None
    reason: str | None
    at_least: bool = False

    @property
    def repeats(self) -> int:
        return len(self.values)

    @property
    def bound(self) -> tuple[Literal["≥", "≤"], float] | None:
        """What the true value is at least or at most, where no more is known of it."""
        if self.at_least and self.mean is not None:
            return "≥", self.mean
        if self.mean is None and (self.low is None) != (self.high is None):
            return ("≥", self.low) if self.high is None else ("≤", self.high)
        return None

    @property
    def shown(self) -> float | None:
        """The number that stands for it: the mean, or what alone is known."""
        return self.mean if self.bound is None else self.bound[1]

    @property
    def spread(self) -> float | None:
        """Largest value over smallest."""
        return max(self.values) / min(self.values) if self.mean is not None else None


def estimate(values: Sequence[float | None], level: float = LEVEL) -> Estimate:
    """Geometric mean of a cell's repeats with the t interval of their logarithms; None is ignored."""
    known = tuple(float(value) for value in values if value is not None)
    if not known:
        return Estimate(known, None, None, None, "not measured")
    if min(known) <= 0 or not all(map(math.isfinite, known)):
        return Estimate(known, None, None, None, "a geometric mean needs positive values")
    logs = list(map(math.log, known))
    middle = math.fsum(logs) / len(known)
    mean = math.exp(middle)
    if len(known) < INTERVAL_REPEATS:
        return Estimate(known, mean, None, None, f"no interval from {_counted(len(known))}")
    deviation = math.sqrt(math.fsum((log - middle) ** 2 for log in logs) / (len(known) - 1))
    half = student_t(len(known) - 1, (1 + level) / 2) * deviation / math.sqrt(len(known))
    return Estimate(known, mean, mean * math.exp(-half), mean * math.exp(half), None)


def ratio(of: Mapping[int, float | None], to: Mapping[int, float | None]) -> Estimate:
    """`of` divided by `to`, over the rounds that have both."""
    rounds = [r for r in sorted(of) if of[r] is not None and to.get(r) is not None]
    if any(of[r] <= 0 or to[r] <= 0 for r in rounds):
        return Estimate((), None, None, None, "a ratio needs positive values")
    paired = estimate([of[r] / to[r] for r in rounds])
    return paired if rounds else Estimate((), None, None, None, "no round has both")


@cache
def student_t(freedom: int, below: float) -> float:
    """The quantile of Student's t."""
    return float(special.stdtrit(freedom, below))


def _counted(repeats: int) -> str:
    return f"{repeats} repeat{'' if repeats == 1 else 's'}, {INTERVAL_REPEATS} are needed"

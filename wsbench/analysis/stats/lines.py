"""A straight line by least squares, with t intervals of its slope and of the line at one more place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wsbench.analysis.stats.estimates import LEVEL, student_t


@dataclass(frozen=True)
class Line:
    """y = intercept + slope · x. `low` and `high` bound the slope; `spread` is the sum of squares of x about its mean."""

    slope: float
    low: float
    high: float
    intercept: float
    r2: float
    half: float
    points: int
    middle: float
    spread: float

    def at(self, x: float) -> tuple[float, float, float]:
        """The line there with its interval. It pivots about the middle of x, so its error grows with the distance from there."""
        half = self.half * math.sqrt(self.spread / self.points + (x - self.middle) ** 2)
        value = self.intercept + self.slope * x
        return value, value - half, value + half


def line(xs: Sequence[float], ys: Sequence[float], level: float = LEVEL) -> Line:
    """At least three points with two different x."""
    from scipy.stats import linregress  # takes half a second to import

    found = linregress(xs, ys)
    half = student_t(len(xs) - 2, (1 + level) / 2) * float(found.stderr)
    slope, middle = float(found.slope), float(np.mean(xs))
    spread = float(np.sum((np.asarray(xs, dtype=float) - middle) ** 2))
    return Line(slope, slope - half, slope + half, float(found.intercept), float(found.rvalue**2), half, len(xs), middle, spread)

"""Latencies as curves for a chart."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from wsbench.engine.histogram import Histogram

CURVE_POINTS = 60
EVENLY = [Fraction(step, 20) for step in range(1, 18)]


@dataclass(frozen=True)
class Curve:
    """Latencies as (1/(1-q), ns) pairs, and the histogram as the payload of a line in an HdrHistogram log."""

    count: int
    points: list[tuple[float, float]]
    log: str


def curve_points(found: Histogram, points: int = CURVE_POINTS) -> list[tuple[float, float]]:
    """(1/(1-q), ns) pairs, the x axis of an HdrHistogram chart, with extra points below the median for distributions.

    The largest value is at x = n, where one value remains.
    """
    even = zip(map(float, EVENLY), found.quantiles(EVENLY), strict=True)
    curve = sorted({*found.curve(points), *even})
    return [(1 / (1 - q) if q < 1 else max(2.0, float(found.count)), float(value)) for q, value in curve]

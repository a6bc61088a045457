"""A smooth line through points: robust, locally weighted regression (Cleveland, JASA 74, 1979)."""

from __future__ import annotations

import numpy as np


def lowess(x: np.ndarray, y: np.ndarray, share: float, rounds: int) -> np.ndarray:
    """The line's values at `x`, which ascends. Each is that of a straight line through the nearest `share` of the points, near ones
    more; points far from the line count less in each of the `rounds` that follow."""
    count = len(x)
    nearest = min(count, max(2, int(share * count + 1e-10)))
    trust, line = np.ones(count), np.empty(count)
    for _ in range(rounds + 1):
        for at in range(count):
            away = np.abs(x - x[at])
            reach = np.partition(away, nearest - 1)[nearest - 1]
            near = np.clip(1 - (away / reach) ** 3, 0, None) ** 3 if reach > 0 else (away == 0).astype(float)
            weight = near * trust
            line[at] = _value(x - x[at], y, weight / weight.sum()) if weight.sum() > 0 else y[at]
        apart = np.abs(y - line)
        scale = 6 * np.median(apart)
        if scale == 0:
            break
        trust = np.clip(1 - (apart / scale) ** 2, 0, None) ** 2
    return line


def _value(from_here: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    """The value here of the straight line that fits best."""
    middle = weight @ from_here
    spread = weight @ (from_here - middle) ** 2
    slope = weight @ ((from_here - middle) * y) / spread if spread > 1e-12 else 0.0
    return float(weight @ y - slope * middle)

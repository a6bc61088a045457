"""Looking at the data again and again: the error that each look may spend, so that all looks together keep the whole.

Lan and DeMets (1983): at round n of N planned, a share n / N of the error has been spent. The bound of each look follows from the
distribution of a sum of independent normal rounds that crossed no earlier bound (Armitage, McPherson and Rowe 1969). A test of t
uses the same level as the normal one (Jennison and Turnbull 2000, section 3.3). Looking less often than allowed is safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

STEP = 0.04  # of the grid, in standard deviations of one round
REACH = 7.0  # standard deviations


@dataclass(frozen=True)
class Looks:
    """A look after every round from `first` on, at most `planned` rounds. `planned` is fixed before the first round."""

    planned: int
    first: int = 3

    def error(self, rounds: int, whole: float) -> float:
        """The two-sided level of the test after this many rounds, of the whole error; 0 where none may be made."""
        if not self.first <= rounds <= self.planned:
            return 0.0
        return _levels(self.first, self.planned, whole)[rounds - self.first]


@cache
def _levels(first: int, planned: int, whole: float) -> tuple[float, ...]:
    half = REACH * math.sqrt(planned)
    grid = np.arange(-math.ceil(half / STEP), math.ceil(half / STEP) + 1) * STEP
    one = np.arange(-math.ceil(REACH / STEP), math.ceil(REACH / STEP) + 1) * STEP
    kernel = np.exp(-(one**2) / 2)
    kernel /= kernel.sum()
    density = np.exp(-(grid**2) / (2 * first))
    density /= density.sum()
    levels, spent = [], 0.0
    for rounds in range(first, planned + 1):
        allowed = whole * rounds / planned
        # Mass outside ±x, for every x ≥ 0, linear between the points of the grid.
        middle = len(grid) // 2
        outside = 2 * np.cumsum(density[middle:][::-1])[::-1]
        bound = float(np.interp(-(allowed - spent), -outside, grid[middle:] - STEP / 2))
        spent = allowed
        levels.append(float(2 * special.ndtr(-bound / math.sqrt(rounds))))
        density = np.convolve(np.where(np.abs(grid) > bound, 0.0, density), kernel, mode="same")
    return tuple(levels)

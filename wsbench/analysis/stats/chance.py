"""The chance that a new campaign of so many rounds decides what this one left open.

Draws the true difference and the true spread from what the rounds say of them (a flat prior: t and χ² around the estimates), then
campaigns of each size, and asks the decision about each. Nothing is said where the differences have no normal model.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from wsbench.analysis.stats.at_least import Bounded
from wsbench.analysis.stats.contrasts import Contrast, Measured

#: The share of the cases of this model. In simulated campaigns whose true differences are up to 6 %, or normal with 10 %, 82 to
#: 91 % are then decided; of equal servers, 74 to 84 %. Hence *8 of 10*.
WANTED = 0.88
LEAST = 5  # rounds: with fewer, a spread says too little
CASES = 200
ROUNDS = (3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 25, 30, 35, 40, 50, 60, 80, 100, 150, 200, 300, 500, 1000)
MOST_GAIN = 2.0  # degrees of freedom by round: what a comparison borrows from other servers does not grow with its rounds


@dataclass(frozen=True)
class Imagined:
    """One difference in many cases, as arrays; it takes the place of a `Measured`."""

    estimate: np.ndarray
    deviation: np.ndarray
    freedom: float

    def above(self, bound: float) -> np.ndarray:
        return special.stdtr(self.freedom, (bound - self.estimate) / self.deviation)

    def below(self, bound: float) -> np.ndarray:
        return special.stdtr(self.freedom, (self.estimate - bound) / self.deviation)


def rounds_wanted(found: Contrast, decided: Callable[[Imagined | Bounded], np.ndarray | bool]) -> int | None:
    """The rounds of a new campaign that decides this in about 8 of 10 cases; None if none of up to a thousand does, or if there is
    no model. `decided` is asked about all cases at once."""
    measured = found.found if isinstance(found, Bounded) else found
    if not isinstance(measured, Measured) or measured.deviation <= 0 or measured.rounds < LEAST:
        return None
    more = [rounds for rounds in ROUNDS if rounds > measured.rounds]

    def enough(rounds: int) -> bool:
        cases = _imagined(measured, rounds)
        return bool(np.mean(decided(replace(found, found=cases) if isinstance(found, Bounded) else cases)) >= WANTED)

    at = bisect_left(more, True, key=enough)
    return more[at] if at < len(more) else None


def _imagined(found: Measured, rounds: int) -> Imagined:
    """What campaigns of so many rounds would see. The draws are the same for every number of rounds."""
    draw = np.random.default_rng(1)
    spread = found.deviation * np.sqrt(found.rounds * found.freedom / draw.chisquare(found.freedom, CASES))
    truth = found.estimate + spread / np.sqrt(found.rounds) * draw.standard_normal(CASES)
    freedom = found.freedom + min(MOST_GAIN, found.freedom / max(1, found.rounds - 1)) * (rounds - found.rounds)
    error = spread / np.sqrt(rounds)
    seen = truth + error * draw.standard_normal(CASES)
    return Imagined(seen, error * np.sqrt(draw.chisquare(freedom, CASES) / freedom), freedom)

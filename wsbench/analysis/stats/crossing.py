"""The load up to which a promise is kept more often than not: an isotonic estimate, and an interval that holds under looking.

In: the probes in the order in which they ran, each with its load and whether it kept the promise. The one assumption is that a
higher load makes a promise no easier to keep. Nothing here measures.

The interval comes from a test martingale (Ville 1939; Ramdas et al., Statistical Science 38, 2023). Each probe is a bet, made
before it runs: below the estimate of that moment that it will keep the promise, above it that it will not; no bet where nothing is
known yet. More is staked far from the estimate than near it. If the capacity were at or below a load, every probe from that load
on would keep the promise at most half of the time, and such bets could not win in the long run. So results may choose the next
load, and the search may end at any time. What the bets have won once is shown for good: Ville's inequality is about the most that
they ever win.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtr

#: That the interval misses the capacity, at any moment of the search; half of it on each side.
ERROR = 0.05
#: By how much the capacity may differ from probe to probe, as a standard deviation of its logarithm. Nobody need know which it is.
SCATTERS = (0.01, 0.05, 0.2)
#: The most that a bet takes for likely. A probe far from the estimate can fail, too.
MOST = 0.98
#: Loads that differ by a smaller share are the same.
ALMOST = 1e-9


class Probe(NamedTuple):
    """One probe: its load, and whether the promise was kept."""

    load: float
    kept: bool


class Bet(NamedTuple):
    """On a probe at this load. `away`: how far the load is from the estimate of that moment, as a logarithm, at least 0."""

    load: float
    won: bool
    away: float


@dataclass(frozen=True)
class Crossing:
    """`estimate`: None unless probes were both kept and broken. `low`: shown to be kept more often than not; `high`: shown to be
    broken more often than not. Each is the load of a probe, or None if not shown."""

    estimate: float | None
    low: float | None
    high: float | None

    @property
    def within(self) -> float | None:
        """Half the width of the interval, as a share of its middle."""
        if self.low is None or self.high is None:
            return None
        return abs(self.high - self.low) / (self.high + self.low)


def crossing(probes: Sequence[Probe], error: float = ERROR) -> Crossing:
    """The capacity that these probes show."""
    found = _evidence(tuple(probes))
    estimate = _bound(found.probes) if len({one.kept for one in probes}) == 2 else None
    return Crossing(estimate, found.low(error / 2), found.high(error / 2))


@lru_cache(64)
def _evidence(probes: tuple[Probe, ...]) -> Evidence:
    """A search asks for several ends of the same probes before each next one."""
    return Evidence(probes)


@dataclass(frozen=True)
class Evidence:
    """What probes show of a capacity, as p values that hold at every moment of the search. `probes` in the order in which they ran.
    `times`: as if every probe had been made so often, with the same result."""

    probes: tuple[Probe, ...]
    times: float = 1.0

    def above(self, load: float) -> float:
        """The p value of "the capacity is at most `load`"."""
        loads, p_values = self._kept
        place = bisect_left(loads, load * (1 - ALMOST))
        return p_values[place] if place < len(loads) else 1.0

    def below(self, load: float) -> float:
        """The p value of "the capacity is at least `load`"."""
        loads, p_values = self._broken
        place = bisect_right(loads, load * (1 + ALMOST)) - 1
        return p_values[place] if place >= 0 else 1.0

    def low(self, error: float) -> float | None:
        """The highest load that is shown to be kept more often than not; None if none is."""
        return max((load for load, p_value in zip(*self._kept, strict=True) if p_value <= error), default=None)

    def high(self, error: float) -> float | None:
        """The lowest load that is shown to be broken more often than not; None if none is."""
        return min((load for load, p_value in zip(*self._broken, strict=True) if p_value <= error), default=None)

    @property
    def loads(self) -> list[float]:
        """The loads at which p values change."""
        return [*self._kept[0], *self._broken[0]]

    @cached_property
    def _bets(self) -> tuple[list[Bet], list[Bet]]:
        """Bets that a probe would be kept, and that it would be broken. A load between the highest kept and the lowest broken one
        explores, and nothing is bet on it."""
        sides: tuple[list[Bet], list[Bet]] = ([], [])
        kept, broken = 0.0, math.inf
        for number, one in enumerate(self.probes):
            estimate = _bound(self.probes[:number])
            if one.load <= min(estimate, kept):
                sides[0].append(Bet(one.load, one.kept, math.log(estimate / one.load)))
            elif one.load > estimate and one.load >= broken:
                sides[1].append(Bet(one.load, not one.kept, math.log(one.load / estimate) if estimate else math.inf))
            kept, broken = (max(kept, one.load), broken) if one.kept else (kept, min(broken, one.load))
        return sides

    @cached_property
    def _kept(self) -> tuple[list[float], list[float]]:
        """Loads, ascending, with the p value of "the capacity is at most this": of all bets from this load on. What is not shown of
        a lower load is not shown of a higher one."""
        bets = self._bets[0]
        loads = sorted({one.load for one in bets})
        found = [self._p_value([one for one in bets if one.load >= load]) for load in loads]
        return loads, list(accumulate(found, max))

    @cached_property
    def _broken(self) -> tuple[list[float], list[float]]:
        """Likewise with the p value of "the capacity is at least this": of all bets up to this load."""
        bets = self._bets[1]
        loads = sorted({one.load for one in bets})
        found = [self._p_value([one for one in bets if one.load <= load]) for load in loads]
        return loads, list(accumulate(found[::-1], max))[::-1]

    def _p_value(self, bets: list[Bet]) -> float:
        """Of bets in the order in which they were made: by the most that they had won at any moment."""
        return math.exp(-max(0.0, float(log_evidence(bets, self.times).max())))


def log_evidence(bets: Sequence[Bet], times: float = 1.0) -> np.ndarray:
    """What a stake of 1 has become after each bet, as a logarithm. Its expectation never exceeds 1 if every bet is no better than a
    coin.

    The stake is divided among `SCATTERS`. Each part takes the capacity for lognormal around the estimate, and bets by the chance
    that this gives: hardly anything near the estimate, nearly all it has far from it. Whether the capacity is lognormal decides
    how fast bets win, not whether the interval holds.
    """
    away = np.array([one.away for one in bets])
    won = np.array([one.won for one in bets])
    chance = np.minimum(ndtr(away / np.array(SCATTERS)[:, None]), MOST)
    grown = times * np.cumsum(np.log(2 * np.where(won, chance, 1 - chance)), axis=1)
    return np.logaddexp.reduce(grown, axis=0) - math.log(len(SCATTERS))


@lru_cache(16_384)
def _bound(probes: tuple[Probe, ...]) -> float:
    """Where the isotonic share of kept probes crosses one half, between two loads on a logarithmic scale. 0 if all were broken,
    infinity if all were kept or none has run."""
    if not probes:
        return math.inf
    made, kept = Counter(one.load for one in probes), Counter(one.load for one in probes if one.kept)
    loads = sorted(made)
    numbers = [made[load] for load in loads]
    shares = isotonic_regression([kept[load] / made[load] for load in loads], weights=numbers, increasing=False).x
    if shares[0] < 0.5:
        return loads[0] if shares[0] > 0 else 0.0
    for (load, share), (higher, less) in pairwise(zip(loads, shares, strict=True)):
        if less < 0.5:
            return load * (higher / load) ** ((share - 0.5) / (share - less))
    return math.inf if shares[-1] == 1 else loads[-1]

"""A difference of two servers with what the rounds say of it: one-sided p values against any bound, and limits.

Differences are of logarithms, so a bound is the logarithm of a ratio. Five kinds, by what was measured: `Measured` (positive
values: a t test on the fit of server + block), `Ranked` (a value is zero: exact permutations of ranks), `Bounded` (values that are
lower bounds), `Failed` (rounds that a server lost by its own fault) and `Open` (nothing can be said, with the
reason).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import special

from wsbench.analysis.stats.at_least import AtLeast, Bounded
from wsbench.analysis.stats.fit import Fit, Prior, fit

Series = Mapping[int, float | None]
Lost = Mapping[str, Collection[int]]
Better = Literal["higher", "lower"]

LEAST_ROUNDS = 3  # with two, t is 12.7 and an interval says nothing
MOST_ORDERS = 20_000  # permutations that are counted one by one
SMALL = 1e-12


@dataclass(frozen=True)
class Measured:
    """`estimate` ± `deviation` with t of `freedom`; `rounds` is the smaller number of values of the two."""

    estimate: float
    deviation: float
    freedom: float
    rounds: int

    def above(self, bound: float) -> float:
        """The p value of "the difference is at most `bound`"."""
        return self._tail(self.estimate - bound)

    def below(self, bound: float) -> float:
        """The p value of "the difference is at least `bound`"."""
        return self._tail(bound - self.estimate)

    def _tail(self, distance: float) -> float:
        if self.deviation <= 0:  # without spread any difference is certain
            return 0.0 if distance > SMALL else 1.0
        return float(special.stdtr(self.freedom, -distance / self.deviation))

    def limits(self, tail: float) -> tuple[float, float]:
        """The limits that the difference exceeds on either side with this probability."""
        half = float(special.stdtrit(self.freedom, 1 - tail)) * self.deviation if self.deviation > 0 else 0.0
        return self.estimate - half, self.estimate + half

    def turned(self) -> Measured:
        """The difference the other way round."""
        return Measured(-self.estimate, self.deviation, self.freedom, self.rounds)

    @property
    def reason(self) -> str:
        return ""


@dataclass(frozen=True)
class Ranked:
    """Two samples of non-negative numbers, at least one of them zero: counts of errors. Compared by Wilcoxon's rank sum, whose
    distribution is counted (or, for many rounds, drawn). For a bound the other sample is multiplied, so a bound stays a ratio."""

    one: tuple[float, ...]
    other: tuple[float, ...]

    @property
    def estimate(self) -> float:
        mine, theirs = math.fsum(self.one), math.fsum(self.other)
        if mine == 0 or theirs == 0:
            return 0.0 if mine == theirs else math.copysign(math.inf, mine - theirs)
        return math.log(mine / len(self.one)) - math.log(theirs / len(self.other))

    @property
    def rounds(self) -> int:
        return min(len(self.one), len(self.other))

    @property
    def same(self) -> bool:
        return len({*self.one, *self.other}) == 1

    def above(self, bound: float) -> float:
        if self.same and self.one[0] == 0:  # none at all on both sides: the ratio is taken as 1
            return 0.0 if bound < 0 else 1.0
        return _rank_p(self.one, tuple(value * math.exp(bound) for value in self.other))

    def below(self, bound: float) -> float:
        if self.same and self.one[0] == 0:
            return 0.0 if bound > 0 else 1.0
        return _rank_p(tuple(value * math.exp(bound) for value in self.other), self.one)

    def limits(self, tail: float) -> tuple[float, float]:
        """Only the side is known: a ratio to zero has no size."""
        if self.same and self.one[0] == 0:
            return 0.0, 0.0
        return 0.0 if self.above(0.0) <= tail else -math.inf, 0.0 if self.below(0.0) <= tail else math.inf

    @property
    def reason(self) -> str:
        return "compared by ranks, because a value is 0"


@dataclass(frozen=True)
class Failed:
    """One of the two lost more rounds by its own fault. They may have been as bad as can be, so nothing speaks for that server.

    Where it lost at least half of its rounds, Boschloo's exact test of the lost rounds decides against it; else its values do.
    `best`: the better direction of the values.
    """

    found: Measured | Ranked | Bounded | Open
    lost: tuple[int, int]
    of: tuple[int, int]
    best: Better

    @property
    def estimate(self) -> float:
        return self.found.estimate

    @property
    def rounds(self) -> int:
        return self.found.rounds

    @property
    def _first(self) -> bool:
        """It is the first of the two that lost more."""
        return self.lost[0] * self.of[1] > self.lost[1] * self.of[0]

    @property
    def _low(self) -> bool:
        """As bad as can be is below the other."""
        return self._first == (self.best == "higher")

    @property
    def by_failures(self) -> bool:
        more = 0 if self._first else 1
        return 2 * self.lost[more] >= self.of[more]

    @cached_property
    def _by_lost_rounds(self) -> float:
        more, fewer = (0, 1) if self._first else (1, 0)
        return _boschloo_p(self.lost[more], self.of[more], self.lost[fewer], self.of[fewer])

    def above(self, bound: float) -> float:
        if self._low:
            return 1.0
        return self._by_lost_rounds if self.by_failures else self.found.above(bound)

    def below(self, bound: float) -> float:
        if not self._low:
            return 1.0
        return self._by_lost_rounds if self.by_failures else self.found.below(bound)

    def limits(self, tail: float) -> tuple[float, float]:
        low, high = (-math.inf, math.inf) if self.by_failures else self.found.limits(tail)
        return (-math.inf, high) if self._low else (low, math.inf)

    @property
    def reason(self) -> str:
        more = 0 if self._first else 1
        return f"lost {self.lost[more]} of {self.of[more]} rounds by its own fault"


@dataclass(frozen=True)
class Open:
    """Nothing can be said. `needed`: rounds until something can, None if more rounds do not help."""

    reason: str
    needed: int | None = None
    estimate: float = math.nan
    rounds: int = 0

    def above(self, bound: float) -> float:
        return 1.0

    def below(self, bound: float) -> float:
        return 1.0

    def limits(self, tail: float) -> tuple[float, float]:
        return -math.inf, math.inf


Contrast = Measured | Ranked | Bounded | Failed | Open


class Contrasts:
    """The differences between servers of one cell; every two share one fit. `best`: the better direction, if rounds were `lost`."""

    def __init__(
        self,
        series: Mapping[str, Series],
        lost: Lost | None = None,
        prior: Prior | None = None,
        paired: bool = True,
        best: Better = "higher",
    ) -> None:
        self.values = {name: [value for value in found.values() if value is not None] for name, found in series.items()}
        self.lost = {name: len(set((lost or {}).get(name, ()))) for name in series}
        self._logs = {
            name: {at: math.log(value) for at, value in series[name].items() if value is not None}
            for name, known in self.values.items()
            if len(known) >= LEAST_ROUNDS and min(known) > 0 and all(map(math.isfinite, known))
        }
        self._bounds = {name: found.why for name, found in series.items() if isinstance(found, AtLeast)}
        self._prior, self._paired, self._best = prior, paired, best

    @cached_property
    def fit(self) -> Fit | None:
        """Of all servers whose values have logarithms; None if there are none."""
        return fit(self._logs, self._prior, self._paired) if self._logs else None

    @property
    def rounds(self) -> int:
        """The most rounds that a server ran, lost ones included."""
        return max((len(known) + self.lost[name] for name, known in self.values.items()), default=0)

    def obstacle(self, name: str) -> Open | None:
        """Why a server cannot be compared at all; None if it can."""
        known = self.values[name]
        few = LEAST_ROUNDS - len(known)
        if few > 0 and not self.lost[name]:
            return Open(f"{LEAST_ROUNDS} rounds are needed, there {_are(len(known))}", few) if known else Open("not measured")
        if not all(map(math.isfinite, known)):
            return Open("a value is not finite")
        if known and min(known) < 0:
            return Open("a ratio needs values of zero or more")
        return None

    def contrast(self, one: str, other: str) -> Contrast:
        """`one` − `other`."""
        if stop := self.obstacle(one) or self.obstacle(other):
            return stop
        found = self._bounded(self._of_values(one, other), one, other)
        lost = self.lost[one], self.lost[other]
        of = len(self.values[one]) + lost[0], len(self.values[other]) + lost[1]
        return found if lost[0] * of[1] == lost[1] * of[0] else Failed(found, lost, of, self._best)

    def _of_values(self, one: str, other: str) -> Contrast:
        few = min(len(self.values[one]), len(self.values[other]))
        if few < LEAST_ROUNDS:
            return Open(f"{LEAST_ROUNDS} rounds are needed, there {_are(few)}", LEAST_ROUNDS - few)
        if one not in self._logs or other not in self._logs:
            return Ranked(tuple(self.values[one]), tuple(self.values[other]))
        if not self.fit.linked(one, other):
            return Open("no chain of common rounds links the two")
        return Measured(*self.fit.difference(one, other), rounds=few)

    def _bounded(self, found: Contrast, one: str, other: str) -> Contrast:
        why = "; ".join(f"{name} is a lower bound: {self._bounds[name]}" for name in (one, other) if name in self._bounds)
        return Bounded(found, one in self._bounds, other in self._bounds, why) if why and not isinstance(found, Open) else found

    def correlation(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Of the estimates of these differences; those outside the fit count as independent."""
        inside = [at for at, pair in enumerate(pairs) if all(name in self._logs for name in pair)]
        found = np.eye(len(pairs))
        if inside:
            found[np.ix_(inside, inside)] = self.fit.correlation([pairs[at] for at in inside])
        return found


def of_constant(series: Series, constant: float) -> Contrast:
    """A series against a stated number: a t test of its mean, on logarithms where all are positive."""
    values = [value for value in series.values() if value is not None]
    if len(values) < LEAST_ROUNDS:
        return Open(f"{LEAST_ROUNDS} rounds are needed, there {_are(len(values))}", LEAST_ROUNDS - len(values))
    found = of_mean(np.log(np.array(values) / constant) if min(values) > 0 and constant > 0 else np.array(values) - constant)
    return Bounded(found, True, False, f"a lower bound: {series.why}") if isinstance(series, AtLeast) else found


def of_mean(values: np.ndarray) -> Measured:
    """The mean of these against 0."""
    deviation = float(values.std(ddof=1)) / math.sqrt(len(values))
    return Measured(float(values.mean()), deviation, len(values) - 1, len(values))


@cache
def _boschloo_p(lost: int, of: int, other_lost: int, other_of: int) -> float:
    """The one-sided p value of "the first loses a round no more often than the other"."""
    from scipy import stats  # takes most of a second, and few campaigns lose rounds

    table = [[lost, other_lost], [of - lost, other_of - other_lost]]
    return float(stats.boschloo_exact(table, alternative="greater").pvalue)


@cache
def _rank_p(high: tuple[float, ...], low: tuple[float, ...]) -> float:
    """The one-sided p value of "`high` is not above `low`": of all ways to deal the ranks out, the share with as large a sum."""
    values = np.array(high + low)
    if (values == values[0]).all():
        return 1.0
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # ties share their mean
    sums = ranks[_orders(len(high), len(values))].sum(axis=1)
    reached = int((sums >= ranks[: len(high)].sum() - 1e-9).sum())
    exact = math.comb(len(values), len(high)) <= MOST_ORDERS
    return reached / len(sums) if exact else (reached + 1) / (len(sums) + 1)


@cache
def _orders(chosen: int, of: int) -> np.ndarray:
    """Every choice, or as many as are counted, drawn with a fixed seed. scipy's permutation test takes half a second for this."""
    if math.comb(of, chosen) <= MOST_ORDERS:
        return np.array(list(combinations(range(of), chosen)))
    return np.random.default_rng(1).random((MOST_ORDERS, of)).argsort(axis=1)[:, :chosen]


def _are(rounds: int) -> str:
    return f"is {rounds}" if rounds == 1 else f"are {rounds}"

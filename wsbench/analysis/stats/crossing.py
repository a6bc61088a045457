"""The load up to which a promise is kept more often than not: an isotonic estimate, and an interval that holds under looking.

In: the probes in the order in which they ran, each with its load and whether it kept the promise. The one assumption is that a
higher load makes a promise no easier to keep. Nothing here measures.

The interval comes from a test martingale (Ville 1939; Ramdas et al., Statistical Science 38, 2023). Each probe is a bet, made
before it runs: below the estimate of that moment that it will keep the promise, above it that it will not. If the capacity were at
or below a load, every probe from that load on would keep the promise at most half of the time, and such bets could not win in the
long run. So results may choose the next load, and the search may end at any time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from scipy.optimize import isotonic_regression
from scipy.stats import beta

#: That the interval misses the capacity, at any moment of the search; half of it on each side.
ERROR = 0.05


class Probe(NamedTuple):
    """One probe: its load, and whether the promise was kept."""

    load: float
    kept: bool


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
    probes = tuple(probes)
    before = [_bound(probes[:number]) for number in range(len(probes))]
    bets = list(zip(probes, before, strict=True))
    below = [one for one, estimate in bets if one.load <= estimate]
    above = [one for one, estimate in bets if one.load > estimate]
    return Crossing(
        estimate=_bound(probes) if len({one.kept for one in probes}) == 2 else None,
        low=_shown(sorted(below, key=lambda one: -one.load), True, error / 2),
        high=_shown(sorted(above, key=lambda one: one.load), False, error / 2),
    )


def evidence(right: int, wrong: int) -> float:
    """How strongly bets speak against their losing at least half of the time: the likelihood of a share p that is won, divided by
    that of one half, in the mean over all p from 1/2 to 1. Its expectation is at most 1 if the bets are no better than a coin."""
    log = (right + wrong + 1) * math.log(2) + math.lgamma(right + 1) + math.lgamma(wrong + 1) - math.lgamma(right + wrong + 2)
    return math.exp(log + float(beta.logsf(0.5, right + 1, wrong + 1)))


def _shown(bets: list[Probe], kept: bool, error: float) -> float | None:
    """Bets from the far end to the near one; the farthest load from the near end up to which all are shown."""
    strong: dict[float, bool] = {}
    won = 0
    for number, one in enumerate(bets, 1):
        won += one.kept == kept
        strong[one.load] = evidence(won, number - won) >= 1 / error
    shown = None
    for load in reversed(strong):
        if not strong[load]:
            break
        shown = load
    return shown


@lru_cache(1024)
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

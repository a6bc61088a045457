"""Tiers in place of ranks: which of many servers differ.

The unit is a fresh run; a round, in which everything runs once, is a block. The model on logarithms is value = server + round +
noise, with a noise level per server. The effect of rounds is fitted and removed, then every pair is compared by Welch's t. All
pairs together keep a family-wise error of 5 % (Holm 1979). Two servers differ if the test says so *and* they differ by more than
the practical threshold, max(3 %, A/A noise). METHODOLOGY.md describes the simulation and rejected alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy import special

from wsbench.analysis.stats.estimates import LEVEL, PRACTICAL, RANK_ROUNDS

PAIRED_UP_TO = 3  # servers; with so few the fit absorbs too much of their noise, so they are compared within rounds

Series = Mapping[int, float | None]


@dataclass(frozen=True)
class Tiers:
    """The order of servers, the best first.

    `names` are the servers compared; `different` has every pair that differs, the better one first. `left_out` has the reason
    for each server that was not compared, `reason` why there are no tiers. `threshold` is a share.
    """

    names: tuple[str, ...]
    different: frozenset[tuple[str, str]]
    threshold: float
    left_out: dict[str, str]
    reason: str | None

    def differ(self, one: str, other: str) -> bool:
        return (one, other) in self.different or (other, one) in self.different

    @cached_property
    def first(self) -> tuple[str, ...]:
        """The best server and all that do not differ from it."""
        return tuple(name for name in self.names if name == self.names[0] or not self.differ(name, self.names[0]))

    @cached_property
    def letters(self) -> dict[str, str]:
        """Compact letter display: servers that share a letter do not differ; `a` begins with the best."""
        place = {name: at for at, name in enumerate(self.names)}
        found = sorted(sorted(place[name] for name in group) for group in _groups(self))
        return {name: "".join(_letter(letter) for letter, group in enumerate(found) if at in group) for name, at in place.items()}


def tiers(series: Mapping[str, Series], noise: float | None = None, best: str = "higher") -> Tiers:
    """`series` is server → round → value; None and absent rounds are not measured.

    `noise` is the A/A difference as a share; `best` is `higher` or `lower`.
    """
    threshold = max(PRACTICAL, noise or 0.0)
    left_out = {name: why for name, values in series.items() if (why := _obstacle(values))}
    names = [name for name in series if name not in left_out]
    if len(names) < 2:
        few = next(iter(left_out.values()), "there is no other server to compare with")
        return Tiers(tuple(names), frozenset(), threshold, left_out, few)
    logs = {name: {at: math.log(value) for at, value in series[name].items() if value is not None} for name in names}
    levels, p_values = _paired(logs) if len(names) <= PAIRED_UP_TO else _fitted(logs)
    sign = -1 if best == "higher" else 1
    ordered = tuple(sorted(names, key=lambda name: sign * levels[name]))
    found = {pair for pair in _holm(p_values) if abs(levels[pair[0]] - levels[pair[1]]) > math.log1p(threshold)}
    different = frozenset(tuple(sorted(pair, key=ordered.index)) for pair in found)
    return Tiers(ordered, different, threshold, left_out, None)


def _obstacle(values: Series) -> str | None:
    known = [value for value in values.values() if value is not None]
    if len(known) < RANK_ROUNDS:
        return f"not enough rounds to rank: {len(known)} of {RANK_ROUNDS}"
    if min(known) <= 0 or not all(map(math.isfinite, known)):
        return "not on a logarithmic scale: a value is zero or below"
    return None


# ---- pairs ---------------------------------------------------------------------------------------------------------

Levels = dict[str, float]
PValues = dict[tuple[str, str], float]


def _paired(logs: dict[str, dict[int, float]]) -> tuple[Levels, PValues]:
    """Few servers: a paired t test over the rounds that have both."""
    p_values = {}
    for one, other in combinations(logs, 2):
        rounds = sorted(set(logs[one]) & set(logs[other]))
        found = np.array([logs[one][at] - logs[other][at] for at in rounds])
        p_values[one, other] = _p(found.mean(), found.var(ddof=1) / len(found), len(found) - 1) if len(found) > 2 else 1.0
    return _fit(logs)[0], p_values


def _fitted(logs: dict[str, dict[int, float]]) -> tuple[Levels, PValues]:
    """Many servers: Welch's t on the residuals.

    With *k* servers in a round the fit absorbs 1/k of a server's variance, which is restored.
    """
    levels, residuals = _fit(logs)
    present = {at: sum(at in values for values in logs.values()) for values in logs.values() for at in values}
    squared = {}
    for name, left in residuals.items():
        number = len(left)
        given_back = np.mean([present[at] / (present[at] - 1) if present[at] > 1 else 1.0 for at in left])
        squared[name] = sum(value**2 for value in left.values()) / (number - 1) * given_back / number, number
    p_values = {}
    for one, other in combinations(logs, 2):
        (a, n), (b, m) = squared[one], squared[other]
        freedom = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1)) if a + b > 0 else min(n, m) - 1
        p_values[one, other] = _p(levels[one] - levels[other], a + b, freedom)
    return levels, p_values


def _fit(logs: dict[str, dict[int, float]]) -> tuple[Levels, dict[str, dict[int, float]]]:
    """Least squares of server + round: levels of the servers, and residuals.

    Without missing trials these are the means of servers and the deviations of rounds from the overall mean.
    """
    names, rounds = list(logs), sorted({at for values in logs.values() for at in values})
    place = {at: number for number, at in enumerate(rounds)}
    cells = [(row, place[at], value) for row, name in enumerate(names) for at, value in logs[name].items()]
    design = np.zeros((len(cells), len(names) + len(rounds)))
    for at, (row, column, _) in enumerate(cells):
        design[at, row] = design[at, len(names) + column] = 1.0
    # The model is determined up to a constant, so the rounds are made to sum to zero.
    balance = np.concatenate([np.zeros(len(names)), np.ones(len(rounds))])
    values = np.array([value for _, _, value in cells])
    fitted = np.linalg.lstsq(np.vstack([design, balance]), np.append(values, 0.0), rcond=None)[0]
    left = values - design @ fitted
    residuals: dict[str, dict[int, float]] = {name: {} for name in names}
    for (row, column, _), residual in zip(cells, left, strict=True):
        residuals[names[row]][rounds[column]] = float(residual)
    return dict(zip(names, map(float, fitted), strict=False)), residuals


def _p(difference: float, variance: float, freedom: float) -> float:
    """Two-sided p value. Without variance any difference is certain."""
    if variance < 1e-24:
        return 0.0 if abs(difference) > 1e-12 else 1.0
    return float(2 * special.stdtr(freedom, -abs(difference) / math.sqrt(variance)))


def _holm(p_values: PValues) -> list[tuple[str, str]]:
    """The pairs that differ, with a family-wise error of 1 − LEVEL (Holm 1979). statsmodels has this too, but takes a second to
    import and is too slow for the simulation, which calls it a hundred thousand times."""
    found = []
    for left, (pair, p) in zip(range(len(p_values), 0, -1), sorted(p_values.items(), key=lambda row: row[1]), strict=True):
        if p > (1 - LEVEL) / left:
            break
        found.append(pair)
    return found


# ---- letters -------------------------------------------------------------------------------------------------------


def _groups(found: Tiers) -> list[frozenset[str]]:
    """The largest groups without a differing pair: insert and absorb (Piepho 2004)."""
    groups = [frozenset(found.names)]
    place = {name: at for at, name in enumerate(found.names)}
    for one, other in sorted(found.different, key=lambda pair: [place[name] for name in pair]):
        whole = [group for group in groups if not (one in group and other in group)]
        parts = [group - {name} for group in groups if one in group and other in group for name in (one, other)]
        # No group is inside another, so only new ones need checking.
        groups = whole + [part for part in dict.fromkeys(parts) if not any(part <= group for group in whole)]
    return groups


def _letter(place: int) -> str:
    """a … z, then aa …"""
    return chr(ord("a") + place % 26) * (place // 26 + 1)

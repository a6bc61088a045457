"""Levels of servers on a logarithmic scale, fitted with the effects of blocks, and variances that borrow strength.

The model is value = server + block + noise, and every server has a noise of its own. Least squares with weights 1 / variance gives
the levels; a block may lack servers, and two servers without a common block are compared through the servers that both met. The
variances solve the equations of restricted maximum likelihood, so a noisy server does not blur two quiet ones. One below the
common variance is moved towards it and gains its degrees of freedom (the moderated t of Smyth 2004): at five rounds a server's own
variance is a poor estimate. One above stays as it is: in simulations, a noisy server that was moved down, too, made up to twice as
many false claims as promised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

Logs = Mapping[str, Mapping[int, float]]

ROUNDS_OF_WEIGHTS = 40
LEAST_FREEDOM = 1.0  # of a variance that says something about the common one
ALMOST_NONE = 1e-24
ENOUGH = 5  # rounds; with fewer, Satterthwaite's degrees of freedom are too many among many servers: the smaller is taken


@dataclass(frozen=True)
class Prior:
    """The common variance and its weight in degrees of freedom. `total`: degrees of freedom of all variances that it comes from;
    no test has more."""

    variance: float
    freedom: float
    total: float


@dataclass(frozen=True)
class Fit:
    """Levels with their covariance, and each server's variance with its degrees of freedom, `own` without the prior's."""

    names: tuple[str, ...]
    levels: np.ndarray  # natural logarithms
    covariance: np.ndarray
    shares: np.ndarray  # server × server × server: the part of the third's variance in a difference of the first two
    variances: np.ndarray
    freedoms: np.ndarray
    own: tuple[np.ndarray, np.ndarray]  # variance and degrees of freedom
    parts: np.ndarray  # servers with the same number are linked by common blocks
    total: float
    counts: np.ndarray  # of values

    def linked(self, one: str, other: str) -> bool:
        return bool(self.parts[self.at(one)] == self.parts[self.at(other)])

    def at(self, name: str) -> int:
        return self.names.index(name)

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """Estimate, standard error and degrees of freedom (Satterthwaite) of level `one` − level `other`."""
        i, j = self.at(one), self.at(other)
        parts = self.shares[i, j] * self.variances
        variance = float(parts.sum())
        estimate = float(self.levels[i] - self.levels[j])
        if variance < ALMOST_NONE:
            return estimate, 0.0, max(1.0, self.total)
        freedom = variance**2 / float((parts**2 / np.maximum(self.freedoms, 1e-9)).sum())
        if len(self.names) > 2 and min(self.counts[i], self.counts[j]) < ENOUGH:
            freedom = min(freedom, float(self.freedoms[i]), float(self.freedoms[j]))
        return estimate, math.sqrt(variance), max(1.0, min(freedom, self.total))

    def correlation(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Of the estimates of these differences."""
        design = np.zeros((len(pairs), len(self.names)))
        for row, (one, other) in enumerate(pairs):
            design[row, self.at(one)], design[row, self.at(other)] = 1.0, -1.0
        covariance = design @ self.covariance @ design.T
        scale = np.sqrt(np.maximum(np.diag(covariance), ALMOST_NONE))
        return covariance / np.outer(scale, scale)


def fit(logs: Logs, prior: Prior | None = None, paired: bool = True) -> Fit:
    """Levels and variances. Without `paired` the blocks mean nothing: every server has its own mean.

    Without a `prior` the common variance is that of these servers.
    """
    names = tuple(logs)
    blocks = sorted({at for values in logs.values() for at in values})
    values = np.array([[logs[name].get(at, np.nan) for at in blocks] for name in names]).reshape(len(names), len(blocks))
    present = ~np.isnan(values)
    values = np.where(present, values, 0.0)
    pooled = None
    # First each variance with a weak pull towards their mean, then with the weight that the common one deserves.
    variances = np.ones(len(names))
    for _ in range(ROUNDS_OF_WEIGHTS):
        squares, freedoms, *_ = _weighted(values, present, 1 / variances, paired)
        pooled = squares.sum() / max(freedoms.sum(), 1e-9)
        if pooled < ALMOST_NONE:
            variances = np.full(len(names), ALMOST_NONE)
            break
        before, variances = variances, np.maximum((squares + 0.1 * pooled) / (freedoms + 0.1), 1e-6 * pooled)
        if np.abs(before / variances - 1).max() < 1e-3:
            break
    own = _own(squares, freedoms), freedoms
    prior = prior or common([own])
    for _ in range(ROUNDS_OF_WEIGHTS):
        before, variances = variances, np.maximum(_moved(squares, freedoms, prior), ALMOST_NONE)
        squares, freedoms, levels, covariance, coefficients = _weighted(values, present, 1 / variances, paired)
        if np.abs(before / variances - 1).max() < 1e-3:
            break
    if paired and not present.all():
        # Where servers lack in some blocks, levels depend on the weights, and estimated weights would make them look too sure.
        *_, levels, covariance, coefficients = _weighted(values, present, np.ones(len(names)), paired)
        covariance = np.einsum("isb,jsb,s->ij", coefficients, coefficients, variances)
    shares = ((coefficients[:, None] - coefficients[None, :]) ** 2).sum(axis=3)
    total = max(prior.total, 1.0)
    gained = np.where(_own(squares, freedoms) <= prior.variance, prior.freedom, 0.0)
    parts, counts = _parts(present, paired), present.sum(axis=1)
    levels = _absolute(levels, values, present, parts)
    return Fit(names, levels, covariance, shares, variances, np.minimum(freedoms + gained, total), own, parts, total, counts)


def common(found: Iterable[tuple[np.ndarray, np.ndarray]]) -> Prior:
    """The common variance of many, and how much it is worth (Smyth 2004, section 6.2). Each element: variances, degrees of freedom.

    It is worth at most as many degrees of freedom as there are variances: from a few, their likeness may be chance.
    """
    every = [np.concatenate(part) for part in zip(*found, strict=True)]
    variances, freedoms = every if every else (np.array([]), np.array([]))
    total = float(freedoms.sum())
    told = (freedoms >= LEAST_FREEDOM) & (variances > ALMOST_NONE)
    s, d = variances[told], freedoms[told]
    if not len(s):
        return Prior(float((variances * freedoms).sum() / total) if total > 0 else 0.0, 0.0, total)
    logs = np.log(s) - special.digamma(d / 2) + np.log(d / 2)
    excess = float(logs.var(ddof=1) - special.polygamma(1, d / 2).mean()) if len(s) > 1 else 0.0
    freedom = min(2 * _inverse_trigamma(excess) if excess > 0 else math.inf, float(len(s)))
    middle = float(logs.mean() + special.digamma(freedom / 2) - math.log(freedom / 2)) if freedom > 0 else float(logs.mean())
    return Prior(math.exp(middle), freedom, total)


def _own(squares: np.ndarray, freedoms: np.ndarray) -> np.ndarray:
    known = freedoms > 1e-6
    return np.where(known, squares / np.where(known, freedoms, 1.0), 0.0)


def _moved(squares: np.ndarray, freedoms: np.ndarray, prior: Prior) -> np.ndarray:
    weight = freedoms + prior.freedom
    towards = np.where(weight > 1e-6, (squares + prior.freedom * prior.variance) / np.maximum(weight, 1e-6), prior.variance)
    return np.maximum(_own(squares, freedoms), towards)


def _inverse_trigamma(value: float) -> float:
    """Newton's iteration of Smyth (2004, appendix)."""
    if value > 1e7:
        return 1 / math.sqrt(value)
    found = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, found))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, found))
        found += step
        if -step / found < 1e-8:
            break
    return found


def _weighted(values: np.ndarray, present: np.ndarray, weights: np.ndarray, paired: bool):
    """Least squares of server + block: per server the sum of squares and the degrees of freedom of its residuals; the levels, their
    covariance, and the coefficient of each value in each level (level × server × block). The blocks are eliminated, so the largest
    matrix is server × server."""
    cells = weights[:, None] * present
    of_block = cells.sum(axis=0)
    parts = cells / np.where(of_block > 0, of_block, 1.0) if paired else np.zeros_like(cells)
    matrix = np.diag(cells.sum(axis=1)) - parts @ cells.T
    covariance = np.linalg.pinv(matrix, rcond=1e-10, hermitian=True)
    centre = (parts * values).sum(axis=0)
    levels = covariance @ ((cells * values).sum(axis=1) - cells @ centre)
    blocks = centre - levels @ parts
    residuals = np.where(present, values - levels[:, None] - blocks, 0.0)
    moved = covariance @ parts
    spread = np.diag(covariance)[:, None] - 2 * moved + (parts * moved).sum(axis=0)
    inverse = 1 / np.where(of_block > 0, of_block, 1.0) if paired else np.zeros(values.shape[1])
    leverage = weights[:, None] * (inverse + spread)
    freedoms = np.where(present, np.clip(1 - leverage, 0.0, 1.0), 0.0).sum(axis=1)
    coefficients = (covariance[:, :, None] - moved[:, None, :]) * cells
    return (residuals**2).sum(axis=1), freedoms, levels, covariance, coefficients


def _absolute(levels: np.ndarray, values: np.ndarray, present: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """The levels so that the values of linked servers deviate from them by 0 on average; of the fit only differences are known."""
    rest = np.where(present, values - levels[:, None], 0.0)
    linked = parts[:, None] == parts
    return levels + linked @ rest.sum(axis=1) / np.maximum(linked @ present.sum(axis=1), 1)


def _parts(present: np.ndarray, paired: bool) -> np.ndarray:
    found = np.arange(len(present))
    if not paired:
        return np.zeros(len(present), dtype=int)
    for _ in range(len(present)):
        for column in present.T:
            if column.any():
                found[column] = found[column].min()
    return found

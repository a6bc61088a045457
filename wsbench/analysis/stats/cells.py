"""Many cells of one metric: their common variance, one series over all of them, and the trend over ordered ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from wsbench.analysis.stats.at_least import AtLeast
from wsbench.analysis.stats.contrasts import Contrast, Contrasts, Open, Series, of_mean
from wsbench.analysis.stats.fit import Prior, common


def common_variance(cells: Sequence[Mapping[str, Series]], paired: bool = True) -> Prior:
    """The common variance of a metric's logarithms over the servers of all cells."""
    fits = [found for cell in cells if (found := Contrasts(cell, paired=paired).fit) is not None]
    return common(found.own for found in fits)


def overall(cells: Sequence[Mapping[str, Series]]) -> dict[str, dict[int, float | None]]:
    """One series per server over the cells of a sweep: by round the geometric mean of its values, so that a ratio of two servers
    is the mean of their log ratios. A round without every cell, or with a value that has no logarithm, has none. A lower bound in
    one cell makes a lower bound of the whole."""
    names = list(dict.fromkeys(name for cell in cells for name in cell))
    rounds = sorted({at for cell in cells for found in cell.values() for at in found})
    made: dict[str, dict[int, float | None]] = {}
    for name in names:
        by_round = {at: [cell.get(name, {}).get(at) for cell in cells] for at in rounds}
        made[name] = {
            at: math.exp(math.fsum(map(math.log, found)) / len(found))
            if all(one is not None and one > 0 for one in found)
            else None
            for at, found in by_round.items()
        }
        if bounds := [found for cell in cells if isinstance(found := cell.get(name), AtLeast)]:
            made[name] = AtLeast(made[name], bounds[0].why)
    return made


def trend(cells: Sequence[Series]) -> Contrast:
    """The change from the first to the last of some ordered cells of one server, as a logarithm: per round the slope over the
    places of the cells, and the t test of these slopes. A round counts if it has every cell."""
    if len(cells) < 2:
        return Open("a trend needs two cells")
    if bounds := [cell for cell in cells if isinstance(cell, AtLeast)]:
        return Open(f"a value is a lower bound: {bounds[0].why}")
    rounds = [at for at in cells[0] if all(cell.get(at) is not None for cell in cells)]
    values = np.array([[cell[at] for cell in cells] for at in rounds], dtype=float)
    if len(rounds) < 3:
        return Open(f"3 rounds with every cell are needed, there are {len(rounds)}", 3 - len(rounds))
    places = np.arange(len(cells)) - (len(cells) - 1) / 2
    if values.min() <= 0:
        return Open("a trend needs positive values")
    return of_mean(np.log(values) @ places / (places**2).sum() * (len(cells) - 1))

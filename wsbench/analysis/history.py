"""Steps in a server's performance over many campaigns of one experiment with the same machine and settings.

A point is the mean of one campaign. PELT finds the change points on logarithms (Killick 2012; the library ruptures) with a penalty
of 3 σ² log n. σ comes from the differences of neighbours, so a step does not hide itself. A step is reported if `stats.decision`
says that the campaigns after it differ from those before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

import numpy as np
import ruptures

from wsbench.analysis import stats
from wsbench.analysis.campaigns import Campaign
from wsbench.analysis.compare import differences
from wsbench.analysis.dataset import ENGINE_LIMIT, Cell
from wsbench.records.errors import UserError

SHORTEST = 3  # campaigns on each side of a step: fewer give no interval
PENALTY = 3.0
NORMAL = 0.954  # median distance of two normal neighbours, in σ: √2 × 0.6745


@dataclass(frozen=True)
class Step:
    """A change between two successive campaigns; `ratio` is after over before."""

    before: Campaign
    after: Campaign
    ratio: stats.Decision


@dataclass(frozen=True)
class Line:
    """One server and cell over time. `reason`: why steps could not be searched."""

    server: str
    cell: Cell
    points: list[tuple[Campaign, float]]
    steps: list[Step]
    reason: str | None


def history(campaigns: list[Campaign], experiment: str, metric: str | None) -> tuple[str, list[Line], int]:
    """(metric, lines, campaigns left out because machine or settings differ from the newest). UserError if there is none."""
    chosen = sorted((one for one in campaigns if one.experiment == experiment), key=lambda one: one.record.created_unix_s)
    if not chosen:
        known = ", ".join(sorted({one.experiment for one in campaigns})) or "none"
        raise UserError(f"no campaign of {experiment!r} here; there are campaigns of: {known}")
    same = alike(chosen)
    margin = margin_of(same)
    metric = metric or chosen[-1].headline
    series: dict[tuple[str, Cell], list[tuple[Campaign, stats.Estimate]]] = {}
    for campaign in same:
        for line in campaign.lines([metric]):
            if line.found[metric].mean is not None:
                series.setdefault((line.server, line.cell), []).append((campaign, line.found[metric]))
    lines = [_line(server, cell, found, margin) for (server, cell), found in series.items()]
    return metric, lines, len(chosen) - len(same)


def alike(campaigns: list[Campaign]) -> list[Campaign]:
    """The campaigns with the newest one's machine and settings, oldest first."""
    ordered = sorted(campaigns, key=lambda one: one.record.created_unix_s)
    newest = ordered[-1].results
    return [one for one in ordered if one.results is newest or not differences(one.results, newest)]


def margin_of(campaigns: list[Campaign]) -> float:
    """The margin of the newest campaign."""
    return max(campaigns, key=lambda one: one.record.created_unix_s).results.margin if campaigns else stats.MARGIN


def _line(server: str, cell: Cell, estimates: list[tuple[Campaign, stats.Estimate]], margin: float) -> Line:
    points = [(campaign, found.mean) for campaign, found in estimates]
    if len(points) < 2 * SHORTEST:
        reason = f"{len(points)} campaigns; a search for steps needs {2 * SHORTEST}"
        return Line(server, cell, points, [], reason)
    values = [value for _, value in points]
    edges = [0, *change_points(values)]
    rows = []
    for start, at, end in zip(edges, edges[1:], edges[2:], strict=False):
        both = {"before": _level(estimates[start:at]), "after": _level(estimates[at:end])}
        rows.append(("after", "before", stats.Contrasts(both, paired=False).contrast("after", "before")))
    steps = [
        Step(points[at - 1][0], points[at][0], found)
        for at, found in zip(edges[1:], stats.holm(rows, stats.Rules(margin)), strict=False)
        if found.says in ("better", "worse")
    ]
    return Line(server, cell, points, steps, None)


def _level(campaigns: list[tuple[Campaign, stats.Estimate]]) -> stats.Series:
    """The means of campaigns between two steps; a lower bound in one makes a lower bound of the level."""
    means = {number: found.mean for number, (_, found) in enumerate(campaigns)}
    return stats.AtLeast(means, ENGINE_LIMIT) if any(found.at_least for _, found in campaigns) else means


def change_points(values: list[float]) -> list[int]:
    """The end index of each level, the last one included. Values must be positive."""
    logs = np.log(values)
    sigma = median(abs(float(step)) for step in np.diff(logs)) / NORMAL
    penalty = PENALTY * max(sigma, 1e-6) ** 2 * math.log(len(values))
    return ruptures.Pelt(model="l2", min_size=SHORTEST, jump=1).fit(logs).predict(pen=penalty)

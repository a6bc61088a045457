"""Chooses the next load of a search, from the probes so far: first doubling, then bisection, then the side of the estimate that
has fewer probes to show it.

Follows RFC 9971 (MLRsearch) where it fits: several goals share their probes, a load counts by the majority of its probes, and the
answer has a stated relation to loads that failed. It does not use that document's library. That one knows only loss ratios and no
probe that the load generator disturbed, and it stops by its own bounds, not by an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wsbench.analysis.stats.crossing import Crossing, Probe, crossing

#: How far the load is raised while every probe keeps the promise, and lowered while none does.
STEP = 2.0
#: Probes beside the estimate are this share of the wanted precision away from it: the interval must end within the precision.
ASIDE = 0.8


@dataclass(frozen=True)
class Bounds:
    """`within`: the wanted precision, as a share. No load is chosen outside `least` to `most`; `whole`: connections."""

    within: float
    start: float
    least: float
    most: float
    whole: bool = False


@dataclass(frozen=True)
class Standing:
    """What is known of one promise. `ended`: why no further probe is made for it; None while the search goes on."""

    found: Crossing
    ended: str | None


def standing(probes: Sequence[Probe], bounds: Bounds) -> Standing:
    """`probes` in the order in which they ran. Between loads that are far apart there is no estimate."""
    found = crossing(probes)
    if found.estimate is not None and not _are_near(*_around(probes, found.estimate), bounds):
        found = replace(found, estimate=None)
    if found.within is not None and found.within <= bounds.within:
        return Standing(found, "precision")
    if found.low is not None and found.low >= bounds.most:
        return Standing(found, "most")
    if found.high is not None and found.high <= bounds.least:
        return Standing(found, "least")
    return Standing(found, None)


def next_load(probes: Sequence[Probe], bounds: Bounds) -> float:
    """The load of the next probe for a promise that is not yet known well enough."""
    if not probes:
        return _rounded(bounds.start, bounds)
    kept, broken = ([one.load for one in probes if one.kept is which] for which in (True, False))
    if not broken:
        return _rounded(max(kept) * STEP, bounds)
    if not kept:
        return _rounded(min(broken) / STEP, bounds)
    found = crossing(probes)
    below, above = _around(probes, found.estimate)
    if not _are_near(below, above, bounds):
        return _rounded(math.sqrt(below * above), bounds)
    away = 1 + ASIDE * bounds.within
    near = found.estimate * away**2
    lower = sum(found.estimate**2 / near <= load <= found.estimate for load in kept)
    higher = sum(found.estimate < load <= near for load in broken)
    return _rounded(found.estimate / away if lower <= higher else found.estimate * away, bounds)


def below(limit: float, kept: float, bounds: Bounds) -> float:
    """The highest load to try where the load generator is the limit: half of the way from a kept load, until that is near."""
    return kept if limit <= kept * (1 + bounds.within) else _rounded(math.sqrt(kept * limit), bounds)


def _around(probes: Sequence[Probe], estimate: float) -> tuple[float, float]:
    """The highest load up to the estimate that was kept, and the lowest from there on that was broken."""
    kept, broken = ([one.load for one in probes if one.kept is which] for which in (True, False))
    below = max((load for load in kept if load <= estimate), default=min(kept))
    return below, min((load for load in broken if load >= estimate), default=max(broken))


def _are_near(below: float, above: float, bounds: Bounds) -> bool:
    return above <= below * (1 + bounds.within) ** 2


def _rounded(load: float, bounds: Bounds) -> float:
    """On a grid around the first load, of a quarter of the precision, so that loads repeat; within the bounds."""
    step = math.log1p(bounds.within / 4)
    on_grid = bounds.start * math.exp(round(math.log(load / bounds.start) / step) * step)
    shown = float(round(on_grid)) if bounds.whole else float(f"{on_grid:.4g}")
    return min(max(shown, bounds.least), bounds.most)

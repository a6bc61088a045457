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

from wsbench.analysis.stats.crossing import ERROR, Crossing, Probe, crossing

#: How far the load is raised while every probe keeps the promise, and lowered while none does.
STEP = 2.0
#: Loads lie on a grid; none is farther from the load that was meant.
STEP_OF_GRID = 0.03
#: Probes beside the estimate are this share of the wanted precision away from it: the interval must end within the precision.
ASIDE = 0.8
#: While an end of the interval is only far away, probes go this many times as far, if nearer ones disagree: a probe that agrees
#: with the others says most.
FARTHER = (1, 2, 4)
#: While an end is not shown at all, probes go so many times as far if none, one or more of the nearer ones disagree. A bet that is
#: far away says more.
UNSHOWN = (1, 4, 6)
#: Probes agree if this share of at least so many do.
AGREE, OF = 0.8, 3


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


def next_load(probes: Sequence[Probe], bounds: Bounds, error: float = ERROR) -> float:
    """The load of the next probe for a promise that is not yet known well enough. `error`: with which both ends are shown before
    probes go nearer."""
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
    away = _away(bounds)
    lower, higher = (_supports(probes, found.estimate, side, away ** FARTHER[-1]) for side in (True, False))
    open_low, open_high = _is_open(found, bounds)
    side = lower <= higher if open_low == open_high else open_low
    if ends_missing := missing(probes) or missing(probes, error):
        # Both ends first: then servers can be compared, and other promises have these ends, too.
        side = ends_missing[0] if len(ends_missing) == 1 else side
        against = _between(probes, found.estimate, side, away ** FARTHER[-1]).count(not side)
        away = away ** UNSHOWN[min(against, len(UNSHOWN) - 1)]
    elif open_low if side else open_high:
        away = _agreed(probes, found.estimate, side, away)
    return _rounded(found.estimate / away if side else found.estimate * away, bounds)


def missing(probes: Sequence[Probe], error: float = ERROR) -> list[bool]:
    """The ends of the interval that are not shown with this error: True is the lower one."""
    found = crossing(probes, error)
    return [lower for lower, end in ((True, found.low), (False, found.high)) if end is None]


def near(probes: Sequence[Probe], bounds: Bounds) -> int:
    """How many probes say something of the capacity under a promise: those around its estimate."""
    found = crossing(probes)
    if found.estimate is None:
        return 0
    return sum(_supports(probes, found.estimate, side, _away(bounds) ** FARTHER[-1]) for side in (True, False))


def _away(bounds: Bounds) -> float:
    return 1 + ASIDE * bounds.within


def _is_open(found: Crossing, bounds: Bounds) -> tuple[bool, bool]:
    """Whether the lower and the upper end of the interval are not shown, or are only far away."""
    far = _away(bounds) ** FARTHER[-1] * (1 + bounds.within / 4)
    return (
        found.low is None or found.low * far < found.estimate,
        found.high is None or found.high > found.estimate * far,
    )


def _between(probes: Sequence[Probe], estimate: float, lower: bool, far: float) -> list[bool]:
    """The outcomes of probes on one side of the estimate, as far as `far` times away (with the grid's step)."""
    edge = far * (1 + STEP_OF_GRID)
    inside = (
        one for one in probes if (estimate / edge <= one.load <= estimate if lower else estimate < one.load <= estimate * edge)
    )
    return [one.kept for one in inside]


def _supports(probes: Sequence[Probe], estimate: float, lower: bool, far: float) -> int:
    """How many probes on one side of the estimate speak for it: kept below it, broken above it."""
    return _between(probes, estimate, lower, far).count(lower)


def _agreed(probes: Sequence[Probe], estimate: float, lower: bool, away: float) -> float:
    """The nearest distance at which probes agree, or at which there are too few to disagree."""
    for times in FARTHER:
        found = _between(probes, estimate, lower, away**times)
        if len(found) < OF or found.count(lower) >= AGREE * len(found):
            return away**times
    return away ** FARTHER[-1]


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

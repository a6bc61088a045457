"""Statistics over repeats: numbers in, frozen values out; no trial and no file is known here.

`estimates`: a mean or a ratio with its interval. `lines`: a straight line with its intervals. `tiers`: which of many servers
differ. `simulation` measures how often `tiers` claims a difference that does not exist.
"""

from wsbench.analysis.stats.estimates import (
    INTERVAL_REPEATS,
    LEVEL,
    PRACTICAL,
    RANK_ROUNDS,
    Estimate,
    estimate,
    interval,
    rank_obstacle,
    ratio,
    ratio_of_groups,
)
from wsbench.analysis.stats.lines import Line, line
from wsbench.analysis.stats.tiers import Tiers, tiers

__all__ = [
    "INTERVAL_REPEATS",
    "LEVEL",
    "PRACTICAL",
    "RANK_ROUNDS",
    "Estimate",
    "Line",
    "Tiers",
    "estimate",
    "interval",
    "line",
    "rank_obstacle",
    "ratio",
    "ratio_of_groups",
    "tiers",
]

"""Statistics over repeats: numbers in, frozen values out; no trial and no file is known here.

`estimates`: a mean or a ratio with its interval. `tiers`: which of many servers can be told apart. `simulation`: the proof that
`tiers` makes as few false claims as it says, for anybody to run.
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
from wsbench.analysis.stats.tiers import Tiers, tiers

__all__ = [
    "INTERVAL_REPEATS",
    "LEVEL",
    "PRACTICAL",
    "RANK_ROUNDS",
    "Estimate",
    "Tiers",
    "estimate",
    "interval",
    "rank_obstacle",
    "ratio",
    "ratio_of_groups",
    "tiers",
]

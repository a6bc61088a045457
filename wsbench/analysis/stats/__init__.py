"""Statistics over repeats: numbers in, frozen values out; no trial and no file is known here.

`estimates`: a mean or a ratio with its interval. `lines`: a
straight line with its intervals. `decision`: the one rule that says better, worse, equal or undecided; it rests on `contrasts`,
`fit`, `looks`, `chance` and `at_least` (values that are lower bounds). `simulation` measures how often it is wrong.
"""

from wsbench.analysis.stats.at_least import AtLeast, Bounded, as_seen
from wsbench.analysis.stats.cells import common_variance, overall, trend
from wsbench.analysis.stats.chance import rounds_wanted
from wsbench.analysis.stats.contrasts import (
    LEAST_ROUNDS,
    Better,
    Contrast,
    Contrasts,
    Failed,
    Measured,
    Open,
    Ranked,
    Series,
    of_constant,
    of_mean,
)
from wsbench.analysis.stats.decision import (
    ERROR,
    MARGIN,
    Ask,
    Baseline,
    Best,
    Decided,
    Decision,
    Pairs,
    Rules,
    Two,
    decide,
    holm,
    judge,
    rounds_text,
)
from wsbench.analysis.stats.estimates import LEVEL, STOPPED_LEVEL, Estimate, estimate, ratio
from wsbench.analysis.stats.fit import Prior
from wsbench.analysis.stats.lines import Line, line
from wsbench.analysis.stats.looks import Looks

__all__ = [
    "ERROR",
    "LEAST_ROUNDS",
    "LEVEL",
    "MARGIN",
    "STOPPED_LEVEL",
    "Ask",
    "AtLeast",
    "Baseline",
    "Best",
    "Better",
    "Bounded",
    "Contrast",
    "Contrasts",
    "Decided",
    "Decision",
    "Estimate",
    "Failed",
    "Line",
    "Looks",
    "Measured",
    "Open",
    "Pairs",
    "Prior",
    "Ranked",
    "Rules",
    "Series",
    "Two",
    "as_seen",
    "common_variance",
    "decide",
    "estimate",
    "holm",
    "judge",
    "line",
    "of_constant",
    "of_mean",
    "overall",
    "ratio",
    "rounds_text",
    "rounds_wanted",
    "trend",
]

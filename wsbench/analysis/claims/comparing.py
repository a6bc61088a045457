"""One comparison of two terms: its interval and its truth.

Rounds are paired, so effects common to a round cancel out. Differences are taken on logarithms if all numbers are positive, else
directly. Between two measured numbers, `>` and `<` mean: by more than the practical threshold, max(3 %, A/A noise). Other
comparisons (`>=`, a stated number) have no margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsbench.analysis import stats
from wsbench.analysis.claims.outcome import Comparison
from wsbench.analysis.claims.text import number
from wsbench.analysis.claims.truth import Truth
from wsbench.analysis.claims.values import Problem, Term, together


@dataclass(frozen=True)
class Asked:
    """`left op right`. op is `>`, `>=`, `=` or `within` (which uses `share`)."""

    left: Term
    op: str
    right: Term
    share: float = 0.0

    @property
    def text(self) -> str:
        if self.op == "within":
            return f"{together(self.left, 'and', self.right)} within {self.share:.0%}"
        return together(self.left, self.op, self.right)


def compare(asked: Asked, truth_of: int, falsity_of: int) -> Comparison:
    """Judges one comparison. `truth_of`, `falsity_of`: how many comparisons share each error probability (see `truth`)."""
    if problem := asked.left.problem or asked.right.problem:
        return _open(asked, None, "–", problem)
    rounds = _rounds(asked)
    if asked.op == "=":
        return _equal(asked, rounds)
    logs = all(asked.left.value(at) > 0 and asked.right.value(at) > 0 for at in rounds)
    differences = [_difference(asked, at, logs) for at in rounds]
    ours = _ours(asked, rounds, logs)
    if not differences:
        return _open(asked, None, ours, Problem("missing", "no round has both values"))
    low, high = _bounds(asked, logs)
    mean = sum(differences) / len(differences)
    by_means = low < mean < high if asked.op == ">" else low <= mean <= high
    if obstacle := stats.rank_obstacle(len(differences)):
        return _open(asked, by_means, ours, Problem("rounds", obstacle))
    holds = _truth(asked, differences, (low, high), (truth_of, falsity_of))
    if holds is None:
        return _open(asked, by_means, ours, Problem("spans", f"{asked.text}: the interval of {ours} allows both outcomes"))
    return Comparison(asked.text, holds, by_means, ours, None, None)


def _truth(asked: Asked, differences: list[float], bounds: tuple[float, float], shared: tuple[int, int]) -> Truth:
    """True if the mean difference lies inside the bounds. For `>` the mean must exceed the margin and the interval zero: the
    difference is then real and relevant. False if the interval excludes every relevant difference; else None."""
    low, high = bounds
    mean, surely_low, surely_high = stats.interval(differences, shared[0])
    _, refuting_low, refuting_high = stats.interval(differences, shared[1])
    needed = 0.0 if asked.op == ">" else low
    above = surely_low > needed if asked.op == ">" else surely_low >= needed
    if above and surely_high <= high and mean >= low:
        return True
    if refuting_high < low or refuting_low > high or (asked.op == ">" and refuting_high <= low):
        return False
    return None


def _bounds(asked: Asked, logs: bool) -> tuple[float, float]:
    """Bounds of the difference left − right, on the logarithmic or the plain scale."""
    if asked.op == "within":
        if logs:
            return -math.log1p(asked.share), math.log1p(asked.share)
        return (-asked.share, asked.share)
    if asked.op == ">" and logs and asked.left.constant is None and asked.right.constant is None:
        return math.log1p(max(stats.PRACTICAL, asked.left.noise, asked.right.noise)), math.inf
    return 0.0, math.inf


def _rounds(asked: Asked) -> list[int]:
    left, right = asked.left, asked.right
    return sorted(set(left.rounds or right.rounds) & set(right.rounds or left.rounds))


def _difference(asked: Asked, at: int, logs: bool) -> float:
    left, right = asked.left.value(at), asked.right.value(at)
    return math.log(left / right) if logs else left - right


def _equal(asked: Asked, rounds: list[int]) -> Comparison:
    """Counts are equal if all repeats are. This needs no interval, and so no minimum number of rounds."""
    pairs = [(asked.left.value(at), asked.right.value(at)) for at in rounds]
    differ = [pair for pair in pairs if pair[0] != pair[1]]
    shown = f"{len(pairs) - len(differ)} of {len(pairs)} trials"
    return Comparison(asked.text, not differ, not differ, shown, None, None)


def _ours(asked: Asked, rounds: list[int], logs: bool) -> str:
    """Our number in words: a ratio of two servers, or a value if it is compared with a number."""
    if asked.left.constant is not None or asked.right.constant is not None:
        term = asked.right if asked.left.constant is not None else asked.left
        found = stats.estimate([term.value(at) for at in rounds]) if logs else None
        if found is not None:
            between = "" if found.low is None else f" ({number(found.low)}–{number(found.high)})"
            return f"{number(found.mean)}{between}"
        values = [term.value(at) for at in rounds]
        return f"{number(min(values))} to {number(max(values))}"
    if not logs:
        values = [asked.left.value(at) - asked.right.value(at) for at in rounds]
        return f"difference {number(min(values))} to {number(max(values))}" if values else "–"
    found = stats.ratio(asked.left.rounds, asked.right.rounds)
    if found.mean is None:
        return "–"
    between = "" if found.low is None else f" ({number(found.low)}–{number(found.high)})"
    return f"{number(found.mean)}×{between}"


def _open(asked: Asked, by_means: bool | None, ours: str, problem: Problem) -> Comparison:
    return Comparison(asked.text, None, by_means, ours, problem.reason, problem.obstacle)

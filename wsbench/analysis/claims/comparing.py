"""One comparison of two terms, or a trend: its interval and its truth.

`stats` gives the difference with its p values; here it becomes true, false or open. `>` and `<` are true if the direction is
proven. Between two measured numbers they are false if a difference of the margin or more is excluded, as in `stats.decision`: a
difference that is proven to be within the margin is no order. Other comparisons (`>=`, a stated number) have no margin. Every test
is one-sided, because the question is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wsbench import metrics
from wsbench.analysis import stats
from wsbench.analysis.claims.outcome import Comparison
from wsbench.analysis.claims.text import number
from wsbench.analysis.claims.truth import Truth
from wsbench.analysis.claims.values import Problem, Spread, Term, common_rounds, together

EXACTLY = 1e-9  # two numbers that differ by less are the same


@dataclass(frozen=True)
class Asked:
    """`left op right`. op is `>`, `>=`, `=` or `within` (which uses `share`). `rules` has the campaign's margin and error."""

    left: Term
    op: str
    right: Term
    rules: stats.Rules
    share: float = 0.0

    @property
    def text(self) -> str:
        if self.op == "within":
            return f"{together(self.left, 'and', self.right)} within {self.share:.0%}"
        return together(self.left, self.op, self.right)

    @property
    def measured(self) -> bool:
        """Both sides are measured, so a difference is a ratio."""
        return self.left.constant is None and self.right.constant is None

    @property
    def bounds(self) -> tuple[float, float]:
        """Of the difference left − right, on logarithms if both sides are measured."""
        if self.op == "within":
            return -math.log1p(self.share), math.log1p(self.share)
        return (math.log1p(self.rules.margin) if self.op == ">" and self.measured else 0.0), math.inf


def compare(asked: Asked, truth_of: int, falsity_of: int) -> Comparison:
    """Judges one comparison. `truth_of`, `falsity_of`: how many comparisons share each error probability (see `truth`)."""
    if problem := asked.left.problem or asked.right.problem:
        return _open(asked.text, None, "–", problem)
    if asked.op == "=":
        return _equal(asked)
    found = _contrast(asked)
    errors = asked.rules.error / truth_of, asked.rules.error / falsity_of
    if isinstance(found, stats.Open):
        return _open(asked.text, _by_estimate(asked, found), _ours(asked, found, errors), _problem(found))
    low, high = asked.bounds
    holds = _truth(asked.op, found, low, high, errors)
    ours, by_means = _ours(asked, found, errors), _by_estimate(asked, found)
    if holds is None:
        rounds = stats.rounds_wanted(found, lambda one: np.logical_or(*_tests(asked.op, one, low, high, errors)))
        return _open(asked.text, by_means, ours, _spans(asked.text, ours, rounds, found))
    return Comparison(asked.text, holds, by_means, ours, None, None)


def _truth(op: str, found: stats.Contrast, low: float, high: float, errors: tuple[float, float]) -> Truth:
    inside, outside = _tests(op, found, low, high, errors)
    return False if outside else True if inside else None


def _tests(op: str, found, low: float, high: float, errors: tuple[float, float]) -> tuple:
    """Whether the difference is proven to lie inside the bounds, and outside; each test has its own error. For `>` the direction is
    enough. A contrast gives two truths, many cases at once (`stats.rounds_wanted`) two arrays."""
    truth, falsity = errors
    if op == ">":
        return found.above(0.0) <= truth, found.below(low + EXACTLY) <= falsity
    inside = found.above(low - EXACTLY) <= truth
    outside = found.below(low - EXACTLY) <= falsity
    if math.isfinite(high):
        inside, outside = inside & (found.below(high + EXACTLY) <= truth), outside | (found.above(high + EXACTLY) <= falsity)
    return inside, outside


def trend(kind: str, text: str, steps: list[Spread], rules: stats.Rules, truth_of: int, falsity_of: int) -> Comparison:
    """`falls` or `rises` over ordered cells. True if the direction of the slope over all cells is proven. False if a change by more
    than the margin is excluded, or if one the other way is proven between two neighbours or between both ends. The largest or
    smallest of several values is taken in each round."""
    for step in steps:
        if problem := next((term.problem for term in step.terms if term.problem), None):
            return _open(text, None, "–", problem)
    cells = [_by_round(step) for step in steps]
    found = stats.trend(cells)
    # Half of the error of refuting is the whole trend's, half is shared by the steps.
    errors = rules.error / truth_of, rules.error / falsity_of / 2
    low, rises = math.log1p(rules.margin), kind == "rises"

    def towards(one: stats.Contrast, bound: float) -> float:
        return one.above(bound) if rises else one.below(-bound)

    def away(one: stats.Contrast, bound: float) -> float:
        return one.below(bound) if rises else one.above(-bound)

    if isinstance(found, stats.Open):
        return _open(text, None, "–", _problem(found))
    against = [away(stats.trend([before, after]), -low) for before, after in [*pairwise(cells), (cells[0], cells[-1])]]
    change = found.estimate if rises else -found.estimate

    # One limit confirms the trend, the other refutes it.
    sides = found.limits(errors[0]), found.limits(errors[1])
    down, up = (sides[0][0], sides[1][1]) if rises else (sides[1][0], sides[0][1])
    ours = f"{number(math.exp(found.estimate))}× ({number(math.exp(down))}–{number(math.exp(up))}) from first to last"
    if min(against) <= errors[1] / len(against) or away(found, low) <= errors[1]:
        return Comparison(text, False, change > low, ours, None, None)
    if towards(found, 0.0) <= errors[0]:
        return Comparison(text, True, change > low, ours, None, None)
    rounds = stats.rounds_wanted(found, lambda one: (away(one, low) <= errors[1]) | (towards(one, 0.0) <= errors[0]))
    return _open(text, change > low, ours, _spans(text, ours, rounds, found))


def _by_round(step: Spread) -> dict[int, float]:
    """The value of each round that has all terms; their largest or smallest for `highest` and `lowest`."""
    rounds = set.intersection(*(set(term.rounds) for term in step.terms))
    pick = min if step.kind == "lowest" else max
    found = {at: pick(term.value(at) for term in step.terms) for at in sorted(rounds)}
    bounds = [term.rounds.why for term in step.terms if isinstance(term.rounds, stats.AtLeast)]
    return stats.AtLeast(found, bounds[0]) if bounds else found


def _contrast(asked: Asked) -> stats.Contrast:
    """Left − right."""
    left, right = asked.left, asked.right
    if not asked.measured:
        term, constant = (left, right.constant) if left.constant is None else (right, left.constant)
        if term.constant is not None:
            return stats.of_mean(np.array([left.constant - right.constant] * stats.LEAST_ROUNDS))
        if term.lost:
            return stats.Open(f"{term.text}: {len(term.lost)} rounds lost by its own fault")
        found = stats.of_constant(term.rounds, constant)
        return found if term is left or isinstance(found, stats.Open) else found.turned()
    values = [*left.rounds.values(), *right.rounds.values()]
    common = sorted(set(left.rounds) & set(right.rounds))
    if not common and not (left.lost or right.lost):
        return stats.Open("no round has both values")
    if values and min(values) < 0:
        if len(common) < stats.LEAST_ROUNDS or asked.op == "within":
            return stats.Open("a ratio needs values of zero or more")
        return stats.of_mean(np.array([left.value(at) - right.value(at) for at in common]))
    same = left.subject and right.subject and left.subject.metric == right.subject.metric
    return stats.Contrasts(
        {"the first": left.rounds, "the second": right.rounds},
        {"the first": left.lost, "the second": right.lost},
        left.prior if same else None,
        best=_better(left if len(left.lost) > len(right.lost) else right),
    ).contrast("the first", "the second")


def _better(failing: Term) -> stats.Better:
    """The better direction of the metric of which rounds were lost."""
    return metrics.METRICS[failing.subject.metric].better if failing.lost else "higher"


def _equal(asked: Asked) -> Comparison:
    """Counts are equal if all repeats are. This needs no interval, and so no minimum number of rounds."""
    left, right = asked.left, asked.right
    rounds = common_rounds(left, right)
    if not rounds:
        return _open(asked.text, None, "–", Problem("missing", f"{asked.text}: no round has both values"))
    differ = [at for at in rounds if left.value(at) != right.value(at)]
    shown = f"{len(rounds) - len(differ)} of {len(rounds)} trials"
    return Comparison(asked.text, not differ, not differ, shown, None, None)


def _by_estimate(asked: Asked, found: stats.Contrast) -> bool | None:
    """The truth of the estimate alone, which decides nothing."""
    if math.isnan(estimate := found.estimate):
        estimate = _plain_estimate(asked)
    if math.isnan(estimate):
        return None
    low, high = asked.bounds
    if math.isinf(estimate):
        return estimate > 0 and asked.op != "within"
    return low < estimate < high if asked.op == ">" else low - EXACTLY <= estimate <= high + EXACTLY


def _plain_estimate(asked: Asked) -> float:
    """Of too few rounds for an interval."""
    left, right = asked.left, asked.right
    rounds = common_rounds(left, right)
    pairs = [(left.value(at), right.value(at)) for at in rounds]
    if not pairs or min(min(pair) for pair in pairs) <= 0:
        return math.nan
    return sum(math.log(one / other) for one, other in pairs) / len(pairs)


def _ours(asked: Asked, found: stats.Contrast, errors: tuple[float, float]) -> str:
    """Our number with the interval that decides: a ratio of two servers, or a value if it is compared with a number."""
    sides = [found.limits(error) for error in errors]
    # A lower limit confirms `>` and an upper one refutes it; `within` is confirmed by both.
    low = min(low for low, _ in sides) if asked.op == "within" else sides[0][0]
    high = max(high for _, high in sides) if asked.op == "within" else sides[1][1]
    if asked.measured:
        estimate = found.estimate if not math.isnan(found.estimate) else _plain_estimate(asked)
        if math.isnan(estimate) or math.isinf(estimate):
            return _means(asked)
        values = [*asked.left.rounds.values(), *asked.right.rounds.values()]
        if min(values) < 0:
            return f"difference {number(estimate)}" + _between(low, high)
        return f"{number(math.exp(estimate))}×" + (_between(math.exp(low), math.exp(high)) if math.isfinite(low + high) else "")
    term, constant = (asked.left, asked.right.constant) if asked.left.constant is None else (asked.right, asked.left.constant)
    values = list(term.rounds.values())
    if not values:
        return "–"
    sized = isinstance(found, stats.Measured | stats.Bounded) and math.isfinite(found.estimate)
    if not sized or min(values) <= 0 or constant <= 0:
        return f"{number(min(values))} to {number(max(values))}"
    if term is asked.right:  # the difference is constant − value
        low, high = -high, -low
    mean = math.exp(found.estimate if term is asked.left else -found.estimate) * constant
    return number(mean) + _between(math.exp(low) * constant, math.exp(high) * constant)


def _means(asked: Asked) -> str:
    sides = [list(term.rounds.values()) for term in (asked.left, asked.right)]
    return " against ".join(number(sum(side) / len(side)) if side else "no number" for side in sides)


def _between(low: float, high: float) -> str:
    return f" ({number(low)}–{number(high)})" if math.isfinite(low) and math.isfinite(high) else ""


def _problem(found: stats.Open) -> Problem:
    return Problem("rounds" if found.needed else "missing", found.reason)


def _spans(text: str, ours: str, rounds: int | None, found: stats.Contrast) -> Problem:
    """Why both outcomes remain possible, and the rounds that would decide it if they can be foreseen."""
    known = [f"{text}: {ours} allows both outcomes", found.reason, "" if rounds is None else stats.rounds_text(rounds)]
    return Problem("spans", "; ".join(filter(None, known)))


def _open(text: str, by_means: bool | None, ours: str, problem: Problem) -> Comparison:
    return Comparison(text, None, by_means, ours, problem.reason, problem.obstacle)

"""The one rule that decides: better, worse, equal within the margin, or undecided.

*Better* and *worse*: the direction is proven (the interval excludes 1). *Equal*: the difference is proven to be smaller than the
margin (two one-sided tests), whatever its direction. Everything else is *undecided*. A difference is *relevant* only if its whole
interval lies beyond the margin. The margin is fixed beforehand: noise cannot widen it.

A family of comparisons shares one error rate: `Two`; `Best`, who may be the best and how far the others are behind (Hsu's multiple
comparisons with the best); `Baseline`, all against one (Dunnett); `Pairs` and any list of comparisons, in steps (Holm). Capacities
of one cell share it by the ends of their intervals (`of_ends`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Literal

import numpy as np
from scipy import special

from wsbench.analysis.stats.at_least import Bounded
from wsbench.analysis.stats.chance import Imagined, rounds_wanted
from wsbench.analysis.stats.contrasts import Better, Contrast, Contrasts, Lost, Series
from wsbench.analysis.stats.fit import Prior
from wsbench.analysis.stats.letters import letters
from wsbench.analysis.stats.looks import Looks

Says = Literal["better", "worse", "equal", "undecided"]

MARGIN = 0.03  # smaller differences do not matter to users, and memory placement alone can cause them
ERROR = 0.05
DRAWS = 20_000  # for the quantile of the largest of many correlated differences


@dataclass(frozen=True)
class Rules:
    """The margin as a share, the better direction, the error of the whole family, and the looks if rounds go on until decided."""

    margin: float = MARGIN
    best: Better = "higher"
    error: float = ERROR
    looks: Looks | None = None

    @property
    def bound(self) -> float:
        return math.log1p(self.margin)

    def error_after(self, rounds: int) -> float:
        return self.error if self.looks is None else self.looks.error(rounds, self.error)


@dataclass(frozen=True)
class Decision:
    """`one` compared with `other`. `ratio` is one over other, None where it has no size; it lies from `least` to `most`, the
    interval that decided (0 and infinity where an end is unknown).

    `relevant`: the whole interval lies beyond the margin. `reason` is one phrase, empty if the numbers speak for themselves.
    `foresee` computes `rounds`.
    """

    one: str
    other: str
    says: Says
    ratio: float | None
    least: float = 0.0
    most: float = math.inf
    relevant: bool = False
    reason: str = ""
    foresee: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)

    @cached_property
    def rounds(self) -> int | None:
        """A new campaign of so many rounds decides an undecided comparison in 8 of 10 cases; None if that cannot be foreseen."""
        return self.foresee() if self.says == "undecided" else None

    @property
    def low(self) -> float | None:
        """`least` of an interval that has both ends."""
        return self.least if self._closed else None

    @property
    def high(self) -> float | None:
        return self.most if self._closed else None

    @property
    def _closed(self) -> bool:
        return self.least > 0 and math.isfinite(self.most)

    def turned(self) -> Decision:
        """The same decision with the two changing places."""
        says = {"better": "worse", "worse": "better"}.get(self.says, self.says)
        ratio = None if self.ratio is None else 1 / self.ratio
        least, most = (math.inf if not end else 1 / end for end in (self.most, self.least))
        return replace(self, one=self.other, other=self.one, says=says, ratio=ratio, least=least, most=most)

    @property
    def sized(self) -> bool:
        """The ratio has a size. Lost rounds, or a value against none at all, have only a direction."""
        return self.ratio is not None and (self.least > 0 or math.isfinite(self.most))

    @property
    def loss(self) -> float:
        """By how much it is proven to be worse, 0.05 for 5 %: the end of the interval that is nearer to 1."""
        if self.says != "worse":
            return 0.0
        if not self.sized:
            return math.inf
        return max(self.least, 1 / self.most if self.most else math.inf) - 1


@dataclass(frozen=True)
class Two:
    one: str
    other: str


@dataclass(frozen=True)
class Best:
    """Among these; without names, among all."""

    among: tuple[str, ...] = ()


@dataclass(frozen=True)
class Baseline:
    name: str
    among: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pairs:
    among: tuple[str, ...] = ()


Ask = Two | Best | Baseline | Pairs


@dataclass(frozen=True)
class Decided:
    """The answers to one `Ask`.

    `order`: the compared servers, the best estimate first. `first`: those that may be the best (only for `Best`). `left_out`: the
    servers that could not be compared, with the reason. `reason`: why nothing could be compared.
    """

    decisions: tuple[Decision, ...]
    order: tuple[str, ...]
    first: tuple[str, ...]
    left_out: dict[str, str]
    reason: str | None

    def of(self, one: str, other: str | None = None) -> Decision | None:
        """The decision about a server (and another)."""
        return next((found for found in self.decisions if found.one == one and other in (None, found.other)), None)

    def between(self, one: str, other: str) -> Decision | None:
        """The decision about two servers, whichever of them is named first in it."""
        found = self.of(one, other)
        return found if found is not None or (back := self.of(other, one)) is None else back.turned()

    @cached_property
    def letters(self) -> dict[str, str]:
        """For `Pairs`: servers that share a letter are not shown to differ; `a` begins with the best."""
        return letters(self.order, {(d.one, d.other) for d in self.decisions if d.says in ("better", "worse")})


def decide(
    series: Mapping[str, Series],
    ask: Ask,
    rules: Rules = Rules(),
    lost: Lost | None = None,
    prior: Prior | None = None,
    paired: bool = True,
) -> Decided:
    """`series` is server → block → value; None and absent blocks are not measured. Servers that are not asked about help the fit.

    `lost`: per server the blocks without a value because the server itself failed. `prior`: the common variance of the metric, from
    more cells than this one (`cells.common_variance`). Without `paired` blocks mean nothing: two campaigns have none in common.
    """
    found = Contrasts(series, lost, prior, paired, rules.best)
    if isinstance(ask, Two):
        asked = (ask.one, ask.other)
    else:
        asked = ask.among or tuple(series)
        asked += (ask.name,) if isinstance(ask, Baseline) and ask.name not in asked else ()
    left_out = {name: stop.reason for name in asked if (stop := found.obstacle(name))}
    if isinstance(ask, Two):
        pairs = [(ask.one, ask.other)]
    else:
        names = [name for name in asked if name not in left_out]
        if len(names) < 2 or (isinstance(ask, Baseline) and ask.name in left_out):
            few = next(iter(left_out.values()), "there is no other server to compare with")
            return Decided((), tuple(names), (), left_out, few)
        names = _ordered(found, names, rules)
        if isinstance(ask, Best):
            return _best(found, names, rules, left_out)
        if isinstance(ask, Pairs):
            pairs = [(one, other) for at, one in enumerate(names) for other in names[at + 1 :]]
            decisions = _of_pairs(found, pairs, rules)
            return Decided(tuple(decisions), tuple(names), (), left_out, None)
        pairs = [(name, ask.name) for name in names if name != ask.name]
    error = rules.error_after(found.rounds)
    level = shared(found.correlation(pairs), error)
    decisions = [judge(one, other, found.contrast(one, other), rules, level) for one, other in pairs]
    order = tuple(name for name in _ordered(found, list(asked), rules) if name not in left_out)
    return Decided(tuple(decisions), order, (), left_out, next(iter(left_out.values()), None) if isinstance(ask, Two) else None)


# ---- families ------------------------------------------------------------------------------------------------------


def _of_pairs(found: Contrasts, pairs: list[tuple[str, str]], rules: Rules) -> list[Decision]:
    return holm([(one, other, found.contrast(one, other)) for one, other in pairs], rules, found.rounds)


def shared(correlation: np.ndarray, error: float) -> float:
    """The two-sided level of each of these comparisons, so that all hold together with 1 − `error`: from the largest of as many
    correlated normals, drawn with a fixed seed (Dunnett). A t test uses the same level with its own degrees of freedom."""
    number = len(correlation)
    if number == 1 or error <= 0:
        return error
    values, vectors = np.linalg.eigh(correlation)
    largest = np.abs(_normals(number) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T).max(axis=1)
    level = 2 * special.ndtr(-np.partition(largest, at := int((1 - error) * DRAWS))[at])
    return float(min(max(level, error / number), error))


@cache
def _normals(number: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((DRAWS, number))


def holm(rows: Sequence[tuple[str, str, Contrast]], rules: Rules, rounds: int | None = None) -> list[Decision]:
    """Decides many comparisons that share the error in steps (Holm 1979): the surest first, each with an equal part of what is
    left. The directions are one family, the statements of equality another. An interval is that of its comparison's own step."""
    error = rules.error if rounds is None else rules.error_after(rounds)
    contrasts = [contrast for *_, contrast in rows]
    of_direction = _stepped([2 * min(one.above(0.0), one.below(0.0)) for one in contrasts], error)
    of_equality = _stepped([_outside(one, rules) for one in contrasts], error)
    return [judge(*row, rules, *levels) for row, *levels in zip(rows, of_direction, of_equality, strict=True)]


def _stepped(p_values: Sequence[float], error: float) -> list[float]:
    """The level of each test, in the order given."""
    levels = [0.0] * len(p_values)
    going, level = True, error
    for left, at in zip(range(len(p_values), 0, -1), sorted(range(len(p_values)), key=p_values.__getitem__), strict=True):
        level = error / left if going else level
        going = going and p_values[at] <= level
        levels[at] = level
    return levels


def _ordered(found: Contrasts, names: list[str], rules: Rules) -> list[str]:
    """The best first; who lost rounds after who did not, by the share of lost rounds."""
    sign = -1 if rules.best == "higher" else 1

    def place(name: str) -> tuple:
        known, lost = found.values[name], found.lost[name]
        failing = lost / (lost + len(known)) if lost else 0.0
        if found.fit is not None and name in found.fit.names:
            return failing, sign * float(found.fit.levels[found.fit.at(name)])
        mean = sum(known) / len(known) if known else 0.0
        return failing, sign * (math.log(mean) if mean > 0 else -math.inf)

    return sorted(names, key=place)


def _best(found: Contrasts, names: list[str], rules: Rules, left_out: dict[str, str]) -> Decided:
    """Each server is asked whether it may be the best: it may not if another is surely ahead of it (Bonferroni over the others).
    These questions share the error in steps (Holm), so the remaining servers contain every best one with 1 − `error`, and a noisy
    rival blurs nothing; all remain if comparisons contradict each other. A server is *equal* if it is within the margin of every
    remaining one (Hsu, with Dunnett's limits).
    Dunnett's limits in the first question, too, would be a little narrower; with five rounds they were wrong in 7 % of families."""
    error = rules.error_after(found.rounds)
    higher = rules.best == "higher"
    rivals = {name: {other: found.contrast(name, other) for other in names if other != name} for name in names}
    p_behind = {name: min(_behind(one, higher) for one in rivals[name].values()) for name in names}
    shares, may = _in_steps(p_behind, error)
    related = {name: found.correlation([(name, other) for other in rivals[name]]) for name in may}
    of_equal = {name: shared(related[name], 2 * error) / 2 for name in may}
    names = sorted(names, key=lambda name: name not in may)
    decisions = [_placed(name, names[0], rivals[name], shares[name], name not in may, of_equal, rules) for name in names[1:]]
    return Decided(tuple(decisions), tuple(names), tuple(sorted(may, key=names.index)), left_out, None)


def _in_steps(p_behind: dict[str, float], error: float) -> tuple[dict[str, float], list[str]]:
    """By server the level at which a rival puts it behind, and who may still be the best."""
    rivals = len(p_behind) - 1
    levels = _stepped([p_value * rivals for p_value in p_behind.values()], error)
    shares = {name: level / rivals for name, level in zip(p_behind, levels, strict=True)}
    return shares, [name for name, share in shares.items() if p_behind[name] > share] or list(p_behind)


def _behind(found: Contrast, higher: bool) -> float:
    """The p value of "it is not behind"."""
    return found.below(0.0) if higher else found.above(0.0)


def _within(found: Contrast, rules: Rules) -> float:
    """The p value of "it is behind by the margin or more"."""
    return found.above(-rules.bound) if rules.best == "higher" else found.below(rules.bound)


def _placed(
    name: str, leader: str, rivals: dict[str, Contrast], share: float, behind: bool, of_equal: dict[str, float], rules: Rules
) -> Decision:
    """A server against the best. `share`: the level of being behind a rival; `of_equal`: the level of being equal to each server
    that may be the best."""
    higher = rules.best == "higher"
    first = rivals[leader]
    best = [other for other in of_equal if other != name]
    equal = all(_within(rivals[other], rules) <= of_equal[other] for other in best)
    says: Says = "equal" if equal else "worse" if behind else "undecided"
    # It is at least as far behind as behind any other, at most as far as behind any that may be the best; never ahead of the best.
    near = [one.limits(share) for one in rivals.values()]
    far = [rivals[other].limits(of_equal[other]) for other in best]
    low, high = min(low for low, _ in far), min(0.0, *(high for _, high in near))
    if not higher:
        low, high = max(0.0, *(low for low, _ in near)), max(high for _, high in far)
    relevant = says == "worse" and min(_near(one, rules) for one in rivals.values()) <= share
    level = of_equal.get(leader, 0.0)

    def foresee() -> int | None:
        if best != [leader]:
            return None
        return rounds_wanted(first, lambda one: (_behind(one, higher) <= share) | (_within(one, rules) <= level))

    why = _why(says, first, rules, relevant)
    return Decision(name, leader, says, _ratio(first), *_as_ratios(low, high), relevant, why, foresee)


def _near(found: Contrast, rules: Rules) -> float:
    """The p value of "it is behind by no more than the margin"."""
    return found.below(-rules.bound) if rules.best == "higher" else found.above(rules.bound)


# ---- one comparison ------------------------------------------------------------------------------------------------


def judge(one: str, other: str, found: Contrast, rules: Rules, share: float, of_equal: float | None = None) -> Decision:
    """One comparison with its share of the error, which its two directions divide between them. `of_equal`: the level of "equal",
    if it is another."""
    of_equal = share if of_equal is None else of_equal
    up, down = found.above(0.0) <= share / 2, found.below(0.0) <= share / 2
    says: Says = "undecided"
    if _outside(found, rules) <= of_equal:
        says = "equal"
    elif up != down:
        says = "better" if up == (rules.best == "higher") else "worse"
    relevant = says in ("better", "worse") and min(found.above(rules.bound), found.below(-rules.bound)) <= share / 2
    limits = found.limits(of_equal if says == "equal" else share / 2)

    def foresee() -> int | None:
        def decided(one) -> np.ndarray:
            return (one.above(0.0) <= share / 2) | (one.below(0.0) <= share / 2) | (_outside(one, rules) <= of_equal)

        return rounds_wanted(found, decided) if share > 0 else None

    why = _why(says, found, rules, relevant)
    return Decision(one, other, says, _ratio(found), *_as_ratios(*limits), relevant, why, foresee)


def _outside(found: Contrast | Imagined | Bounded, rules: Rules):
    """The p value of "they differ by the margin or more"."""
    return np.maximum(found.above(-rules.bound), found.below(rules.bound))


def _ratio(found: Contrast) -> float | None:
    return math.exp(found.estimate) if math.isfinite(found.estimate) else None


def _as_ratios(low: float, high: float) -> tuple[float, float]:
    return math.exp(low), math.exp(high)


def _why(says: Says, found: Contrast, rules: Rules, relevant: bool) -> str:
    margin = f"{100 * rules.margin:.3g} %"
    if says == "equal":
        return f"within {margin}"
    parts = [found.reason] if found.reason else []
    if says != "undecided" and not relevant:
        parts.append(f"not shown to be beyond {margin}")
    if says == "undecided" and not parts:
        parts.append("the interval allows both directions")
    return "; ".join(parts)


def rounds_text(rounds: int, lasting: str = "") -> str:
    """`lasting`: how long the rounds take, in words."""
    return f"a campaign of {rounds:,} rounds{f' ({lasting})' if lasting else ''} decides it in 8 of 10 cases"

"""The one rule that decides: better, worse, equal within the margin, or undecided.

*Better* and *worse*: the difference is proven (its interval excludes 1) and its estimate is beyond the margin. *Equal*: the
difference is proven to be smaller than the margin (two one-sided tests). Everything else is *undecided*, with the number of rounds
that would decide it at the spread seen. The margin is fixed beforehand: noise cannot widen it.

A family of comparisons shares one error rate: `Two`; `Best`, who may be the best and how far the others are behind (Hsu's multiple
comparisons with the best); `Baseline`, all against one (Dunnett); `Pairs` and any list of comparisons, in steps (Holm). Capacities
of one cell share it by the ends of their intervals (`of_ends`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal

import numpy as np
from scipy import special

from wsbench.analysis.stats.contrasts import Better, Bounded, Contrast, Contrasts, Failed, Lost, Measured, Open, Series
from wsbench.analysis.stats.fit import Prior
from wsbench.analysis.stats.letters import letters
from wsbench.analysis.stats.looks import Looks

Says = Literal["better", "worse", "equal", "undecided"]

MARGIN = 0.03  # smaller differences do not matter to users, and memory placement alone can cause them
ERROR = 0.05
MOST_MORE = 1000  # rounds; what needs more is not foreseeable
MOST_RANKED = 16
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
    """`one` compared with `other`. `ratio` is one over other with the interval that decided; None where there is none.

    `leans` is the direction if it is proven, also where its relevance is open. `more_rounds` would decide an undecided comparison;
    None if that is not foreseeable. `reason` is one phrase, empty if the numbers speak for themselves.
    """

    one: str
    other: str
    says: Says
    ratio: float | None
    low: float | None
    high: float | None
    leans: Literal["better", "worse"] | None
    more_rounds: int | None
    reason: str

    @property
    def loss(self) -> float:
        """By how much it is worse, 0.05 for 5 %; 0 if it is not shown to be."""
        if self.says != "worse" or self.ratio is None or self.ratio == 0:
            return 0.0 if self.says != "worse" else math.inf
        return max(self.ratio, 1 / self.ratio) - 1


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

    @cached_property
    def letters(self) -> dict[str, str]:
        """For `Pairs`: servers that share a letter are not shown to differ; `a` begins with the best."""
        return letters(self.order, {(d.one, d.other) for d in self.decisions if d.says in ("better", "worse")})

    @property
    def more_rounds(self) -> int | None:
        """Rounds until every undecided comparison should be decided; 0 if none is open, None if one is not foreseeable."""
        wanted = [found.more_rounds for found in self.decisions if found.says == "undecided"]
        return None if None in wanted else max(wanted, default=0)


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
            decisions = _of_pairs(found, pairs, len(names), rules)
            return Decided(tuple(decisions), tuple(names), (), left_out, None)
        pairs = [(name, ask.name) for name in names if name != ask.name]
    error = rules.error_after(found.rounds)
    levels = (shared(found.correlation(pairs), error),) if not found.searched else of_ends(error, len(pairs) + 1)
    decisions = [judge(one, other, found.contrast(one, other), rules, *levels) for one, other in pairs]
    order = tuple(name for name in _ordered(found, list(asked), rules) if name not in left_out)
    return Decided(tuple(decisions), order, (), left_out, next(iter(left_out.values()), None) if isinstance(ask, Two) else None)


# ---- families ------------------------------------------------------------------------------------------------------


def of_ends(error: float, servers: int) -> tuple[float, float]:
    """The levels of comparisons of capacities: of a difference, and of "equal". Every comparison follows from the two ends of each
    capacity, so these 2n ends share the error, not the n(n − 1)/2 comparisons. "Equal" can be wrong only where one is truly ahead:
    then the upper end of the last and the lower end of the first do not matter."""
    return 2 * error / servers, error / max(1, servers - 1)


def _of_pairs(found: Contrasts, pairs: list[tuple[str, str]], servers: int, rules: Rules) -> list[Decision]:
    rows = [(one, other, found.contrast(one, other)) for one, other in pairs]
    if not found.searched:
        return holm(rows, rules, found.rounds)
    levels = of_ends(rules.error_after(found.rounds), servers)
    return [judge(*row, rules, *levels) for row in rows]


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
    left. A comparison's interval is that of its own step."""
    error = rules.error if rounds is None else rules.error_after(rounds)
    needed = [_needed(contrast, rules) for *_, contrast in rows]
    decisions: list[Decision | None] = [None] * len(rows)
    going, share = True, error
    for left, at in zip(range(len(rows), 0, -1), sorted(range(len(rows)), key=needed.__getitem__), strict=True):
        share = error / left if going else share
        going = going and needed[at] <= share
        decisions[at] = judge(*rows[at], rules, share)
    return [found for found in decisions if found is not None]


def _needed(found: Contrast, rules: Rules) -> float:
    """The smallest level at which a comparison is decided."""
    if _relevant(found, rules):
        return min(1.0, 2 * min(found.above(0.0), found.below(0.0)))
    return max(found.above(-rules.bound), found.below(rules.bound))


def _ordered(found: Contrasts, names: list[str], rules: Rules) -> list[str]:
    """The best first; who lost rounds after who did not, by the share of lost rounds."""
    sign = -1 if rules.best == "higher" else 1

    def place(name: str) -> tuple:
        known, lost = found.values[name], found.lost[name]
        failing = lost / (lost + len(known)) if lost else 0.0
        if name in found.capacities:
            return failing, *found.capacities[name].place(rules.best == "higher")
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
    if found.searched:
        differs, same = of_ends(error, len(names))
        shares = dict.fromkeys(names, differs / 2)
        may = [name for name in names if p_behind[name] > shares[name]] or names
        of_equal = dict.fromkeys(may, same)
    else:
        shares, may = _in_steps(p_behind, error)
        related = {name: found.correlation([(name, other) for other in rivals[name]]) for name in may}
        of_equal = {name: shared(related[name], 2 * error) / 2 for name in may}
    names = sorted(names, key=lambda name: name not in may)
    decisions = [_placed(name, names[0], rivals[name], shares[name], name not in may, of_equal, rules) for name in names[1:]]
    return Decided(tuple(decisions), tuple(names), tuple(sorted(may, key=names.index)), left_out, None)


def _in_steps(p_behind: dict[str, float], error: float) -> tuple[dict[str, float], list[str]]:
    """By server the level at which a rival puts it behind, and who may still be the best. The surest come first."""
    shares: dict[str, float] = {}
    may, going, share = [], True, error
    for left, name in zip(range(len(p_behind), 0, -1), sorted(p_behind, key=p_behind.__getitem__), strict=True):
        share = error / left if going else share
        shares[name] = share / (len(p_behind) - 1)
        going = going and p_behind[name] <= shares[name]
        if not going:
            may.append(name)
    return shares, may or list(p_behind)


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
    relevant = _relevant(first, rules)
    says: Says = "equal" if equal else "worse" if behind and relevant else "undecided"
    more = None
    if says == "undecided" and relevant:
        more = more_rounds(first, lambda later: _behind(later, higher) <= share)
    elif says == "undecided":
        wanted = [more_rounds(rivals[other], lambda later, of=of_equal[other]: _within(later, rules) <= of) for other in best]
        more = None if None in wanted else max(wanted)
    # It is at least as far behind as behind any other, at most as far as behind any that may be the best; never ahead of the best.
    near = [one.limits(share) for one in rivals.values()]
    far = [rivals[other].limits(of_equal[other]) for other in best]
    low, high = min(low for low, _ in far), min(0.0, *(high for _, high in near))
    if not higher:
        low, high = max(0.0, *(low for low, _ in near)), max(high for _, high in far)
    ratio = math.exp(first.estimate) if math.isfinite(first.estimate) else None
    made = Decision(
        name, leader, says, ratio, None, None, "worse" if behind else None, more, _why(says, first, rules, more, behind)
    )
    return _with_limits(made, low, high)


# ---- one comparison ------------------------------------------------------------------------------------------------


def judge(one: str, other: str, found: Contrast, rules: Rules, share: float, of_equal: float | None = None) -> Decision:
    """One comparison with its share of the error, which its two directions divide between them. `of_equal`: the level of "equal",
    if it is another."""
    of_equal = share if of_equal is None else of_equal
    up, down = found.above(0.0) <= share / 2, found.below(0.0) <= share / 2
    leans = None if up == down else "better" if up == (rules.best == "higher") else "worse"
    equal = max(found.above(-rules.bound), found.below(rules.bound)) <= of_equal
    says: Says = "equal" if equal else "undecided"
    if leans and not equal and _relevant(found, rules):
        says = leans
    low, high = found.limits(of_equal if equal else share / 2)
    more = _more(found, rules, share if _relevant(found, rules) else of_equal) if says == "undecided" else None
    ratio = None if not math.isfinite(found.estimate) else math.exp(found.estimate)
    made = Decision(one, other, says, ratio, None, None, leans, more, _why(says, found, rules, more, bool(leans)))
    return _with_limits(made, low, high)


def _with_limits(made: Decision, low: float, high: float) -> Decision:
    """The interval as ratios, if it has two ends."""
    if math.isinf(low) or math.isinf(high):
        return made
    return replace(made, low=math.exp(low), high=math.exp(high))


def _relevant(found: Contrast, rules: Rules) -> bool:
    return abs(found.estimate) > rules.bound or (isinstance(found, Failed) and found.by_failures)


def _why(says: Says, found: Contrast, rules: Rules, more: int | None, proven: bool) -> str:
    if says == "equal":
        return f"within {100 * rules.margin:.3g} %"
    if says != "undecided":
        return found.reason
    parts = [found.reason] if found.reason else []
    if proven and isinstance(found, Measured):
        parts.append(f"a difference is shown, but not whether it is above {100 * rules.margin:.3g} %")
    if not isinstance(found, Open) or found.needed is not None:
        near = isinstance(found, Measured) and abs(abs(found.estimate) - rules.bound) < found.deviation
        parts.append(rounds_text(more, f"{100 * rules.margin:.3g} %" if near else ""))
    return "; ".join(parts)


def rounds_text(more: int | None, near: str = "") -> str:
    """`about 6 more rounds at this spread`, or that it cannot be foreseen. `near`: the margin, if the difference is about it."""
    if more is not None:
        return f"about {more:,} more round{'' if more == 1 else 's'} at this spread"
    if near:
        return f"the difference is about {near}, more rounds may not decide it"
    return "no foreseeable number of rounds decides it"


def more_rounds(found: Contrast, decided: Callable[[Contrast], bool]) -> int | None:
    """How many more rounds decide a comparison, if what was seen stays; None if that is not foreseeable."""
    if isinstance(found, Open):
        return found.needed
    # A rank test repeats what it has seen; it is exact only for few rounds.
    most = MOST_MORE if isinstance(found.found if isinstance(found, Bounded) else found, Measured) else MOST_RANKED
    if not decided(found.after(found.rounds + most)):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(found.after(found.rounds + middle)) else (middle, high)
    return high


def _more(found: Contrast, rules: Rules, share: float) -> int | None:
    return more_rounds(found, lambda later: share > 0 and _needed(later, rules) <= share)

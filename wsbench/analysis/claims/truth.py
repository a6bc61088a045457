"""Three-valued logic over comparisons that may each be wrong: true, false, or None (undecided).

A verdict may be wrong in at most one campaign of twenty, however many comparisons a claim has. A conjunction is wrongly true only
if a false comparison is judged true: each may use the whole 5 % (intersection-union test, Berger 1982). It is wrongly false if any
one of its comparisons is wrongly false: they share the 5 % (Bonferroni). A disjunction is the mirror image; "most" shares both. So
every comparison gets two numbers: `truth_of` comparisons share the error of judging it true, `falsity_of` that of judging it false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from wsbench.analysis.claims.outcome import Comparison

Truth = bool | None


@dataclass(frozen=True)
class Leaf:
    """A comparison that is judged once the sharing of its errors is known."""

    judge: Callable[[int, int], Comparison]

    def judged(self, truth_of: int = 1, falsity_of: int = 1) -> Judged:
        found = self.judge(truth_of, falsity_of)
        return Judged(found.holds, found.by_means, (found,))


@dataclass(frozen=True)
class Joined:
    """`every`: all must hold; `some`: at least one; `most`: more than half."""

    rule: Literal["every", "some", "most"]
    nodes: tuple[Node, ...]

    def judged(self, truth_of: int = 1, falsity_of: int = 1) -> Judged:
        number = len(self.nodes)
        truth_of *= 1 if self.rule == "every" else number
        falsity_of *= 1 if self.rule == "some" else number
        found = [node.judged(truth_of, falsity_of) for node in self.nodes]
        comparisons = tuple(comparison for one in found for comparison in one.comparisons)
        return Judged(self._of([one.truth for one in found]), self._of([one.by_means for one in found]), comparisons)

    def _of(self, truths: list[Truth]) -> Truth:
        held, open_ = truths.count(True), truths.count(None)
        wanted = {"every": len(truths), "some": 1, "most": len(truths) // 2 + 1}[self.rule]
        if held >= wanted:
            return True
        return False if held + open_ < wanted else None


@dataclass(frozen=True)
class Negated:
    node: Node

    def judged(self, truth_of: int = 1, falsity_of: int = 1) -> Judged:
        found = self.node.judged(falsity_of, truth_of)
        turned = tuple(_turned(comparison) for comparison in found.comparisons)
        return Judged(_not(found.truth), _not(found.by_means), turned)


Node = Leaf | Joined | Negated


@dataclass(frozen=True)
class Judged:
    """A truth, the truth from the means alone, and the comparisons."""

    truth: Truth
    by_means: Truth
    comparisons: tuple[Comparison, ...]

    def resting_on(self, truth: Truth) -> Iterator[Comparison]:
        return (comparison for comparison in self.comparisons if comparison.holds is truth)


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _turned(found: Comparison) -> Comparison:
    """The comparison under a `not`: it holds if the original does not."""
    text = found.text.removeprefix("not ") if found.text.startswith("not ") else f"not {found.text}"
    return Comparison(text, _not(found.holds), _not(found.by_means), found.ours, found.reason, found.obstacle)

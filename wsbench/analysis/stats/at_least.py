"""Values that are only known to be at least so large, and a difference with them.

The mean of such values is a lower bound. Nothing shows that it is below another value, however much larger that is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class AtLeast(dict[int, float | None]):
    """A series in which one value or more is a lower bound. `why`: one phrase."""

    def __init__(self, by_round: Mapping[int, float | None], why: str) -> None:
        super().__init__(by_round)
        self.why = why


def as_seen(series: Mapping[str, Mapping[int, float | None]]) -> dict[str, Mapping[int, float | None]]:
    """By server its series, lower bounds as if they were the values: for one server measured twice, which has the same bound."""
    return {name: dict(found) if isinstance(found, AtLeast) else found for name, found in series.items()}


class Difference(Protocol):
    """What is asked of the difference between the values as they are."""

    estimate: float
    rounds: int
    reason: str

    def above(self, bound: float) -> float: ...

    def below(self, bound: float) -> float: ...

    def limits(self, tail: float) -> tuple[float, float]: ...


@dataclass(frozen=True)
class Bounded:
    """A difference in which the first, the second or both sides are lower bounds. `why`: one phrase that names them."""

    found: Difference
    one: bool
    other: bool
    why: str

    @property
    def estimate(self) -> float:
        return self.found.estimate

    @property
    def rounds(self) -> int:
        return self.found.rounds

    @property
    def reason(self) -> str:
        return "; ".join(filter(None, (self.found.reason, self.why)))

    def above(self, bound: float) -> float:
        """The p value of "the difference is at most `bound`": 1 if the second may be larger than it was seen."""
        return 1.0 if self.other else self.found.above(bound)

    def below(self, bound: float) -> float:
        return 1.0 if self.one else self.found.below(bound)

    def limits(self, tail: float) -> tuple[float, float]:
        low, high = self.found.limits(tail)
        return -math.inf if self.other else low, math.inf if self.one else high

    def turned(self) -> Bounded:
        """Second − first, where the values are a mean against a number."""
        return Bounded(self.found.turned(), self.other, self.one, self.why)

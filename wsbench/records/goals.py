"""When a campaign ends, if not after a number of rounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wsbench.records.frozen import Frozen


class Goal(Frozen):
    """What the rounds of a campaign are to decide, and the time for all of them in seconds.

    `metrics`: what is compared; empty: the leading metric. `pair`: two names, the base and the one that is compared with it; empty:
    in every cell the best server against the rest. `gates`: limits of the change of a pair, such as "messages_per_s < -3 %".
    `within`: nothing is compared; each server's value of each metric is to be known to this half width of its interval.
    """

    budget_s: Annotated[float, Field(gt=0)]
    metrics: list[str] = []
    pair: Annotated[list[str], Field(max_length=2)] = []
    gates: list[str] = []
    within: Annotated[float, Field(gt=0, le=0.5)] | None = None


class Until(Goal):
    """A goal with what is fixed before the first round: the most rounds, among which the error is divided, and the most servers of
    a heat (None: all)."""

    planned: Annotated[int, Field(ge=1)]
    alive: int | None = None

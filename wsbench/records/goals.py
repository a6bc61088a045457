"""When a campaign ends, if not after a number of rounds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wsbench.records.frozen import Frozen


class Goal(Frozen):
    """What the rounds of a campaign are to decide, and the time for all of them in seconds.

    `metrics`: what is compared; empty: the leading metric. `pair`: two names, the base and the one that is compared with it; empty:
    in every cell the best server against the rest. `gates`: limits of the change of a pair, such as "messages_per_s < -3 %".
    """

    budget_s: Annotated[float, Field(gt=0)]
    metrics: list[str] = []
    pair: Annotated[list[str], Field(max_length=2)] = []
    gates: list[str] = []


class Until(Goal):
    """A goal with what is fixed before the first round: the most rounds, among which the error is divided, and the most servers of
    a heat (None: all)."""

    planned: Annotated[int, Field(ge=1)]
    alive: int | None = None


class Searching(Frozen):
    """What a search for a capacity looks for and when it ends: under these of the experiment's promises, at this half width of the
    interval, after this time, or after so many probes. None: as the experiment says."""

    within: Annotated[float, Field(gt=0, le=0.5)] | None = None
    budget_s: Annotated[float, Field(gt=0)] | None = None
    probes: Annotated[int, Field(ge=1)] | None = None
    promises: list[str] | None = None

    @property
    def given(self) -> dict[str, float | list[str]]:
        return self.model_dump(exclude_none=True)

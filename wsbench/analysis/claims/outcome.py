"""Claim verdicts: the values that the terminal and the report show.

*holds*, *does not hold* or *undecided*, per set of versions, with the reason and its numbers. `evaluate` creates them,
`text` formats them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["holds", "does not hold", "undecided"]
#: Why a claim is undecided; `None` if it is decided.
#: spans: an interval allows both outcomes · rounds: too few repeats · scaled: the load was smaller than published ·
#: machine: the server had fewer CPUs than published · missing: a server or number was not measured · failed: a server failed.
Obstacle = Literal["spans", "rounds", "scaled", "machine", "missing", "failed"]


@dataclass(frozen=True)
class Comparison:
    """One comparison of a claim. `text` names its servers, `ours` is our number with its interval.

    `holds` is None if it is undecided, with a `reason`. `by_means` is the result from the means alone.
    """

    text: str
    holds: bool | None
    by_means: bool | None
    ours: str
    reason: str | None
    obstacle: Obstacle | None


@dataclass(frozen=True)
class Figure:
    """A published number and ours. `ours` is None if it is missing, with a `reason`."""

    text: str
    published: float
    ours: float | None
    low: float | None
    high: float | None
    reason: str | None


@dataclass(frozen=True)
class ClaimVerdict:
    """One claim for one set of versions.

    `versions` names the set (`published`, `today`), `servers` maps roles to variants, `why` is one sentence. `by_means` is the
    result from the means alone, which decides nothing.
    """

    id: str
    says: str
    means: str
    published: str
    holds_if: str
    versions: str
    servers: dict[str, str]
    verdict: Verdict
    why: str
    obstacle: Obstacle | None
    by_means: bool | None
    comparisons: tuple[Comparison, ...]
    figures: tuple[Figure, ...]

    def as_json(self) -> dict:
        return asdict(self)

"""What is said of a claim: the values that the terminal and the report show.

*holds*, *does not hold* or *undecided*, once for each set of versions, with the reason and the numbers it rests on. Values only;
`evaluate` makes them, `text` writes them down.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["holds", "does not hold", "undecided"]
#: Why a claim is undecided; `None` where it is decided.
#: spans: an interval reaches to both sides · rounds: too few repeats · scaled: the load was smaller than published ·
#: missing: a server or number was not measured · failed: a server failed.
Obstacle = Literal["spans", "rounds", "scaled", "missing", "failed"]


@dataclass(frozen=True)
class Comparison:
    """One comparison that a claim rests on: `text` has its servers' names, `ours` its number with its interval.

    `holds` is None where it is open, then with a `reason`; `by_means` is what the means alone would say.
    """

    text: str
    holds: bool | None
    by_means: bool | None
    ours: str
    reason: str | None
    obstacle: Obstacle | None


@dataclass(frozen=True)
class Figure:
    """A printed number beside ours; `ours` is None where there is none, then with a `reason`."""

    text: str
    published: float
    ours: float | None
    low: float | None
    high: float | None
    reason: str | None


@dataclass(frozen=True)
class ClaimVerdict:
    """One claim for one set of versions.

    `versions` is the name of the set (`published`, `today`), `servers` maps its roles to variants; `why` is one sentence;
    `by_means` is what the means alone would say, which decides nothing.
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

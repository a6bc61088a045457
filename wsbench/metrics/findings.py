"""The verdict on a trial as values: what its checks found, which metric families each finding affects, and how.

A finding is on one of three axes. `host` and `engine` are the instrument: can this number be trusted? `server` is what the server
did: an outcome that is shown and compared, never a reason to leave out a number that was measured right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["VALID", "SUSPECT", "INVALID"]
KINDS: tuple[Kind, ...] = ("VALID", "SUSPECT", "INVALID")
Axis = Literal["host", "engine", "server"]
#: The side that had no CPU left. `neither`: both had some. `none`: there was no load that could have a limit.
Bottleneck = Literal["server", "engine", "neither", "none", "unknown"]
Family = Literal["counts", "throughput", "body", "tail", "cpu", "memory", "connect"]
#: The metric families, with the words for readers. Every metric belongs to one.
FAMILIES: dict[Family, str] = {
    "counts": "counts",
    "throughput": "throughput",
    "body": "typical latency",
    "tail": "tail latency",
    "cpu": "CPU use",
    "memory": "memory",
    "connect": "connect times",
}


def worst(kinds: Iterable[Kind | None]) -> Kind:
    """The worst of these words; VALID if there is none."""
    return max((kind for kind in kinds if kind is not None), key=KINDS.index, default="VALID")


@dataclass(frozen=True)
class Finding:
    """What one check found. `seen` and `remedy` are a plain sentence each; `affects` has no family that stays VALID.

    `name` identifies the kind of finding for programs and for counts over trials.
    """

    axis: Axis
    name: str
    seen: str
    remedy: str
    affects: dict[Family, Kind] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return worst(self.affects.values())

    @property
    def scope(self) -> str:
        """The families in words: `INVALID: throughput; SUSPECT: tail latency`. Empty if no number is affected."""
        parts = []
        for kind in reversed(KINDS[1:]):
            names = [FAMILIES[family] for family, found in self.affects.items() if found == kind]
            if names:
                parts.append(f"{kind}: {'every number' if len(names) == len(FAMILIES) else ', '.join(names)}")
        return "; ".join(parts)

    @property
    def text(self) -> str:
        """What was seen, what it affects, and what to do."""
        aside = f" ({self.scope})" if self.affects else ""
        return f"{self.seen[:1].upper()}{self.seen[1:]}{aside}. {self.remedy}".strip()


def finding(axis: Axis, name: str, seen: str, remedy: str, **affects: Kind | None) -> Finding:
    """A finding; families whose word is None or VALID are left out."""
    kept = {family: affects[family] for family in FAMILIES if affects.get(family) not in (None, "VALID")}
    return Finding(axis, name, seen, remedy, kept)


def everything(kind: Kind | None) -> dict[Family, Kind | None]:
    """The same word for every family."""
    return dict.fromkeys(FAMILIES, kind)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a trial. `bottleneck` is the side without CPU left, if known."""

    findings: tuple[Finding, ...]
    bottleneck: Bottleneck
    #: Of a load by itself: why no number of what it is about can be used. It is also the first of the findings.
    cause: Finding | None = None

    def of(self, family: Family) -> Kind:
        """The word for the metrics of one family. INVALID numbers enter no mean."""
        return worst(one.affects.get(family) for one in self.findings)

    def because(self, family: Family, kind: Kind = "INVALID") -> tuple[Finding, ...]:
        """The findings that make the metrics of a family SUSPECT or INVALID."""
        return tuple(one for one in self.findings if one.affects.get(family) == kind)

    @property
    def kind(self) -> Kind:
        """One word for lists: the worst word of the instrument, or that of the throughput.

        A server that lost messages or connections does not change it; one that answered what nothing had asked for does.
        """
        return worst([*(one.kind for one in self.instrument), self.of("throughput")])

    @property
    def instrument(self) -> tuple[Finding, ...]:
        """The findings about the host and the engine, the worst first."""
        found = [one for one in self.findings if one.axis != "server"]
        return tuple(sorted(found, key=lambda one: -KINDS.index(one.kind)))

    @property
    def outcomes(self) -> tuple[Finding, ...]:
        """What the server did."""
        return tuple(one for one in self.findings if one.axis == "server")

    @property
    def reasons(self) -> tuple[str, ...]:
        """The text of every finding, those about the instrument first."""
        return tuple(one.text for one in (*self.instrument, *self.outcomes))

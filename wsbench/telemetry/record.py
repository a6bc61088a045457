"""What is known of a runtime over one trial: collections, pauses, heap, event loop, all on the monotonic clock of the trial."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["minor", "mixed", "full", "concurrent"]
MIB = 1 << 20
NS_PER_MS = 1e6
NS_PER_S = 1e9


@dataclass(frozen=True)
class Collection:
    """One garbage collection, at its end. `minor`: of the young generation alone. `mixed`: young and some of the old (G1).
    `full`: all of the heap while the program stands still. `concurrent`: of the whole or the old heap while it runs."""

    t_ns: int
    kind: Kind


@dataclass(frozen=True)
class Pause:
    """A time in which the program stood still, and what for."""

    begin_ns: int
    ns: int
    what: str

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.ns


@dataclass(frozen=True)
class HeapPoint:
    """The heap at one instant; `after` a collection, or otherwise. What is not told is None."""

    t_ns: int
    used_bytes: int | None
    committed_bytes: int | None
    after: bool = False


@dataclass(frozen=True)
class Delay:
    """By how much later than asked a timer of the event loop fired."""

    t_ns: int
    ns: int


@dataclass(frozen=True)
class Telemetry:
    """One trial's. `kinds` are those that this runtime tells apart: another has no count, not a count of zero. `safepoints` and
    `delays` are None where the runtime has no such thing."""

    runtime: str
    kinds: frozenset[Kind]
    collections: list[Collection] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    heap: list[HeapPoint] = field(default_factory=list)
    safepoints: list[Pause] | None = None
    delays: list[Delay] | None = None

"""What is known of a runtime over one trial: collections, pauses, heap, event loop, all on the monotonic clock of the trial."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from wsbench.records.files import read_file

Kind = Literal["minor", "mixed", "full", "concurrent"]
MIB = 1 << 20
NS_PER_MS = 1e6
NS_PER_S = 1e9
#: In a line of a log, each a group: a whole number, one that may have a fraction. What has more digits is no line of a log.
COUNT, NUMBER = r"(\d{1,16})", r"(\d{1,9}(?:\.\d{1,9})?)"
HEAP_FULL = 0.90  # after a full collection; a JVM gives up (GC overhead limit) with less than a fiftieth free


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

    @property
    def heap_full(self) -> str | None:
        """In words, that the last full collection left the heap full; None where it did not, or nothing is told of that."""
        full = {one.t_ns for one in self.collections if one.kind == "full"}
        left = [one for one in self.heap if one.after and one.t_ns in full and one.used_bytes and one.committed_bytes]
        if not left or left[-1].used_bytes < HEAP_FULL * left[-1].committed_bytes:
            return None
        used, of = (size // MIB for size in (left[-1].used_bytes, left[-1].committed_bytes))
        return f"its heap was full: the last of {len(full)} full collections left {used:,} of {of:,} MiB"


def lines(log: Path) -> list[str]:
    """What a server's runtime wrote, line by line; none where it wrote nothing. UserError where it is no plain file, or larger than
    any log of ours."""
    return read_file(log).decode(errors="replace").splitlines() if os.path.lexists(log) else []

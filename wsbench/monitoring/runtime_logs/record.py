"""Telemetry of a runtime over one trial: collections, pauses, heap and event loop, on the trial's monotonic clock."""

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
#: Regex groups for a whole number and for one with an optional fraction. Longer numbers make a line invalid.
COUNT, NUMBER = r"(\d{1,16})", r"(\d{1,9}(?:\.\d{1,9})?)"
HEAP_FULL = 0.90  # after a full collection; a JVM fails (GC overhead limit) with less than 2 % free


@dataclass(frozen=True)
class Collection:
    """A garbage collection, at its end. `minor`: young generation only. `mixed`: young and part of the old generation (G1). `full`:
    the whole heap while the program is paused. `concurrent`: the whole heap or old generation while the program runs."""

    t_ns: int
    kind: Kind


@dataclass(frozen=True)
class Pause:
    """A pause of the program, and its cause."""

    begin_ns: int
    ns: int
    what: str

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.ns


@dataclass(frozen=True)
class HeapPoint:
    """The heap at one instant. `after`: right after a collection. Unknown values are None."""

    t_ns: int
    used_bytes: int | None
    committed_bytes: int | None
    after: bool = False


@dataclass(frozen=True)
class Delay:
    """How much later than scheduled a timer of the event loop fired."""

    t_ns: int
    ns: int


@dataclass(frozen=True)
class Telemetry:
    """Telemetry of one trial. `kinds` are the collection kinds the runtime distinguishes; any other has no count, which is not
    a count of zero. `safepoints` and `delays` are None if the runtime has none."""

    runtime: str
    kinds: frozenset[Kind]
    collections: list[Collection] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    heap: list[HeapPoint] = field(default_factory=list)
    safepoints: list[Pause] | None = None
    delays: list[Delay] | None = None

    @property
    def heap_full(self) -> str | None:
        """A sentence if the last full collection left the heap full. None if it did not, or if that is unknown."""
        full = {one.t_ns for one in self.collections if one.kind == "full"}
        left = [one for one in self.heap if one.after and one.t_ns in full and one.used_bytes and one.committed_bytes]
        if not left or left[-1].used_bytes < HEAP_FULL * left[-1].committed_bytes:
            return None
        used, of = (size // MIB for size in (left[-1].used_bytes, left[-1].committed_bytes))
        return f"its heap was full: the last of {len(full)} full collections left {used:,} of {of:,} MiB"


def lines(log: Path) -> list[str]:
    """The lines of a runtime's log; empty if there is no file. UserError if it is not a regular file, or is too large."""
    return read_file(log).decode(errors="replace").splitlines() if os.path.lexists(log) else []

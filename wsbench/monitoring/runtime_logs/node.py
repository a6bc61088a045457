"""Reads the output of the Node.js probe (`node_probe.cjs`): JSON lines in `runtime.jsonl`, on the trial's monotonic clock.

A scavenge is a minor collection, a mark-compact a full one. Steps of incremental marking are pauses, not collections. The delays
are those of a timer that the probe sets every 20 ms; Node's timers have a resolution of 1 ms.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, model_validator

from wsbench.monitoring.runtime_logs.record import Collection, Delay, HeapPoint, Kind, Pause, Telemetry
from wsbench.records.frozen import Frozen, read_lines

KINDS: frozenset[Kind] = frozenset({"minor", "full"})
#: perf_hooks.constants.NODE_PERFORMANCE_GC_*
WHAT = {1: "scavenge", 2: "minor mark-sweep", 4: "mark-compact", 8: "incremental marking", 16: "weak callbacks"}
COUNTED: dict[int, Kind] = {1: "minor", 2: "minor", 4: "full"}


class _Collected(Frozen):
    of: Literal["gc"]
    t_ns: int
    ns: int
    kind: int


class _Heap(Frozen):
    of: Literal["heap"]
    t_ns: int
    used_bytes: int
    committed_bytes: int


class _Delays(Frozen):
    of: Literal["delays"]
    t_ns: int
    at_ns: list[int]
    late_ns: list[int]

    @model_validator(mode="after")
    def _one_each(self) -> _Delays:
        if len(self.at_ns) != len(self.late_ns):
            raise ValueError(f"{len(self.at_ns)} instants, {len(self.late_ns)} delays")
        return self


_LINE = TypeAdapter(Annotated[_Collected | _Heap | _Delays, Field(discriminator="of")])


def read(log: Path) -> Telemetry | None:
    """None if the probe wrote nothing. An incomplete last line is skipped. UserError if any other line is invalid."""
    found = Telemetry("node", KINDS, delays=[])
    for line in read_lines(log, _LINE.validate_json):
        _take(found, line)
    return found if found.heap else None


def _take(found: Telemetry, line: _Collected | _Heap | _Delays) -> None:
    if isinstance(line, _Collected):
        found.pauses.append(Pause(line.t_ns, line.ns, WHAT.get(line.kind, f"kind {line.kind}")))
        if line.kind in COUNTED:
            found.collections.append(Collection(line.t_ns + line.ns, COUNTED[line.kind]))
    elif isinstance(line, _Heap):
        found.heap.append(HeapPoint(line.t_ns, line.used_bytes, line.committed_bytes))
    else:
        found.delays.extend(map(Delay, line.at_ns, line.late_ns))

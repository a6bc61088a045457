"""What the probe in Node.js (`node_probe.cjs`) wrote: lines of JSON in `runtime.jsonl`, on the monotonic clock of the trial.

A scavenge is minor, a mark-compact is full; steps of incremental marking are pauses, but no collections of their own. The
delays are those of a timer that the probe sets every 20 ms; Node's timers are precise to a millisecond.
"""

from __future__ import annotations

import json
from pathlib import Path

from wsbench.telemetry.record import Collection, Delay, HeapPoint, Kind, Pause, Telemetry

KINDS: frozenset[Kind] = frozenset({"minor", "full"})
#: perf_hooks.constants.NODE_PERFORMANCE_GC_*
WHAT = {1: "scavenge", 2: "minor mark-sweep", 4: "mark-compact", 8: "incremental marking", 16: "weak callbacks"}
COUNTED: dict[int, Kind] = {1: "minor", 2: "minor", 4: "full"}


def read(log: Path) -> Telemetry | None:
    """None where the probe wrote nothing. A last line that was cut off is left out."""
    if not log.exists():
        return None
    found = Telemetry("node", KINDS, delays=[])
    for line in log.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            _take(found, json.loads(line))
    return found if found.heap else None


def _take(found: Telemetry, line: dict) -> None:
    t_ns = line["t_ns"]
    if line["of"] == "gc":
        found.pauses.append(Pause(t_ns, line["ns"], WHAT.get(line["kind"], f"kind {line['kind']}")))
        if line["kind"] in COUNTED:
            found.collections.append(Collection(t_ns + line["ns"], COUNTED[line["kind"]]))
    elif line["of"] == "heap":
        found.heap.append(HeapPoint(t_ns, line["used_bytes"], line["committed_bytes"]))
    elif line["of"] == "delays":
        found.delays.extend(Delay(at_ns, ns) for at_ns, ns in zip(line["at_ns"], line["late_ns"], strict=True))

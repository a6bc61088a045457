"""HotSpot's unified log (JDK 9 and later) of Serial, Parallel, G1 and Z, written by
`-Xlog:gc*,safepoint:…:timenanos,level,tags`.

`timenanos` is CLOCK_MONOTONIC, the clock of every other file of a trial, so none needs alignment. Sizes are whole MiB. A line is
written at the end of its event. `Pause Young` is minor, with `(Mixed)` mixed; `Pause Full` is full. G1's `Concurrent Mark Cycle`
and Z's `Garbage Collection` and `Major Collection` are concurrent; Z's `Minor Collection` is minor. Every JVM writes a first line,
`Using …`, even if it never collects. A file without that line is not a log.
"""

from __future__ import annotations

import re
from pathlib import Path

from wsbench.monitoring.runtime_logs.record import (
    COUNT,
    MIB,
    NS_PER_MS,
    NUMBER,
    Collection,
    HeapPoint,
    Kind,
    Pause,
    Telemetry,
    lines,
)

KINDS: frozenset[Kind] = frozenset({"minor", "mixed", "full", "concurrent"})
LINE = re.compile(rf"\[{COUNT}ns\]\[\w+ *\]\[([\w,]+) *\] (.*)", re.ASCII)
PAUSE = re.compile(rf"GC\(\d+\) (?:[YyO]: )?Pause (.*?)(?: {COUNT}M->{COUNT}M\({COUNT}M\))? {NUMBER}ms$", re.ASCII)
CYCLE = re.compile(r"GC\(\d+\) Concurrent (?:Mark|Undo) Cycle [\d.]+ms$", re.ASCII)
Z_START = re.compile(r"GC\((\d+)\) (?:Garbage|Major|Minor) Collection", re.ASCII)
Z_CYCLE = re.compile(rf"GC\((\d+)\) (Garbage|Major|Minor) Collection .* {COUNT}M\(\d+%\)->{COUNT}M\(\d+%\)", re.ASCII)
SAFEPOINT = re.compile(rf'Safepoint "(\w+)",.* Total: +{COUNT} ns', re.ASCII)


def read(log: Path) -> Telemetry | None:
    """None if the JVM wrote no log. UserError if the file is invalid."""
    found = Telemetry("jvm", KINDS, safepoints=[])
    began, starts = False, {}
    for line in lines(log):
        if (parts := LINE.fullmatch(line)) is not None:
            t_ns, tags, text = int(parts[1]), parts[2], parts[3]
            began = began or (tags == "gc" and text.startswith("Using "))
            _take(found, starts, t_ns, tags, text)
    return found if began else None


def _take(found: Telemetry, starts: dict[str, int], t_ns: int, tags: str, text: str) -> None:
    if tags == "safepoint":
        if (stop := SAFEPOINT.match(text)) is not None:
            found.safepoints.append(Pause(t_ns - int(stop[2]), int(stop[2]), stop[1]))
    elif tags in ("gc", "gc,start", "gc,phases"):
        if (pause := PAUSE.match(text)) is not None:
            _take_pause(found, t_ns, pause)
        elif CYCLE.match(text) is not None:
            found.collections.append(Collection(t_ns, "concurrent"))
        elif (cycle := Z_CYCLE.match(text)) is not None:
            found.collections.append(Collection(t_ns, "minor" if cycle[2] == "Minor" else "concurrent"))
            found.heap.append(HeapPoint(starts.get(cycle[1], t_ns), int(cycle[3]) * MIB, None))
            found.heap.append(HeapPoint(t_ns, int(cycle[4]) * MIB, None, after=True))
        elif (start := Z_START.match(text)) is not None:
            starts[start[1]] = t_ns


def _take_pause(found: Telemetry, t_ns: int, pause: re.Match) -> None:
    what, before, after, committed, took_ms = pause.groups()
    took_ns = round(float(took_ms) * NS_PER_MS)
    found.pauses.append(Pause(t_ns - took_ns, took_ns, what))
    if before is not None:
        found.heap.append(HeapPoint(t_ns - took_ns, int(before) * MIB, None))
    kind = _kind(what)
    if kind is not None:
        found.collections.append(Collection(t_ns, kind))
        if after is not None:
            found.heap.append(HeapPoint(t_ns, int(after) * MIB, int(committed) * MIB, after=True))


def _kind(what: str) -> Kind | None:
    """None for a pause that is part of a concurrent collection, such as `Remark`."""
    if what.startswith("Young"):
        return "mixed" if "(Mixed)" in what else "minor"
    return "full" if what.startswith("Full") else None

"""Go's garbage collector trace: `GODEBUG=gctrace=1` writes it to standard error, which goes to `server.log`.

Times count from the program's start, in milliseconds. The trial's clock at the start is taken when the program was loaded, a few
milliseconds before Go's runtime begins. Sizes are whole MiB. The collector has no generations: each collection is concurrent, with
a pause at its beginning (sweep termination) and at its end (mark termination). For the format see the documentation of package
`runtime`, "Environment Variables".
"""

from __future__ import annotations

import re
from pathlib import Path

from wsbench.monitoring.runtime_logs.record import (
    COUNT,
    MIB,
    NS_PER_MS,
    NS_PER_S,
    NUMBER,
    Collection,
    HeapPoint,
    Kind,
    Pause,
    Telemetry,
    lines,
)

KINDS: frozenset[Kind] = frozenset({"concurrent"})
LINE = re.compile(
    rf"gc \d+ @{NUMBER}s \d+%: {NUMBER}\+{NUMBER}\+{NUMBER} ms clock, .* ms cpu, {COUNT}->\d+->{COUNT} MB, ", re.ASCII
)


def read(log: Path, started_ns: int | None) -> Telemetry | None:
    """None without a start time or a trace line: a Go program that does not collect writes none. UserError if the file is
    invalid."""
    if started_ns is None:
        return None
    found = Telemetry("go", KINDS)
    for line in lines(log):
        if (parts := LINE.match(line)) is not None:
            _take(found, started_ns, parts)
    return found if found.collections else None


def is_trace(line: str) -> bool:
    return LINE.match(line) is not None


def _take(found: Telemetry, started_ns: int, parts: re.Match) -> None:
    begin_ns = started_ns + round(float(parts[1]) * NS_PER_S)
    first_ns, between_ns, last_ns = (round(float(parts[place]) * NS_PER_MS) for place in (2, 3, 4))
    end_ns = begin_ns + first_ns + between_ns + last_ns
    found.pauses.append(Pause(begin_ns, first_ns, "sweep termination"))
    found.pauses.append(Pause(end_ns - last_ns, last_ns, "mark termination"))
    # The trace shows less than a MiB as 0.
    found.heap.append(HeapPoint(begin_ns, int(parts[5]) * MIB or None, None))
    found.heap.append(HeapPoint(end_ns, int(parts[6]) * MIB or None, None, after=True))
    found.collections.append(Collection(end_ns, "concurrent"))

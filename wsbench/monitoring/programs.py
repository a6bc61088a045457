"""Programs that used CPU time next to a trial: names and a sum for findings, no number of a metric.

Read twice, before and after what is sampled. Starts nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from wsbench.monitoring.kernel import TICKS_PER_S
from wsbench.records.samples import Program, ProgramsSample

PROC = Path("/proc")
MOST = 3
#: Kernel threads that do others' work, the trial's too: packets, deferred work, memory that is freed later.
ERRANDS = ("ksoftirqd", "kworker", "rcu")

#: A process: its number, and when it started, because numbers are used again.
Key = tuple[int, int]


class Used(NamedTuple):
    """CPU time of a process so far, children that it waited for included. `parent`: the number of its parent."""

    name: str
    cpu_s: float
    parent: int


def used() -> dict[Key, Used]:
    """Every process."""
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (one := _read(entry / "stat")) is not None:
            started, process = one
            found[int(entry.name), started] = process
    return found


def since(began_ns: int, before: dict[Key, Used], without: Collection[int]) -> ProgramsSample:
    """What all programs used since `began_ns`, when `before` was read."""
    after = used()
    return ProgramsSample(
        t_ns=time.monotonic_ns(),
        of="programs",
        began_ns=began_ns,
        programs=busiest(before, after, without),
        cpu_s=spent_s(before, after, without),
    )


def busiest(before: dict[Key, Used], after: dict[Key, Used], without: Collection[int]) -> list[Program]:
    """The programs that used most CPU time in between, by name. Left out: those `without`, and what used less than a tick."""
    grown: Counter[str] = Counter()
    inherited = _inherited(before, after)
    for key, one in after.items():
        if key[0] not in without:
            had = (before[key].cpu_s if key in before else 0.0) + inherited[key[0]]
            grown[one.name] += max(0.0, one.cpu_s - had)
    most = sorted(grown.items(), key=lambda one: -one[1])[:MOST]
    return [Program(name=name, cpu_s=round(spent, 2)) for name, spent in most if spent > 1 / TICKS_PER_S]


def spent_s(before: dict[Key, Used], after: dict[Key, Used], without: Collection[int]) -> float:
    """CPU time that all programs together used in between, at least: one that ended is missing if no parent waited for it. Left
    out: those `without`, and kernel threads that do others' work."""
    sums = [
        sum(one.cpu_s for (pid, _), one in found.items() if pid not in without and not one.name.startswith(ERRANDS))
        for found in (before, after)
    ]
    return max(0.0, sums[1] - sums[0])


def _inherited(before: dict[Key, Used], after: dict[Key, Used]) -> Counter[int]:
    """CPU time that processes which ended had used before. Their nearest ancestor that is left waited for them, and counts it."""
    left = {pid for pid, _ in after}
    parents = {pid: one.parent for (pid, _), one in before.items()}
    found: Counter[int] = Counter()
    for key in before.keys() - after.keys():
        heir = parents[key[0]]
        while heir in parents and heir not in left:
            heir = parents[heir]
        found[heir] += before[key].cpu_s
    return found


def _read(stat: Path) -> tuple[int, Used] | None:
    try:
        text = stat.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    # A worker of the kernel is named after what it does at the moment.
    name = name.partition("/")[0] if name.startswith(ERRANDS) else name
    return int(fields[19]), Used(name, sum(map(int, fields[11:15])) / TICKS_PER_S, int(fields[1]))

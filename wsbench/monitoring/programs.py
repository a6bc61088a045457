"""Programs that used CPU time next to a trial: names and a sum for findings, no number of a metric.

Read twice, before and after what is sampled. Starts nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from wsbench.monitoring.kernel import TICKS_PER_S
from wsbench.records.samples import Program

PROC = Path("/proc")
MOST = 3
#: Kernel threads that do others' work, the trial's too: packets, deferred work, memory that is freed later.
ERRANDS = ("ksoftirqd", "kworker", "rcu")

#: A process: its number, and when it started, because numbers are used again.
Key = tuple[int, int]


def used() -> dict[Key, Program]:
    """Every process: its name, and its CPU time so far, children that it waited for included."""
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (one := _read(entry / "stat")) is not None:
            started, program = one
            found[int(entry.name), started] = program
    return found


def busiest(before: dict[Key, Program], after: dict[Key, Program], without: Collection[int]) -> list[Program]:
    """The programs that used most CPU time in between, by name. Left out: those `without`, and what used less than a tick."""
    grown: dict[str, float] = {}
    for key, one in after.items():
        if key[0] not in without:
            spent = one.cpu_s - (before[key].cpu_s if key in before else 0.0)
            grown[one.name] = grown.get(one.name, 0.0) + spent
    most = sorted(grown.items(), key=lambda one: -one[1])[:MOST]
    return [Program(name=name, cpu_s=round(spent, 2)) for name, spent in most if spent > 1 / TICKS_PER_S]


def spent_s(before: dict[Key, Program], after: dict[Key, Program], without: Collection[int]) -> float:
    """CPU time that all programs together used in between, at least: one that ended is missing if no parent waited for it. Left
    out: those `without`, and kernel threads that do others' work."""
    sums = [
        sum(one.cpu_s for (pid, _), one in found.items() if pid not in without and not one.name.startswith(ERRANDS))
        for found in (before, after)
    ]
    return max(0.0, sums[1] - sums[0])


def _read(stat: Path) -> tuple[int, Program] | None:
    try:
        text = stat.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    # A worker of the kernel is named after what it does at the moment.
    name = name.partition("/")[0] if name.startswith(ERRANDS) else name
    return int(fields[19]), Program(name=name, cpu_s=sum(map(int, fields[11:15])) / TICKS_PER_S)

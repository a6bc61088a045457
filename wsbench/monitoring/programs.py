"""Programs that used CPU time next to a trial: names for a finding, no number of a metric.

Read twice, before and after what is sampled. A program that began and ended in between is not seen. Starts nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from wsbench.monitoring.kernel import TICKS_PER_S
from wsbench.records.samples import Program

PROC = Path("/proc")
MOST = 3


def used() -> dict[int, Program]:
    """Every process by its number: its name, and its CPU time so far, children that it waited for included."""
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (one := _read(entry / "stat")) is not None:
            found[int(entry.name)] = one
    return found


def busiest(before: dict[int, Program], after: dict[int, Program], without: Collection[int]) -> list[Program]:
    """The programs that used most CPU time in between, by name. Left out: those `without`, and what used less than a tick."""
    grown: dict[str, float] = {}
    for pid, one in after.items():
        if pid not in without:
            known = before.get(pid)
            spent = one.cpu_s - (known.cpu_s if known is not None and known.name == one.name else 0.0)
            grown[one.name] = grown.get(one.name, 0.0) + spent
    most = sorted(grown.items(), key=lambda one: -one[1])[:MOST]
    return [Program(name=name, cpu_s=round(spent, 2)) for name, spent in most if spent > 1 / TICKS_PER_S]


def _read(stat: Path) -> Program | None:
    try:
        text = stat.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return Program(name=name, cpu_s=sum(map(int, fields[11:15])) / TICKS_PER_S)

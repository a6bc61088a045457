"""A study's figure as a value for `script/study.js`: numbers, names and looks, which one drawing code turns into SVG.

A server has the same look in every figure of the page. This module knows no metric and no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from wsbench.analysis.results import Results
from wsbench.metrics.findings import KINDS
from wsbench.report.palette import looks_by_name

LOG_VALUES = 30  # maximum over minimum from which values get a logarithmic axis: a linear one would hide the small ones
ASKED = {"colour": "currentColor", "dash": (3, 3), "shape": "circle"}


@dataclass(frozen=True)
class Point:
    """A trial, or one second of a trial (then without a number)."""

    x: float
    y: float
    verdict: str = "VALID"
    trial: int | None = None


@dataclass(frozen=True)
class Line:
    """A server, or the requested value (name None): points joined by a line, intervals if known, single trials, and marks."""

    name: str | None
    points: list[tuple[float, float]] = field(default_factory=list)
    intervals: list[tuple[float, float | None, float | None]] = field(default_factory=list)
    dots: list[Point] = field(default_factory=list)
    marks: list[tuple[float, float]] = field(default_factory=list)


def lines(
    results: Results,
    label: str,
    key: str,
    axis: str,
    drawn: Iterable[Line],
    swept: bool = False,
    log: bool = False,
    log_x: bool = False,
    asked: str = "requested",
) -> dict:
    """Lines over a number. `swept`: the values of a sweep, with a tick each. `asked`: the name of the requested value's line."""
    looks = _looks(results)
    series = [
        {
            "name": asked if line.name is None else results.label(line.name),
            "server": -1 if line.name is None else results.names.index(line.name),
            "reference": line.name in results.references,
            "look": ASKED if line.name is None else looks[line.name],
            "points": line.points,
            "intervals": line.intervals,
            "marks": line.marks,
            "dots": [(point.x, point.y, KINDS.index(point.verdict), point.trial) for point in line.dots],
        }
        for line in drawn
    ]
    crowd = any(dot[3] is None for one in series for dot in one["dots"])
    found = {"kind": "lines", "label": label, "key": key.replace("_", " "), "axis": axis, "swept": swept, "log": log, "logX": log_x}
    return found | {"series": series, "crowd": crowd}


def bars(results: Results, label: str, axis: str, rows: Iterable[tuple[str, object, str, list[Point]]]) -> dict:
    """Bars, the largest first, from (server, estimate in the axis unit, its text, single trials)."""
    looks = _looks(results)
    made = [
        {
            "name": results.label(name),
            "server": results.names.index(name),
            "look": looks[name],
            **dict(zip(("mean", "low", "high"), estimate, strict=True)),
            "text": text,
            "dots": [(point.y, KINDS.index(point.verdict), point.trial) for point in dots],
        }
        for name, estimate, text, dots in rows
    ]
    made.sort(key=lambda row: -(row["mean"] or 0))
    return {"kind": "bars", "label": label, "axis": axis, "rows": made}


def spread_out(values: list[float]) -> bool:
    """True if a linear axis would hide the small values."""
    return bool(values) and min(values) > 0 and max(values) >= LOG_VALUES * min(values)


def _looks(results: Results) -> dict[str, dict]:
    languages = {row.name: row.language for row in results.servers}
    return {name: asdict(look) for name, look in looks_by_name(results.names, languages).items()}

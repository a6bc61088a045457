"""The blocks of a campaign of ladders: for each cell latency over the load with every server's capacities, and their table."""

from __future__ import annotations

import math

import numpy as np

from wsbench.analysis import ladders, titles, wording
from wsbench.analysis.dataset import Cell
from wsbench.analysis.ladders import UNITS, Capacity, CurvePoint, Statistic
from wsbench.analysis.results import Results
from wsbench.metrics.ladder import bound_us, timed
from wsbench.records import contained
from wsbench.report import figure_drawing
from wsbench.report.blocks import Block, Table
from wsbench.report.figure_drawing import Line, Point

READING = (
    "A line is the mean of a server's processes, with its 95 % interval; each mark is one load of one process. Hollow marks are "
    "left out, because the host or the load generator disturbed them. A dashed line is an SLO. On it, a bar per server spans the "
    "95 % interval of its capacity."
)
OTHERS = "The same loads and processes. The table has the time at shares of the capacity under the first SLO."
#: Shares of a capacity at which times are listed.
SHARES = (0.6, 0.8, 1.0)
#: Servers that the answer names; the tables have all.
LED = 3
#: A log time further from the bounds than this is cut off in a figure.
MOST_OVER = math.log(100)


def blocks(results: Results) -> list[Block]:
    """Empty unless the campaign has ladders."""
    if results.climb is None:
        return []
    made = []
    for cell in results.cells:
        found = of_cell(results, cell)
        for statistic in ("p99", "p50", "p999"):
            id_ = f"capacity-{len(made) + 1}"
            title = _title(results, cell, statistic)
            made.append(
                contained.part(
                    f"figure {title!r}",
                    lambda id_=id_, title=title, cell=cell, found=found, statistic=statistic: Block(
                        id_,
                        title,
                        READING if statistic == "p99" else OTHERS,
                        _capacities(results, found) if statistic == "p99" else _shares(results, cell, found, statistic),
                        _figure(results, cell, found, statistic),
                    ),
                    lambda reason, id_=id_, title=title: Block(id_, title, f"{reason}."),
                )
            )
    return made


def of_cell(results: Results, cell: Cell) -> list[list[Capacity]]:
    """The capacities of every server under each SLO."""
    names = [name for name in results.names if results.group(name, cell)]
    return [[ladders.of(results, name, cell, place) for name in names] for place in range(len(results.climb.slos))]


def lead(results: Results) -> str:
    """The answers under the first SLO, the highest first, a sentence for each cell."""
    said = []
    for cell in results.cells:
        ranked = sorted(of_cell(results, cell)[0], key=lambda one: -(one.estimate.mean or 0.0))
        where = results.cell_text(cell)
        parts = [f"{results.label(one.server)} {_amount(one)}" for one in ranked[:LED]]
        more = f", and {wording.count(len(ranked) - LED, 'other server')}" if len(ranked) > LED else ""
        said.append(f"{f'with {where}: ' if where else ''}{', '.join(parts)}{more}")
    others = len(results.climb.slos) - 1
    also = f" The tables below have {wording.count(others, 'other SLO')}." if others else ""
    return f"Capacity at {results.climb.slos[0]}, in {UNITS[results.climb.over]}: {'; '.join(said)}.{also}"


def _amount(one: Capacity) -> str:
    found = one.estimate
    if one.lowest is not None:
        return f"less than {wording.number(one.lowest)}"
    if found.mean is None:
        return "not known"
    if found.at_least:
        return f"at least {wording.number(found.mean)}"
    interval = "" if found.low is None else f" ({wording.between(found.low, found.high)})"
    return f"{wording.number(found.mean)}{interval}"


def _title(results: Results, cell: Cell, statistic: Statistic) -> str:
    tag, _ = timed(ladders.slos(results))
    where = results.cell_text(cell)
    return f"{titles.title(f'{tag}_us_{statistic}')} over the load{f': {where}' if where else ''}"


def _figure(results: Results, cell: Cell, found: list[list[Capacity]], statistic: Statistic) -> dict:
    names = [one.server for one in found[0]]
    curves = {name: ladders.curve(results, name, cell, statistic) for name in names}
    rungs = {
        name: [
            (number, one, getattr(one, statistic))
            for number, steps in ladders.climbed(results, name, cell)
            for one in steps
            if getattr(one, statistic)
        ]
        for name in names
    }
    bounds = [bound for asked in ladders.slos(results) if (bound := bound_us(asked)) is not None] if statistic == "p99" else []
    most = max(bounds, default=math.inf) * math.exp(MOST_OVER)
    values = [value for of in rungs.values() for _, _, value in of] + bounds
    scale = wording.scale("µs", values)
    loads = [one.load for of in rungs.values() for _, one, _ in of] or [1.0]
    lines = []
    for name in names:
        dots = [
            Point(one.load, scale.of(min(value, most)), "INVALID" if one.unused else "VALID", number)
            for number, one, value in rungs[name]
        ]
        points = curves[name]
        intervals = [(one.load, scale.of(one.low), scale.of(one.high)) for one in points[:: max(1, len(points) // 6)]]
        lines.append(Line(name, [(one.load, scale.of(one.time_us)) for one in points], intervals, dots))
    for place, bound in enumerate(bounds):
        lines.append(Line(None, [(min(loads), scale.of(bound)), (max(loads), scale.of(bound))]))
        for one in found[place]:
            if one.estimate.mean is not None:
                ends = [] if one.estimate.at_least else [end for end in (one.estimate.low, one.estimate.high) if end is not None]
                lines.append(
                    Line(one.server, [(end, scale.of(bound)) for end in ends], marks=[(one.estimate.mean, scale.of(bound))])
                )
    key = "messages per second" if results.climb.over == "rate" else "connections"
    title = _title(results, cell, statistic)
    axis = f"{title.partition(' over the load')[0]} ({scale.unit})"
    return figure_drawing.lines(results, title, key, axis, lines, log=True, log_x=True, asked="the SLO")


def _capacities(results: Results, found: list[list[Capacity]]) -> Table:
    unit = UNITS[results.climb.over]
    rows = []
    for of_slo in found:
        for one in sorted(of_slo, key=lambda one: -(one.estimate.mean or 0.0)):
            estimate = one.estimate
            capacity = _amount(one).partition(" (")[0]
            interval = wording.NONE if estimate.at_least or estimate.low is None else wording.between(estimate.low, estimate.high)
            held = wording.number(one.held) if one.not_held is None else f"not {wording.number(one.not_held)}"
            recovery = wording.NONE if one.recovery_s is None else f"within {one.recovery_s:.3g} s"
            said = one.plateau or (one.recovery if one.recovery_s is None else None) or ""
            rows.append([results.label(one.server), one.slo.text, capacity, interval, str(estimate.repeats), held, recovery, said])
    heads = ["server", "SLO", f"capacity ({unit})", "95 % interval", "ladders", "held for longer", "recovery", "remark"]
    told = [column for column in range(len(heads)) if column < 5 or any(row[column] not in ("", wording.NONE) for row in rows)]
    return Table([heads[column] for column in told], [[row[column] for column in told] for row in rows])


def _shares(results: Results, cell: Cell, found: list[list[Capacity]], statistic: Statistic) -> Table:
    """The time at shares of each capacity."""
    rows = []
    for one in found[0]:
        points = ladders.curve(results, one.server, cell, statistic)
        times = [_at(points, share * one.estimate.mean) if one.estimate.mean else None for share in SHARES]
        rows.append([results.label(one.server), *(wording.scale("µs", [time]).with_unit(time) for time in times)])
    return Table(["server", *(f"at {share:.0%} of its capacity" for share in SHARES)], rows)


def _at(points: list[CurvePoint], load: float) -> float | None:
    """The time at a load that the curve covers."""
    if len(points) < 2 or not points[0].load <= load <= points[-1].load:
        return None
    return float(np.exp(np.interp(math.log(load), np.log([one.load for one in points]), np.log([one.time_us for one in points]))))

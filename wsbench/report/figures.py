"""The figures of an experiment's file, drawn with this campaign's data, each followed by the study's printed numbers.

A figure becomes one block per metric and panel, and one for published numbers, which are texts and never computed with.
`figure_table` defines the kinds.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import TypeAdapter, ValidationError

from wsbench import metrics
from wsbench.analysis import stats, titles, wording
from wsbench.analysis.dataset import Cell
from wsbench.analysis.results import Results
from wsbench.analysis.stats import LEVEL
from wsbench.engine import histogram
from wsbench.experiments.figure_table import FigureTable
from wsbench.records import contained
from wsbench.records.errors import UserError
from wsbench.records.frozen import one_line
from wsbench.report import figure_drawing, figure_time
from wsbench.report.blocks import Block, Table
from wsbench.report.figure_drawing import Line, Point

FEWEST_SIZES = 3  # two points always fit a line
PERCENTILES = (
    ("median", "0.5"),
    ("75 %", "0.75"),
    ("95 %", "0.95"),
    ("98 %", "0.98"),
    ("99 %", "0.99"),
    ("99.9 %", "0.999"),
)
NS_PER_MS = 1e6


def blocks(results: Results) -> list[Block]:
    """The blocks of all `[[figure]]` tables of the experiment, in order."""
    made = []
    for place, asked in enumerate(asked_of(results), 1):
        made += contained.part(
            f"figure {asked.title!r}",
            lambda asked=asked, place=place: _drawn(results, asked, f"figure-{place}"),
            lambda reason, asked=asked, place=place: [Block(f"figure-{place}-missing", f"{asked.title}: not drawn", f"{reason}.")],
        )
        if asked.published is not None:
            made.append(_published(asked, f"figure-{place}-published"))
    return made


def _drawn(results: Results, asked: FigureTable, id_: str) -> list[Block]:
    drawn = DRAWN[asked.kind](results, asked, id_)
    return [*drawn, *_missing(results, asked, id_, bool(drawn))]


def asked_of(results: Results) -> list[FigureTable]:
    """The figures of the file. UserError for an invalid figure or an unknown metric."""
    try:
        tables = TypeAdapter(list[FigureTable]).validate_python(results.experiment.keys.get("figure", []))
    except ValidationError as error:
        raise UserError(f"{results.folder.experiment_toml}: 'figure': {one_line(error)}") from error
    for table in tables:
        metrics.require(table.metrics, f"{results.folder.experiment_toml}: figure {table.title!r}: ")
    return tables


def _missing(results: Results, asked: FigureTable, id_: str, some: bool) -> list[Block]:
    """Metrics that no trial has, each with its first reason."""
    absent = [name for name in asked.metrics if all(trial.value(name) is None for trial in results.trials)]
    if some and not absent:
        return []
    why = [
        f"{titles.title(name)} ({next((trial.reason(name) for trial in results.trials), 'no trial has ended')})" for name in absent
    ]
    who = "No trial has" if absent else "No trial that counts (VALID or SUSPECT) has"
    text = f"{who} a number for it{': ' if why else ''}{'; '.join(why)}."
    return [Block(f"{id_}-missing", f"{asked.title}: not measured" if some else asked.title, text)]


def _published(asked: FigureTable, id_: str) -> Block:
    table = Table(asked.published.head, asked.published.rows) if asked.published.rows else None
    return Block(id_, f"{asked.title}: as published", asked.published.source, table)


# ---- metrics -------------------------------------------------------------------------------------------------------


def _lines(results: Results, asked: FigureTable, id_: str) -> list[Block]:
    """One block per metric and combination of the other keys; bars if no number is swept."""
    key = results.numeric_key
    if key is None:
        return _bars(results, asked, id_)
    panels: dict[tuple, list[Cell]] = {}
    for cell in results.cells:
        panels.setdefault(tuple(item for item in cell if item[0] != key), []).append(cell)
    made = []
    for metric in asked.metrics:
        for cells in panels.values():
            scale = _scale(results, metric, results.cells)
            lines = [_swept(results, name, metric, cells, key, scale) for name in results.names]
            lines = [line for line in lines if line.dots]
            if lines:
                log = figure_drawing.spread_out([point.y for line in lines for point in line.dots])
                name = _title(asked, metric, results.cell_text(cells[0], without=[key]))
                drawing = figure_drawing.lines(results, _said(metric, scale), key, axis(metric, scale), lines, swept=True, log=log)
                table = _swept_table(results, metric, key, cells, scale)
                made.append(_block(f"{id_}-{len(made) + 1}", name, asked, table, drawing))
    return made


def _bars(results: Results, asked: FigureTable, id_: str) -> list[Block]:
    made = []
    for metric in asked.metrics:
        for cell in results.cells:
            scale = _scale(results, metric, [cell])
            rows = [_bar(results, name, metric, cell, scale) for name in results.names]
            if any(dots for *_, dots in rows):
                name = _title(asked, metric, results.cell_text(cell))
                drawing = figure_drawing.bars(results, _said(metric, scale), axis(metric, scale), rows)
                table = Table(["server", scale.unit, f"{LEVEL:.0%} interval"], _bar_rows(results, metric, cell, scale))
                made.append(_block(f"{id_}-{len(made) + 1}", name, asked, table, drawing))
    return made


def _table(results: Results, asked: FigureTable, id_: str) -> list[Block]:
    """All metrics in one table, one row per server and cell."""
    rows = []
    scales = {metric: _scale(results, metric, results.cells) for metric in asked.metrics}
    for cell in results.cells:
        for name in results.names:
            found = [results.estimate(name, cell, metric) for metric in asked.metrics]
            if any(one.values for one in found):
                texts = [_estimate_text(one, scales[metric]) for metric, one in zip(asked.metrics, found, strict=True)]
                rows.append([results.label(name), *([results.cell_text(cell)] if results.swept else []), *texts])
    head = ["server", *(["cell"] if results.swept else []), *(axis(metric, scales[metric]) for metric in asked.metrics)]
    return [Block(id_, asked.title, asked.note or "", Table(head, rows))] if rows else []


def _fit(results: Results, asked: FigureTable, id_: str) -> list[Block]:
    """A line through all trials of a server that count; its slope is the cost of one more of `over`."""
    made = []
    for metric in asked.metrics:
        scale = _scale(results, metric, results.cells)
        lines, rows = [], []
        for name in results.names:
            if pairs := _pairs(results, name, metric, asked.over):
                row, ends = _line(results.label(name), pairs, metrics.METRICS[metric].unit)
                rows.append(row)
                dots = [Point(x, scale.of(y), kind, number) for x, y, kind, number in pairs]
                lines.append(Line(name, [(x, scale.of(y)) for x, y in ends], dots=dots))
        if lines:
            drawing = figure_drawing.lines(results, _said(metric, scale), asked.over, axis(metric, scale), lines, swept=True)
            one = asked.over.removesuffix("s").replace("_", " ")
            head = [
                "server",
                f"for each {one}",
                f"{LEVEL:.0%} interval",
                f"at no {asked.over.replace('_', ' ')}",
                "trials",
            ]
            called = _title(asked, metric, "")
            made.append(_block(f"{id_}-{len(made) + 1}", called, asked, Table(head, rows), drawing))
    return made


def _pairs(results: Results, name: str, metric: str, over: str) -> list[tuple[float, float, str, int]]:
    """(swept number, value, verdict, trial) of the trials that count."""
    counted = [trial for cell in results.cells for trial in results.counted(name, cell, metric)]
    return [
        (trial.record.cell[over], trial.value(metric), trial.kind(metric), trial.record.number)
        for trial in counted
        if over in trial.record.cell and trial.value(metric) is not None
    ]


def _line(label: str, pairs: list[tuple], unit: str) -> tuple[list[str], list[tuple[float, float]]]:
    """The row of the table and the ends of the line, or a reason if there are too few sizes."""
    sizes = sorted({x for x, *_ in pairs})
    if len(sizes) < FEWEST_SIZES:
        reason = f"no line: {wording.count(len(sizes), 'size')}, {FEWEST_SIZES} are needed"
        return [label, wording.NONE, reason, wording.NONE, str(len(pairs))], []
    found = stats.line([x for x, *_ in pairs], [y for _, y, *_ in pairs])
    exact = f"{_signed(found.slope)} {unit}", f"{_signed(found.low)} to {_signed(found.high)}"
    in_unit = wording.scale(unit, [abs(found.intercept)])
    at_none = f"{_signed(in_unit.of(found.intercept))} {in_unit.unit}"
    ends = [(x, found.at(x)[0]) for x in (sizes[0], sizes[-1])]
    return [label, *exact, at_none, str(len(pairs))], ends


def _signed(value: float) -> str:
    return ("−" if value < 0 else "") + wording.number(abs(value))


# ---- histograms ----------------------------------------------------------------------------------------------------


def _percentiles(results: Results, asked: FigureTable, id_: str) -> list[Block]:
    """One row per server and cell over all trials that count: the percentiles of the distribution, in ms."""
    rows = []
    for cell in results.cells:
        for name in results.names:
            merged = results.pooled(name, cell, asked.tag)
            if merged is not None:
                rows.append([results.label(name), *([results.cell_text(cell)] if results.swept else []), *_spread(merged)])
    head = [
        "server",
        *(["cell"] if results.swept else []),
        "count",
        "min",
        "max",
        "mean",
        "stddev",
        *(n for n, _ in PERCENTILES),
    ]
    text = f"{asked.note or ''} Milliseconds, over all repeats of a server.".strip()
    return [Block(id_, asked.title, text, Table(head, rows))] if rows else []


def _spread(found: histogram.Histogram) -> list[str]:
    middles = (found.lower_bounds + found.upper_bounds) / 2
    deviation = math.sqrt(float(np.average((middles - found.mean) ** 2, weights=found.counts)))
    values = [found.min, found.max, found.mean, deviation, *(found.quantile(q) for _, q in PERCENTILES)]
    return [f"{found.count:,}", *(wording.number(value / NS_PER_MS) for value in values)]


def _time(results: Results, asked: FigureTable, id_: str) -> list[Block]:
    return figure_time.blocks(results, asked, id_)


def over_time(results: Results) -> list[int]:
    """Numbers of the trials that a figure draws over time."""
    if not any(asked.kind == "time" for asked in asked_of(results)):
        return []
    return [trial.record.number for trial in results.trials if trial.record.outcome != "failed"]


DRAWN = {"lines": _lines, "bars": _bars, "table": _table, "fit": _fit, "percentiles": _percentiles, "time": _time}


# ---- what they share -----------------------------------------------------------------------------------------------


def axis(metric: str, scale: wording.Scale) -> str:
    return f"{titles.title(metric)} ({scale.unit})"


def _title(asked: FigureTable, metric: str, cell: str) -> str:
    more = [titles.title(metric, inside=True)] if len(asked.metrics) > 1 else []
    return ", ".join([asked.title, *more, *([cell] if cell else [])])


def _block(id_: str, title: str, asked: FigureTable, table: Table, figure: dict) -> Block:
    text = asked.note or "Small marks are trials; hollow marks are INVALID and excluded from means. Lines and bars are means."
    return Block(id_, title, text, table, figure)


def _said(metric: str, scale: wording.Scale) -> str:
    """The description for screen readers."""
    return f"{axis(metric, scale)}, by server; the table has the numbers"


def _scale(results: Results, metric: str, cells: list[Cell]) -> wording.Scale:
    seen = (trial.value(metric) for trial in results.trials if trial.counts_for(metric) and trial.cell in cells)
    return wording.scale(metrics.METRICS[metric].unit, seen)


def _dots(results: Results, name: str, metric: str, cell: Cell, scale: wording.Scale, x: float = 0) -> list[Point]:
    """Every trial that has the metric."""
    trials = [trial for trial in results.group(name, cell) if trial.value(metric) is not None]
    return [Point(x, scale.of(one.value(metric)), one.kind(metric), one.record.number) for one in trials]


def _swept(results: Results, name: str, metric: str, cells: list[Cell], key: str, scale: wording.Scale) -> Line:
    """A server's means over the swept number with intervals, and its trials."""
    points, intervals, dots = [], [], []
    for cell in cells:
        x, found = dict(cell)[key], results.estimate(name, cell, metric)
        dots += _dots(results, name, metric, cell, scale, x)
        if found.mean is not None:
            points.append((x, scale.of(found.mean)))
            intervals.append((x, scale.of(found.low), scale.of(found.high)))
    return Line(name, points, intervals, dots)


def _bar(results: Results, name: str, metric: str, cell: Cell, scale: wording.Scale) -> tuple:
    found = results.estimate(name, cell, metric)
    values = tuple(scale.of(one) for one in (found.mean, found.low, found.high))
    return name, values, scale.mean(found), _dots(results, name, metric, cell, scale)


def _swept_table(results: Results, metric: str, key: str, cells: list[Cell], scale: wording.Scale) -> Table:
    head = ["server", *(f"{key.replace('_', ' ')} {wording.number(dict(cell)[key])}" for cell in cells)]
    rows = []
    for name in results.names:
        texts = [_estimate_text(results.estimate(name, cell, metric), scale) for cell in cells]
        rows.append([results.label(name), *texts])
    return Table(head, rows)


def _bar_rows(results: Results, metric: str, cell: Cell, scale: wording.Scale) -> list[list[str]]:
    found = [(name, results.estimate(name, cell, metric)) for name in results.names]
    return [[results.label(name), scale.mean(one), scale.interval(one) or wording.NONE] for name, one in found]


def _estimate_text(found, scale: wording.Scale) -> str:
    if found.mean is None:
        # No geometric mean where a trial has 0: then the single values say it.
        ends = [scale.text(end(found.values)) for end in (min, max)] if found.values else [wording.NONE]
        return " to ".join(dict.fromkeys(ends))
    interval = scale.interval(found)
    return scale.mean(found) + (f" ({interval})" if interval else "")

"""Charts as Vega-Lite specifications: a metric over servers or over a swept number, percentile curves, rate over
time.

Results in, `Chart` values out: a specification, a caption and the table with the same numbers. Text and lines take
`currentColor`, so that one drawing serves a light and a dark page; a server keeps its colour, dash and shape in every
chart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsbench import metrics
from wsbench.histogram import CURVE_POINTS
from wsbench.report import words
from wsbench.report.results import Cell, Results, curve_points
from wsbench.report.summary import column_scale

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
WIDTH, HEIGHT, ROW = 470, 270, 34
LETTER, LEGEND_MARK = 7, 34  # pixels of a letter and of a legend entry beside its text
LOG_SPAN = 10  # a swept number that spans this factor gets a logarithmic axis
EXACT = ",.6~r"  # with its precision: without one, Vega rounds to the step of the axis and labels 16 as 20
LOG_VALUES = 30  # measured values get one only where a linear axis would hide the small ones
FIRST_THIN = 2  # 1/(1-q): below the median the few points of a thin line would be a false slope
MOST_THIN_LINES = 150  # beyond it the lines of single trials cover each other and fill the file

# Chosen for a contrast of about 3:1 on white and on near-black alike, and apart for the usual kinds of colour
# blindness (after Okabe and Ito). The ninth server takes the first colour again, with another dash and shape.
COLOURS = ("#2a78c2", "#d55e00", "#009e73", "#b65fa0", "#a07800", "#5f66c8", "#7a7a7a", "#c2405a")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")

INK = {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 12, "titleFontSize": 12}
CONFIG = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "view": {"stroke": None},
    "axis": INK
    | {"titleFontWeight": "normal", "domainColor": "currentColor", "tickColor": "currentColor"}
    | {"domainOpacity": 0.35, "tickOpacity": 0.35, "gridColor": "currentColor", "gridOpacity": 0.12, "titlePadding": 8},
    "legend": INK | {"symbolStrokeWidth": 2, "title": None, "labelLimit": 180},
    "text": {"fill": "currentColor"},
}


@dataclass(frozen=True)
class Table:
    """The numbers of a chart: column headings and rows of texts, the first of each row its heading."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Chart:
    """`cell_text` says which panel it is; `description` is read aloud in place of the drawing."""

    title: str
    cell_text: str
    description: str
    spec: dict
    table: Table


def metric_charts(results: Results, metric: str) -> list[Chart]:
    """One metric: lines over the swept number where there is one, else bars by server; a panel for each other cell."""
    key = results.numeric_key
    if key is None:
        charts = [_bars(results, metric, cell) for cell in results.cells]
    else:
        panels: dict[tuple, list[Cell]] = {}
        for cell in results.cells:
            panels.setdefault(tuple(item for item in cell if item[0] != key), []).append(cell)
        charts = [_lines(results, metric, key, cells) for cells in panels.values()]
    return [chart for chart in charts if chart is not None]


def curve_charts(results: Results) -> list[Chart]:
    """Percentile curves in the style of HdrHistogram, a panel a cell."""
    return [chart for cell in results.cells if (chart := _curves(results, cell)) is not None]


def series_charts(results: Results) -> list[Chart]:
    """Replies per second within every trial, a panel a cell."""
    return [chart for cell in results.cells if (chart := _series(results, cell)) is not None]


# ---- a metric by server --------------------------------------------------------------------------------------------


def _bars(results: Results, metric: str, cell: Cell) -> Chart | None:
    by_throughput = sorted(results.names, key=lambda n: -(results.estimate(n, cell, results.throughput).mean or 0))
    scale = column_scale(results, metric)
    points, means = _points(results, metric, [cell], scale), _means(results, metric, [cell], scale, by_throughput)
    if not points:
        return None
    order = [results.label(name) for name in by_throughput]
    axis = f"{words.title(metric)} ({scale.unit})"
    y = {"field": "server", "type": "nominal", "sort": order, "axis": {"title": None, "ticks": False, "domain": False}}
    x = {"type": "quantitative", "title": axis} | _linear()
    colour = _colour(results, legend=False)
    tooltip = [_tip("server"), _tip("mean", axis), _tip("low", "from"), _tip("high", "to"), _tip("repeats")]
    layers = [
        {
            "data": {"values": means},
            "mark": {"type": "bar", "opacity": 0.28, "height": 18, "aria": False},
            "encoding": {"y": y, "x": x | {"field": "mean"}, "color": colour, "tooltip": tooltip},
        },
        _interval_rule(means, {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}, "color": colour}),
        {
            "data": {"values": means},
            "mark": {"type": "tick", "thickness": 3, "size": 18, "aria": False},
            "encoding": {"y": y, "x": x | {"field": "mean"}, "color": colour, "tooltip": tooltip},
        },
        _point_layer(points, {"y": y, "x": x | {"field": "value"}, "color": colour}, axis),
    ]
    table = Table(
        ["server", f"mean ({scale.unit})", "95 % interval", "single trials"],
        [_bar_row(results, metric, name, cell, scale) for name in by_throughput],
    )
    height = ROW * len(order)
    return _chart(results, words.title(metric), results.cell_text(cell), axis, layers, table, height)


def _bar_row(results: Results, metric: str, name: str, cell: Cell, scale: words.Scale) -> list[str]:
    found = results.estimate(name, cell, metric)
    single = ", ".join(scale.text(value) for value in found.values) or words.NONE
    return [results.label(name), scale.text(found.mean), scale.interval(found) or words.NONE, single]


# ---- a metric over a swept number ----------------------------------------------------------------------------------


def _lines(results: Results, metric: str, key: str, cells: list[Cell]) -> Chart | None:
    scale = column_scale(results, metric)
    points, means = _points(results, metric, cells, scale), _means(results, metric, cells, scale, results.names)
    if not points:
        return None
    swept = sorted({dict(cell)[key] for cell in cells})
    axis = f"{words.title(metric)} ({scale.unit})"
    x_axis = {"values": swept, "grid": False, "labelOverlap": True, "format": EXACT}
    x = {
        "field": key,
        "type": "quantitative",
        "title": key.replace("_", " "),
        "scale": _swept_scale(swept),
        "axis": x_axis,
    }
    seen = [row["value"] for row in points]
    log = min(seen) > 0 and max(seen) >= LOG_VALUES * min(seen)
    y = {"type": "quantitative", "title": axis} | (_log(seen) if log else _linear())
    colour = _colour(results, legend=True)
    tooltip = [_tip("server"), _tip(key), _tip("mean", axis), _tip("low", "from"), _tip("high", "to"), _tip("repeats")]
    layers = [
        {
            "data": {"values": means},
            "params": [{"name": "chosen", "select": {"type": "point", "fields": ["server"]}, "bind": "legend"}],
            "mark": {"type": "line", "strokeWidth": 2, "aria": False},
            "encoding": {"x": x, "y": y | {"field": "mean"}, "color": colour, "strokeDash": _dash(results)}
            | {"opacity": _faded(1.0), "tooltip": tooltip},
        },
        _interval_rule(
            means, {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": colour, "opacity": _faded(1.0)}
        ),
        _point_layer(points, {"x": x, "y": y | {"field": "value"}, "color": colour, "opacity": _faded(0.9)}, axis),
    ]
    head = ["server", *(f"{key.replace('_', ' ')} {words.number(value)}" for value in swept)]
    rows = [_line_row(results, metric, name, cells, scale) for name in results.names]
    text = results.cell_text(cells[0], without=[key])
    return _chart(results, words.title(metric), text, f"{axis} over {key}", layers, Table(head, rows), HEIGHT)


def _line_row(results: Results, metric: str, name: str, cells: list[Cell], scale: words.Scale) -> list[str]:
    texts = []
    for cell in cells:
        found = results.estimate(name, cell, metric)
        interval = scale.interval(found)
        texts.append(scale.text(found.mean) + (f" ({interval})" if interval else ""))
    return [results.label(name), *texts]


# ---- curves and series ---------------------------------------------------------------------------------------------


def _curves(results: Results, cell: Cell) -> Chart | None:
    prefix = results.latency
    scale = column_scale(results, f"{prefix}_p99")
    in_unit = metrics.NS_PER_US * scale.size
    trials = [trial for trial in results.trials if trial.cell == cell and trial.counts]
    pooled = [
        {"server": results.label(name), "x": _short(x), "value": _short(ns / in_unit)}
        for name in results.names
        if (name, cell) in results.pooled
        for x, ns in curve_points(results.pooled[name, cell], CURVE_POINTS)
    ]
    if not pooled:
        return None
    thin = [
        {
            "server": results.label(trial.record.name),
            "trial": trial.record.number,
            "x": _short(x),
            "value": _short(ns / in_unit),
        }
        for trial in trials
        for x, ns in trial.curve
        if x >= FIRST_THIN
    ]
    if sum(1 for trial in results.trials if trial.counts) > MOST_THIN_LINES:
        thin = []
    axis = f"{words.TIMES[prefix.partition('_')[0]].capitalize()} ({scale.unit})"
    x = {"field": "x", "type": "quantitative", "title": "share of messages served within", "scale": {"type": "log"}}
    x["scale"] |= {"nice": False, "domain": [1, max(row["x"] for row in pooled)]}
    x["axis"] = {"values": [1, 2, *(10**n for n in range(1, 10))], "labelExpr": _percentile_labels(), "grid": True}
    x["axis"] |= {"labelOverlap": True, "labelFlush": False}
    y = {"field": "value", "type": "quantitative", "title": axis} | _log([row["value"] for row in pooled + thin])
    colour = _colour(results, legend=True)
    layers = [
        {
            "data": {"values": pooled},
            "params": [{"name": "chosen", "select": {"type": "point", "fields": ["server"]}, "bind": "legend"}],
            "mark": {"type": "line", "strokeWidth": 2.2, "aria": False},
            "encoding": {"x": x, "y": y, "color": colour, "strokeDash": _dash(results), "opacity": _faded(1.0)}
            | {"tooltip": [_tip("server"), _tip("value", axis)]},
        },
        {
            "data": {"values": thin},
            "mark": {"type": "line", "strokeWidth": 0.8, "aria": False},
            "encoding": {"x": x, "y": y, "color": colour, "detail": {"field": "trial"}, "opacity": _faded(0.45)},
        },
    ]
    names = [f"{prefix}_{s}" for s in ("p50", "p90", "p99", "p999", "max") if f"{prefix}_{s}" in metrics.METRICS]
    head = ["server", *(f"{words.STATISTICS[name.rpartition('_')[2]]} ({scale.unit})" for name in names)]
    rows = [
        [results.label(n), *(scale.text(results.estimate(n, cell, name).mean) for name in names)] for n in results.names
    ]
    return _chart(results, "Percentiles", results.cell_text(cell), f"{axis} by percentile", layers, Table(head, rows))


def _percentile_labels() -> str:
    labels = {1: "0 %", 2: "50 %", 10: "90 %"} | {10**n: f"99.{'9' * (n - 2)}".rstrip(".") + " %" for n in range(2, 10)}
    return " : ".join(f"datum.value == {value} ? '{text}'" for value, text in labels.items()) + " : ''"


def _series(results: Results, cell: Cell) -> Chart | None:
    trials = [trial for trial in results.trials if trial.cell == cell and trial.counts and len(trial.series) >= 3]
    if not trials:
        return None
    unit = metrics.METRICS[results.throughput].unit
    rows = [
        {
            "server": results.label(t.record.name),
            "trial": t.record.number,
            "second": round(second, 3),
            "rate": _short(rate),
        }
        for t in trials
        for second, rate in t.series
    ]
    x = {"field": "second", "type": "quantitative", "title": "second of the measured window", "axis": {"grid": False}}
    y = {"field": "rate", "type": "quantitative", "title": f"Throughput ({unit})"} | _linear()
    layer = {
        "data": {"values": rows},
        "params": [{"name": "chosen", "select": {"type": "point", "fields": ["server"]}, "bind": "legend"}],
        "mark": {"type": "line", "strokeWidth": 1.2, "aria": False},
        "encoding": {"x": x, "y": y, "detail": {"field": "trial"}, "color": _colour(results, legend=True)}
        | {"opacity": _faded(0.8), "tooltip": [_tip("server"), _tip("trial"), _tip("rate", unit)]},
    }
    table = Table(
        ["trial", "server", f"lowest ({unit})", f"highest ({unit})"],
        [[f"{t.record.number:04}", results.label(t.record.name), *_extremes(t.series)] for t in trials],
    )
    return _chart(results, "Throughput over time", results.cell_text(cell), "Throughput of each second", [layer], table)


def _extremes(series: list[tuple[float, float]]) -> list[str]:
    rates = [rate for _, rate in series]
    return [words.number(min(rates)), words.number(max(rates))]


# ---- what they share -----------------------------------------------------------------------------------------------


def _points(results: Results, metric: str, cells: list[Cell], scale: words.Scale) -> list[dict]:
    return [
        {"server": results.label(trial.record.name), **dict(trial.cell)}
        | {"value": _short(scale.of(trial.values[metric])), "verdict": trial.verdict.kind}
        | {"trial": trial.record.number, "round": trial.record.round}
        for trial in results.trials
        if trial.counts and trial.cell in cells and trial.values[metric] is not None
    ]


def _means(results: Results, metric: str, cells: list[Cell], scale: words.Scale, names: list[str]) -> list[dict]:
    rows = []
    for cell in cells:
        for name in names:
            found = results.estimate(name, cell, metric)
            if found.mean is not None:
                bounds = {key: _short(scale.of(getattr(found, key))) for key in ("mean", "low", "high")}
                rows.append({"server": results.label(name), **dict(cell), **bounds, "repeats": found.repeats})
    return rows


def _interval_rule(means: list[dict], encoding: dict) -> dict:
    known = [row for row in means if row["low"] is not None]
    return {"data": {"values": known}, "mark": {"type": "rule", "strokeWidth": 2, "aria": False}, "encoding": encoding}


def _point_layer(points: list[dict], encoding: dict, axis: str) -> dict:
    """Single trials; a hollow point is SUSPECT."""
    filled = {"condition": {"test": "datum.verdict == 'VALID'", "value": 0.75}, "value": 0}
    tooltip = [_tip("server"), _tip("trial"), _tip("round"), _tip("value", axis), _tip("verdict")]
    mark = {"type": "point", "filled": False, "size": 34, "strokeWidth": 1.4, "aria": False}
    own = {"fill": encoding["color"], "fillOpacity": filled, "tooltip": tooltip}
    return {"data": {"values": points}, "mark": mark, "encoding": encoding | own}


def _colour(results: Results, legend: bool) -> dict:
    names = [results.label(name) for name in results.names]
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(names))]
    widest = LEGEND_MARK + LETTER * max(map(len, names))
    shown = {"orient": "bottom", "columns": max(1, WIDTH // widest), "symbolType": "stroke"} if legend else None
    return {"field": "server", "type": "nominal", "scale": {"domain": names, "range": colours}, "legend": shown}


def _dash(results: Results) -> dict:
    names = [results.label(name) for name in results.names]
    dashes = [DASHES[place // len(COLOURS) % len(DASHES)] for place in range(len(names))]
    return {"field": "server", "type": "nominal", "scale": {"domain": names, "range": dashes}}


def _short(value: float | None) -> float | None:
    """Six digits are more than a drawing shows; the file has each of them twice."""
    return None if value is None else float(f"{value:.6g}")


def _linear() -> dict:
    return {"scale": {"zero": True}, "axis": {"tickCount": 5, "format": ",~f"}}


def _log(values: list[float]) -> dict:
    """A logarithmic scale that ends at the data, with labels at 1, 2 and 5 or, over a wide span, at powers of ten."""
    low, high = min(values) / 1.15, max(values) * 1.15
    steps = (1, 2, 5) if high < 200 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    at = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    return {"scale": {"type": "log", "nice": False, "domain": [low, high]}, "axis": {"values": at, "format": EXACT}}


def _swept_scale(swept: list[float]) -> dict:
    if swept[0] > 0 and swept[-1] >= LOG_SPAN * swept[0]:
        return {"type": "log", "nice": False, "domain": [swept[0] / 1.2, swept[-1] * 1.2]}
    margin = (swept[-1] - swept[0]) * 0.05
    return {"nice": False, "zero": False, "domain": [swept[0] - margin, swept[-1] + margin]}


def _faded(opacity: float) -> dict:
    """A server chosen in the legend stands out from the others."""
    return {"condition": {"param": "chosen", "value": opacity, "empty": True}, "value": 0.08}


def _tip(field: str, title: str | None = None) -> dict:
    numeric = field in ("value", "mean", "low", "high", "rate")
    return {"field": field, "title": title or field} | ({"type": "quantitative", "format": ",.4~r"} if numeric else {})


def _chart(results, title: str, cell_text: str, what: str, layers: list[dict], table: Table, height=HEIGHT) -> Chart:
    servers = words.listed([results.label(name) for name in results.names])
    description = f"{what}{', ' + cell_text if cell_text else ''}, for {servers}. The table below has the numbers."
    spec = {
        "$schema": SCHEMA,
        "description": description,
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": layers,
        "config": CONFIG,
    }
    return Chart(title, cell_text, description, spec, table)

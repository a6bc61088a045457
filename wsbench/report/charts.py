"""Charts as Vega-Lite specifications: a metric over servers or over a swept number, percentile curves, rate over
time.

Results in, `Chart` values out: a specification, a caption and the table with the same numbers. Text and lines take
`currentColor`, so that one drawing serves a light and a dark page; a server keeps its look (`palette`) in every chart.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsbench import metrics
from wsbench.histogram import CURVE_POINTS
from wsbench.report import marks, words
from wsbench.report.results import THIN_POINTS, Cell, Results, TrialResult, curve_points
from wsbench.report.summary import column_scale

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
HEIGHT, ROW = 270, 34
LOG_VALUES = 30  # measured values get one only where a linear axis would hide the small ones
FIRST_THIN = 2  # 1/(1-q): below the median the few points of a thin line would be a false slope
MOST_THIN_LINES = 150  # beyond it the lines of single trials cover each other and fill the file
MOST_CURVE_POINTS = 2_000  # of all servers in a panel; each line has THIN_POINTS or more of them
MARKED = (2, 10, 100, 1000)  # 1/(1-q) where a curve has its server's shape

INK = {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 12, "titleFontSize": 12}
CONFIG = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "view": {"stroke": None},
    "axis": INK
    | {"titleFontWeight": "normal", "domainColor": "currentColor", "tickColor": "currentColor"}
    | {
        "labelLimit": 260,
        "domainOpacity": 0.35,
        "tickOpacity": 0.35,
        "gridColor": "currentColor",
        "gridOpacity": 0.12,
        "titlePadding": 8,
    },
    "legend": INK | {"symbolStrokeWidth": 2, "title": None, "labelLimit": 260, "symbolLimit": 200},
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
    x = {"type": "quantitative", "title": axis} | marks.linear()
    colour = marks.colour(results, legend=False)
    tooltip = [
        marks.tip("server"),
        marks.tip("mean", axis),
        marks.tip("low", "from"),
        marks.tip("high", "to"),
        marks.tip("repeats"),
    ]
    layers = [
        {
            "data": {"name": "means"},
            "mark": {"type": "bar", "opacity": 0.28, "height": 18, "aria": False},
            "encoding": {"y": y, "x": x | {"field": "mean"}, "color": colour, "tooltip": tooltip},
        },
        marks.interval_rule({"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}, "color": colour}),
        {
            "data": {"name": "means"},
            "mark": {"type": "tick", "thickness": 3, "size": 18, "aria": False},
            "encoding": {"y": y, "x": x | {"field": "mean"}, "color": colour, "tooltip": tooltip},
        },
        *marks.point_layers(results, points, {"y": y, "x": x | {"field": "value"}, "color": colour}, axis),
    ]
    data = {"means": means, "points": points}
    table = Table(
        ["server", f"mean ({scale.unit})", "95 % interval", "single trials"],
        [_bar_row(results, metric, name, cell, scale) for name in by_throughput],
    )
    height = ROW * len(order)
    return _chart(results, words.title(metric), results.cell_text(cell), axis, layers, table, data, height)


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
    x_axis = {"values": swept, "grid": False, "labelOverlap": True, "format": marks.EXACT}
    x = {
        "field": key,
        "type": "quantitative",
        "title": key.replace("_", " "),
        "scale": marks.swept_scale(swept),
        "axis": x_axis,
    }
    seen = [row["value"] for row in points]
    log = min(seen) > 0 and max(seen) >= LOG_VALUES * min(seen)
    y = {"type": "quantitative", "title": axis} | (marks.log(seen) if log else marks.linear())
    colour = marks.colour(results, legend=True)
    tooltip = [
        marks.tip("server"),
        marks.tip(key),
        marks.tip("mean", axis),
        marks.tip("low", "from"),
        marks.tip("high", "to"),
        marks.tip("repeats"),
    ]
    layers = [
        {
            "data": {"name": "means"},
            "params": [{"name": "chosen", "select": {"type": "point", "fields": ["server"]}, "bind": "legend"}],
            "mark": {"type": "line", "strokeWidth": 2, "aria": False},
            "encoding": {"x": x, "y": y | {"field": "mean"}, "color": colour, "strokeDash": marks.dash(results)}
            | {"opacity": marks.faded(1.0), "tooltip": tooltip},
        },
        marks.interval_rule(
            {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": colour, "opacity": marks.faded(1.0)}
        ),
        *marks.point_layers(
            results, points, {"x": x, "y": y | {"field": "value"}, "color": colour, "opacity": marks.faded(0.9)}, axis
        ),
    ]
    head = ["server", *(f"{key.replace('_', ' ')} {words.number(value)}" for value in swept)]
    rows = [_line_row(results, metric, name, cells, scale) for name in results.names]
    text = results.cell_text(cells[0], without=[key])
    data = {"means": means, "points": points}
    return _chart(results, words.title(metric), text, f"{axis} over {key}", layers, Table(head, rows), data)


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
    drawn = [name for name in results.names if (name, cell) in results.pooled]
    each = max(THIN_POINTS, min(CURVE_POINTS, MOST_CURVE_POINTS // max(1, len(drawn))))
    pooled = [
        {"server": results.label(name), "x": marks.short(x), "value": marks.short(ns / in_unit)}
        for name in drawn
        for x, ns in curve_points(results.pooled[name, cell], each)
    ]
    if not pooled:
        return None
    thin = [
        {
            "server": results.label(trial.record.name),
            "trial": trial.record.number,
            "x": marks.short(x),
            "value": marks.short(ns / in_unit),
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
    y = {"field": "value", "type": "quantitative", "title": axis} | marks.log([row["value"] for row in pooled + thin])
    colour = marks.colour(results, legend=True)
    layers = [
        {
            "data": {"name": "pooled"},
            "params": [{"name": "chosen", "select": {"type": "point", "fields": ["server"]}, "bind": "legend"}],
            "mark": {"type": "line", "strokeWidth": 2.2, "aria": False},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour,
                "strokeDash": marks.dash(results),
                "opacity": marks.faded(1.0),
            }
            | {"tooltip": [marks.tip("server"), marks.tip("value", axis)]},
        },
        {
            "data": {"name": "thin"},
            "mark": {"type": "line", "strokeWidth": 0.8, "aria": False},
            "encoding": {"x": x, "y": y, "color": colour, "detail": {"field": "trial"}, "opacity": marks.faded(0.45)},
        },
        {
            "data": {"name": "marked"},
            "mark": {"type": "point", "filled": True, "size": 42, "aria": False},
            "encoding": {"x": x, "y": y, "color": colour, "shape": marks.shape(results), "opacity": marks.faded(1.0)},
        },
    ]
    marked = [
        {
            "server": results.label(name),
            "x": x,
            "value": marks.short(results.pooled[name, cell].quantile(1 - 1 / x) / in_unit),
        }
        for name in drawn
        for x in MARKED
        if results.pooled[name, cell].count >= x
    ]
    names = [f"{prefix}_{s}" for s in ("p50", "p90", "p99", "p999", "max") if f"{prefix}_{s}" in metrics.METRICS]
    head = ["server", *(f"{words.STATISTICS[name.rpartition('_')[2]]} ({scale.unit})" for name in names)]
    rows = [
        [results.label(n), *(scale.text(results.estimate(n, cell, name).mean) for name in names)] for n in results.names
    ]
    data = {"pooled": pooled, "thin": thin, "marked": marked}
    return _chart(
        results, "Percentiles", results.cell_text(cell), f"{axis} by percentile", layers, Table(head, rows), data
    )


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
            "rate": marks.short(rate),
        }
        for t in trials
        for second, rate in t.series
    ]
    x = {"field": "second", "type": "quantitative", "title": "second of the measured window", "axis": {"grid": False}}
    y = {"field": "rate", "type": "quantitative", "title": f"Throughput ({unit})"} | marks.linear()
    layer = {
        "data": {"name": "seconds"},
        "params": [{"name": "chosen", "select": {"type": "point", "fields": ["server"]}, "bind": "legend"}],
        "mark": {"type": "line", "strokeWidth": 1.2, "aria": False},
        "encoding": {
            "x": x,
            "y": y,
            "detail": {"field": "trial"},
            "color": marks.colour(results, legend=True, **marks.AS_LINE),
        }
        | {
            "strokeDash": marks.dash(results, **marks.AS_LINE),
            "opacity": marks.faded(0.8),
            "tooltip": [marks.tip("server"), marks.tip("trial"), marks.tip("rate", unit)],
        },
    }
    table = _series_table(results, trials, unit)
    what, data = "Throughput of each second", {"seconds": rows}
    return _chart(results, "Throughput over time", results.cell_text(cell), what, [layer], table, data)


def _series_table(results: Results, trials: list[TrialResult], unit: str) -> Table:
    """The extremes of every trial; of every server's trials together where there are too many to read."""
    extremes = [f"lowest ({unit})", f"highest ({unit})"]
    if len(trials) <= MOST_THIN_LINES:
        rows = [[f"{t.record.number:04}", results.label(t.record.name), *_extremes(t.series)] for t in trials]
        return Table(["trial", "server", *extremes], rows)
    names = [name for name in results.names if any(t.record.name == name for t in trials)]
    together = [[pair for t in trials if t.record.name == name for pair in t.series] for name in names]
    rows = [[results.label(name), *_extremes(series)] for name, series in zip(names, together, strict=True)]
    return Table(["server", *extremes], rows)


def _extremes(series: list[tuple[float, float]]) -> list[str]:
    rates = [rate for _, rate in series]
    return [words.number(min(rates)), words.number(max(rates))]


# ---- what they share -----------------------------------------------------------------------------------------------


def _points(results: Results, metric: str, cells: list[Cell], scale: words.Scale) -> list[dict]:
    """Every trial that has the number, INVALID ones as well: they are drawn, and part of no mean."""
    return [
        {"server": results.label(trial.record.name), **dict(trial.cell)}
        | {"value": marks.short(scale.of(trial.values[metric])), "verdict": trial.verdict.kind}
        | {"trial": trial.record.number, "round": trial.record.round}
        for trial in results.trials
        if trial.cell in cells and trial.values[metric] is not None
    ]


def _means(results: Results, metric: str, cells: list[Cell], scale: words.Scale, names: list[str]) -> list[dict]:
    rows = []
    for cell in cells:
        for name in names:
            found = results.estimate(name, cell, metric)
            if found.mean is not None:
                bounds = {key: marks.short(scale.of(getattr(found, key))) for key in ("mean", "low", "high")}
                rows.append({"server": results.label(name), **dict(cell), **bounds, "repeats": found.repeats})
    return rows


def _chart(
    results, title: str, cell_text: str, what: str, layers: list[dict], table: Table, data, height=HEIGHT
) -> Chart:
    """`data` has the rows of each data set that the layers name."""
    servers = words.listed([results.label(name) for name in results.names])
    description = f"{what}{', ' + cell_text if cell_text else ''}, for {servers}. The table below has the numbers."
    spec = {
        "$schema": SCHEMA,
        "description": description,
        "width": marks.WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "datasets": data,
        "layer": layers,
        "config": CONFIG,
    }
    return Chart(title, cell_text, description, spec, table)

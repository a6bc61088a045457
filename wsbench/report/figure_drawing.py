"""A figure as a still SVG: values and looks in, a Vega-Lite specification and its drawing out.

Text and lines take `currentColor`, so that one drawing serves a light and a dark page; a server keeps its look in every
figure. It knows no metric and no file.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass

import vl_convert
from markupsafe import Markup

from wsbench.analysis.results import Results
from wsbench.report.palette import looks_by_name

WIDTH, HEIGHT, BAR = 620, 270, 26
SPAN = 10  # a swept number that spans this factor gets a logarithmic axis
LOG_VALUES = 30  # values get one only where a linear axis would hide the small ones
INK = {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 12, "titleFontSize": 12}
AXIS = {"domainColor": "currentColor", "tickColor": "currentColor", "gridColor": "currentColor", "gridOpacity": 0.12}
CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": INK | AXIS | {"titleFontWeight": "normal", "labelLimit": 260},
    "legend": INK | {"title": None, "labelLimit": 260, "symbolLimit": 200, "orient": "bottom"},
}
#: All legends of a drawing must agree, or Vega-Lite shows none: they are the lines'.
LEGEND = {
    "orient": "bottom",
    "columns": 3,
    "columnPadding": 30,
    "symbolType": "stroke",
    "symbolStrokeWidth": 2,
    "symbolOpacity": 1,
}
#: The attributes that hold places; a tenth of a pixel is less than a reader sees. Names and numbers in texts are never cut short.
GEOMETRY = re.compile(r'(?<=[ ])(?:d|transform|width|height|x|y|x[12]|y[12])="[-\d.,a-zA-Z() ]*"(?=[^<]*>)')
#: Single points have no name of their own for a screen reader: there are hundreds, and the tables have them all.
UNNAMED = {"aria": False}
FILL = [{"test": f"datum.verdict == '{kind}'", "value": fill} for kind, fill in (("VALID", 0.75), ("SUSPECT", 0.25))]


@dataclass(frozen=True)
class Row:
    """A mean with its interval, or a point of a line."""

    server: str
    x: float
    y: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Point:
    """A single trial, or a second of one."""

    server: str
    x: float
    y: float
    verdict: str


def lines(results: Results, key: str, axis: str, rows: list[Row], points: list[Point]) -> Markup:
    """Means over a swept number, with intervals and single trials."""
    values = [point.y for point in points]
    log = min(values) > 0 and max(values) >= LOG_VALUES * min(values)
    x, y = _x(key, [point.x for point in points]), _y(axis, log)
    colour = _look(results, "colour", [row.server for row in rows] + [point.server for point in points])
    rule = {"mark": {"type": "rule", "strokeWidth": 2}, "transform": [{"filter": "isValid(datum.low)"}]}
    layers = [
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {"x": x, "y": y, "color": colour, "strokeDash": _dash(results, colour)},
        },
        rule | {"encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": colour}},
    ]
    of_means = [layer | {"data": {"name": "rows"}} for layer in layers]
    return _drawing([*of_means, _points(x, y, colour)], rows, points, HEIGHT)


def bars(results: Results, axis: str, rows: list[Row], points: list[Point]) -> Markup:
    """Means by server, the largest first, with intervals and single trials."""
    order = [row.server for row in sorted(rows, key=lambda row: -row.y)]
    order += [name for name in dict.fromkeys(point.server for point in points) if name not in order]
    y = {"field": "server", "type": "nominal", "sort": order, "axis": {"title": None, "ticks": False}}
    x = {"field": "y", "type": "quantitative", "title": axis, "scale": {"zero": True}}
    colour = _look(results, "colour", order) | {"legend": None}
    of_means = [
        {"mark": {"type": "bar", "opacity": 0.35, "height": 16}, "encoding": {"x": x, "y": y, "color": colour}},
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "transform": [{"filter": "isValid(datum.low)"}],
            "encoding": {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y, "color": colour},
        },
    ]
    layers = [layer | {"data": {"name": "rows"}} for layer in of_means]
    return _drawing([*layers, _points(x, y, colour)], rows, points, BAR * len(order))


def fit(results: Results, key: str, axis: str, ends: list[Row], points: list[Point]) -> Markup:
    """Single trials and the straight line through them."""
    x = _x(key, [point.x for point in points]) | {"scale": {"zero": True}}
    y, colour = _y(axis, False), _look(results, "colour", [point.server for point in points])
    line = {"data": {"name": "rows"}, "mark": {"type": "line", "strokeWidth": 1.6}}
    line["encoding"] = {"x": x, "y": y, "color": colour, "strokeDash": _dash(results, colour)}
    return _drawing([line, _points(x, y, colour)], ends, points, HEIGHT)


def over_time(
    results: Results, axis: str, trend: list[Row], seconds: list[Point], steps: list[Row] = (), log=False
) -> Markup:
    """A line a server over the seconds of the run; `seconds` are its single points, `steps` what was asked for."""
    x = {"field": "x", "type": "quantitative", "title": "seconds of the measured phase", "axis": {"grid": False}}
    y = _y(axis, log)
    colour = _look(results, "colour", [row.server for row in trend] + [point.server for point in seconds])
    asked = {"type": "line", "interpolate": "linear", "strokeDash": [3, 3], "color": "currentColor", "strokeWidth": 1.2}
    layers = [
        {
            "data": {"name": "points"},
            "mark": {"type": "circle", "size": 9, "opacity": 0.3} | UNNAMED,
            "encoding": {"x": x, "y": y, "color": colour},
        },
        {"data": {"name": "steps"}, "mark": asked, "encoding": {"x": x, "y": y, "order": {"field": "low"}}},
        {
            "data": {"name": "rows"},
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour,
                "strokeDash": _dash(results, colour),
                "detail": {"field": "low"},
            },
        },
    ]
    return _drawing(layers, trend, seconds, HEIGHT, list(steps))


# ---- parts ---------------------------------------------------------------------------------------------------------


def _points(x: dict, y: dict, colour: dict) -> dict:
    mark = {"type": "point", "filled": False, "size": 30, "strokeWidth": 1.3} | UNNAMED
    fill = {"fill": colour, "fillOpacity": {"condition": FILL, "value": 0}}
    return {"data": {"name": "points"}, "mark": mark, "encoding": {"x": x, "y": y, "stroke": colour} | fill}


def _x(key: str, seen: list[float]) -> dict:
    wide = min(seen) > 0 and max(seen) >= SPAN * min(seen)
    scale = {"type": "log", "nice": False} if wide else {"zero": False}
    values = {"values": sorted(set(seen)), "grid": False, "labelOverlap": True, "format": ",.6~r"}
    return {"field": "x", "type": "quantitative", "title": key.replace("_", " "), "scale": scale, "axis": values}


def _y(axis: str, log: bool) -> dict:
    scale = {"type": "log"} if log else {"zero": True}
    return {
        "field": "y",
        "type": "quantitative",
        "title": axis,
        "scale": scale,
        "axis": {"tickCount": 6, "format": ",.6~r"},
    }


def _look(results: Results, of: str, shown: list[str]) -> dict:
    """One property of the look of every server that is shown, the same as in every other figure."""
    found = looks_by_name(results.names, {row.name: row.language for row in results.servers})
    by_label = {results.label(name): getattr(look, of) for name, look in found.items()}
    names = [name for name in by_label if name in set(shown)]
    scale = {"domain": names, "range": [by_label[name] for name in names]}
    return {"field": "server", "type": "nominal", "scale": scale, "legend": LEGEND}


def _dash(results: Results, colour: dict) -> dict:
    return _look(results, "dash", colour["scale"]["domain"])


def _drawing(layers: list[dict], rows: list[Row], points: list[Point], height: int, steps: list[Row] = ()) -> Markup:
    sets = {"rows": rows, "points": points, "steps": steps}
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "datasets": {name: [asdict(value) for value in values] for name, values in sets.items()},
        "layer": layers,
        "config": CONFIG,
    }
    svg = vl_convert.vegalite_to_svg(spec)
    # Every drawing counts its clip paths from 0; a page has many.
    own = "f" + hashlib.sha256(json.dumps(spec).encode()).hexdigest()[:8]
    svg = re.sub(r'(id="|url\(#)(clip|gradient)_?(\d+)', rf"\g<1>{own}-\g<2>\g<3>", svg)
    return Markup(GEOMETRY.sub(lambda attribute: re.sub(r"(\.\d)\d+", r"\1", attribute[0]), svg))

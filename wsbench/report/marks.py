"""The parts of a Vega-Lite specification that charts share: marks of trials and intervals, how a server looks, axes, tooltips.

Results and numbers in, pieces of specifications out. It reads no trial's values: charts do.
"""

from __future__ import annotations

import math

from wsbench.report.palette import looks
from wsbench.report.results import Results

WIDTH = 470
LETTER, LEGEND_MARK = 7, 34  # pixels of a letter and of a legend entry beside its text
LOG_SPAN = 10  # a swept number that spans this factor gets a logarithmic axis
EXACT = ",.6~r"  # with its precision: without one, Vega rounds to the step of the axis and labels 16 as 20
MOST_NAMED = 12  # INVALID trials that are named in the drawing; more names would cover it


def interval_rule(encoding: dict) -> dict:
    known = [{"filter": "isValid(datum.low)"}]
    rule = {"type": "rule", "strokeWidth": 2, "aria": False}
    return {"data": {"name": "means"}, "transform": known, "mark": rule, "encoding": encoding}


def point_layers(results: Results, points: list[dict], encoding: dict, axis: str) -> list[dict]:
    """Single trials: filled VALID, pale SUSPECT, hollow INVALID and named, as far as names fit."""
    filled = [
        {"test": f"datum.verdict == '{kind}'", "value": fill} for kind, fill in (("VALID", 0.75), ("SUSPECT", 0.25))
    ]
    tooltip = [tip("server"), tip("trial"), tip("round"), tip("value", axis), tip("verdict")]
    own = {"shape": shape(results, "x" in encoding and "opacity" in encoding), "fill": encoding["color"]}
    own |= {"fillOpacity": {"condition": filled, "value": 0}, "tooltip": tooltip}
    mark = {"type": "point", "filled": False, "size": 34, "strokeWidth": 1.4, "aria": False}
    layers = [{"data": {"name": "points"}, "mark": mark, "encoding": encoding | own}]
    if 0 < sum(point["verdict"] == "INVALID" for point in points) <= MOST_NAMED:
        place = {key: encoding[key] for key in ("x", "y")}
        layers.append(
            {
                "data": {"name": "points"},
                "transform": [{"filter": "datum.verdict == 'INVALID'"}],
                "mark": {"type": "text", "align": "left", "dx": 6, "dy": -5, "fontSize": 10, "aria": False},
                "encoding": place | {"text": {"field": "name"}},
            }
        )
        layers[-1]["transform"].append({"calculate": "'INVALID ' + format(datum.trial, '04d')", "as": "name"})
    return layers


def look(results: Results, of: str) -> dict:
    """One property of every server's look as a scale, the same in every chart."""
    language = {row.name: row.language for row in results.servers}
    found = looks([language.get(name, name) for name in results.names])
    names = [results.label(name) for name in results.names]
    values = [getattr(look, of) for look in found]
    return {"field": "server", "type": "nominal", "scale": {"domain": names, "range": values}}


#: How a legend shows a server that has no shape in its chart; all legends of a chart must agree.
AS_LINE = {"symbolType": "stroke", "symbolStrokeWidth": 2}


def legend_of(results: Results, **more) -> dict:
    """Symbols without an outline: a dashed one makes a small shape ragged."""
    widest = LEGEND_MARK + LETTER * max(len(results.label(name)) for name in results.names)
    return {"orient": "bottom", "columns": max(1, WIDTH // widest), "symbolStrokeWidth": 0} | more


def colour(results: Results, legend: bool, **more) -> dict:
    return look(results, "colour") | {"legend": legend_of(results, **more) if legend else None}


def dash(results: Results, **more) -> dict:
    return look(results, "dash") | {"legend": legend_of(results, **more)}


def shape(results: Results, legend: bool = True) -> dict:
    return look(results, "shape") | {"legend": legend_of(results) if legend else None}


def linear() -> dict:
    return {"scale": {"zero": True}, "axis": {"tickCount": 5, "format": ",~f"}}


def log(values: list[float]) -> dict:
    """A logarithmic scale that ends at the data, with labels at 1, 2 and 5 or, over a wide span, at powers of ten."""
    low, high = min(values) / 1.15, max(values) * 1.15
    steps = (1, 2, 5) if high < 200 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    at = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    return {"scale": {"type": "log", "nice": False, "domain": [low, high]}, "axis": {"values": at, "format": EXACT}}


def swept_scale(swept: list[float]) -> dict:
    if swept[0] > 0 and swept[-1] >= LOG_SPAN * swept[0]:
        return {"type": "log", "nice": False, "domain": [swept[0] / 1.2, swept[-1] * 1.2]}
    margin = (swept[-1] - swept[0]) * 0.05
    return {"nice": False, "zero": False, "domain": [swept[0] - margin, swept[-1] + margin]}


def faded(opacity: float) -> dict:
    """A server chosen in the legend stands out from the others."""
    return {"condition": {"param": "chosen", "value": opacity, "empty": True}, "value": 0.08}


def tip(field: str, title: str | None = None) -> dict:
    numeric = field in ("value", "mean", "low", "high", "rate")
    return {"field": field, "title": title or field} | ({"type": "quantitative", "format": ",.4~r"} if numeric else {})


def short(value: float | None) -> float | None:
    """Four digits: as many as a tooltip shows, and more than a drawing does."""
    return None if value is None else float(f"{value:.4g}")

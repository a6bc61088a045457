"""A chart as it stands in the page: a still drawing for readers without scripts, and its specification with the data once.

A `Chart` in, SVG text and a compact specification out. Charts of a thousand trials repeat few things often: the same point
mark, the same names, empty frames around lines. Each is written once here; nothing that is seen changes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import vl_convert
from markupsafe import Markup

from wsbench.report.charts import Chart

# What is never painted: a frame without fill or stroke, and an empty foreground.
UNPAINTED = re.compile(
    r'<path class="(?:background|foreground)"(?: aria-hidden="true"| pointer-events="none"| d="[^"]*"| display="none")*/>'
)
LINE_FRAME = r'<g transform="translate\(0,0\)"><g><g class="mark-line role-mark (layer_\d+)_marks" aria-hidden="true">'
LINES = re.compile(
    rf"{LINE_FRAME}<path [^>]*/></g></g></g>(?:<g [^>]*><g><g [^>]*\1_marks[^>]*><path [^>]*/></g></g></g>)+"
)
# What is so without saying, or is said by the page's style, or to nobody: the drawing as a whole is one image.
UNSAID = re.compile(
    r' opacity="1"| stroke-dasharray="1,0"| font-family="[^"]*"| pointer-events="none"| role="graphics-[a-z]+"'
    r'| aria-roledescription="[^"]*"|(?<=legend-label|egend-symbol) [a-z]+_legend_[a-z]+(?=")'
)
POINT = re.compile(r'<path transform="translate\(([-\d.]+),([-\d.]+)\)" (d="[^"]+" [^>]*?)/>')
COORDINATES = re.compile(r' (?:d|transform|x|y|x2|y2)="[^"]+"')


@dataclass(frozen=True)
class Figure:
    """A chart on the page: its drawing, and the specification that the script makes live, as JSON for a script element."""

    id: str
    chart: Chart
    svg: Markup
    spec: Markup


def figure(id_: str, chart: Chart) -> Figure:
    return Figure(id_, chart, Markup(_still(id_, chart)), Markup(_json(_compact(chart.spec))))


def _still(id_: str, chart: Chart) -> str:
    """Its clip paths get names of their own: every drawing counts them from 0, the page has many."""
    svg = vl_convert.vegalite_to_svg(chart.spec)
    svg = re.sub(r'(id="|url\(#)(clip|gradient)_?(\d+)', rf"\g<1>{id_}-\g<2>\g<3>", svg)
    # A tenth of a pixel is less than a reader sees.
    svg = COORDINATES.sub(lambda found: re.sub(r"(\.\d)\d+", r"\1", found[0]), svg)
    svg = UNPAINTED.sub("", UNSAID.sub("", svg))
    svg = LINES.sub(_lines_together, svg)
    svg = _points_once(id_, svg)
    label = Markup.escape(chart.description)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _lines_together(found: re.Match) -> str:
    """Vega puts every line into three groups of its own; those of a layer need them once."""
    frame = re.match(LINE_FRAME, found[0])[0]
    lines = "".join(re.findall(r"<path [^>]*/>", found[0]))
    widths = set(re.findall(r' stroke-width="[^"]*"', lines))
    if len(widths) == 1:
        (width,) = widths
        frame, lines = frame[:-1] + width + ">", lines.replace(width, "")
    return frame + lines + "</g></g></g>"


def _points_once(id_: str, svg: str) -> str:
    """Points that differ only in their place refer to one of them."""
    marks: dict[str, str] = {}
    section, _, number = id_.partition("-")

    def refer(found: re.Match) -> str:
        name = marks.setdefault(found[3], f"{section[:2]}{number}-{len(marks)}")
        return f'<use href="#{name}" x="{found[1]}" y="{found[2]}"/>'

    svg = POINT.sub(refer, svg)
    defined = "".join(f'<path id="{name}" {attributes}/>' for attributes, name in marks.items())
    return re.sub(r"(<svg [^>]*>)", lambda found: f"{found[1]}<defs>{defined}</defs>", svg, count=1)


def _compact(spec: dict) -> dict:
    """Each data set as rows of values, its texts by their number in a list: `page.js` undoes it."""
    return spec | {"datasets": {name: _columns(rows) for name, rows in spec["datasets"].items()}}


def _columns(rows: list[dict]) -> dict:
    fields = list(rows[0]) if rows else []
    texts = {}
    for field in fields:
        if any(isinstance(row[field], str) for row in rows):
            texts[field] = list(dict.fromkeys(row[field] for row in rows))
    number = {field: {text: place for place, text in enumerate(found)} for field, found in texts.items()}
    body = [[number[field][row[field]] if field in texts else row[field] for field in fields] for row in rows]
    return {"fields": fields, "texts": texts, "rows": body}


def _json(value: dict) -> str:
    """JSON that cannot end its script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")

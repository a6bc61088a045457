"""The page's drawings before any script runs: made by the page's own script, which runs once while the report is built.

Data block in, HTML texts out. The same code draws the static and the live page, so they cannot differ. It runs in an embedded V8,
without access to files or network.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from wsbench.host import installation
from wsbench.records import contained

SCRIPTS = Path(__file__).parent / "script"
DRAWING = ("text", "scales", "draw", "view", "time", "figures", "tables", "detail")
STILL = ("study", "still")
BROWSER = ("filters", "files", "pointer", "app")
STUDY_WIDTH = 1120
WIDTH = 540  # pixels of a drawing in one of two columns; the browser redraws for its own width


def script(*names: str) -> str:
    return "\n".join((SCRIPTS / f"{name}.js").read_text(encoding="utf-8") for name in names)


def call(function: str, *arguments, also: tuple[str, ...] = ()) -> object:
    """The result of a function of the drawing scripts; for the page and for tests."""
    from py_mini_racer import MiniRacer  # the base installation lacks it

    installation.require_addresses()
    engine = MiniRacer()
    try:
        engine.eval(script(*DRAWING, *STILL, *also))
        return engine.call(function, *arguments)
    finally:
        engine.close()


def studies(figures: list[dict]) -> list[Markup]:
    """The drawings of a study's figures (see `figure_drawing`), each with its legend, as HTML."""
    return contained.part("figures of the study", lambda: _studies(figures), lambda _: [*map(_study, figures)]) if figures else []


def _study(figure: dict) -> Markup:
    return contained.part("figure of the study", lambda: _studies([figure])[0], lambda reason: Markup.escape(f"{reason}."))


def _studies(figures: list[dict]) -> list[Markup]:
    return [Markup(html) for html in json.loads(call("studies", json.dumps(figures), STUDY_WIDTH))]


def inside_tables(kind: Literal["sparkline", "meanLine"], drawn: list[dict]) -> list[Markup]:
    """Small drawings for the cells of a table, as `script/study.js` takes them."""
    return [Markup(svg) for svg in json.loads(call("insideTables", kind, json.dumps(drawn)))] if drawn else []


def can_draw() -> bool:
    """Whether there is a V8 here."""
    return find_spec("py_mini_racer") is not None


def still_load(data: str) -> dict:
    """The parts of the page of a load: `legend`, `shapes`, `absent`, and `sections`. Without V8 the page draws them itself."""
    if not can_draw():
        shown = json.loads(data)
        sections = {"percentiles": shown["curves"], "time": shown["timelines"]}
        drawn = {"note": "", "html": '<p class="note">Drawn by the script of this page.</p>'}
        return {
            "sections": {name: drawn for name, of in sections.items() if of},
            "legend": "<div data-legend></div>",
            "shapes": '<div id="undrawn" hidden></div>',
            "absent": "",
        }
    return json.loads(call("stillLoad", data, WIDTH))


def still(data: str) -> dict:
    """The parts of the page: `first` (the figure of the answer), `results`, `trials`, `legend`, `absent`, and `sections`."""
    return contained.part("drawings", lambda: _still(data), _not_drawn)


def _still(data: str) -> dict:
    return json.loads(call("still", data, WIDTH))


def _not_drawn(reason: str) -> dict:
    """The same parts with the reason in place of the tables."""
    said = Markup('<p class="note">{}.</p>').format(reason)
    return {"sections": {}, "shapes": "", "legend": "", "absent": "", "first": "", "results": said, "trials": said}

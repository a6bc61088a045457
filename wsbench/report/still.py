"""The page's drawings before any script runs: its own script, run once while the report is built.

The data block in, HTML texts out. One code draws the still page and the live one, so that they cannot differ; it is run by
an embedded V8, which reaches neither files nor network.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from markupsafe import Markup
from py_mini_racer import MiniRacer

SCRIPTS = Path(__file__).parent / "script"
DRAWING = ("text", "scales", "draw", "view", "time", "figures", "tables", "detail")
STILL = ("study", "still")
BROWSER = ("filters", "files", "pointer", "app")
STUDY_WIDTH = 760
WIDTH = 540  # pixels of a drawing in one of two columns; the browser draws again for its own


def script(*names: str) -> str:
    return "\n".join((SCRIPTS / f"{name}.js").read_text(encoding="utf-8") for name in names)


def call(function: str, *arguments, also: tuple[str, ...] = ()) -> object:
    """What a function of the drawing scripts returns; for the page, and for tests."""
    engine = MiniRacer()
    try:
        engine.eval(script(*DRAWING, *STILL, *also))
        return engine.call(function, *arguments)
    finally:
        engine.close()


def studies(figures: list[dict]) -> list[Markup]:
    """The drawings of a study's figures (see `figure_drawing`), each with its legend."""
    return [Markup(html) for html in json.loads(call("studies", json.dumps(figures), STUDY_WIDTH))] if figures else []


def inside_tables(kind: Literal["sparkline", "meanLine"], drawn: list[dict]) -> list[Markup]:
    """Small drawings for the cells of a table, as `script/study.js` takes them."""
    return [Markup(svg) for svg in json.loads(call("insideTables", kind, json.dumps(drawn)))] if drawn else []


def still(data: str) -> dict:
    """The parts of the page: `first` (the figure of the answer), `results`, `trials`, `legend`, `absent`, and `sections`."""
    return json.loads(call("still", data, WIDTH))

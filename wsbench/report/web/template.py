"""The templates of the pages: every text is escaped, and a missing name is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jinja2

from wsbench import __version__, metrics
from wsbench.records.plain import visible

HERE = Path(__file__).parent


def common() -> dict:
    """Values for every page."""
    return {"version": __version__, "metrics": metrics.METRICS}


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        finalize=_visible,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _visible(value):
    return type(value)(visible(value)) if isinstance(value, str) else value


def template(name: str) -> jinja2.Template:
    return _environment().get_template(name)

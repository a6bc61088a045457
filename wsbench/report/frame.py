"""The frame of a page: one HTML file that works offline, without JavaScript, and in print.

A template and its values in, HTML text out. Every text passes through an escaping template, or through `esc` of the page's script;
only drawings, style and scripts made here are inserted unescaped. The page may run only the script whose hash it contains, and load
nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from wsbench.analysis import wording
from wsbench.report.still import BROWSER, DRAWING, script

HERE = Path(__file__).parent


def framed(template: str, data: str, **values) -> str:
    """The page of a template that extends `frame.html`, with the data block of its script."""
    own = script(*DRAWING, *BROWSER)
    assert "</script" not in own.lower(), "the script would end its own element"
    page = _templates().get_template(template)
    return page.render(
        policy=_policy(own),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(own),
        data=_packed(data),
        **values,
    )


@cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    made.filters |= {"number": wording.number, "listed": wording.listed, "moment": moment, "bytes": _bytes, "prose": _prose}
    return made


def moment(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _prose(text: str) -> Markup:
    """The experiment's own text; text between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _bytes(value: int) -> str:
    return wording.scale("bytes", [value]).with_unit(value)


def _packed(data: str) -> str:
    """The compressed data block, a fifth of its size. The output is reproducible."""
    return base64.b64encode(gzip.compress(data.encode(), compresslevel=6, mtime=0)).decode("ascii")


def _policy(own: str) -> str:
    """Allows only this script: no eval and no requests. Inline styles are needed for the bars in tables."""
    allowed = f"'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

"""The pages: campaigns in, HTML out. Every text passes an escaping template; there is no script and no style inside a page.

`Links` says how one page refers to another: by address where they are served, by file where they are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import jinja2

from wsbench import __version__, metrics
from wsbench.browse.campaigns import Campaign, metrics_in_common, overlay
from wsbench.report import words

HERE = Path(__file__).parent
ASSETS = ("browse.css", "browse.js")


@dataclass(frozen=True)
class Links:
    """`up` leads from the page to the top: "/" where pages are served, "../../" and the like where they are files."""

    up: str
    static: bool

    def top(self) -> str:
        return f"{self.up}index.html" if self.static else "/"

    def asset(self, name: str) -> str:
        return f"{self.up}assets/{name}"

    def campaign(self, one: Campaign) -> str:
        return f"{self.up}campaign/{one.id}/{'index.html' if self.static else ''}"

    def report(self, one: Campaign) -> str:
        return f"{self.up}campaign/{one.id}/report.html"

    def download(self, one: Campaign, form: str) -> str:
        return f"{self.up}campaign/{one.id}/campaign.{form}"

    def overlay(self, experiment: str) -> str:
        return f"{self.up}overlay/{experiment}{'.html' if self.static else ''}"


@dataclass(frozen=True)
class Bar:
    """One campaign's mean with its interval, as shares of the axis in per cent."""

    label: str
    text: str
    mean: float
    low: float | None
    high: float | None


def listing(campaigns: list[Campaign], links: Links, query: str = "") -> str:
    words_ = query.lower().split()
    shown = [one for one in campaigns if all(word in search_text(one) for word in words_)]
    return _template("list.html").render(
        campaigns=shown, query=query, links=links, search_text=search_text, **_common()
    )


def campaign(one: Campaign, others: list[Campaign], links: Links) -> str:
    return _template("campaign.html").render(one=one, others=others, links=links, **_live(one), **_common())


def live(one: Campaign) -> str:
    """The part of a campaign's page that changes while it runs."""
    return _template("live.html").render(one=one, **_live(one), **_common())


def overlaid(title: str, campaigns: list[Campaign], chosen: str | None, links: Links) -> str:
    """Several campaigns beside each other, in one metric that all have; the first in common where none is chosen."""
    common = metrics_in_common(campaigns)
    metric = chosen if chosen in common else next(iter(common), None)
    groups = []
    if metric is not None:
        rows = overlay(campaigns, metric)
        means = [
            value for _, _, found in rows for _, one in found for value in (one.mean, one.high) if value is not None
        ]
        scale = words.scale(metrics.METRICS[metric].unit, means)
        longest = max(means, default=1.0)
        for cell, server, found in rows:
            bars = [
                Bar(
                    one.id,
                    f"{scale.with_unit(estimate.mean)} {f'({between})' if (between := scale.interval(estimate)) else ''}".strip(),
                    100 * estimate.mean / longest,
                    *(None if edge is None else 100 * edge / longest for edge in (estimate.low, estimate.high)),
                )
                for one, estimate in found
            ]
            groups.append((server, ", ".join(f"{key} {value}" for key, value in cell), bars))
    return _template("overlay.html").render(
        title=title, campaigns=campaigns, common=common, metric=metric, groups=groups, links=links, **_common()
    )


def search_text(one: Campaign) -> str:
    """What a search looks at, in small letters."""
    verdicts = " ".join(kind for kind, count in one.verdicts.items() if count)
    parts = (one.id, one.experiment, *one.record.servers, *one.record.tags, one.texts.get("question", ""), verdicts)
    return " ".join(parts).lower()


def _live(one: Campaign) -> dict:
    columns = one.columns()
    lines = one.lines()
    scales = {
        name: words.scale(metrics.METRICS[name].unit, (line.found[name].mean for line in lines)) for name in columns
    }
    return {"columns": columns, "lines": lines, "scales": scales, "now": one.now()}


def _common() -> dict:
    return {"version": __version__, "metrics": metrics.METRICS}


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)

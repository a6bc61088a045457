"""The pages: campaigns in, HTML out. Every text passes through an escaping template; pages contain no inline script or style."""

from __future__ import annotations

from dataclasses import dataclass

from wsbench import metrics
from wsbench.analysis import wording
from wsbench.analysis.campaigns import Campaign, metrics_in_common, overlay
from wsbench.report.web.links import Links
from wsbench.report.web.over_time import over_time
from wsbench.report.web.template import HERE, common, template

__all__ = ["ASSETS", "HERE", "Links", "campaign", "listing", "live", "over_time", "overlaid"]

ASSETS = ("browse.css", "browse.js")


@dataclass(frozen=True)
class Bar:
    """One campaign's mean and interval, in % of the axis."""

    label: str
    text: str
    mean: float
    low: float | None
    high: float | None


def listing(campaigns: list[Campaign], broken: list[str], links: Links, query: str = "") -> str:
    words_ = query.lower().split()
    shown = [one for one in campaigns if all(word in search_text(one) for word in words_)]
    return template("list.html").render(
        campaigns=shown, broken=broken, query=query, links=links, search_text=search_text, **common()
    )


def campaign(one: Campaign, others: list[Campaign], links: Links) -> str:
    return template("campaign.html").render(one=one, others=others, links=links, **_live(one), **common())


def live(one: Campaign) -> str:
    """The part of a campaign's page that changes during a run."""
    return template("live.html").render(one=one, **_live(one), **common())


def overlaid(title: str, campaigns: list[Campaign], chosen: str | None, links: Links) -> str:
    """Several campaigns compared in one common metric: the chosen one, or the first."""
    known = metrics_in_common(campaigns)
    metric = chosen if chosen in known else next(iter(known), None)
    groups = []
    if metric is not None:
        rows = overlay(campaigns, metric)
        means = [
            value for _, _, found in rows for _, one in found for value in (one.mean, one.high) if value is not None
        ]
        scale = wording.scale(metrics.METRICS[metric].unit, means)
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
    return template("overlay.html").render(
        title=title, campaigns=campaigns, common=known, metric=metric, groups=groups, links=links, **common()
    )


def search_text(one: Campaign) -> str:
    """The text that a search covers, in lower case."""
    verdicts = " ".join(kind for kind, count in one.verdicts.items() if count)
    parts = (one.id, one.experiment, *one.record.servers, *one.record.tags, one.question or "", verdicts)
    return " ".join(parts).lower()


def _live(one: Campaign) -> dict:
    columns = one.columns()
    lines = one.lines()
    scales = {
        name: wording.scale(metrics.METRICS[name].unit, (line.found[name].mean for line in lines)) for name in columns
    }
    return {"columns": columns, "lines": lines, "scales": scales, "now": one.now()}

"""The pages: campaigns in, HTML out. Every text passes through an escaping template; pages contain no inline script or style."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from wsbench import metrics
from wsbench.analysis import choices, stats, wording
from wsbench.analysis.campaigns import MOST_KEPT, Campaign, metrics_in_common, overlay
from wsbench.analysis.claims.over_campaigns import judged
from wsbench.analysis.results import Results
from wsbench.analysis.summary import summary
from wsbench.report.answer import answer
from wsbench.report.claimed import TAKES
from wsbench.report.still import inside_tables
from wsbench.report.web.links import Links
from wsbench.report.web.over_time import over_time
from wsbench.report.web.template import HERE, common, template

__all__ = ["ASSETS", "HERE", "Links", "campaign", "claims", "listing", "live", "over_time", "overlaid"]

ASSETS = ("browse.css", "browse.js")


@dataclass(frozen=True)
class Bar:
    """One campaign's mean with its interval."""

    label: str
    text: str
    svg: Markup


def listing(campaigns: list[Campaign], broken: list[str], links: Links, query: str = "") -> str:
    """The front page: what to choose for which load, and every campaign."""
    words_ = query.lower().split()
    shown = [one for one in campaigns if all(word in search_text(one) for word in words_)]
    columns = choices.columns(campaigns)
    return template("list.html").render(
        campaigns=shown,
        broken=broken,
        query=query,
        links=links,
        search_text=search_text,
        lead=lead,
        answers=choices.answers(columns),
        columns=columns,
        servers=choices.rows(columns),
        machines=choices.machines(columns),
        withdrawn=choices.withdrawn(campaigns),
        **common(),
    )


def claims(campaigns: list[Campaign], links: Links) -> str:
    """The claims of all campaigns, with verdict and evidence."""
    found = judged([one for one in campaigns if not one.running])
    counts = Counter(one.found.verdict for one in found)
    decided = len(found) - counts["undecided"]
    rows = [(one, TAKES.get(one.found.obstacle, "")) for one in found]
    return template("claims.html").render(claims=rows, counts=counts, decided=decided, links=links, **common())


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
        flat = [(one, estimate) for *_, found in rows for one, estimate in found]
        means = [value for _, estimate in flat for value in (estimate.mean, estimate.high) if value is not None]
        scale = wording.scale(metrics.METRICS[metric].unit, means)
        texts = [" ".join(filter(None, (scale.of_estimate(one), between(scale, one)))) for _, one in flat]
        drawn = [
            {"mean": one.mean, "low": one.low, "high": one.high, "longest": max(means), "label": text}
            for (_, one), text in zip(flat, texts, strict=True)
        ]
        svgs = inside_tables("meanLine", drawn)
        bars = iter([Bar(one.id, text, svg) for (one, _), text, svg in zip(flat, texts, svgs, strict=True)])
        for cell, server, found in rows:
            groups.append((server, ", ".join(f"{key} {value}" for key, value in cell), [next(bars) for _ in found]))
    return template("overlay.html").render(
        title=title, campaigns=campaigns, common=known, metric=metric, groups=groups, links=links, **common()
    )


def between(scale: wording.Scale, found: stats.Estimate) -> str:
    return f"({interval})" if (interval := scale.interval(found)) else ""


_leads: dict[Path, tuple[Results, str]] = {}


def lead(one: Campaign) -> str:
    """The answer of its report in one sentence; nothing before a trial has ended."""
    results = one.results
    known = _leads.get(one.run.path)
    if known is None or known[0] is not results:
        if len(_leads) >= MOST_KEPT:
            _leads.pop(next(iter(_leads)))
        known = _leads[one.run.path] = results, answer(results, summary(results)).lead if results.trials else ""
    return known[1]


def search_text(one: Campaign) -> str:
    """The text that a search covers, in lower case."""
    verdicts = " ".join(kind for kind, count in one.verdicts.items() if count)
    parts = (one.id, one.experiment, *one.record.servers, *one.record.tags, one.question or "", lead(one), verdicts)
    return " ".join(parts).lower()


def _live(one: Campaign) -> dict:
    columns = one.columns()
    lines = one.lines()
    scales = {name: wording.scale(metrics.METRICS[name].unit, (line.found[name].mean for line in lines)) for name in columns}
    return {"columns": columns, "lines": lines, "scales": scales, "now": one.now()}

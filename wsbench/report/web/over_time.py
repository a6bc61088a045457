"""The history page of an experiment: one line per server and cell over its campaigns, with the steps that `history` reports.

Campaigns in, HTML out. Makes no decisions; texts pass through the escaping template.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from wsbench import metrics
from wsbench.analysis import history, wording
from wsbench.analysis.campaigns import Campaign, metrics_in_common
from wsbench.report.still import inside_tables
from wsbench.report.web.links import Links
from wsbench.report.web.template import common, template


@dataclass(frozen=True)
class Drawn:
    """A line as the page shows it: a drawing, and texts that say the same."""

    server: str
    cell: str
    svg: Markup
    steps: list[str]
    values: list[tuple[Campaign, str]]
    range: str
    reason: str | None


def over_time(campaigns: list[Campaign], experiment: str, chosen: str | None, links: Links) -> str:
    """The page in the chosen or the first common metric, over campaigns alike to the newest one in machine and settings."""
    known = shown_metrics(campaigns)
    metric = chosen if chosen in known else next(iter(known), None)
    lines, elsewhere = [], 0
    if metric is not None:
        _, found, elsewhere = history.history(campaigns, experiment, metric)
        scale = wording.scale(metrics.METRICS[metric].unit, [value for line in found for _, value in line.points])
        lines = sorted(_drawn(found, scale), key=lambda line: not line.steps)
    return template("history.html").render(
        experiment=experiment,
        metric=metric,
        common=known,
        lines=lines,
        elsewhere=wording.count(elsewhere, "campaign") if elsewhere else "",
        summary=_summary(lines),
        practical=history.margin_of(campaigns),
        links=links,
        **common(),
    )


def shown_metrics(campaigns: list[Campaign]) -> list[str]:
    """Metrics common to all campaigns with the newest one's machine and settings."""
    same = history.alike(campaigns)
    return metrics_in_common(same[::-1]) if same else []


def _summary(lines: list[Drawn]) -> str:
    changed = [line for line in lines if line.steps]
    if not changed:
        return f"No step in {wording.count(len(lines), 'line')}."
    where = wording.listed(dict.fromkeys(line.server for line in changed))
    return f"Steps in {len(changed)} of {wording.count(len(lines), 'line')}: {where}."


def _drawn(lines: list[history.Line], scale: wording.Scale) -> list[Drawn]:
    made, drawings = [], []
    for line in lines:
        values = [value for _, value in line.points]
        place = {campaign.id: number for number, (campaign, _) in enumerate(line.points)}
        steps = [_step(step) for step in line.steps]
        ends = [scale.text(value) for value in (values[0], values[-1], min(values), max(values))]
        span = f"{wording.count(len(values), 'campaign')}, in {scale.unit}: "
        span += f"first {ends[0]}, last {ends[1]}, lowest {ends[2]}, highest {ends[3]}"
        told = "; ".join(steps) or line.reason or "no step found"
        label = f"{line.server} over {span}; {told}"
        drawings.append({"values": values, "steps": [place[step.after.id] for step in line.steps], "label": label})
        shown = [(campaign, scale.with_unit(value)) for campaign, value in line.points]
        cell = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in line.cell)
        made.append((line.server, cell, steps, shown, span, line.reason))
    svgs = inside_tables("sparkline", drawings)
    return [Drawn(server, cell, svg, *rest) for (server, cell, *rest), svg in zip(made, svgs, strict=True)]


def _step(step: history.Step) -> str:
    return f"{wording.decided(step.ratio)} from {step.before.created} to {step.after.created}"

"""The history page of an experiment: one line per server and cell over its campaigns, with the steps that `history` reports.

Campaigns in, HTML out. Makes no decisions; texts pass through the escaping template.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wsbench import metrics
from wsbench.analysis import history, stats, wording
from wsbench.analysis.campaigns import Campaign, metrics_in_common
from wsbench.report.web.links import Links
from wsbench.report.web.template import common, template

WIDTH, HEIGHT, MARGIN = 320, 56, 6
NARROWEST = 1.2  # minimum ratio of a scale's ends, so that small changes look small


@dataclass(frozen=True)
class Drawn:
    """A line in pixels, and its values as texts."""

    server: str
    cell: str
    path: str
    points: list[tuple[str, str]]
    steps: list[tuple[str, str]]
    values: list[tuple[Campaign, str]]
    range: str
    text: str
    reason: str | None


def over_time(campaigns: list[Campaign], experiment: str, chosen: str | None, links: Links) -> str:
    """The page in the chosen or the first common metric, over campaigns alike to the newest one in machine and settings."""
    known = shown_metrics(campaigns)
    metric = chosen if chosen in known else next(iter(known), None)
    lines, elsewhere = [], 0
    if metric is not None:
        _, found, elsewhere = history.history(campaigns, experiment, metric)
        scale = wording.scale(metrics.METRICS[metric].unit, [value for line in found for _, value in line.points])
        lines = sorted((_drawn(line, scale) for line in found), key=lambda line: not line.steps)
    return template("history.html").render(
        experiment=experiment,
        metric=metric,
        common=known,
        lines=lines,
        elsewhere=wording.count(elsewhere, "campaign") if elsewhere else "",
        summary=_summary(lines),
        practical=stats.PRACTICAL,
        width=WIDTH,
        height=HEIGHT,
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


def _drawn(line: history.Line, scale: wording.Scale) -> Drawn:
    values = [value for _, value in line.points]
    low, high = min(values), max(values)
    middle, spread = math.sqrt(low * high), math.sqrt(max(high / low, NARROWEST))
    bottom, top = middle / spread, middle * spread
    wide = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    tall = (HEIGHT - 2 * MARGIN) / (top - bottom)
    at = [MARGIN + place * wide for place in range(len(values))]
    points = [
        (f"{x:.1f}", f"{HEIGHT - MARGIN - (value - bottom) * tall:.1f}") for x, value in zip(at, values, strict=True)
    ]
    place = {campaign.id: number for number, (campaign, _) in enumerate(line.points)}
    steps = [(f"{at[place[step.after.id]] - wide / 2:.1f}", _step(step)) for step in line.steps]
    shown = [(campaign, scale.with_unit(value)) for campaign, value in line.points]
    ends = [scale.text(value) for value in (values[0], values[-1], low, high)]
    span = f"{wording.count(len(values), 'campaign')}, in {scale.unit}: "
    span += f"first {ends[0]}, last {ends[1]}, lowest {ends[2]}, highest {ends[3]}"
    told = "; ".join(text for _, text in steps) or line.reason or "no step found"
    return Drawn(
        server=line.server,
        cell=", ".join(f"{key.replace('_', ' ')} {value}" for key, value in line.cell),
        path="M" + "L".join(f"{x},{y}" for x, y in points),
        points=points,
        steps=steps,
        values=shown,
        range=span,
        text=f"{line.server} over {span}; {told}",
        reason=line.reason,
    )


def _step(step: history.Step) -> str:
    return f"{wording.times(step.ratio)} from {step.before.created} to {step.after.created}"

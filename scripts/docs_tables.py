"""Tables in Markdown whose numbers come from campaigns in results/, made again by `python scripts/docs.py --tables`.

A table stands between two comments; the first says what it shows:

    <!-- table: 2026-11-24-million | idle_rss_bytes, connects_per_s | connections = 1000000 -->
    <!-- /table -->

The parts are the campaign, its metrics (a column each) and, where something is swept, the cell. A fourth part may name the
servers. `<!-- answers -->` … `<!-- /answers -->` is the table "which server for which load". A number with brackets has its 95 %
interval in them. One that no trial has is a dash.

`<!-- campaigns -->` … `<!-- /campaigns -->` lists every published campaign. `<!-- open -->` … `<!-- /open -->` lists the claims
that are undecided, with what would decide them.

In the rows between `<!-- verdicts -->` and `<!-- /verdicts -->`, which begin with a claim, the last two cells are its verdicts for
the published and for today's versions: what the means alone say stands in brackets.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from pathlib import Path

from docs_reference import table

from wsbench import metrics
from wsbench.analysis import campaigns, choices, titles, wording
from wsbench.analysis.claims.over_campaigns import Judged, judged
from wsbench.analysis.dataset import Cell
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results
from wsbench.metrics.findings import FAMILIES
from wsbench.records.rundir import RunFolder
from wsbench.report.claimed import takes

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"(?P<head><!-- table: (?P<asked>[^\n]*?) -->\n).*?(?P<end><!-- /table -->)", re.DOTALL)
VERDICTS = re.compile(r"(?P<head><!-- verdicts -->\n)(?P<rows>.*?)(?P<end><!-- /verdicts -->)", re.DOTALL)
CLAIM = re.compile(r"^\| (?P<id>[A-Z]\d+\S*) \| (?P<says>[^|]*) \|[^|]*\|[^|]*\|$", re.MULTILINE)
CAMPAIGNS = re.compile(r"(?P<head><!-- campaigns -->\n).*?(?P<end><!-- /campaigns -->)", re.DOTALL)
OPEN = re.compile(r"(?P<head><!-- open -->\n).*?(?P<end><!-- /open -->)", re.DOTALL)
ANSWERS = re.compile(r"(?P<head><!-- answers -->\n).*?(?P<end><!-- /answers -->)", re.DOTALL)


class Wrong(Exception):
    """A table that cannot be made: what its comment asks for does not exist."""


def made(text: str, name: str) -> str:
    """The text of a file of the repository with all its tables made again."""
    text = TABLE.sub(lambda found: f"{found['head']}\n{of_campaign(found['asked'])}\n{found['end']}", text)
    text = VERDICTS.sub(lambda found: f"{found['head']}{CLAIM.sub(_judged, found['rows'])}{found['end']}", text)
    text = CAMPAIGNS.sub(lambda found: f"{found['head']}\n{of_campaigns()}\n{found['end']}", text)
    text = OPEN.sub(lambda found: f"{found['head']}\n{of_open()}\n{found['end']}", text)
    return ANSWERS.sub(lambda found: f"{found['head']}\n{of_answers(name)}\n{found['end']}", text)


def of_campaign(asked: str) -> str:
    parts = [part.strip() for part in asked.split("|")]
    if not 2 <= len(parts) <= 4:
        raise Wrong(f"{asked!r}: expected CAMPAIGN | METRICS | CELL | SERVERS")
    results = results_of(parts[0])
    names = metrics_of(parts[1], asked)
    cell = cell_of(results, parts[2] if len(parts) > 2 else "", asked)
    servers = listed(parts[3]) if len(parts) > 3 else results.names
    if unknown := set(servers) - set(results.names):
        raise Wrong(f"{asked!r}: the campaign has no {', '.join(sorted(unknown))}")
    scales = {
        name: wording.scale(metrics.METRICS[name].unit, [results.estimate(one, cell, name).mean for one in servers])
        for name in names
    }
    head = ["server", *(_heading(name, scales[name].unit) for name in names)]
    return "\n".join(
        table(head, [[results.label(one), *(_number(results, one, cell, name, scales[name]) for name in names)] for one in servers])
    )


def _heading(metric: str, unit: str) -> str:
    """The metric, and its unit where that says more."""
    return titles.title(metric) + ("" if unit in ("connections", "connections/s", "fraction") else f", {unit}")


def _number(results: Results, server: str, cell: Cell, metric: str, scale: wording.Scale) -> str:
    found = results.estimate(server, cell, metric)
    between = "" if found.mean is None else scale.interval(found)
    return f"{scale.mean(found)}{f' ({between})' if between else ''}"


@cache
def results_of(campaign: str) -> Results:
    folder = ROOT / "results" / campaign
    if not folder.is_dir():
        raise Wrong(f"results/ has no campaign {campaign!r}")
    return load(RunFolder.open(folder))


def cell_of(results: Results, asked: str, whole: str) -> Cell:
    wanted = dict(part.split("=") for part in listed(asked)) if asked else {}
    wanted = {key.strip(): value.strip() for key, value in wanted.items()}
    found = [
        cell
        for cell in results.cells
        if all(str(dict(cell).get(key)) == value for key, value in wanted.items()) and (wanted or len(results.cells) == 1)
    ]
    if len(found) != 1:
        raise Wrong(f"{whole!r}: {len(found)} cells of {len(results.cells)} fit; name one")
    return found[0]


def metrics_of(text: str, asked: str) -> list[str]:
    names = listed(text)
    if unknown := [name for name in names if name not in metrics.METRICS]:
        raise Wrong(f"{asked!r}: no metric {', '.join(unknown)}")
    return names


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _judged(row: re.Match) -> str:
    found = _verdicts()
    words = [found.get((row["id"], versions), wording.NONE) for versions in ("published", "today")]
    return f"| {row['id']} | {row['says']} | {' | '.join(words)} |"


@cache
def _verdicts() -> dict[tuple[str, str], str]:
    """By claim and versions, of the published campaigns."""
    sign = {True: " (+)", False: " (−)", None: ""}
    return {
        (one.id, one.versions): one.verdict + (sign[one.by_means] if one.verdict == "undecided" else "")
        for one in (each.found for each in _claims())
    }


@cache
def _claims() -> list[Judged]:
    return judged(campaigns.find([ROOT / "results"]))


def of_open() -> str:
    """What would decide each claim that is open, for the published and for today's versions."""
    rows: dict[str, dict[str, str]] = {}
    for one in _claims():
        rows.setdefault(one.found.id, {})[one.found.versions] = takes(one) or one.found.verdict
    left = {one.found.id for one in _claims() if one.found.verdict == "undecided"}
    shown = [[id_, *(found.get(of, wording.NONE) for of in ("published", "today"))] for id_, found in rows.items() if id_ in left]
    return "\n".join(table(["claim", "published", "today"], shown))


#: The families in the list of campaigns, in its order.
LISTED_FAMILIES = ("counts", "throughput", "body", "tail", "cpu", "memory")
SHORT = dict(FAMILIES) | {"body": "typical", "tail": "tail", "cpu": "CPU", "throughput": "rates"}


def of_campaigns() -> str:
    """Each campaign with its rounds and minutes, the share of trials whose numbers count by metric family, and the smallest
    difference in its leading metric that it decides."""
    head = ["campaign", "rounds", "trials", "minutes", *(SHORT[one] for one in LISTED_FAMILIES), "decides from"]
    rows = []
    for one in campaigns.find([ROOT / "results"])[::-1]:
        results, name = one.results, one.run.path.name
        trials = [trial for trial in results.data.trials if not trial.record.control]
        seconds = _seconds(results)
        ran = [trial for trial in trials if trial.record.outcome != "failed"]
        shares = [_percent(sum(trial.verdict.of(family) != "INVALID" for trial in ran), len(ran)) for family in LISTED_FAMILIES]
        smallest = _smallest(results)
        numbers = str(one.record.rounds), f"{len(trials):,}", f"{seconds / 60:,.0f}"
        rows.append([name[5:], *numbers, *shares, smallest])
    return "\n".join(table(head, rows))


def _seconds(results: Results) -> float:
    """How long its trials took. Those of a heat run at the same time, so a heat takes as long as its longest."""
    heats: dict[tuple, float] = {}
    for trial in results.data.trials:
        record = trial.record
        key = ("alone", record.number) if record.heat is None else ("heat", record.heat)
        heats[key] = max(heats.get(key, 0.0), record.duration_s or 0.0)
    return sum(heats.values())


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}" if whole else wording.NONE


def _smallest(results: Results) -> str:
    """The smallest difference from the best of a cell that is decided, in the leading metric."""
    found = [results.best(cell, results.leading) for cell in results.cells]
    losses = [one.loss for decided in found for one in decided.decisions if one.says == "worse" and one.ratio]
    return f"{100 * min(losses):.0f} %" if losses else wording.NONE


def of_answers(name: str) -> str:
    """For each load one line, and below it the machines. `name`: the file that links from."""
    up = "../" * name.count("/")
    found = choices.columns(campaigns.find([ROOT / "results"]))
    rows, links, needs = [], {}, set()
    years = {one.campaign.created[:4] for one in found}
    year = years.pop() if len(years) == 1 else None
    for said in choices.answers(found):
        choice, folder = said.column.choice, said.column.campaign.run.path.name
        date, label = said.column.campaign.created[5 if year else 0 : 10], _label(folder, links)
        links[label] = f"[{label}]: {up}results/{folder}"
        if choice.need not in needs:
            needs.add(choice.need)
            rows.append([f"**{choice.need}**", "", "", ""])
        measured = f"[{date}][{label}] {said.column.machine}".strip()
        rows.append([choice.shows, said.best, str(said.column.compared), measured])
    lines = [
        *table(["your load, and what is compared", "best", "of", f"measured in {year}" if year else "measured"], rows),
        *(textwrap.fill(f"- {one}", 100, subsequent_indent="  ") for one in choices.machines(found)),
        "",
        *links.values(),
        "",
    ]
    return "\n".join(lines)


def _label(folder: str, links: dict[str, str]) -> str:
    """A short name of a link: `a1`, `a2`, …"""
    known = next((label for label, line in links.items() if line.endswith(f"/{folder}")), None)
    return known or f"a{len(links) + 1}"


def files() -> list[Path]:
    """The Markdown files that may have such tables."""
    return [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "results").glob("*.md")),
        *sorted((ROOT / "results").glob("*/NOTES.md")),
    ]

"""Pages whose numbers come from the campaigns in results/: `python scripts/docs.py --tables` writes them.

- `docs/answers.md`: which server for which load.
- `docs/verdicts.md`: every published claim, and what would decide those that are open.
- `docs/answers.svg`: one of the answers, drawn.
- `results/campaigns.md`: what each campaign decides.
- `results/CAMPAIGN/tables.md`: every server in every cell of a campaign.

A number with brackets has its 95 % interval in them. A number that no trial has is a dash. Documents link to these pages.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from docs_reference import cell as escaped
from docs_reference import table

from wsbench import metrics
from wsbench.analysis import campaigns, choices, summary, titles, wording
from wsbench.analysis.claims.over_campaigns import Judged, judged
from wsbench.analysis.dataset import Cell
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results
from wsbench.metrics.findings import FAMILIES
from wsbench.records.rundir import RunFolder
from wsbench.report.claimed import TAKES

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
#: Sets of versions in every table of verdicts, and their headings.
VERSIONS = {"published": "published versions", "today": "versions of today"}
HOW = "`.venv/bin/python scripts/docs.py --tables` writes this page from the data sets in `results/`."
#: Metrics that a campaign's tables have wherever a trial has them, next to those of its experiment and its summary.
ALSO = [
    *("errors", "push_reach", "server_cpu_us_per_push", "gc_minor", "gc_full", "gc_pause_percent", "recovery_s"),
    *(name for name in metrics.METRICS if name.startswith(("capacity_", "near_gc_"))),
]


def pages() -> dict[str, Callable[[], str]]:
    """What makes each page, by its path in the repository."""
    folders = sorted(file.parent.name for file in RESULTS.glob("*/campaign.json"))
    made = {f"results/{name}/tables.md": partial(campaign_page, name) for name in folders}
    answers = {"docs/answers.md": answers_page, "docs/answers.svg": answers_drawing}
    return answers | {"docs/verdicts.md": verdicts_page, "results/campaigns.md": campaigns_page} | made


def made(page: str) -> str:
    return pages()[page]()


# ---- one campaign ------------------------------------------------------------------------------------------------------


def campaign_page(name: str) -> str:
    """A table for each cell: a row for each server, the best first."""
    results = load(RunFolder.open(RESULTS / name))
    rows = summary.summary(results)
    columns = _columns(results, tomllib.loads((RESULTS / name / "experiment.toml").read_text(encoding="utf-8")))
    lines = [f"# Tables of {name}", "", HOW, ""]
    if why := campaigns.withdrawn(RESULTS).get(name):
        lines += [f"**Withdrawn from the answers:** {why}.", ""]
    for cell in results.cells:
        lines += [f"## {results.cell_text(cell) or 'All servers'}", "", *_of_cell(results, cell, columns, rows)]
    return "\n".join(lines)


def _columns(results: Results, experiment: dict) -> list[str]:
    """The metrics of the summary, of the experiment's choices and figures, and `ALSO`, without those that no trial has."""
    figures = [name for one in experiment.get("figure", []) for name in one.get("metrics", ())]
    choice = [one["metric"] for one in experiment.get("choice", [])]
    wanted = dict.fromkeys([*summary.columns(results), *choice, *figures, *ALSO])
    return [name for name in wanted if name in metrics.METRICS and results.has(name)]


def _of_cell(results: Results, cell: Cell, columns: list[str], rows: list[summary.SummaryRow]) -> list[str]:
    here = [row for row in rows if row.cell == cell]
    estimates = {name: [results.estimate(row.name, cell, name) for row in here] for name in columns}
    shown = [name for name in columns if any(one.mean is not None for one in estimates[name])]
    scales = {name: wording.scale(metrics.METRICS[name].unit, [one.mean for one in estimates[name]]) for name in shown}
    body = [
        [row.server, *(_number(scales[name], estimates[name][place]) for name in shown), row.verdict_text]
        for place, row in enumerate(here)
    ]
    return table(["server", *(_heading(name, scales[name].unit) for name in shown), "trials"], body)


def _withdrawn(why: str, names: list[str]) -> str:
    return f"**Withdrawn, to be measured anew:** {', '.join(f'[{name}](../results/{name})' for name in names)}: {why}."


def _heading(metric: str, unit: str) -> str:
    """The metric, and its unit where that says more."""
    return titles.title(metric) + ("" if unit in ("connections", "connections/s", "fraction") else f", {unit}")


def _number(scale: wording.Scale, estimate) -> str:
    between = "" if estimate.mean is None else scale.interval(estimate)
    return f"{scale.mean(estimate)}{f' ({between})' if between else ''}"


# ---- one answer, drawn -------------------------------------------------------------------------------------------------

DRAWN, DRAWN_METRIC = "2026-11-27-quick-other-machine", "server_cpu_us_per_message"
#: Pixels of a row, of the names, and of the longest bar.
ROW, NAMES, LONGEST = 22, 240, 400


def answers_drawing() -> str:
    """A bar for the best server of each language, with its interval: CPU time of the server for a message."""
    results = load(RunFolder.open(RESULTS / DRAWN))
    found = {row.name: results.estimate(row.name, row.cell, DRAWN_METRIC) for row in summary.summary(results)}
    known = sorted((one.mean, name) for name, one in found.items() if one.mean is not None and name != results.reference)
    languages = {one.name: one.language for one in results.servers}
    best: dict[str, str] = {}
    for _, name in known:
        best.setdefault(languages[name], name)
    scale = wording.scale(metrics.METRICS[DRAWN_METRIC].unit, [known[0][0]])
    longest = max(found[name].high for name in best.values())
    height = ROW * len(best) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {NAMES + LONGEST + 150} {height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="13">',
        "<title>Server CPU time for a message over 50 connections, the best server of each language, with 95 % intervals</title>",
        "<style>text { fill: #333 } @media (prefers-color-scheme: dark) { text { fill: #ddd } }</style>",
    ]
    for place, (language, name) in enumerate(best.items()):
        one, top = found[name], 6 + ROW * place
        end, low, high = (NAMES + LONGEST * value / longest for value in (one.mean, one.low, one.high))
        lines += [
            f'<text x="{NAMES - 8}" y="{top + 15}" text-anchor="end">{name} ({language})</text>',
            f'<rect x="{NAMES}" y="{top + 3}" width="{end - NAMES:.0f}" height="{ROW - 8}" fill="#4878a8"/>',
            f'<path d="M{low:.0f} {top + 10}H{high:.0f}" stroke="#c44" stroke-width="2"/>',
            f'<text x="{high + 8:.0f}" y="{top + 15}">{scale.mean(one)} {scale.unit}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


# ---- claims ------------------------------------------------------------------------------------------------------------


def verdicts_page() -> str:
    """A table for each study: its claims, with the verdicts for the published, for today's and for other versions."""
    by_claim: dict[tuple[str, str], dict[str, Judged]] = {}
    verdicts = judged(published())
    for one in verdicts:
        by_claim.setdefault((one.campaign.experiment, one.found.id), {})[one.found.versions] = one
    lines = ["# Verdicts on published claims", "", HOW, ""]
    lines += ["The sign after *undecided* shows what the means alone suggest: (+) the statement, (−) its opposite.", ""]
    counts = Counter(one.found.verdict for one in verdicts)
    decided = len(verdicts) - counts["undecided"]
    lines += [
        f"{decided} of {len(verdicts)} verdicts are decided: {counts['holds']} hold, {counts['does not hold']} do not hold.",
        "",
    ]
    for experiment in dict.fromkeys(key[0] for key in by_claim):
        rows = []
        here = [one.found.versions for one in verdicts if one.campaign.experiment == experiment]
        names = list(dict.fromkeys([*VERSIONS, *here]))
        for (of, id_), found in by_claim.items():
            if of == experiment:
                says = escaped(next(iter(found.values())).found.says)
                rows.append([id_, says, *(_verdict(found.get(versions)) for versions in names)])
        headers = ["claim", "statement", *(VERSIONS.get(name, f"versions *{name}*") for name in names)]
        lines += [f"## {experiment}", "", *table(headers, rows)]
    return "\n".join(lines)


def _verdict(one: Judged | None) -> str:
    if one is None:
        return wording.NONE
    sign = {True: " (+)", False: " (−)", None: ""}[one.found.by_means] if one.found.verdict == "undecided" else ""
    more = f". To decide: {TAKES[one.found.obstacle]}" if one.found.obstacle else ""
    return f"[{one.found.verdict}](../results/{one.campaign.run.path.name}){sign}{more}"


# ---- all campaigns -----------------------------------------------------------------------------------------------------

#: The families in the list of campaigns, in its order.
LISTED_FAMILIES = ("counts", "throughput", "body", "tail", "cpu", "memory")
SHORT = dict(FAMILIES) | {"body": "typical", "tail": "tail", "cpu": "CPU", "throughput": "rates"}


@cache
def published() -> list[campaigns.Campaign]:
    return campaigns.find([RESULTS])


def campaigns_page() -> str:
    """Each campaign with its rounds and minutes, the share of trials whose numbers count by metric family, and the smallest
    difference in its leading metric that it decides."""
    head = ["campaign", "rounds", "trials", "minutes", *(SHORT[one] for one in LISTED_FAMILIES), "decides from"]
    rows = []
    for one in published()[::-1]:
        results, name = one.results, one.run.path.name
        trials = [trial for trial in results.data.trials if not trial.record.control]
        seconds = _seconds(results)
        ran = [trial for trial in trials if trial.record.outcome != "failed"]
        shares = [_percent(sum(trial.verdict.of(family) != "INVALID" for trial in ran), len(ran)) for family in LISTED_FAMILIES]
        numbers = str(one.record.rounds), f"{len(trials):,}", f"{seconds / 60:,.0f}"
        rows.append([f"[{name}]({name}/tables.md)", *numbers, *shares, _smallest(results)])
    lines = ["# What each published campaign decides", "", HOW, ""]
    lines += [
        "By kind of number, the percentage of trials in which it counts (VALID or SUSPECT): counts, rates, typical and tail "
        "latency, CPU use, memory. *Decides from* is the smallest difference from the best that "
        "a campaign decides in its leading metric.",
        "",
    ]
    return "\n".join(lines + table(head, rows))


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
    losses = [
        max(one.ratio, 1 / one.ratio) - 1 for decided in found for one in decided.decisions if one.says == "worse" and one.ratio
    ]
    return f"{100 * min(losses):.0f} %" if losses else wording.NONE


def answers_page() -> str:
    """For each load one line, and below it the machines."""
    found = choices.columns(published())
    rows, needs = [], set()
    for said in choices.answers(found):
        choice, campaign = said.column.choice, said.column.campaign
        if choice.need not in needs:
            needs.add(choice.need)
            rows.append([f"**{choice.need}**", "", "", ""])
        measured = f"[{campaign.created[:10]}](../results/{campaign.run.path.name}) {said.column.machine}".strip()
        rows.append([choice.shows, said.best, str(said.column.compared), measured])
    lines = ["# Which server for which load", "", HOW, ""]
    lines += [
        "*Of* is the number of servers compared, without the baseline. Where several are named, the measurements do not decide "
        "between them. SUSPECT: a check doubts at least one trial of the named server, and its number counts. With `≥` only a "
        "lower bound is known, for example because the engine reached its limit before the server. "
        "M1, M2, … are machines: do not compare rows of different machines.",
        "",
        *table(["your load, and what is compared", "best", "of", "measured"], rows),
        *(f"- {one}" for one in choices.machines(found)),
        "",
        *(f"{_withdrawn(why, [one.run.path.name for one in of])}\n" for why, of in choices.withdrawn(published())),
    ]
    return "\n".join(lines)

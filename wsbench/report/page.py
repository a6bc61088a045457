"""The page: everything of the report put into one HTML file that works offline, without scripts too, and prints.

Results in, HTML text out. Every text goes through an escaping template, or through `esc` of the page's own script; only
drawings, style and scripts made here are put in as they are. The page may run exactly the script whose hash it names, and
may load nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from wsbench import metrics
from wsbench.analysis import stats, wording
from wsbench.analysis.dataset import TrialResult
from wsbench.analysis.results import Results
from wsbench.analysis.summary import left_out, summary
from wsbench.analysis.tables import TRIALS
from wsbench.metrics import limits
from wsbench.records.plain import visible
from wsbench.report.answer import answer
from wsbench.report.blocks import Block, ClaimRow
from wsbench.report.data import LOG_LINES, MOST_LOGS, page_data
from wsbench.report.still import BROWSER, DRAWING, script, still, studies

HERE = Path(__file__).parent
LARGEST_BYTES = 2_000_000  # of a campaign of a thousand trials; beyond it a page is slow to open
LARGE = 2_000  # trials: beyond it the browser lays out what is far off only when it comes near
MOST_CELLS = 8  # of the answer at a glance; more are opened on demand


@dataclass(frozen=True)
class Section:
    """A group of figures under one heading."""

    id: str
    title: str
    text: str
    note: str
    html: Markup


def render(results: Results, blocks: Sequence[Block] = (), claims: Sequence[ClaimRow] = ()) -> str:
    """The whole report as HTML; blocks and claims are what a study adds, between the answer and the results."""
    rows = summary(results)
    data = visible(json.dumps(page_data(results, rows), ensure_ascii=False, separators=(",", ":")))
    drawings = [block for block in blocks if block.figure is not None]
    drawn, own = still(data), script(*DRAWING, *BROWSER)
    assert "</script" not in own.lower(), "the script would end its own element"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"number": wording.number, "listed": wording.listed, "moment": _moment, "bytes": _bytes}
    environment.filters |= {"prose": _prose}
    return environment.get_template("page.html").render(
        results=results,
        policy=_policy(own),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(own),
        data=_packed(data),
        answer=answer(results, rows),
        most_cells=MOST_CELLS,
        large=len(results.trials) > LARGE,
        has_logs=len(results.curves) <= MOST_LOGS,
        best=f"{wording.title(results.leading, inside=True)}, the best first",
        left_out=[f"{wording.title(name)} ({why})" for name, why in left_out(results).items()],
        facts=_facts(results),
        blocks=blocks,
        studies=dict(zip((one.id for one in drawings), studies([one.figure for one in drawings]), strict=True)),
        claims=claims,
        claimed=_claimed(claims),
        versions=list(dict.fromkeys(name for claim in claims for name in claim.verdicts)),
        tiers=any(row.tier for row in rows),
        shapes=Markup(drawn["shapes"]),
        first=Markup(drawn["first"]),
        tables=Markup(drawn["results"]),
        trial_table=Markup(drawn["trials"]),
        legend=Markup(drawn["legend"]),
        absent=Markup(drawn["absent"]),
        sections=_sections(results, drawn["sections"]),
        place={name: at for at, name in enumerate(results.names)},
        log_tail=_log_tail,
        failed=[trial for trial in results.trials if trial.record.outcome == "failed"],
        table_file=TRIALS,
        metric_texts=list(metrics.METRICS.values()),
        limits=limits.LIMITS,
        never=limits.NEVER,
        level=stats.LEVEL,
        rank_rounds=stats.RANK_ROUNDS,
    )


# ---- sections ------------------------------------------------------------------------------------------------------


def _sections(results: Results, drawn: dict) -> list[Section]:
    points = (
        "Small marks are single trials, and open them: filled VALID, pale SUSPECT, hollow INVALID (in no mean). Lines and bars "
        "are means with their 95 % interval."
    )
    drawn_metrics = [name for name in (results.leading, results.second) if name is not None]
    first, *rest = (wording.title(name, inside=bool(place)) for place, name in enumerate(drawn_metrics))
    reference = results.label(results.reference) if results.reference else ""
    texts = {
        "throughput": (
            wording.listed([first, *rest]),
            " ".join([*filter(None, map(_better, drawn_metrics)), points]),
        ),
        "distance": (
            "Distance to the ceiling",
            f"{reference} does the least work a server can do for a message. What is missing to 100 % is what a server spends "
            "on everything else: its language, its library, its defaults.",
        ),
        "percentiles": (
            "Percentiles",
            "The repeats of a server pooled, for the drawing only: the table has means of the trials' own percentiles. The "
            "right end of a line is the longest time of all. Beside it the same numbers as a distribution.",
        ),
        "resources": ("CPU and memory", f"Of the server's whole process tree. {points}"),
        "time": (
            "Over time",
            f"Of each server the trial with the median {wording.title(results.leading, inside=True)}, on one time axis; where a "
            "line falls or swings, a mean hides something. Drag over a lane to zoom. The heat maps show how many messages of a "
            "second took how long: the darker, the more.",
        ),
    }
    return [
        Section(id_, *texts[id_], found["note"], Markup(found["html"])) for id_, found in drawn.items() if found["html"]
    ]


def _better(metric: str) -> str:
    wanted = {"higher": "More", "lower": "Less"}.get(metrics.METRICS[metric].direction)
    return f"{wanted} {wording.title(metric, inside=True)} is better." if wanted else ""


# ---- texts of the template -----------------------------------------------------------------------------------------


def _claimed(claims: Sequence[ClaimRow]) -> str:
    """How many hold, for each set of versions: `published 2 hold, 1 undecided; today 3 undecided`."""
    counts: dict[str, Counter] = {}
    for claim in claims:
        for versions, (found, _) in claim.verdicts.items():
            counts.setdefault(versions, Counter())[found] += 1
    words_of = {"holds": "hold", "does not hold": "do not hold"}
    return "; ".join(
        f"versions {versions}: "
        + ", ".join(f"{number} {words_of.get(kind, kind)}" for kind, number in found.most_common())
        for versions, found in counts.items()
    )


def _facts(results: Results) -> list[str]:
    """One line of context: when, where, how much."""
    campaign, machine = results.campaign, results.machine
    completed = sum(trial.record.outcome != "failed" for trial in results.trials)
    planned = sum(not order.control for order in results.order)  # the control's trials are no result
    facts = [_moment(campaign.created_unix_s)]
    if machine is not None:
        facts.append(f"{machine.cpu_model or 'unknown CPU'}, {wording.count(machine.cpus, 'CPU')}")
    facts += [wording.count(len(results.names), "server"), wording.count(len(results.cells), "cell")]
    facts += [wording.count(campaign.rounds, "round"), f"{completed:,} of {planned:,} trials completed"]
    return facts


def _log_tail(trial: TrialResult) -> str:
    return "\n".join(trial.record.log_tail[-LOG_LINES:])


def _prose(text: str) -> Markup:
    """An experiment's own words; what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _moment(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _bytes(value: int) -> str:
    return wording.scale("bytes", [value]).with_unit(value)


# ---- data, script and the policy -----------------------------------------------------------------------------------


def _packed(data: str) -> str:
    """The data block, a fifth of its size; the same data make the same bytes."""
    return base64.b64encode(gzip.compress(data.encode(), compresslevel=6, mtime=0)).decode("ascii")


def _policy(own: str) -> str:
    """Only this script, no evaluation of text, no request of any kind. Bars of tables have their length as a style."""
    allowed = f"'sha256-{base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()}'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

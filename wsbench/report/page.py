"""The page of a campaign: the whole report in one HTML file (see `frame`). Results in, HTML text out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from wsbench import metrics
from wsbench.analysis import stats, titles, wording
from wsbench.analysis.dataset import TRIALS, TrialResult
from wsbench.analysis.results import Results
from wsbench.analysis.summary import left_out, summary
from wsbench.metrics import limits
from wsbench.metrics.findings import FAMILIES
from wsbench.records.plain import visible
from wsbench.records.rundir import LOG_LINES
from wsbench.report.answer import answer
from wsbench.report.blocks import Block, ClaimRow
from wsbench.report.data import MOST_LOGS, page_data
from wsbench.report.frame import framed, moment
from wsbench.report.still import still, studies

LARGEST_BYTES = 2_000_000  # for a campaign of a thousand trials; a larger page opens slowly
LARGE = 2_000  # trials: beyond it the browser delays the layout of distant parts
MOST_CELLS, MOST_SERVERS = 8, 14  # in the answer; the others are collapsed


@dataclass(frozen=True)
class Section:
    """A group of figures under one heading."""

    id: str
    title: str
    text: str
    note: str
    html: Markup


def render(results: Results, blocks: Sequence[Block] = (), claims: Sequence[ClaimRow] = ()) -> str:
    """The whole report as HTML. `blocks` and `claims` are a study's parts, between the answer and the results."""
    rows = summary(results)
    data = visible(json.dumps(page_data(results, rows), ensure_ascii=False, separators=(",", ":")))
    drawings = [block for block in blocks if block.figure is not None]
    drawn = still(data)
    return framed(
        "page.html",
        data,
        results=results,
        answer=answer(results, rows),
        most_cells=MOST_CELLS,
        most_servers=MOST_SERVERS,
        large=len(results.trials) > LARGE,
        has_logs=len(results.curves) <= MOST_LOGS,
        best=f"{titles.title(results.leading, inside=True)}, best first",
        left_out=[f"{titles.title(name)} ({why})" for name, why in left_out(results).items()],
        facts=_facts(results),
        blocks=blocks,
        studies=dict(zip((one.id for one in drawings), studies([one.figure for one in drawings]), strict=True)),
        claims=claims,
        claimed=_claimed(claims),
        versions=list(dict.fromkeys(name for claim in claims for name in claim.verdicts)),
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
        families=FAMILIES,
        limits=limits.LIMITS,
        never=limits.NEVER,
        level=stats.LEVEL,
        rank_rounds=stats.LEAST_ROUNDS,
    )


# ---- sections ------------------------------------------------------------------------------------------------------


def _sections(results: Results, drawn: dict) -> list[Section]:
    points = (
        "Small marks are single trials (select one for details): filled VALID, pale SUSPECT, hollow INVALID (in no mean). Lines "
        "and bars are means with 95 % intervals."
    )
    drawn_metrics = [name for name in (results.leading, results.second) if name is not None]
    first, *rest = (titles.title(name, inside=bool(place)) for place, name in enumerate(drawn_metrics))
    reference = results.label(results.reference) if results.reference else ""
    texts = {
        "throughput": (
            wording.listed([first, *rest]),
            " ".join([*filter(None, map(_better, drawn_metrics)), points]),
        ),
        "distance": (
            "Distance to the baseline",
            f"The baseline, {reference}, does the least work a server can do per message. The gap to 100 % is the cost of "
            "everything else in a server: its language, its library, its defaults.",
        ),
        "percentiles": (
            "Percentiles",
            "Pooled repeats of a server, for drawing only: the table has means of each trial's own percentiles. The right end of "
            "a line is the maximum. Next to it, the same data as a distribution.",
        ),
        "resources": ("CPU and memory", f"Of the whole server process tree. {points}"),
        "time": (
            "Over time",
            f"Per server, the trial with the median {titles.title(results.leading, inside=True)}, on one time axis. A falling or "
            "swinging line shows what a mean hides. Drag over a lane to zoom. A heat map shows the latency distribution of each "
            "second: darker means more messages.",
        ),
    }
    return [Section(id_, *texts[id_], found["note"], Markup(found["html"])) for id_, found in drawn.items() if found["html"]]


def _better(metric: str) -> str:
    wanted = {"higher": "Higher", "lower": "Lower"}.get(metrics.METRICS[metric].direction)
    return f"{wanted} {titles.title(metric, inside=True)} is better." if wanted else ""


# ---- texts of the template -----------------------------------------------------------------------------------------


def _claimed(claims: Sequence[ClaimRow]) -> str:
    """The number of each verdict per set of versions: `versions published: 2 hold, 1 undecided; versions today: 1 holds`."""
    counts: dict[str, Counter] = {}
    for claim in claims:
        for versions, (found, _) in claim.verdicts.items():
            counts.setdefault(versions, Counter())[found] += 1
    many = {"holds": "hold", "does not hold": "do not hold", "undecided": "undecided"}
    return "; ".join(
        f"versions {versions}: " + ", ".join(f"{n} {kind if n == 1 else many[kind]}" for kind, n in found.most_common())
        for versions, found in counts.items()
    )


def _facts(results: Results) -> list[str]:
    """Facts in the page's header: time, machine, size."""
    campaign, machine = results.campaign, results.machine
    completed = sum(trial.record.outcome != "failed" for trial in results.trials)
    planned = sum(not order.control for order in results.order)  # the control's trials are not results
    facts = [moment(campaign.created_unix_s)]
    if machine is not None:
        facts.append(f"{machine.cpu_model or 'unknown CPU'}, {wording.count(machine.cpus, 'CPU')}")
    facts += [wording.count(len(results.names), "server"), wording.count(len(results.cells), "cell")]
    facts += [wording.count(campaign.rounds, "round"), f"{completed:,} of {planned:,} trials completed"]
    left_out, turns = results.turns
    if turns:
        facts.append(f"{left_out:,} of {wording.count(turns, 'turn')} disturbed by the host and left out")
    return facts


def _log_tail(trial: TrialResult) -> str:
    return "\n".join(trial.record.log_tail[-LOG_LINES:])

"""The page: everything of the report put into one HTML file that works offline, without scripts too, and prints.

Results in, HTML text out. Every text goes through an escaping template; only drawings, style and scripts made here
are put in as they are. The page may run exactly the scripts whose hashes it names, and may load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import zip_longest
from pathlib import Path

import jinja2
import vl_convert
from markupsafe import Markup, escape

from wsbench import limits, metrics, stats
from wsbench.report import charts, words
from wsbench.report.answer import answer
from wsbench.report.blocks import Block
from wsbench.report.charts import Chart
from wsbench.report.drawing import Figure, figure
from wsbench.report.results import Results, TrialResult
from wsbench.report.summary import SummaryRow, column_scale, columns, summary
from wsbench.report.table import FILE as TABLE_FILE

HERE = Path(__file__).parent
LOG_LINES = 30
LARGEST_BYTES = 3_000_000  # of a campaign of a thousand trials; beyond it a page is slow to open


@dataclass(frozen=True)
class Section:
    """A group of charts under one heading; a closed one opens on demand."""

    id: str
    title: str
    text: str
    figures: list[Figure]
    closed: bool = False


def render(results: Results, blocks: list[Block] | None = None) -> str:
    """The whole report as HTML; `blocks` are what a study adds, between the answer and the results."""
    rows = summary(results)
    shown = columns(results)
    library, own = _library(), (HERE / "page.js").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "number": words.number,
        "listed": words.listed,
        "moment": _moment,
        "bytes": _bytes,
        "prose": _prose,
    }
    return environment.get_template("page.html").render(
        results=results,
        policy=_policy(library, own),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        library=Markup(library),
        script=Markup(own),
        answer=answer(results, rows),
        facts=_facts(results),
        blocks=blocks or [],
        cells=[(results.cell_text(cell), [row for row in rows if row.cell == cell]) for cell in results.cells],
        columns=[(name, words.title(name), column_scale(results, name).unit) for name in shown],
        bar=lambda row: _bar(results, rows, row),
        sections=_sections(results),
        trial_columns=[(name, words.title(name), column_scale(results, name)) for name in _trial_columns(results)],
        log_tail=_log_tail,
        failed=[trial for trial in results.trials if trial.record.outcome == "failed"],
        table_file=TABLE_FILE,
        metric_texts=list(metrics.METRICS.values()),
        limits=limits.LIMITS,
        never=limits.NEVER,
        level=stats.LEVEL,
        rank_rounds=stats.RANK_ROUNDS,
        between=words.between,
    )


# ---- charts --------------------------------------------------------------------------------------------------------


def _sections(results: Results) -> list[Section]:
    points = (
        "Small marks are single trials: filled VALID, pale SUSPECT, hollow INVALID (in no mean). Lines and bars are means with "
        "their 95 % interval. A language has a hue; shade, dash and shape tell its servers apart."
    )
    second = results.headline if results.headline != results.throughput else f"{results.latency}_p99"
    resources = ["server_cpu_us_per_message", "server_rss_bytes_max"]
    used = [chart for name in resources for chart in charts.metric_charts(results, name)]
    texts = {
        "throughput": f"More throughput is better. {_better(second)} {points}",
        "percentiles": "Thick lines pool the repeats of a server for the drawing only, thin ones are single trials; the "
        "table has means of the trials' own percentiles. The right end of a line is the longest time of all.",
        "resources": f"Of the server's whole process tree. {points}",
        "time": "One line a trial. Where a line falls or swings, its mean hides something.",
    }
    drawn = [
        ("throughput", f"Throughput and {words.title(second, inside=True)}", _side_by_side(results, second)),
        ("percentiles", "Percentiles", charts.curve_charts(results)),
        ("resources", "CPU and memory", used),
        ("time", "Throughput over time", charts.series_charts(results)),
    ]
    return [
        Section(id_, title, texts[id_], [figure(f"{id_}-{i}", chart) for i, chart in enumerate(found)], id_ == "time")
        for id_, title, found in drawn
        if found
    ]


def _side_by_side(results: Results, second: str) -> list[Chart]:
    """Throughput and the second metric, panel by panel: neither means much without the other."""
    pairs = zip_longest(charts.metric_charts(results, results.throughput), charts.metric_charts(results, second))
    return [chart for pair in pairs for chart in pair if chart is not None]


def _better(metric: str) -> str:
    wanted = {"higher": "More", "lower": "Less"}.get(metrics.METRICS[metric].direction)
    return f"{wanted} {words.title(metric, inside=True)} is better." if wanted else ""


# ---- texts of the template -----------------------------------------------------------------------------------------


def _facts(results: Results) -> list[str]:
    """One line of context: when, where, how much."""
    campaign, machine = results.campaign, results.machine
    ok = sum(trial.record.outcome != "failed" for trial in results.trials)
    facts = [_moment(campaign.created_unix_s)]
    if machine is not None:
        facts.append(f"{machine.cpu_model or 'unknown CPU'}, {words.count(machine.cpus, 'CPU')}")
    facts += [words.count(len(results.names), "server"), words.count(len(results.cells), "cell")]
    facts += [words.count(campaign.rounds, "round"), f"{ok:,} of {len(results.order):,} trials ok"]
    return facts


def _bar(results: Results, rows: list[SummaryRow], row: SummaryRow) -> float:
    """A row's throughput in per cent of the highest of its cell, for the bar behind the number."""
    means = [other.figure(results.throughput).estimate.mean or 0.0 for other in rows if other.cell == row.cell]
    mean = row.figure(results.throughput).estimate.mean
    return round(100 * mean / max(means), 1) if mean else 0.0


def _trial_columns(results: Results) -> list[str]:
    latencies = [f"{results.latency}_{statistic}" for statistic in ("p50", "p99", "max")]
    chosen = [results.throughput, *latencies, "errors", "server_cpu_percent_mean", "server_rss_bytes_max"]
    return list(dict.fromkeys([*chosen, results.headline]))


def _log_tail(trial: TrialResult) -> str:
    return "\n".join(trial.record.log_tail[-LOG_LINES:])


def _prose(text: str) -> Markup:
    """An experiment's own words; what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _moment(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _bytes(value: int) -> str:
    return words.scale("bytes", [value]).with_unit(value)


# ---- scripts and the policy ----------------------------------------------------------------------------------------


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    library = vl_convert.javascript_bundle()
    assert "</script" not in library.lower(), "the bundle would end its own element"
    assert "<!--" not in library, "the bundle would open a comment, inside which the element's end is not seen"
    return library


def _policy(*scripts: str) -> str:
    """Only these scripts, no evaluation of text, no request of any kind. Vega sets styles on elements."""
    allowed = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

"""The summary of a campaign: one row per server and cell, as numbers and texts, for the terminal and the report.

Within each cell, rows are sorted by the leading metric, best first. Knows nothing about layout.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from wsbench import metrics
from wsbench.analysis import stats, wording
from wsbench.analysis.dataset import Cell, TrialResult
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results
from wsbench.metrics.findings import KINDS
from wsbench.metrics.server_checks import OUTCOMES
from wsbench.records.engine_files import Open
from wsbench.records.rundir import RunFolder

LOWER_BOUND = "lower bound"


@dataclass(frozen=True)
class Figure:
    """One metric of one row: its estimate over the repeats, and its text without a unit."""

    metric: str
    unit: str
    estimate: stats.Estimate
    text: str
    interval: str

    @property
    def with_interval(self) -> str:
        """`17,200 (16,900–17,500)`; the mean alone if there is no interval."""
        return f"{self.text} ({self.interval})" if self.interval else self.text


@dataclass(frozen=True)
class SummaryRow:
    """A server in a cell. `figures`: the metrics of `columns(results)`, by name."""

    name: str
    server: str
    cell: Cell
    cell_text: str
    repeats: int
    figures: dict[str, Figure]
    against_reference: stats.Decision | None
    against_reference_text: str
    verdicts: dict[str, int]
    failed: int
    missing: int
    bottleneck: str
    verdict_text: str
    note: str
    tier: str  # servers of a cell with a common letter cannot be ranked by the leading metric; empty if nothing is ranked

    def figure(self, metric: str) -> Figure:
        return self.figures[metric]


def columns(results: Results) -> list[str]:
    """The metrics of the summary, the leading one first, without those that no row has."""
    chosen = _wanted(results)
    return [chosen[0], *(name for name in chosen[1:] if results.has(name))]


def left_out(results: Results) -> dict[str, str]:
    """The metrics that `columns` leaves out, each with the reason."""
    shown = columns(results)
    return {name: results.why_not(name) for name in _wanted(results) if name not in shown}


def _wanted(results: Results) -> list[str]:
    latencies = [f"{results.latency}_{statistic}" for statistic in ("p50", "p99", "max")]
    resources = ["server_cpu_percent_mean", "server_cpu_us_per_message", "server_rss_bytes_max"]
    own = ["engine_adds_us"] if any(isinstance(plan.loop, Open) for plan in results.plans) else []
    chosen = list(dict.fromkeys([results.leading, results.throughput, *latencies, *own, *resources]))
    if results.headline not in chosen:
        chosen.insert(1, results.headline)
    return chosen


def summary(run: RunFolder | Results) -> list[SummaryRow]:
    """Every server and cell of a campaign, by cell and then by the leading metric, best first."""
    results = load(run) if isinstance(run, RunFolder) else run
    scales = {name: column_scale(results, name) for name in columns(results)}
    pairs = {cell: results.pairs(cell, results.leading) for cell in results.cells}
    rows = [_row(results, name, cell, scales, pairs[cell]) for cell in results.cells for name in results.names]
    place = {cell: index for index, cell in enumerate(results.cells)}
    return sorted(rows, key=lambda row: (place[row.cell], _rank(row, results.leading), row.name))


def column_scale(results: Results, metric: str) -> wording.Scale:
    """The unit of a metric throughout the report."""
    return wording.scale(metrics.METRICS[metric].unit, results.columns.of(metric, results.counted_rows(metric)))


def _row(results: Results, name: str, cell: Cell, scales: dict[str, wording.Scale], pairs: stats.Decided) -> SummaryRow:
    group, counted = results.group(name, cell), results.counted(name, cell, results.leading)
    ok = [trial for trial in group if trial.record.outcome != "failed"]
    verdicts = Counter(trial.verdict.kind for trial in ok)
    failed = len(group) - len(ok)
    missing = sum(planned.name == name and tuple(planned.cell.items()) == cell for planned in results.missing)
    against = None
    if results.reference and name != results.reference:
        against = pairs.between(name, results.reference)
    return SummaryRow(
        name=name,
        server=results.label(name),
        cell=cell,
        cell_text=results.cell_text(cell),
        repeats=len(counted),
        figures={metric: _figure(results, name, cell, metric, scale) for metric, scale in scales.items()},
        against_reference=against,
        against_reference_text="" if against is None else wording.decided(against),
        verdicts={kind: verdicts[kind] for kind in KINDS},
        failed=failed,
        missing=missing,
        bottleneck=_bottleneck([trial for trial in ok if trial.verdict.kind != "INVALID"]),
        verdict_text=_verdict_text(verdicts, failed, missing),
        note=_note(counted, group),
        tier=pairs.letters.get(name, ""),
    )


def _figure(results: Results, name: str, cell: Cell, metric: str, scale: wording.Scale) -> Figure:
    found = results.estimate(name, cell, metric)
    return Figure(metric, scale.unit, found, scale.mean(found), scale.interval(found))


def _bottleneck(trials: list[TrialResult]) -> str:
    """The common bottleneck, or every one with its number of trials."""
    seen = Counter(trial.verdict.bottleneck for trial in trials)
    if len(seen) <= 1:
        return next(iter(seen), "")
    return ", ".join(f"{name} {number}" for name, number in seen.most_common())


def _verdict_text(verdicts: Counter, failed: int, missing: int) -> str:
    parts = [f"{verdicts[kind]} {kind}" for kind in KINDS if verdicts[kind]]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{missing} not run"] if missing else []
    return ", ".join(parts)


def _note(counted: list[TrialResult], group: list[TrialResult]) -> str:
    """What to know before comparing this row: where it is a lower bound, and what the server did."""
    parts = []
    if engine := sum(trial.verdict.bottleneck == "engine" for trial in counted):
        parts.append(f"{LOWER_BOUND}: the engine was the limit in {engine} of {len(counted)}")
    parts += dict.fromkeys(trial.record.reason for trial in group if trial.record.outcome == "stopped" and trial.record.reason)
    ran = [trial for trial in group if trial.record.outcome != "failed"]
    seen = Counter(name for trial in ran for name in {one.name for one in trial.verdict.outcomes if one.name != "stopped"})
    parts += [f"{OUTCOMES[name]} in {number} of {len(ran)}" for name, number in seen.items()]
    return "; ".join(parts)


def _rank(row: SummaryRow, metric: str) -> float:
    """The best first; last those without a number, or of which only a bound says that they may be bad."""
    found, higher = row.figures[metric].estimate, metrics.METRICS[metric].direction == "higher"
    good = found.bound is not None and found.bound[0] == ("≥" if higher else "≤")
    if found.mean is None and not good:
        return math.inf
    return -found.shown if higher else found.shown

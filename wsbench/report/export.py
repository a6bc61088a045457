"""A campaign for other programs: its own JSON document with a schema, and formats for dashboards, pull requests and CI.

It uses the report's data: means with intervals over counted trials, and every trial with its verdict. A missing number is omitted
or null with its reason, never zero. It draws nothing and computes no metric.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest
from pydantic import ValidationError

from wsbench import __version__, metrics
from wsbench.analysis import stats, tables
from wsbench.analysis.dataset import Cell, TrialResult
from wsbench.analysis.results import Results
from wsbench.analysis.thresholds import Threshold, judge_values
from wsbench.metrics.findings import Axis, Family, Kind
from wsbench.records.errors import NothingUsable, UserError
from wsbench.records.files import require_writable, write_output
from wsbench.records.frozen import Frozen, one_line
from wsbench.records.hosts import MachineRecord
from wsbench.records.rundir import CampaignRecord, CellValue, ServerRow
from wsbench.report import hdr

NS_PER_MS = 1e6


# ---- the document --------------------------------------------------------------------------------------------------


class CellMetric(Frozen):
    """A geometric mean over the VALID and SUSPECT trials, with its 95 % interval; `reason` explains a null. `at_least`: the mean is
    a lower bound, because the engine was the limit."""

    metric: str
    unit: str
    mean: float | None
    low: float | None
    high: float | None
    repeats: int
    reason: str | None
    at_least: bool


class CellRow(Frozen):
    server: str
    cell: dict[str, CellValue]
    metrics: list[CellMetric]


class FindingRow(Frozen):
    """What one check found: about the host, the engine, or what the server did. `affects`: metric family → SUSPECT or INVALID."""

    axis: Axis
    name: str
    seen: str
    remedy: str
    affects: dict[Family, Kind]


class TrialRow(Frozen):
    """A finished trial; `again_of` is the number of the trial it repeats. `reasons` has an entry for every metric that is null."""

    number: int
    round: int
    server: str
    cell: dict[str, CellValue]
    again_of: int | None
    outcome: Literal["ok", "failed", "stopped"]
    reason: str | None
    verdict: Kind
    verdict_reasons: list[str]
    findings: list[FindingRow]
    bottleneck: str
    metrics: dict[str, float | None]
    reasons: dict[str, str]


class Document(Frozen):
    """A campaign in one file. `server` is `name@variant`, as in `servers`, plus ` (control)` for the A/A control's trials."""

    format: Literal["wsbench-campaign-1"] = "wsbench-campaign-1"
    written_by: str
    campaign: CampaignRecord
    question: str | None
    headline: str
    machine: MachineRecord | None
    servers: list[ServerRow]
    cells: list[CellRow]
    trials: list[TrialRow]


def document(results: Results) -> Document:
    """UserError if a number is too large for the format."""
    try:
        return _document(results)
    except ValidationError as error:
        raise UserError(f"{results.folder.path}: cannot be exported: {one_line(error)}") from error


def _document(results: Results) -> Document:
    return Document(
        written_by=f"wsbench {__version__}",
        campaign=results.campaign,
        question=results.experiment.question,
        headline=results.headline,
        machine=results.machine,
        servers=results.servers,
        cells=[
            CellRow(server=name, cell=dict(cell), metrics=[_cell_metric(results, name, cell, m) for m in metrics.METRICS])
            for name, cell in _cells(results)
        ],
        trials=[
            TrialRow(
                number=trial.record.number,
                round=trial.record.round,
                server=trial.record.name,
                cell=trial.record.cell,
                again_of=trial.record.again_of,
                outcome=trial.record.outcome,
                reason=trial.record.reason,
                verdict=trial.verdict.kind,
                verdict_reasons=list(trial.verdict.reasons),
                findings=[FindingRow(**asdict(one)) for one in trial.verdict.findings],
                bottleneck=trial.verdict.bottleneck,
                metrics=trial.values,
                reasons=trial.reasons,
            )
            for trial in results.every_trial
        ],
    )


def schema() -> dict:
    """JSON Schema (2020-12) of `Document`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Document.model_json_schema()}


def _cell_metric(results: Results, name: str, cell: Cell, metric: str) -> CellMetric:
    found = results.estimate(name, cell, metric)
    return CellMetric(
        metric=metric,
        unit=metrics.METRICS[metric].unit,
        mean=found.mean,
        low=found.low,
        high=found.high,
        repeats=found.repeats,
        reason=found.reason,
        at_least=found.at_least,
    )


# ---- the request ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """The campaign, the metrics of the short formats, and the thresholds that no trial may breach."""

    results: Results
    metrics: list[str]
    thresholds: list[Threshold]


def _cells(results: Results) -> Iterator[tuple[str, Cell]]:
    """Every server and cell with a finished trial, in the campaign's order."""
    for cell in results.cells:
        for name in results.names:
            if results.group(name, cell):
                yield name, cell


def _measured(asked: Asked) -> list[tuple[str, Cell, str, stats.Estimate]]:
    """Every server, cell and chosen metric with a mean. NothingUsable if there is none: an empty file would look like a result."""
    rows = [
        (name, cell, metric, found)
        for name, cell in _cells(asked.results)
        for metric in asked.metrics
        if (found := asked.results.estimate(name, cell, metric)).mean is not None
    ]
    if not rows:
        raise NothingUsable(
            f"no VALID or SUSPECT trial has any of {', '.join(asked.metrics)}; for the reasons see `wsbench export RUN json`"
        )
    return rows


def _title(asked: Asked, name: str, cell: Cell) -> str:
    return ", ".join(text for text in (name, asked.results.cell_text(cell)) if text)


# ---- the formats ---------------------------------------------------------------------------------------------------


def as_json(asked: Asked) -> bytes:
    return document(asked.results).model_dump_json(indent=1).encode() + b"\n"


def as_csv(asked: Asked) -> bytes:
    """Tidy: one row per trial and metric, as in trials.parquet. A missing number is an empty field with its reason."""
    table = tables.trials_table(asked.results.data, asked.results.order)
    out = io.StringIO()
    rows = csv.DictWriter(out, table.column_names, lineterminator="\n")
    rows.writeheader()
    rows.writerows(table.to_pylist())
    return out.getvalue().encode()


def as_parquet(asked: Asked) -> bytes:
    return tables.parquet(tables.trials_table(asked.results.data, asked.results.order))


def as_bmf(asked: Asked) -> bytes:
    """Bencher Metric Format (https://bencher.dev/docs/reference/bencher-metric-format/): benchmark → measure → value, bounds."""
    benchmarks: dict[str, dict] = {}
    for name, cell, metric, found in _measured(asked):
        measure = {"value": found.mean}
        if found.low is not None:
            measure |= {"lower_value": found.low, "upper_value": found.high}
        benchmarks.setdefault(_title(asked, name, cell), {})[metric] = measure
    return _json(benchmarks)


def as_github_bigger(asked: Asked) -> bytes:
    """github-action-benchmark, `customBiggerIsBetter`: the metrics for which more is better."""
    return _github(asked, "higher")


def as_github_smaller(asked: Asked) -> bytes:
    """github-action-benchmark, `customSmallerIsBetter`: the metrics for which less is better."""
    return _github(asked, "lower")


def _github(asked: Asked, direction: str) -> bytes:
    rows = []
    for name, cell, metric, found in _measured(asked):
        one = metrics.METRICS[metric]
        if one.direction == direction:
            row = {"name": f"{_title(asked, name, cell)}: {metric}", "unit": one.unit, "value": found.mean}
            if found.low is not None:
                row["range"] = f"{found.low:.6g} to {found.high:.6g}"
            rows.append(row | {"extra": f"{found.repeats} trials"})
    wanted = [metric for metric in asked.metrics if metrics.METRICS[metric].direction == direction]
    if not wanted:
        raise UserError(f"for none of these metrics {direction} is better: {', '.join(asked.metrics)}; choose others with --metric")
    if not rows:
        raise NothingUsable(f"no VALID or SUSPECT trial has any of {', '.join(wanted)}")
    return _json(rows)


def as_junit(asked: Asked) -> bytes:
    """JUnit XML: one suite per server, one case per trial. Failures are failed trials, findings that make a number INVALID, and
    breached thresholds."""
    results, suites = asked.results, ElementTree.Element("testsuites", name=asked.results.campaign.experiment)
    for row in results.servers:
        trials = [trial for trial in results.trials if trial.record.name == row.name]
        suite = ElementTree.SubElement(suites, "testsuite", name=row.name)
        for trial in trials:
            title = ", ".join(text for text in (results.cell_text(trial.cell), f"round {trial.record.round}") if text)
            case = ElementTree.SubElement(suite, "testcase", classname=row.name, name=title)
            case.attrib |= _seconds([trial])
            for kind, message in _wrong(asked, trial):
                ElementTree.SubElement(case, "failure", type=kind, message=_printable(message))
            if said := [one.text for one in trial.verdict.findings if one.kind != "INVALID"]:
                ElementTree.SubElement(case, "system-out").text = _printable(" ".join(said))
        if row.skipped is not None:
            case = ElementTree.SubElement(suite, "testcase", classname=row.name, name="skipped", time="0")
            ElementTree.SubElement(case, "skipped", message=_printable(row.skipped))
        failures = sum(case.find("failure") is not None for case in suite)
        suite.attrib |= {
            "tests": str(len(suite)),
            "failures": str(failures),
            "errors": "0",
            "skipped": str(int(row.skipped is not None)),
            **_seconds(trials),
        }
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n"


def _seconds(trials: list[TrialResult]) -> dict[str, str]:
    """The attribute `time`; empty if a trial's duration is unknown."""
    known = [trial.record.duration_s for trial in trials]
    return {} if None in known else {"time": f"{sum(known):.3f}"}


def _wrong(asked: Asked, trial) -> Iterator[tuple[str, str]]:
    if trial.record.outcome == "failed":
        yield "failed", trial.record.reason or "failed"
        return
    for one in trial.verdict.findings:
        if one.kind == "INVALID":
            yield ("server" if one.axis == "server" else "INVALID"), one.text
    for judged in judge_values(trial.values, trial.reasons, trial.verdict, asked.thresholds):
        if judged.breached:
            yield "threshold", judged.words


def _printable(text: str) -> str:
    """Replaces control characters that XML 1.0 §2.2 does not allow and that a server's log may contain."""
    return "".join(c if c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" else "�" for c in text)


def as_openmetrics(asked: Asked) -> bytes:
    """OpenMetrics text: one gauge per metric with labels server, variant, statistic (mean, low, high) and one per swept key."""
    gauges: dict[str, GaugeMetricFamily] = {}
    for name, cell, metric, found in _measured(asked):
        labels = ["server", "variant", "statistic", *(key for key, _ in cell)]
        gauge = gauges.setdefault(metric, GaugeMetricFamily(f"wsbench_{metric}", metrics.METRICS[metric].summary, labels=labels))
        server, _, variant = name.rpartition("@")
        for statistic in ("mean", "low", "high"):
            if (value := getattr(found, statistic)) is not None:
                gauge.add_metric([server, variant, statistic, *(str(value) for _, value in cell)], value)
    return generate_latest(_Gauges(list(gauges.values())))


@dataclass(frozen=True)
class _Gauges:
    """The part of a registry that the library's writer uses."""

    gauges: list[GaugeMetricFamily]

    def collect(self) -> list[GaugeMetricFamily]:
        return self.gauges


def as_hgrm(asked: Asked) -> bytes:
    """HdrHistogram percentile distributions in ms, one per server and cell, over its pooled VALID and SUSPECT trials.

    Pooled for drawing: no interval is computed from it.
    """
    results = asked.results
    parts = [
        f"# {_title(asked, name, cell)}\n{hdr.percentile_distribution(found, NS_PER_MS)}"
        for name, cell in _cells(results)
        if (found := results.pooled(name, cell)) is not None
    ]
    if not parts:
        raise NothingUsable("no VALID or SUSPECT trial has recorded a time")
    return "\n".join(parts).encode()


FORMATS: dict[str, Callable[[Asked], bytes]] = {
    "json": as_json,
    "csv": as_csv,
    "parquet": as_parquet,
    "bmf": as_bmf,
    "github-bigger": as_github_bigger,
    "github-smaller": as_github_smaller,
    "junit": as_junit,
    "openmetrics": as_openmetrics,
    "hgrm": as_hgrm,
}
#: Metrics of the short formats in addition to headline and throughput, unless metrics are named.
USUAL = ("service_us_p50", "service_us_p99", "server_cpu_us_per_message", "server_rss_bytes_max")


def chosen(results: Results, named: list[str]) -> list[str]:
    """The named metrics, or the headline and the usual ones. UserError for an unknown name."""
    metrics.require(named)
    return named or list(dict.fromkeys([results.headline, results.throughput, *USUAL]))


def write(asked: Asked, form: str, file: Path | None) -> bytes | None:
    """Writes the campaign in a format. Without a file, returns it. UserError if the file cannot be written there."""
    if file is not None:
        require_writable("OUT", file)
    made = FORMATS[form](asked)
    if file is None:
        return made
    write_output(file, made)
    return None


def _json(value) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1, ensure_ascii=False))

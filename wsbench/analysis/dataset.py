"""The data set of a campaign: everything measured in its trials, stored so that raw files need not be read again.

Report, claims, comparisons, history, pages and exports read only this. `measuring` computes it from raw trials; `tables` stores it
as Parquet in the run folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from wsbench import metrics
from wsbench.engine.histogram import BROKEN, Histogram, decode, encode
from wsbench.metrics import capacities
from wsbench.metrics.findings import Kind, Verdict
from wsbench.metrics.ladder import Step
from wsbench.metrics.registry import plain
from wsbench.metrics.timeline import Timeline
from wsbench.records.engine_files import Doc, Plan, Push, Seconds
from wsbench.records.errors import UserError
from wsbench.records.rundir import CellValue, TrialRecord

#: The tables of a stored data set.
TRIALS, OUTCOMES, LATENCIES = FILES = ("trials.parquet", "outcomes.parquet", "latencies.parquet")
COLUMN = {name: column for column, name in enumerate(metrics.METRICS)}
Cell = tuple[tuple[str, CellValue], ...]
#: The reason in a trial record if the server ended during its load: it did not carry the load.
ENDED = "the server ended before it was stopped"
#: Why a rate is a lower bound.
ENGINE_LIMIT = "the engine was the limit"
MOST_ALLOWED = "no higher load was allowed"


@dataclass(frozen=True)
class Columns:
    """All numbers of all trials: one row per trial, one column per metric in the order of `metrics.METRICS`.

    `values` is NaN for a missing number; `reasons` is then the index of its reason in `texts`, and 0 elsewhere.
    """

    values: np.ndarray
    reasons: np.ndarray
    texts: list[str | None]

    def of(self, metric: str, rows: Sequence[int]) -> np.ndarray:
        return self.values[rows, COLUMN[metric]]

    def value(self, row: int, metric: str) -> float | int | None:
        return plain(self.values[row, COLUMN[metric]])

    def reason(self, row: int, metric: str) -> str | None:
        return self.texts[self.reasons[row, COLUMN[metric]]]


def columns(found: Iterable[metrics.Numbers]) -> Columns:
    """The numbers of trials as arrays. Ten thousand trials have over a million numbers and few distinct reasons."""
    values, reasons = [], []
    texts: dict[str | None, int] = {None: 0}
    for one in found:
        for reason in one.reasons.values():
            texts.setdefault(reason, len(texts))
        values.append(list(map(one.values.__getitem__, COLUMN)))
        reasons.append(list(map(texts.__getitem__, map(one.reasons.get, COLUMN))))
    shape = (len(values), len(COLUMN))
    return Columns(np.array(values, dtype=float).reshape(shape), np.array(reasons, dtype=np.int32).reshape(shape), list(texts))


@dataclass(frozen=True)
class TrialResult:
    """A finished trial. `row` is its row in `columns`."""

    record: TrialRecord
    verdict: Verdict
    plan: Plan | None
    columns: Columns = field(repr=False, compare=False)
    row: int

    def value(self, metric: str) -> float | int | None:
        return self.columns.value(self.row, metric)

    def reason(self, metric: str) -> str | None:
        """Why a metric is None."""
        return self.columns.reason(self.row, metric)

    @property
    def values(self) -> dict[str, float | int | None]:
        """Every metric by name."""
        return dict(zip(COLUMN, map(plain, self.columns.values[self.row]), strict=True))

    @property
    def reasons(self) -> dict[str, str]:
        """The reason for every metric that is None."""
        found = zip(COLUMN, self.columns.reasons[self.row], strict=True)
        return {name: self.columns.texts[reason] for name, reason in found if reason}

    def kind(self, metric: str) -> Kind:
        """The verdict's word for a metric."""
        return self.verdict.of(metrics.METRICS[metric].family)

    def counts_for(self, metric: str) -> bool:
        """True if its value of this metric enters means: the trial did not fail, and the metric is VALID or SUSPECT."""
        return self.record.outcome != "failed" and self.kind(metric) != "INVALID"

    def is_bound(self, metric: str) -> bool:
        """True if its value is a lower bound: a rate, and the engine was the limit."""
        if self.record.ladder is not None and metric.startswith("capacity_"):
            return self.value(capacities.bound_of(metric)) == 1
        of = metrics.METRICS[metric]
        return self.verdict.bottleneck == "engine" and of.family == "throughput" and of.direction == "higher"

    def lost_by_server(self, metric: str) -> bool:
        """True if the server's own failure left no usable value of this metric, and the instrument was sound.

        The server failed under the load, or did what makes the metric INVALID, or was stopped early without the engine being the
        limit.
        """
        if self.record.never_loaded:
            return False
        if self.record.outcome == "stopped" and self.verdict.bottleneck == "server" and self.counts_for(metric):
            return self.value(metric) is None
        because = self.verdict.because(metrics.METRICS[metric].family)
        return bool(because) and all(one.axis == "server" for one in because)

    @cached_property
    def cell(self) -> Cell:
        return tuple(self.record.cell.items())

    @cached_property
    def load(self) -> dict[str, CellValue]:
        """The engine's load and the number of server CPUs: connections, messages or measure_s, payload_bytes, server_cpus."""
        if (plan := self.plan) is None:
            return {}
        connections = max([plan.connections, *(stage.to for stage in plan.stages or [])])
        measure = plan.measure
        ends = {"measure_s": measure.seconds} if isinstance(measure, Seconds) else {"messages": measure.messages}
        size = getattr(plan.scenario, "bytes", None)
        had = {"connections": connections, "server_cpus": len(self.record.server_cpus)}
        return had | ends | ({} if size is None else {"payload_bytes": size})


@dataclass(frozen=True)
class Latencies:
    """Pooled latencies of the counted trials of a server and cell: for curves and distributions, never for an interval.

    `log` is the histogram as the payload of a line in an HdrHistogram log. `source`: the file that it was read from.
    """

    log: str
    source: str = field(default="the data set", compare=False)

    @cached_property
    def histogram(self) -> Histogram:
        """UserError if it cannot be decoded: it may come from an untrusted file."""
        try:
            return decode(self.log)
        except BROKEN as error:
            raise UserError(f"{self.source}: a histogram cannot be read: {error}") from error

    def __add__(self, other: Latencies) -> Latencies:
        return of_histogram(self.histogram + other.histogram)


def of_histogram(found: Histogram) -> Latencies:
    return Latencies(encode(found))


#: A server (or its control), a cell and a tag of the latency log.
Key = tuple[str, Cell, str]


@dataclass(frozen=True)
class DataSet:
    """A campaign's finished trials by number. `timelines`: by trial number, those in the report. `ladders`: by trial number, the
    rungs of ladders. `made_by`: digest of the code that
    computed the metrics; empty if several versions did. `stored`: the files in the run folder hold exactly this."""

    trials: list[TrialResult]
    columns: Columns
    latencies: dict[Key, Latencies]
    timelines: dict[int, Timeline]
    made_by: str
    stored: bool = False
    ladders: dict[int, list[Step]] = field(default_factory=dict)

    @cached_property
    def numbers(self) -> frozenset[int]:
        return frozenset(trial.record.number for trial in self.trials)

    def __add__(self, other: DataSet) -> DataSet:
        """Merges two data sets without a common trial."""
        texts = list(dict.fromkeys([*self.columns.texts, *other.columns.texts]))
        place = {text: index for index, text in enumerate(texts)}
        parts = [np.array([place[text] for text in one.texts], np.int32)[one.reasons] for one in (self.columns, other.columns)]
        trials = [*self.trials, *other.trials]
        order = sorted(range(len(trials)), key=lambda row: trials[row].record.number)
        values = np.concatenate([self.columns.values, other.columns.values])[order]
        whole = Columns(values, np.concatenate(parts)[order], texts)
        latencies = dict(self.latencies)
        for key, found in other.latencies.items():
            latencies[key] = latencies[key] + found if key in latencies else found
        return DataSet(
            [TrialResult(trials[old].record, trials[old].verdict, trials[old].plan, whole, new) for new, old in enumerate(order)],
            whole,
            latencies,
            self.timelines | other.timelines,
            self.made_by if self.made_by == other.made_by else "",
            ladders=self.ladders | other.ladders,
        )

    def of_rounds(self) -> DataSet:
        """Without trials after the rounds."""
        kept = [trial for trial in self.trials if trial.record.follow_up is None]
        if len(kept) == len(self.trials):
            return self
        rows = [trial.row for trial in kept]
        fewer = Columns(self.columns.values[rows], self.columns.reasons[rows], self.columns.texts)
        trials = [TrialResult(one.record, one.verdict, one.plan, fewer, row) for row, one in enumerate(kept)]
        return replace(self, trials=trials, columns=fewer)


def reported_tag(plan: Plan) -> str:
    """The latency tag that describes a trial: whole requests if each has its own connection, copies of a broadcast, else service
    times."""
    if isinstance(plan.scenario, Push):
        return "push"
    return "request" if connection_per_request(plan) else "service"


def connection_per_request(plan: Plan) -> bool:
    return isinstance(plan.scenario, Doc) and not plan.scenario.persistent


def sortable(value: CellValue) -> tuple:
    """Sort key: numbers in numeric order, before texts."""
    return (0, value, "") if isinstance(value, int | float) else (1, 0, value)

"""The data set on disk: three Parquet tables in the run folder.

`trials.parquet`: the long table for other programs, one row per trial and metric. `outcomes.parquet`: one row per trial with its
record, plan, verdict and timeline. `latencies.parquet`: pooled histograms by server, cell and tag.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from wsbench import metrics
from wsbench.analysis import stored_verdicts
from wsbench.analysis.dataset import COLUMN, FILES, LATENCIES, OUTCOMES, TRIALS, Columns, DataSet, Latencies, TrialResult
from wsbench.metrics.findings import FAMILIES, KINDS, Bottleneck, Finding, Kind, Verdict
from wsbench.metrics.ladder import Step
from wsbench.metrics.registry import plain
from wsbench.metrics.timeline import Timeline
from wsbench.records.engine_files import Plan
from wsbench.records.errors import UserError
from wsbench.records.files import is_plain
from wsbench.records.frozen import LARGEST, one_line
from wsbench.records.placeless import Places
from wsbench.records.rundir import RunFolder, TrialOrder, TrialRecord

#: The columns of the long table that wsbench itself reads.
USED = ["trial", "metric", "value", "reason"]
#: The columns of `outcomes.parquet` in which a path may stand.
PATHS = ("record", "plan")
MADE_BY, COUNT = b"wsbench.made_by", b"wsbench.trials"
NOT_THEN = "this metric did not exist when the data set was computed"


def write(run: RunFolder, data: DataSet) -> None:
    """Writes the three tables, and their checksums. Each file is written whole or not at all."""
    made = {TRIALS: trials_table(data, run.order), LATENCIES: _latencies(data), OUTCOMES: _outcomes(data)}
    same = {MADE_BY: data.made_by.encode(), COUNT: str(len(data.trials)).encode()}
    run.write({name: parquet(table.replace_schema_metadata(same)) for name, table in made.items()})


def read(run: RunFolder) -> DataSet:
    """The stored data set. UserError if it cannot be read."""
    outcomes = _table(run, OUTCOMES)
    try:
        latencies, numbers = _table(run, LATENCIES), _table(run, TRIALS, USED)
        told = [table.schema.metadata or {} for table in (outcomes, latencies, numbers)]
        for key, differ in ((COUNT, "are of different trials"), (MADE_BY, "were computed by different versions of wsbench")):
            # Of some published tables neither is known: empty in one, missing in another.
            if len({one.get(key) or None for one in told}) > 1:
                raise UserError(f"{run.path}: {', '.join(FILES)} {differ}")
        made_by = told[0].get(MADE_BY, b"").decode()
        rows = outcomes.sort_by("trial").to_pylist()
        columns = _columns(numbers, [row["trial"] for row in rows])
        plans: dict[str, Plan] = {}
        trials = [_trial(row, plans, columns, number) for number, row in enumerate(rows)]
        timelines = {row["trial"]: _timeline(row["timeline"]) for row in rows if row["timeline"] is not None}
        ladders = {row["trial"]: _A_LADDER.validate_python(row["ladder"]) for row in rows if row.get("ladder") is not None}
        pooled = {
            (row["server"], tuple(json.loads(row["cell"]).items()), row["tag"]): Latencies(row["log"], str(run.path / LATENCIES))
            for row in latencies.to_pylist()
        }
    except ValidationError as error:
        raise UserError(f"{run.path / OUTCOMES}: {one_line(error)}") from error
    except UserError:
        raise
    except Exception as error:  # whatever an untrusted file makes of Arrow
        said = str(error).splitlines() or [type(error).__name__]
        raise UserError(f"{run.path}: its data set cannot be read: {said[0]}") from error
    return DataSet(trials, columns, pooled, timelines, made_by, stored=True, ladders=ladders)


def trials_in(run: RunFolder) -> set[int]:
    """The numbers of the trials in the long table; empty if there is no table."""
    return set(_table(run, TRIALS, ["trial"])["trial"].unique().to_pylist()) if is_plain(run.path / TRIALS) else set()


def parquet(table: pa.Table) -> bytes:
    """A Parquet file, as small as it gets in sensible time: campaigns are published with it."""
    made = io.BytesIO()
    if "value" in table.column_names:
        # A number seldom comes twice: a dictionary of them would only add their places.
        texts = [name for name in table.column_names if name != "value"]
        pq.write_table(table, made, compression="zstd", compression_level=19, use_dictionary=texts)
    else:
        # Brotli makes records and texts an eighth smaller than zstd does, and numbers larger.
        pq.write_table(table, made, compression="brotli", compression_level=11, use_dictionary=False)
    return made.getvalue()


def without(content: bytes, places: Places) -> bytes:
    """The content of a table whose records name no folder of the machine. Numbers and histograms are the same."""
    table = _read(content)
    texts = [name for name in (*PATHS, "reason") if name in table.column_names]
    mended = {name: [value and places.in_text(value) for value in table[name].unique().to_pylist()] for name in texts}
    before = {name: table[name].unique().to_pylist() for name in texts}
    if mended == before:
        return content
    for name in texts:
        replaced = dict(zip(before[name], mended[name], strict=True))
        column = pa.array([replaced[value] for value in table[name].to_pylist()], pa.string())
        column = column.dictionary_encode() if pa.types.is_dictionary(table[name].type) else column
        table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
    return parquet(table)


def _table(run: RunFolder, name: str, columns: list[str] | None = None) -> pa.Table:
    texts = [column for column in columns or () if column in ("metric", "reason")]
    try:
        return _read(run.read(name), columns, texts)
    except UserError:
        raise
    except Exception as error:  # of Arrow's own exceptions, and IndexError, UnicodeDecodeError, MemoryError
        said = str(error).splitlines() or [type(error).__name__]
        raise UserError(f"{run.path / name}: {said[0]}") from error


def _read(content: bytes, columns: list[str] | None = None, texts: Sequence[str] = ()) -> pa.Table:
    # Arrow's own threads read ahead by default; at the end of Python they are still there, and now and then abort the program.
    file = pq.ParquetFile(io.BytesIO(content), read_dictionary=texts, pre_buffer=False)
    return file.read(columns=columns, use_threads=False)


# ---- the long table ------------------------------------------------------------------------------------------------


def trials_table(data: DataSet, order: Iterable[TrialOrder]) -> pa.Table:
    """Columns: trial, round, server, variant, `cell.*`, control, outcome, metric, value, unit, reason, verdict, bottleneck.

    `verdict` is the word for the row's metric. Of trials after the rounds also `follow_up.load` and `follow_up.purpose`.
    """
    names, trials = list(metrics.METRICS), data.trials
    cells = [planned.cell for planned in order]
    rows = np.repeat(np.arange(len(trials)), len(names))
    by_name = np.tile(np.arange(len(names)), len(trials))
    numbers = data.columns.values.ravel()

    def of_trial(values: list, kind: pa.DataType) -> pa.Array:
        found = pa.array(values, kind)
        return (found.dictionary_encode() if kind == pa.string() else found).take(rows)

    def of_metric(texts: list[str]) -> pa.Array:
        return pa.array(texts, pa.string()).dictionary_encode().take(by_name)

    columns = {
        "trial": of_trial([trial.record.number for trial in trials], pa.int64()),
        "round": of_trial([trial.record.round for trial in trials], pa.int64()),
        "server": of_trial([trial.record.server for trial in trials], pa.string()),
        "variant": of_trial([trial.record.variant for trial in trials], pa.string()),
    }
    for key in dict.fromkeys(key for cell in cells for key in cell):
        kind = _type([cell.get(key) for cell in cells])
        values = [trial.record.cell.get(key) for trial in trials]
        as_text = [None if value is None else str(value) for value in values]
        columns[f"cell.{key}"] = of_trial(as_text if kind == pa.string() else values, kind)
    following = [trial.record.follow_up for trial in trials]
    if any(following):
        columns["follow_up.load"] = of_trial([one and one.load for one in following], pa.float64())
        columns["follow_up.purpose"] = of_trial([one and one.purpose for one in following], pa.string())
    columns |= {
        "control": of_trial([trial.record.control for trial in trials], pa.bool_()),
        "outcome": of_trial([trial.record.outcome for trial in trials], pa.string()),
        "metric": of_metric(names),
        "value": pa.array(numbers, pa.float64(), mask=np.isnan(numbers)),
        "unit": of_metric([metrics.METRICS[name].unit for name in names]),
        "reason": _reasons(data.columns),
        "verdict": _kinds(trials),
        "bottleneck": of_trial([trial.verdict.bottleneck for trial in trials], pa.string()),
    }
    return pa.table(columns)


def _kinds(trials: list[TrialResult]) -> pa.Array:
    """The verdict's word for every trial and metric."""
    families = list(FAMILIES)
    of_family = np.array([[KINDS.index(trial.verdict.of(family)) for family in families] for trial in trials], np.int32)
    place = [families.index(one.family) for one in metrics.METRICS.values()]
    indices = of_family.reshape(len(trials), len(families))[:, place].ravel()
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(KINDS, pa.string()))


def _reasons(columns: Columns) -> pa.Array:
    """Each reason once, in the order of their first use, so that equal data sets are equal files."""
    flat = columns.reasons.ravel()
    used, first = np.unique(flat[flat > 0], return_index=True)
    order = used[np.argsort(first)]
    place = np.zeros(len(columns.texts), np.int32)
    place[order] = np.arange(len(order))
    texts = pa.array([columns.texts[text] for text in order], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(place[flat], mask=flat == 0), texts)


def _type(values: list) -> pa.DataType:
    """One type for a column of cell values; mixed types become text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()


def _columns(table: pa.Table, numbers: list[int]) -> Columns:
    """The numbers of these trials, found by trial and metric. Metrics that wsbench no longer has are dropped."""
    metric, reason = (table[name].combine_chunks() for name in ("metric", "reason"))
    rows = np.asarray(pc.index_in(table["trial"], pa.array(numbers, pa.int64())).fill_null(-1))
    columns = np.array([COLUMN.get(name, -1) for name in metric.dictionary.to_pylist()])[metric.indices.fill_null(0)]
    known = (rows >= 0) & (columns >= 0)
    at = rows[known], columns[known]
    if len(np.unique(at[0])) != len(numbers):
        raise ValueError(f"{TRIALS} lacks a trial of {OUTCOMES}")
    texts = [None, NOT_THEN, *reason.dictionary.to_pylist()]
    shape = (len(numbers), len(COLUMN))
    values, places = np.full(shape, np.nan), np.ones(shape, np.int32)
    values[at] = np.asarray(table["value"].combine_chunks().fill_null(np.nan))[known]
    places[at] = np.asarray(reason.indices.fill_null(-2))[known] + 2
    if not ((np.abs(values) <= LARGEST) | np.isnan(values)).all() or (np.isnan(values) != (places != 0)).any():
        raise ValueError("a number is beyond ±2^63, or there is neither a number nor a reason")
    return Columns(values, places, texts)


# ---- a row a trial -------------------------------------------------------------------------------------------------

_NUMBERS = pa.list_(pa.float64())
_TIMELINE = pa.struct(
    {
        "width_s": pa.int64(),
        "buckets": pa.int64(),
        "phases": pa.list_(pa.struct({"phase": pa.string(), "second": pa.float64()})),
        "series": pa.map_(pa.string(), _NUMBERS),
        "absent": pa.map_(pa.string(), pa.string()),
        "heat": pa.string(),
    }
)
_FINDINGS = pa.list_(
    pa.struct(
        {
            "axis": pa.string(),
            "name": pa.string(),
            "seen": pa.string(),
            "remedy": pa.string(),
            "affects": pa.map_(pa.string(), pa.string()),
        }
    )
)
_LADDER = pa.list_(
    pa.struct(
        {name: pa.float64() for name in ("load", "p50", "p99", "p999")}
        | {"sent": pa.int64(), "failed": pa.int64(), "unused": pa.string()}
    )
)
_OUTCOMES = pa.schema(
    {
        "trial": pa.int64(),
        "record": pa.string(),
        "plan": pa.string(),
        "verdict": pa.string(),
        "findings": _FINDINGS,
        "bottleneck": pa.string(),
        "timeline": _TIMELINE,
        "ladder": _LADDER,
    }
)


def _outcomes(data: DataSet) -> pa.Table:
    plans: dict[int, str] = {}
    rows = []
    for trial in data.trials:
        if trial.plan is not None and id(trial.plan) not in plans:
            plans[id(trial.plan)] = trial.plan.model_dump_json()
        line, climbed = data.timelines.get(trial.record.number), data.ladders.get(trial.record.number)
        rows.append(
            {
                "trial": trial.record.number,
                "record": trial.record.model_dump_json(),
                "plan": None if trial.plan is None else plans[id(trial.plan)],
                "verdict": trial.verdict.kind,
                "findings": [asdict(one) | {"affects": list(one.affects.items())} for one in trial.verdict.findings],
                "bottleneck": trial.verdict.bottleneck,
                "timeline": None if line is None else _of_timeline(line),
                "ladder": None if climbed is None else list(map(asdict, climbed)),
            }
        )
    return pa.Table.from_pylist(rows, _OUTCOMES)


def _of_timeline(line: Timeline) -> dict:
    return {
        "width_s": line.width_s,
        "buckets": line.buckets,
        "phases": [{"phase": phase, "second": second} for phase, second in line.phases],
        "series": list(line.series.items()),
        "absent": list(line.absent.items()),
        "heat": None if line.heat is None else json.dumps(asdict(line.heat), separators=(",", ":")),
    }


_TRIAL_FINDINGS = TypeAdapter(tuple[Finding, ...])
_BOTTLENECK: TypeAdapter[Bottleneck] = TypeAdapter(Bottleneck)
_KIND: TypeAdapter[Kind] = TypeAdapter(Kind)
_A_TIMELINE = TypeAdapter(Timeline)
_A_LADDER = TypeAdapter(list[Step])


def _trial(row: dict, plans: dict[str, Plan], columns: Columns, number: int) -> TrialResult:
    text = row["plan"]
    if text is not None and text not in plans:
        plans[text] = Plan.model_validate_json(text)
    record = TrialRecord.model_validate_json(row["record"])
    if record.number != row["trial"]:
        raise ValueError(f"the record of trial {row['trial']} has number {record.number}")
    plan = None if text is None else plans[text]
    return TrialResult(record, _verdict(row, record, plan, columns, number), plan, columns, number)


def _verdict(row: dict, record: TrialRecord, plan: Plan | None, columns: Columns, number: int) -> Verdict:
    """The stored findings, or what an earlier data set stored in their place."""
    limit = _BOTTLENECK.validate_python(row["bottleneck"])
    if (found := row.get("findings")) is not None:
        made = [one | {"affects": dict(one["affects"])} for one in found]
        return Verdict(_TRIAL_FINDINGS.validate_python(made), limit)
    kind, reasons = _KIND.validate_python(row["verdict"]), tuple(row["reasons"])
    return stored_verdicts.verdict(kind, reasons, limit, record, plan, lambda name: columns.value(number, name))


def _timeline(row: dict) -> Timeline:
    return _A_TIMELINE.validate_python(
        {
            "width_s": row["width_s"],
            "buckets": row["buckets"],
            "phases": [(one["phase"], one["second"]) for one in row["phases"]],
            "series": {name: [value if value is None else plain(value) for value in line] for name, line in row["series"]},
            "absent": dict(row["absent"]),
            "heat": None if row["heat"] is None else json.loads(row["heat"]),
        }
    )


# ---- latencies -----------------------------------------------------------------------------------------------------

_LATENCIES = pa.schema({"server": pa.string(), "cell": pa.string(), "tag": pa.string(), "log": pa.string()})


def _latencies(data: DataSet) -> pa.Table:
    rows = [
        {"server": server, "cell": json.dumps(dict(cell)), "tag": tag, "log": found.log}
        for (server, cell, tag), found in data.latencies.items()
    ]
    return pa.Table.from_pylist(rows, _LATENCIES)

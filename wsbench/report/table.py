"""The long-format table of a campaign, a row a trial and metric, and `trials.parquet` made from it.

Derived: it may be deleted and is rebuilt from the raw files with today's metrics. A number that was not measured is
null, with its reason beside it.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from wsbench import metrics
from wsbench.report.results import Results, TrialResult, load
from wsbench.rundir import RunFolder

FILE = "trials.parquet"


def trials_table(results: Results) -> pa.Table:
    """Columns: trial, round, server, variant, `cell.*`, control, outcome, metric, value, unit, reason, verdict, bottleneck."""
    keys = list(dict.fromkeys(key for planned in results.order for key in planned.cell))
    rows = [_row(trial, name, keys) for trial in results.every_trial for name in metrics.METRICS]
    fields = [
        ("trial", pa.int64()),
        ("round", pa.int64()),
        ("server", pa.string()),
        ("variant", pa.string()),
        *((f"cell.{key}", _type([planned.cell.get(key) for planned in results.order])) for key in keys),
        ("control", pa.bool_()),
        ("outcome", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
        ("reason", pa.string()),
        ("verdict", pa.string()),
        ("bottleneck", pa.string()),
    ]
    for row in rows:
        for name, kind in fields:
            if name.startswith("cell.") and kind == pa.string() and row[name] is not None:
                row[name] = str(row[name])
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def write_table(run: RunFolder, results: Results | None = None) -> Path:
    """Writes `trials.parquet` into the run directory, whole or not at all."""
    file = run.path / FILE
    part = file.with_name(FILE + ".part")
    pq.write_table(trials_table(results or load(run)), part)
    part.replace(file)
    return file


def _row(trial: TrialResult, name: str, keys: list[str]) -> dict:
    record = trial.record
    return {
        "trial": record.number,
        "round": record.round,
        "server": record.server,
        "variant": record.variant,
        **{f"cell.{key}": record.cell.get(key) for key in keys},
        "control": record.control,
        "outcome": record.outcome,
        "metric": name,
        "value": trial.values[name],
        "unit": metrics.METRICS[name].unit,
        "reason": trial.reasons.get(name),
        "verdict": trial.verdict.kind,
        "bottleneck": trial.verdict.bottleneck,
    }


def _type(values: list) -> pa.DataType:
    """One type for a column of cell values; mixed kinds are written as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()

"""The long-format table of a campaign, a row a trial and metric, and `trials.parquet` made from it.

Derived: it may be deleted and is rebuilt from the raw files with today's metrics. A number that was not measured is
null, with its reason beside it.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wsbench import metrics
from wsbench.analysis.results import Results
from wsbench.records.errors import UserError
from wsbench.records.files import read_file

FILE = "trials.parquet"


def trials_table(results: Results) -> pa.Table:
    """Columns: trial, round, server, variant, `cell.*`, control, outcome, metric, value, unit, reason, verdict, bottleneck."""
    names = list(metrics.METRICS)
    trials = results.every_trial
    keys = list(dict.fromkeys(key for planned in results.order for key in planned.cell))

    rows = np.repeat(np.arange(len(trials)), len(names))
    by_name = np.tile(np.arange(len(names)), len(trials))
    numbers = results.columns.values.ravel()

    def of_trial(values: list, kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(rows)

    columns = {
        "trial": of_trial([trial.record.number for trial in trials], pa.int64()),
        "round": of_trial([trial.record.round for trial in trials], pa.int64()),
        "server": of_trial([trial.record.server for trial in trials], pa.string()),
        "variant": of_trial([trial.record.variant for trial in trials], pa.string()),
    }
    for key in keys:
        kind = _type([planned.cell.get(key) for planned in results.order])
        values = [trial.record.cell.get(key) for trial in trials]
        as_text = [None if value is None else str(value) for value in values]
        columns[f"cell.{key}"] = of_trial(as_text if kind == pa.string() else values, kind)
    columns |= {
        "control": of_trial([trial.record.control for trial in trials], pa.bool_()),
        "outcome": of_trial([trial.record.outcome for trial in trials], pa.string()),
        "metric": pa.array(names, pa.string()).take(by_name),
        "value": pa.array(numbers, pa.float64(), mask=np.isnan(numbers)),
        "unit": pa.array([metrics.METRICS[name].unit for name in names]).take(by_name),
        "reason": pa.array(results.columns.texts, pa.string()).take(results.columns.reasons.ravel()),
        "verdict": of_trial([trial.verdict.kind for trial in trials], pa.string()),
        "bottleneck": of_trial([trial.verdict.bottleneck for trial in trials], pa.string()),
    }
    return pa.table(columns)


def table_bytes(results: Results) -> bytes:
    """`trials.parquet` as it is written."""
    made = io.BytesIO()
    pq.write_table(trials_table(results), made)
    return made.getvalue()


def trials_in(file: Path) -> set[int]:
    """The numbers of the trials that a table has; none where there is no such file. UserError where it cannot be read."""
    if not os.path.lexists(file):
        return set()
    try:
        found = pq.read_table(io.BytesIO(read_file(file)), columns=["trial"], use_threads=False)
        return set(found["trial"].unique().to_pylist())
    except (pa.ArrowException, KeyError) as error:
        raise UserError(f"{file}: {str(error).splitlines()[0]}") from error


def _type(values: list) -> pa.DataType:
    """One type for a column of cell values; mixed kinds are written as text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds <= {int, float} else pa.string()

"""The data of the page's script: everything in figures, tables and downloads, as plain values in columns.

Results and summary rows in, a dictionary for JSON out. Texts are stored once in a list and referenced by index. Numbers have only
the digits that are shown. The functions in `script/` document the parts they read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from wsbench import metrics
from wsbench.analysis import titles, wording
from wsbench.analysis.dataset import COLUMN, TrialResult
from wsbench.analysis.memory import memory_fits
from wsbench.analysis.results import Results
from wsbench.analysis.summary import SummaryRow, column_scale
from wsbench.analysis.summary import columns as summary_columns
from wsbench.metrics.findings import FAMILIES, KINDS
from wsbench.records import contained
from wsbench.records.rundir import LOG_LINES
from wsbench.report.palette import looks_by_name

DIGITS = 6  # of a trial's values: enough for downloads
PERCENTILES = ("p50", "p90", "p99", "p999", "max")  # of the table under the curves
LINE_LETTERS = 400
MOST_LOGS = 200  # pooled histograms in the page, about two kilobytes each
MOST_TIMELINES = 300  # trials; each is read a second time
MOST_NUMBERS = 800_000  # in all timelines together: about a megabyte of the page


class Texts:
    """A list of distinct texts."""

    def __init__(self) -> None:
        self.list: list[str] = []
        self._place: dict[str, int] = {}

    def place(self, text: str | None) -> int:
        text = wording.NONE if text is None else text
        if text not in self._place:
            self._place[text] = len(self.list)
            self.list.append(text)
        return self._place[text]


def page_data(results: Results, rows: list[SummaryRow]) -> dict:
    """The complete data block of the page."""
    texts = Texts()
    server_at = {name: place for place, name in enumerate(results.names)}
    cell_at = {cell: place for place, cell in enumerate(results.cells)}
    typical = _typical(results)
    found, note = _timelines(results)
    fits = contained.part("memory of a connection", lambda: memory_fits(results), lambda _: [])
    return {
        "servers": _servers(results),
        "reference": None if results.reference is None else server_at[results.reference],
        "keys": [{"name": key, "title": key.replace("_", " ")} for key in results.swept],
        "axis": results.numeric_key,
        "cells": [_cell(results, cell) for cell in results.cells],
        "metrics": {name: _metric(results, name) for name in metrics.METRICS},
        "roles": _roles(results) | {"no_timelines": note},
        "rows": [_row(results, row, server_at, cell_at, texts) for row in rows],
        "curves": _curves(results, server_at, cell_at),
        "memory": [asdict(fit) | {"server": server_at[fit.name]} for fit in fits],
        "timelines": found,
        **_trials(results, server_at, cell_at, typical, texts),
        "texts": texts.list,
    }


def _servers(results: Results) -> list[dict]:
    of = {row.name: row for row in results.servers}
    made = []
    for name, look in looks_by_name(results.names, {row.name: row.language for row in results.servers}).items():
        row = of.get(name)
        known = {"language": "", "tags": [], "library": "", "command": ""}
        if row is not None:
            env = [f"{key}={value}" for key, value in row.env.items()]
            known = {"language": row.language, "tags": row.tags, "library": f"{row.library} {row.library_version}"}
            known["command"] = row.running.text if row.running else " ".join([*env, *row.run])
        ceiling = name in results.references
        made.append({"name": name, "label": results.label(name), "ceiling": ceiling, **known, "look": asdict(look)})
    return made


def _cell(results: Results, cell) -> dict:
    return {"text": results.cell_text(cell), "values": {key: dict(cell).get(key) for key in results.swept}}


def _metric(results: Results, name: str) -> dict:
    metric, scale = metrics.METRICS[name], column_scale(results, name)
    shown = {"shown": scale.unit, "size": scale.size, "text": metric.text}
    return {"name": name, "title": titles.title(name), "unit": metric.unit, "family": metric.family, **shown}


def trial_columns(results: Results) -> list[str]:
    latencies = [f"{results.latency}_{statistic}" for statistic in ("p50", "p99", "max")]
    chosen = [
        results.leading,
        results.throughput,
        *latencies,
        "errors",
        "server_cpu_percent_mean",
        "server_rss_bytes_max",
    ]
    known = ~np.isnan(results.columns.values[results.rows]).all(axis=0)
    return [name for name in dict.fromkeys([*chosen, results.headline]) if known[COLUMN[name]] or not known.any()]


def _roles(results: Results) -> dict:
    time = titles.TIMES[results.latency.partition("_")[0]].capitalize()
    chosen = {"throughput": results.throughput, "latency": results.latency, "time": time}
    chosen |= {"leading": results.leading, "second": results.second, "each": "server"}
    return chosen | {"columns": summary_columns(results), "trial_columns": trial_columns(results)}


def _row(results: Results, row: SummaryRow, server_at: dict, cell_at: dict, texts: Texts) -> dict:
    ratio = row.against_reference
    figures = {name: figure.estimate for name, figure in row.figures.items()}
    for name in (f"{results.latency}_{statistic}" for statistic in PERCENTILES):
        if name in metrics.METRICS and name not in figures:
            figures[name] = results.estimate(row.name, row.cell, name)
    return {
        "server": server_at[row.name],
        "cell": cell_at[row.cell],
        "figures": {name: _estimate(found, texts) for name, found in figures.items()},
        "ratio": None if ratio is None else [short(ratio.ratio), short(ratio.low), short(ratio.high)],
        "counts": [*(row.verdicts[kind] for kind in KINDS), row.failed, row.missing],
        "limit": row.bottleneck,
        "note": row.note,
        "tier": row.tier,
    }


def _estimate(found, texts: Texts) -> list:
    if found.mean is None:
        bound = [] if found.bound is None else [found.bound[0], short(found.bound[1])]
        return [None, texts.place(found.reason), *bound]
    return [short(found.mean), short(found.low), short(found.high), found.repeats, *([1] if found.at_least else [])]


def _curves(results: Results, server_at: dict, cell_at: dict) -> list[dict]:
    few = len(results.curves) <= MOST_LOGS
    return [
        {"server": server_at[name], "cell": cell_at[cell], "count": curve.count, "log": curve.log if few else None}
        | {"x": _all_short([x for x, _ in curve.points], 4), "y": _all_short([ns for _, ns in curve.points], 4)}
        for cell in results.cells
        for name in results.names
        if (curve := results.curves.get((name, cell))) is not None
    ]


# ---- trials --------------------------------------------------------------------------------------------------------


def _trials(results: Results, server_at: dict, cell_at: dict, typical: set[int], texts: Texts) -> dict:
    trials, records = results.trials, [trial.record for trial in results.trials]
    plans, plan_of = _plans(trials)
    columns = results.columns
    all_reasons = columns.reasons[results.rows]
    found = {
        "number": [record.number for record in records],
        "round": [record.round for record in records],
        "server": [server_at[record.name] for record in records],
        "cell": [cell_at[trial.cell] for trial in trials],
        "kind": [3 if t.record.outcome == "failed" else KINDS.index(t.verdict.kind) for t in trials],
        "kinds": {family: [KINDS.index(trial.verdict.of(family)) for trial in trials] for family in FAMILIES},
        "limit": [texts.place(trial.verdict.bottleneck) for trial in trials],
        "reasons": [[texts.place(reason) for reason in _reasons(trial)] for trial in trials],
        "typical": [int(record.number in typical) for record in records],
        "connections": [None if trial.plan is None else trial.plan.connections for trial in trials],
        "again_of": [record.again_of for record in records],
        "started": [None if record.started_unix_s is None else round(record.started_unix_s) for record in records],
        "duration": [short(record.duration_s, 3) for record in records],
        "server_cpus": [texts.place(_cpus(record.server_cpus)) for record in records],
        "engine_cpus": [texts.place(_cpus(record.engine_cpus)) for record in records],
        "exit": [texts.place(record.server_exit) for record in records],
        "log": [texts.place(_log_tail(trial)) for trial in trials],
        "plan": plan_of,
        "values": {},
        "why": {},
    }
    for name in metrics.METRICS:
        reasons = all_reasons[:, COLUMN[name]].tolist()
        place = {reason: texts.place(columns.texts[reason]) if reason else None for reason in dict.fromkeys(reasons)}
        if 0 in place:
            found["values"][name] = _all_short(columns.of(name, results.rows))
        found["why"][name] = next(iter(place.values())) if len(place) == 1 else [place[reason] for reason in reasons]
    return {"trials": found, "plans": plans}


def _reasons(trial: TrialResult) -> tuple[str, ...]:
    """The reason of a failed trial, else the reasons of its verdict."""
    return (trial.record.reason or "",) if trial.record.outcome == "failed" else trial.verdict.reasons


def _cpus(cpus: list[int]) -> str:
    return ", ".join(map(str, cpus)) or "not pinned"


def _log_tail(trial: TrialResult) -> str:
    return "\n".join(line[:LINE_LETTERS] for line in trial.record.log_tail[-LOG_LINES:])


def _plans(trials: list[TrialResult]) -> tuple[list[dict], list[int | None]]:
    """The distinct plans, the first in full and the others as differences from it; and per trial the index of its plan."""
    base: dict | None = None
    seen: dict[str, int] = {}
    plans: list[dict] = []
    places: list[int | None] = []
    for trial in trials:
        if trial.plan is None:
            places.append(None)
            continue
        plan = trial.plan.model_dump(mode="json")
        base = plan if base is None else base
        differs = plan if plan is base else {key: value for key, value in plan.items() if base[key] != value}
        key = repr(differs)
        if key not in seen:
            seen[key] = len(plans)
            plans.append(differs)
        places.append(seen[key])
    return plans, places


# ---- over time -----------------------------------------------------------------------------------------------------


def _typical(results: Results) -> set[int]:
    """Per server and cell, the trial with the median of the leading metric. Unlike a mean over time, it really happened."""
    found = set()
    for cell in results.cells:
        for name in results.names:
            ranked = sorted(
                results.counted(name, cell, results.leading),
                key=lambda trial: (trial.value(results.leading) or 0, trial.record.number),
            )
            if ranked:
                found.add(ranked[(len(ranked) - 1) // 2].record.number)
    return found


def drawn(results: Results) -> list[int]:
    """Numbers of the trials that the page draws over time: all, or the typical ones of as many cells as fit."""
    ran = [trial for trial in results.trials if trial.record.outcome != "failed"]
    if len(ran) > MOST_TIMELINES:
        typical, of_cell = _typical(results), {cell: at for at, cell in enumerate(results.cells)}
        chosen = [trial for trial in ran if trial.record.number in typical]
        ran = sorted(chosen, key=lambda trial: of_cell[trial.cell])[:MOST_TIMELINES]
    return [trial.record.number for trial in ran]


def _timelines(results: Results) -> tuple[dict[int, dict], str]:
    """Timelines by index in the list of trials, and a note on what is left out."""
    place = {trial.record.number: at for at, trial in enumerate(results.trials)}
    chosen = drawn(results)
    note = ""
    if len(chosen) < sum(trial.record.outcome != "failed" for trial in results.trials):
        note = f"The timelines cover {len(chosen):,} trials: per server and cell, the one with the median " + titles.title(
            results.leading, inside=True
        )
        note += ", up to the page's size limit. The run directory has the raw files of every trial."
    found, numbers = {}, 0
    for number in chosen:
        if (line := results.data.timelines.get(number)) is None:
            continue
        made = vars(line) | {"heat": None if line.heat is None else vars(line.heat)}
        numbers += sum(map(len, line.series.values())) + (2 * sum(map(len, line.heat.columns)) if line.heat else 0)
        if numbers > MOST_NUMBERS:
            note = f"The page has room for the timelines of the first {len(found):,} trials; the run directory has the others."
            break
        found[place[number]] = made
    return found, note


def _all_short(values: Sequence[float | None], digits: int = DIGITS) -> list[float | int | None]:
    """Like `short`, for many values at once; NaN becomes None."""
    known = np.array(values, dtype=float)
    none = np.isnan(known)
    known[none] = 0.0
    with np.errstate(divide="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(known)))
    power = 10.0 ** np.clip(np.where(np.isfinite(places), places, 0), -300, 300)
    rounded = np.round(known * power) / power
    whole = (rounded == np.floor(rounded)) & (np.abs(rounded) < 1e15)
    return [
        None if absent else int(found) if is_whole else found
        for absent, found, is_whole in zip(none.tolist(), rounded.tolist(), whole.tolist(), strict=True)
    ]


def short(value: float | int | None, digits: int = DIGITS) -> float | int | None:
    if value is None or value == 0:
        return value
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded

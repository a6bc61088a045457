"""The results of `wsbench load` as text, JSON or CSV. It reads the finished trial as a report does, and starts nothing."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

from wsbench import metrics
from wsbench.analysis.thresholds import Judged
from wsbench.cli.exits import BREACHED, DONE, FAULT, INTERRUPTED, NOTHING_USABLE
from wsbench.cli.terminal import COLOUR, console, shown, table
from wsbench.engine.histogram import Histogram
from wsbench.host import machine
from wsbench.metrics.findings import FAMILIES, Verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import of_load
from wsbench.records.engine_files import End
from wsbench.records.files import write_output
from wsbench.records.plain import time_text
from wsbench.records.rundir import TrialFolder, TrialRecord
from wsbench.records.session_table import Session
from wsbench.report import loaded
from wsbench.run import target

QUANTILES = ("0.5", "0.9", "0.99", "0.999")
#: Times that are the engine's own.
OF_ENGINE = ("send_lag", "receive_delay")


# ---- for people ------------------------------------------------------------------------------------------------------


def summary(folder: TrialFolder, record: TrialRecord, judged: list[Judged], every: bool = False) -> None:
    """The answer in a sentence, or the cause if nothing can be used; then counts, percentiles, errors, and what changes the answer.
    `every`: also the engine's own times, and every finding."""
    trial = TrialData(folder, record)
    found = of_load(trial)
    if record.outcome == "failed" or trial.end is None:
        console.print(f"[red]failed[/]: {shown(found.cause.seen)}")
        _log(record)
    if trial.end is None:
        return
    if found.cause is None:
        console.print(f"{shown(loaded.answer(trial, found))} [{COLOUR[found.kind]}]{found.kind}[/]")
    elif record.outcome != "failed":
        console.print(f"[red]{shown(found.cause.seen)}[/]")
    _counts(trial, trial.end)
    _times_table(trial, every)
    for kind, (count, example) in loaded.examples(trial).items():
        console.print(f"[red]{kind}[/]: {count} ({shown(example)})")
    if trial.plan is not None and trial.window_s is not None:
        console.print(shown(loaded.shape(trial)))
    if found.cause is not None:
        console.print(f"[{COLOUR[found.kind]}]{found.kind}[/]")
        if found.cause.remedy:
            console.print(f"  {shown(found.cause.remedy)}")
    _findings(found, every)
    if found.cause is not None:
        console.print("[red]No throughput or latency of this measurement can be used.[/]")
    if (advice := hint(trial, found)) is not None:
        console.print(f"[yellow]hint[/]: {shown(advice)}")
    for one in judged:
        console.print(f"[{'red' if one.breached else 'yellow' if one.undecided else 'green'}]{shown(one.words)}[/]")


def _times_table(trial: TrialData, every: bool) -> None:
    """Without `every`: the times of the server, and of those the one that is reported."""
    times = loaded.times(trial)
    left_out = () if every else (*OF_ENGINE, *(("service",) if "response" in times else ()))
    steps = {f"step {name}": of for name, of in loaded.step_times(trial).items()}
    if len(steps) == 1 and not every:
        steps = {}  # the same times again
    rows = [
        [name, f"{of.count:,}", *map(time_text, [of.min, *(of.quantile(q) for q in QUANTILES), of.max])]
        for name, of in (times | steps).items()
        if name not in left_out
    ]
    table(None, ["", "count", "min", "p50", "p90", "p99", "p99.9", "max"], rows, right=set(range(1, 8)))


def _findings(found: Verdict, every: bool) -> None:
    """Without `every`: of those about the instrument, the ones as bad as the worst. The others are less serious."""
    worst = found.instrument[0].kind if found.instrument else None
    telling = [one for one in found.instrument if every or one.kind == worst]
    for one in (*telling, *found.outcomes):
        if one is not found.cause:
            console.print(f"  {shown(one.text)}")
    if more := len(found.instrument) - len(telling):
        console.print(f"  {more} less serious: -v")


def hint(trial: TrialData, found: Verdict) -> str | None:
    """What to type to get a better measurement, if that is known, and the cause of a useless one does not rule it out."""
    if (advice := loaded.no_echo(trial)) is not None:
        return advice
    if found.cause is not None and found.cause.name != "unusable":
        return None
    return target.hint(trial.plan, trial.record, metrics.values(trial, ["engine_wait_percent"])["engine_wait_percent"])


def _log(record: TrialRecord) -> None:
    """The last lines of a server that the user's command started."""
    for line in record.log_tail:
        console.print(f"  {shown(line)}")


def _counts(trial: TrialData, end: End) -> None:
    console.print(f"{shown(trial.record.server)}  {loaded.connected(end)}")
    if (arrived := loaded.received(trial)) is not None:
        console.print(arrived)
    if not trial.holds_only and trial.window_s is not None:
        console.print(f"{loaded.rate(trial)}: {loaded.ledger(end)}")


def exit_code(found: Verdict, interrupted: bool, judged: list[Judged]) -> int:
    """In order of precedence: an interrupt, an engine or a host that failed, no usable number, a breached threshold, an undecided
    one. `found` is the verdict on the load."""
    if interrupted:
        return INTERRUPTED
    if found.cause is not None:
        return FAULT if (found.cause.axis, found.cause.name) == ("host", "failed") else NOTHING_USABLE
    if any(one.breached for one in judged):
        return BREACHED
    return NOTHING_USABLE if any(one.undecided for one in judged) else DONE


# ---- for programs ----------------------------------------------------------------------------------------------------


def document(folder: TrialFolder, record: TrialRecord, judged: list[Judged], interrupted: bool) -> str:
    """One JSON document with every metric and its unit, or null and the reason."""
    trial = TrialData(folder, record)
    found = of_load(trial)
    measured = metrics.measure(trial)
    end = trial.end
    whole = {
        "format": 1,
        "url": record.server,
        "folder": str(folder.path),
        "outcome": record.outcome if end is None or record.outcome == "failed" else end.outcome,
        "reason": record.reason,
        "interrupted": interrupted,
        "cause": None if found.cause is None else found.cause.seen,
        "verdict": {
            "kind": found.kind,
            "reasons": list(found.reasons),
            "findings": [asdict(one) for one in found.findings],
            "families": {family: found.of(family) for family in FAMILIES},
            "usable": found.cause is None,
            "limit": found.bottleneck,
        },
        "hint": hint(trial, found),
        "server": {"cpus": record.server_cpus, "exit": record.server_exit, "log_tail": record.log_tail},
        "plan": None if trial.plan is None else trial.plan.model_dump(),
        "connections": None if end is None else end.connections.model_dump(),
        "ledger": None if end is None else end.measured.model_dump(),
        "errors": None if end is None else end.errors,
        "metrics": {
            name: {"value": value, "unit": metrics.METRICS[name].unit, "reason": measured.reasons.get(name)}
            for name, value in measured.values.items()
        },
        "times_ns": {tag: _times(of) for tag, of in trial.histograms.items() if of.count},
        "session": _session(trial),
        "thresholds": [
            {
                "text": one.threshold.text,
                "value": one.value,
                "reason": one.reason,
                "breached": one.breached,
                "undecided": one.undecided,
            }
            for one in judged
        ],
    }
    return json.dumps(whole, indent=1, ensure_ascii=False)


def _session(trial: TrialData) -> dict | None:
    """What a session has apart from its requests, and the times of its steps by name."""
    if trial.plan is None or not isinstance(trial.plan.scenario, Session):
        return None
    counts = None if trial.end is None or trial.end.session is None else trial.end.session.model_dump()
    return {"counts": counts, "steps_ns": {name: _times(of) for name, of in loaded.step_times(trial).items()}}


def _times(of: Histogram) -> dict:
    quantiles = {f"p{q[2:].ljust(2, '0')}": of.quantile(q) for q in QUANTILES}
    return {"count": of.count, "min": of.min, "mean": of.mean, **quantiles, "max": of.max}


def write_report(folder: TrialFolder, record: TrialRecord, judged: list[Judged], file: Path) -> None:
    """One page with everything that the load found."""
    from wsbench.report import load_page  # the base installation lacks what it needs

    trial = TrialData(folder, record)
    page = load_page.render(load_page.Load(trial, sys.argv[1:], machine.read(), hint(trial, of_load(trial)), judged))
    write_output(file, page.encode())


def write_csv(folder: TrialFolder, record: TrialRecord, file: Path) -> None:
    """One row per metric: name, value, unit, and the reason if there is no value."""
    measured = metrics.measure(TrialData(folder, record))
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    rows.writerow(["metric", "value", "unit", "reason"])
    for name, value in measured.values.items():
        shown = "" if value is None else value
        rows.writerow([name, shown, metrics.METRICS[name].unit, measured.reasons.get(name, "")])
    write_output(file, out.getvalue().encode())

"""The page of one load, made of the parts of a campaign's page. A finished load in, HTML text out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from markupsafe import Markup

from wsbench import __version__, metrics
from wsbench.analysis import titles, wording
from wsbench.analysis.curves import curve_points
from wsbench.analysis.thresholds import Judged
from wsbench.engine.histogram import Histogram
from wsbench.metrics.findings import FAMILIES, KINDS, Verdict
from wsbench.metrics.timeline import reported, timeline
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import of_load
from wsbench.records.engine_files import Plan
from wsbench.records.hosts import MachineRecord
from wsbench.records.plain import time_text, visible
from wsbench.records.session_table import Session
from wsbench.report import loaded
from wsbench.report.blocks import Table
from wsbench.report.data import short
from wsbench.report.frame import framed, moment
from wsbench.report.palette import looks
from wsbench.report.still import still_load

QUANTILES = {"p50": "0.5", "p90": "0.9", "p99": "0.99", "p999": "0.999"}
STATISTICS = (*QUANTILES, "max")
#: Times of single connections, not of messages: in the table and no lines.
NOT_DRAWN = ("connect", "setup")
#: Units that say nothing behind a number.
BARE = {"count", "ratio", "fraction"}


@dataclass(frozen=True)
class Load:
    """A finished load and what is known of it apart from its folder. `words`: its command line, without the program."""

    trial: TrialData
    words: Sequence[str]
    machine: MachineRecord
    hint: str | None
    judged: Sequence[Judged]


def render(load: Load) -> str:
    trial = load.trial
    found = of_load(trial)
    data = visible(json.dumps(_data(trial, found), ensure_ascii=False, separators=(",", ":")))
    drawn = still_load(data)
    return framed(
        "load.html",
        data,
        load=load,
        trial=trial,
        verdict=found,
        words=FAMILIES,
        lead=_lead(trial, found),
        facts=_facts(load),
        ledger=_ledger(trial),
        errors=loaded.examples(trial),
        times=_table("", loaded.times(trial)),
        steps=_table("step", loaded.step_times(trial)),
        shape=loaded.shape(trial),
        metrics=_metrics(trial, found),
        settings=_settings(load),
        plan=_plan(trial.plan),
        command=_command(load.words),
        version=__version__,
        shapes=Markup(drawn["shapes"]),
        legend=Markup(drawn["legend"]),
        absent=Markup(drawn["absent"]),
        drawn={id_: Markup(section["html"]) for id_, section in drawn["sections"].items()},
    )


# ---- words and tables ----------------------------------------------------------------------------------------------


def _lead(trial: TrialData, found: Verdict) -> str:
    """The load in a sentence or two."""
    if trial.record.outcome == "failed" or trial.end is None:
        return f"The load failed: {trial.record.reason or 'the engine wrote no result'}."
    held = trial.end.connections
    if found.cause is not None:
        return f"{found.cause.seen[:1].upper()}{found.cause.seen[1:]}."
    if trial.holds_only:
        said = [f"{held.established:,} of {held.asked:,} connections were open", loaded.received(trial), loaded.shape(trial)]
        return "; ".join(filter(None, said)) + "."
    said = [f"{loaded.rate(trial)}."]
    times = trial.reported_times
    if times is not None and times.count:
        half, most = (time_text(times.quantile(q)) for q in ("0.5", "0.99"))
        said.append(f"Half of the {titles.TIMES[reported(trial)]}s are at most {half}, 99 % at most {most}.")
    counts = trial.end.measured
    lost = [f"{number:,} {what}" for number, what in ((counts.failed, "failed"), (counts.unanswered, "had no reply")) if number]
    if lost:
        said.append(f"Of {wording.count(counts.sent, 'message')}, {wording.listed(lost)}.")
    else:
        said.append("Every message was answered." if counts.sent else "No message was sent.")
    if trial.end.session is not None and trial.end.session.copies_expected:
        said.append(f"In the rooms, {trial.end.session.copies_received:,} of {trial.end.session.copies_expected:,} copies arrived.")
    return " ".join(said)


def _facts(load: Load) -> list[str]:
    record, plan = load.trial.record, load.trial.plan
    facts = [moment(record.started_unix_s)] if record.started_unix_s is not None else []
    facts.append(f"{load.machine.cpu_model or 'unknown CPU'}, {wording.count(load.machine.cpus, 'CPU')}")
    facts.append(wording.count(plan.connections, "connection")) if plan is not None else None
    return [*facts, f"wsbench {__version__}"]


def _ledger(trial: TrialData) -> Table:
    """Messages and connections, as they were counted."""
    if trial.end is None:
        return Table(["count", "number"], [])
    held, counts = trial.end.connections, trial.end.measured
    rows = [["connections asked for", held.asked], ["connections established", held.established]]
    if not trial.holds_only:
        rows += [[f"messages {name}", getattr(counts, name)] for name in ("sent", "answered", "failed", "unanswered")]
        rows += [["messages due but never sent", counts.unsent]] if counts.unsent else []
    if (session := trial.end.session) is not None:
        rows += [["pushes in the window", session.pushes_in_window], ["keep-alives", session.keepalives]]
        if session.copies_expected:
            rows += [["copies expected in rooms", session.copies_expected], ["copies received", session.copies_received]]
            rows.append(["copies out of order", session.copies_out_of_order])
            rows += [["copies misplaced", session.copies_misplaced]] if session.copies_misplaced else []
    return Table(["count", "number"], [[name, f"{number:,}"] for name, number in rows])


def _table(head: str, found: dict[str, Histogram]) -> Table:
    rows = [
        [name, f"{of.count:,}", *map(time_text, [of.min, *(of.quantile(q) for q in QUANTILES.values()), of.max])]
        for name, of in found.items()
    ]
    return Table([head or "time", "count", "min", "p50", "p90", "p99", "p99.9", "max"], rows)


def _metrics(trial: TrialData, found: Verdict) -> dict[str, list[tuple]]:
    """By family, with the family's word: (metric, number with its unit). Without a number: under "", with the reason."""
    measured = metrics.measure(trial)
    by_family = {f"{name}: {found.of(family)}": [] for family, name in FAMILIES.items()} | {"": []}
    for one in metrics.METRICS.values():
        value = measured.values[one.name]
        if value is None:
            by_family[""].append((one, measured.reasons.get(one.name, "")))
        else:
            scale = wording.scale(one.unit, [value])
            text = scale.text(value) if one.unit in BARE else scale.with_unit(value)
            by_family[f"{FAMILIES[one.family]}: {found.of(one.family)}"].append((one, text))
    return {title: rows for title, rows in by_family.items() if rows}


def _settings(load: Load) -> list[tuple[str, str]]:
    """Target, plan and processes as pairs of words."""
    record, plan = load.trial.record, load.trial.plan
    pairs = [("URL", record.server)]
    if plan is not None:
        pairs += [("address", ", ".join([plan.target.address, *plan.target.replicas])), ("path", plan.target.path)]
        pairs += [("scenario", plan.scenario.kind), ("load", loaded.shape(load.trial)), ("seed", str(plan.seed))]
        pairs.append(("engine", f"{wording.count(record.engines, 'process')}, {wording.count(plan.threads, 'thread')} each"))
    for name, cpus in (("server CPUs", record.server_cpus), ("engine CPUs", record.engine_cpus)):
        pairs.append((name, ", ".join(map(str, cpus)) or "not pinned"))
    pairs += [("server exit", record.server_exit)] if record.server_exit else []
    machine = load.machine
    pairs.append(("host", f"{machine.hostname}, {machine.distribution or 'unknown distribution'}, {machine.kernel}"))
    return [*pairs, ("folder", str(load.trial.folder.path))]


def _command(words: Sequence[str]) -> str:
    """The command line without the values of headers, which may be secret."""

    def is_header(option: str) -> bool:
        return option == "-H" or (len(option) > len("--h") and "--header".startswith(option))

    shown = []
    for before, word in zip(["", *words], words, strict=False):
        name, colon, _ = word.partition(":")
        given = is_header(before) or is_header(word.partition("=")[0]) or word.startswith("-H")
        shown.append(f"{name}: …" if given and colon else word)
    return shlex.join(["wsbench", *shown])


def _plan(plan: Plan | None) -> str:
    """The plan without what a reader of the page may not know: values of headers, and the messages of a session."""
    if plan is None:
        return "(the load has no plan)"
    shown = plan.model_dump(mode="json") | {"headers": [[name, "…"] for name, _ in plan.headers]}
    if isinstance(plan.scenario, Session):
        shown["scenario"] = {"kind": "session", "steps": [step.name for step in plan.scenario.steps]}
    return json.dumps(shown, indent=1, ensure_ascii=False)


# ---- data of the script --------------------------------------------------------------------------------------------


def _data(trial: TrialData, found: Verdict) -> dict:
    """The data block: the load as the first server, without a curve, and each kind of latency as a further one."""
    curves = {name: of for name, of in loaded.times(trial).items() if name not in NOT_DRAWN} | loaded.step_times(trial, setup=False)
    names = ["the load", *curves]
    line = timeline(trial)
    whole = wording.scale("µs", (of.quantile("0.5") / 1e3 for of in curves.values()))
    return {
        "servers": [
            {"name": name, "label": name, "language": "", "tags": [], "library": "", "ceiling": False, "look": asdict(look)}
            for name, look in zip(names, looks(names), strict=True)
        ],
        "reference": None,
        "keys": [],
        "axis": None,
        "cells": [{"text": "", "values": {}}],
        "metrics": {
            f"time_{name}": {"name": f"time_{name}", "shown": whole.unit, "size": whole.size} | _heading(name)
            for name in STATISTICS
        },
        "roles": {"throughput": "", "latency": "time", "time": "Time", "leading": "", "second": None, "each": "time"}
        | {"columns": [], "trial_columns": [], "no_timelines": ""},
        "rows": [
            {"server": place, "cell": 0, "ratio": None, "figures": {f"time_{name}": [value] for name, value in _at(of).items()}}
            for place, of in enumerate(curves.values(), 1)
        ],
        "curves": [
            {"server": place, "cell": 0, "count": of.count, "log": None}
            | dict(zip("xy", ([short(value, 4) for value in axis] for axis in zip(*curve_points(of), strict=True)), strict=True))
            for place, of in enumerate(curves.values(), 1)
        ],
        "memory": [],
        "timelines": {} if line is None else {0: vars(line) | {"heat": None if line.heat is None else vars(line.heat)}},
        "trials": {"number": [None], "server": [0], "cell": [0], "typical": [1], "kind": [KINDS.index(found.kind)], "values": {}},
        "texts": [],
    }


def _heading(statistic: str) -> dict[str, str]:
    return {"title": titles.STATISTICS[statistic], "unit": "µs"}


def _at(of: Histogram) -> dict[str, float]:
    """The statistics of the tables, in microseconds."""
    return {name: of.quantile(q) / 1e3 for name, q in QUANTILES.items()} | {"max": of.max / 1e3}

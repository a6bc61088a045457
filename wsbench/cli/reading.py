"""The commands that read: lists, reports, claims, comparisons, exports and pages."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from wsbench import metrics
from wsbench.cli import require_report, show_campaign, show_claims, show_servers, terminal
from wsbench.cli.exits import BREACHED, DONE, NOTHING_USABLE
from wsbench.experiments import experiment
from wsbench.host import machine, places
from wsbench.metrics.findings import FAMILIES
from wsbench.records import packing
from wsbench.records.errors import UserError
from wsbench.records.placeless import Places
from wsbench.records.rundir import CAMPAIGN, RECORD, RunFolder, require_own, runs_in, why_left_out
from wsbench.sessions import session_file

RUNS = Path("runs")
#: How the name of a folder begins that `run`, `duel`, `capacity` or `load` has made.
BEGUN = re.compile(r"\d{4}-\d\d-\d\dT\d{6}-")
RESULTS = Path("results")


def list_things(arguments) -> int:
    if arguments.session is not None and arguments.what != "servers":
        raise UserError("--session goes with `list servers`")
    if arguments.what == "servers":
        show_servers.list_servers(arguments.session)
    elif arguments.what == "experiments":
        rows = []
        for file in sorted(experiment.EXPERIMENTS.glob("*.toml")):
            read = experiment.read(file)
            rows.append([file.stem, read.scenario, str(len(read.cells())), str(read.timing.rounds), read.question])
        terminal.table(None, ["experiment", "scenario", "cells", "rounds", "question"], rows, right={2, 3})
    elif arguments.what == "sessions":
        read = [(name, session_file.read(session_file.path_of(name))) for name in session_file.known()]
        rows = [[name, ", ".join(file.settings), file.about] for name, file in read]
        terminal.table(None, ["session", "settings", "about"], rows)
    elif arguments.what == "claims":
        show_claims.listed()
    elif arguments.what == "metrics":
        rows = [[one.name, one.unit, one.direction, FAMILIES[one.family], one.summary] for one in metrics.METRICS.values()]
        terminal.table(None, ["metric", "unit", "better", "family", "meaning"], rows)
    else:
        rows = []
        broken = []
        for folder in sorted(RUNS.glob("*/")):
            if BEGUN.match(folder.name) and not any((folder / name).exists() for name in (CAMPAIGN, RECORD)):
                broken.append(f"{folder}: it has no outcome: it has just begun, or was killed before its first; else remove it")
        for run in runs_in(RUNS):
            try:
                require_own(run)
                record, done, planned = run.campaign, len(run.finished_numbers()), len(run.order)
            except Exception as error:
                broken.append(why_left_out(run, error))
                continue
            known = record.departures is not None
            departures = "; ".join(record.departures) or "none" if known else "not recorded"
            rows.append([str(run.path), f"{done}/{planned}", str(record.rounds), departures, record.command])
        terminal.table(None, ["run", "trials", "rounds", "overrides", "command"], rows, right={2})
        for line in broken:
            terminal.say(f"left out {line}")
    return DONE


def report_campaign(arguments) -> int:
    require_report(otherwise="")
    run = RunFolder.open(arguments.run)
    write_report(run, results_of(run, anew=arguments.rebuild))
    return DONE


def judge_claims(arguments) -> int:
    show_claims.show(arguments.runs, arguments.source, arguments.json, arguments.markdown)
    return DONE


def results_of(run: RunFolder, anew: bool = False):
    """The `Results` of a campaign, with progress on the terminal."""
    from wsbench.analysis.reading import load

    with terminal.FilesOfTrials("reading") as progress:
        return load(run, anew, tell=progress.tell)


def write_report(run: RunFolder, results) -> None:
    from wsbench.report import document

    print(f"report: {document.build(run, results).resolve()}")


def compare_campaigns(arguments) -> int:
    from wsbench.analysis import compare, orders

    base, new = compare.side(arguments.base), compare.side(arguments.new)
    found = compare.compare(base, new, arguments.metric, arguments.anyway, arguments.margin, arguments.orders, arguments.anchor)
    if arguments.json:
        print(json.dumps(compare.document(found), indent=1, ensure_ascii=False))
    elif arguments.markdown:
        print(compare.markdown(found), end="")
    else:
        for text in found.differences:
            terminal.say(f"difference: {text}")
        for text in found.notes:
            terminal.say(f"note: {text}")
        terminal.table(None, compare.headers(found), compare.table(found), right={3, 4, 5} | ({6} if found.anchor else set()))
        if found.orders:
            terminal.table(None, orders.HEADERS, compare.orders_table(found), right={*range(2, 8)}, keys=2)
        for text in compare.reversals(found):
            terminal.say(f"reversed: {text}")
        for text in found.left_out:
            terminal.say(f"left out: {text}")
        if found.undecidable:
            terminal.say(found.undecidable)
        terminal.say(compare.summary(found))
    if arguments.fail_if is not None and found.undecidable:
        print(f"--fail-if: {found.undecidable}", file=sys.stderr)
        return NOTHING_USABLE
    beyond = arguments.fail_if is not None and any(row.worse_by > arguments.fail_if for row in found.rows)
    return BREACHED if beyond else DONE


def tell_history(arguments) -> int:
    from wsbench.analysis import history
    from wsbench.analysis.campaigns import look

    metrics.require([arguments.metric] if arguments.metric else [])
    campaigns, broken = look(folders_of(arguments))
    metric, lines, elsewhere = history.history(campaigns, arguments.experiment, arguments.metric)
    rows = []
    for line in lines:
        steps = "; ".join(
            f"{step.ratio.ratio:.3f} ({step.ratio.low:.3f}–{step.ratio.high:.3f}) between {step.before.id} and {step.after.id}"
            for step in line.steps
        )
        values = [value for _, value in line.points]
        shown = f"{values[0]:,.4g} … {values[-1]:,.4g} {metrics.METRICS[metric].unit}"
        rows.append(
            [
                line.server,
                show_campaign.cell_text(dict(line.cell)),
                str(len(values)),
                shown,
                steps or line.reason or "none found",
            ]
        )
    terminal.table(None, ["server", "cell", "campaigns", f"{metric}, first and last", "steps"], rows, right={2})
    if elsewhere:
        terminal.say(f"left out: {elsewhere} campaign{'' if elsewhere == 1 else 's'} of other machines or settings")
    for line in broken:
        terminal.say(f"left out {line}")
    return DONE


def export_campaign(arguments) -> int:
    from wsbench.analysis.reading import load as load_results
    from wsbench.report import export  # the slowest import

    if arguments.format not in export.FORMATS:
        raise UserError(f"FORMAT: found {arguments.format!r}, allowed: {', '.join(export.FORMATS)}")
    results = load_results(RunFolder.open(arguments.run))
    asked = export.Asked(results, export.chosen(results, arguments.metric), arguments.fail_if)
    made = export.write(asked, arguments.format, arguments.out)
    if made is not None:
        sys.stdout.buffer.write(made)
    return DONE


def folders_of(arguments) -> list[Path]:
    """UserError for a named folder that does not exist, or if there is none."""
    for folder in arguments.folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder")
    found = arguments.folders or [folder for folder in (RUNS, RESULTS) if folder.is_dir()]
    if not found:
        raise UserError("found neither runs nor results here; name the folders of your campaigns")
    return found


def serve_campaigns(arguments) -> int:
    from wsbench.report.web import app

    folders = folders_of(arguments)
    machine.free_port(arguments.host, arguments.port, 0)
    shown = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    print(f"http://{shown}:{arguments.port}/ serves {', '.join(map(str, folders))} until Ctrl-C", flush=True)
    app.serve(folders, arguments.host, arguments.port)
    return DONE


def write_site(arguments) -> int:
    from wsbench.report.web import site

    number, broken = site.write(folders_of(arguments), arguments.out)
    for line in broken:
        terminal.say(f"left out {line}")
    terminal.say(f"{arguments.out / 'index.html'}: {number} campaign{'' if number == 1 else 's'}")
    return DONE


def pack_campaign(arguments) -> int:
    run = RunFolder.open(arguments.run).path
    with terminal.FilesOfTrials("packing") as progress:
        packed = packing.pack(run, arguments.folder, places.of(run.parent), arguments.trials, progress.tell, _without_places)
    print(f"{packed}: {sum(file.stat().st_size for file in packed.iterdir()) / 1e6:.1f} MB")
    return DONE


def _without_places(table: bytes, of: Places) -> bytes:
    """A table of a campaign that is older than records without folders of the machine. It alone needs the report's packages."""
    from wsbench.analysis import tables

    return tables.without(table, of)

"""The command line: reads what is asked, calls the room that does it, prints what it returns.

Exit codes: 0 done; 1 something that was asked for did not hold (a check, a build, a load); 2 bad input, one plain line;
3 a threshold was breached (`load`, `compare`); 4 `load`: the measurement is INVALID and judges no threshold; 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path

from wsbench import (
    __version__,
    autobahn,
    build,
    campaign,
    catalogue,
    claims_view,
    engine,
    experiment,
    gate,
    gate_view,
    hdr,
    load,
    load_options,
    load_view,
    machine,
    metrics,
    packing,
    selftest,
    servers_view,
    terminal,
    thresholds,
    verdict,
)
from wsbench.errors import UserError
from wsbench.load_options import positive
from wsbench.rundir import RunFolder
from wsbench.view import TrialView

RUNS = Path("runs")
RESULTS = Path("results")
FOLDERS = "folders that hold campaigns (default: runs and results, those that exist)"


class Parser(argparse.ArgumentParser):
    """One plain line instead of a page."""

    def error(self, message: str):
        raise UserError(f"{message} (see `{self.prog} --help`)")


def main() -> None:
    try:
        arguments = parser().parse_args()
        sys.exit(arguments.command(arguments))
    except UserError as error:
        print(f"wsbench: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("wsbench: stopped; every finished trial is kept", file=sys.stderr)
        sys.exit(load_view.INTERRUPTED)
    except BrokenPipeError:
        sys.exit(141)


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="wsbench", description="A benchmark system for WebSocket servers whose numbers can be proven.")
    top.add_argument("--version", action="version", version=f"wsbench {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, function, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=function)
        return made

    listing = command("list", list_things, "what there is: servers, experiments, metrics, claims, runs")
    listing.add_argument("what", choices=["servers", "experiments", "metrics", "claims", "runs"])
    building = command("build", build_servers, "build servers (only what changed)")
    checking = command("check", check_servers, "hold servers against the server contract and RFC 6455")
    for made in (building, checking):
        made.add_argument(
            "servers",
            nargs="*",
            default=["*@*"],
            help="names, globs, tag:TAG, !… to leave out, with +jdk25, +ZGC, +heap4g behind (default: all)",
        )
        made.add_argument(
            "--jobs", type=positive, default=os.cpu_count() or 1, help="servers built at once (default: the CPUs)"
        )
    checking.add_argument(
        "--deep", action="store_true", help="also what takes minutes: 15,000 members, idle connections"
    )
    checking.add_argument("--idle-s", type=positive, default=90, help="how long --deep holds still (default: 90)")
    checking.add_argument("--autobahn", action="store_true", help="also the cases of Autobahn|Testsuite, on /echo")
    checking.add_argument("--json", action="store_true", help="one document instead of tables")
    starting = command("start", start_server, "start a server as a trial would, and hold it until Ctrl-C")
    starting.add_argument("server", help="a name, such as netty or netty@4.1.19")
    starting.add_argument("--port", type=port, help="the port it listens on (default: a free one)")
    planning = command("plan", plan_campaign, "print every trial and the estimated time; run nothing")
    running = command("run", run_campaign, "run an experiment")
    for made in (planning, running):
        made.add_argument(
            "experiment", nargs=None if made is planning else "?", help="a name, or a path to a .toml file"
        )
        made.add_argument("--servers", help="comma-separated names, globs, tags instead of the experiment's own")
        made.add_argument("--rounds", type=positive, help="instead of the experiment's own")
        made.add_argument("--scale", type=float, default=1.0, help="of the size that the experiment is written for")
        made.add_argument("--time-scale", type=float, default=1.0, help="of the time that its phases and stages last")
        made.add_argument(
            "--no-control", action="store_true", help="run no server twice, to see how far chance alone goes"
        )
        made.add_argument("--tag", action="append", default=[], metavar="TAG", help="a word to find the campaign by")
        made.add_argument("--seed", type=int, help="for the order of trials and all else drawn at random")
    running.add_argument("--resume", type=Path, metavar="RUN", help="finish a campaign that was stopped")
    running.add_argument(
        "--port", type=port, help="the port the servers listen on (default: a free one for each trial)"
    )
    for name, text in (("--engines", "engine processes"), ("--server-processes", "processes of a server, a port each")):
        running.add_argument(name, type=positive, metavar="N", help=f"{text} (default: as the file limit demands)")
    running.add_argument("--no-report", action="store_true", help="leave the report to `wsbench report`")
    reporting = command("report", report_campaign, "write report.html and trials.parquet of a run")
    reporting.add_argument("run", type=Path)
    comparing = command(
        "compare", compare_campaigns, "what became better or worse between two campaigns or two servers of one"
    )
    comparing.add_argument("base", help="RUN, or RUN:SERVER@VARIANT")
    comparing.add_argument("new", help="the same form")
    comparing.add_argument(
        "--metric", action="append", default=[], metavar="NAME", help="these instead of the usual ones"
    )
    comparing.add_argument(
        "--anyway", action="store_true", help="although machines or settings differ, which is then said"
    )
    comparing.add_argument(
        "--fail-if", type=share, metavar="PERCENT", help="exit 3 where something is shown to be worse by more than this"
    )
    written = comparing.add_mutually_exclusive_group()
    written.add_argument("--markdown", action="store_true", help="for a pull request")
    written.add_argument("--json", action="store_true", help="for programs")
    remembering = command(
        "history", tell_history, "where servers became faster or slower over many campaigns of one experiment"
    )
    remembering.add_argument("experiment")
    remembering.add_argument("folders", nargs="*", type=Path, help=FOLDERS)
    remembering.add_argument("--metric", metavar="NAME", help="instead of the experiment's headline")
    exporting = command("export", export_campaign, "a campaign for other programs")
    exporting.add_argument("run", type=Path)
    exporting.add_argument(
        "format",
        metavar="FORMAT",
        help="json, csv, parquet, bmf, github-bigger, github-smaller, junit, openmetrics, hgrm",
    )
    exporting.add_argument("out", type=Path, nargs="?", help="a file (default: standard output)")
    exporting.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="for bmf, github-… and openmetrics: these instead of the headline and the usual ones",
    )
    exporting.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        type=thresholds.parse,
        help="for junit: a trial of which it holds is a failure, such as 'service_us_p99 > 5000'",
    )
    serving = command("serve", serve_campaigns, "look through campaigns in a browser, also while one runs")
    serving.add_argument("folders", nargs="*", type=Path, help=FOLDERS)
    serving.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    serving.add_argument("--port", type=port, default=8123, help="default: 8123")
    writing = command("site", write_site, "the same pages as a folder to publish")
    writing.add_argument("out", type=Path, help="the folder to write; must not exist")
    writing.add_argument("folders", nargs="*", type=Path, help=FOLDERS)
    packing_ = command("pack", pack_campaign, "a copy of a campaign to publish, its trials in one archive")
    packing_.add_argument("run", type=Path)
    packing_.add_argument("folder", type=Path, help="the copy; must not exist")
    claims_view.add(command("claims", judge_claims, "hold published statements against campaigns"))
    loading = command("load", load_url, "load a server of your own")
    load_options.add(loading)
    testing = command("selftest", test_itself, "is the instrument right, on this machine, now? (a minute)")
    testing.add_argument("checks", nargs="*", metavar="CHECK", help=f"{', '.join(selftest.CHECKS)} (default: all)")
    command("doctor", doctor, "what this machine has and lacks, and what to do about it")
    return top


def port(text: str) -> int:
    if not text.isdigit() or not 1024 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 1024 to 65535")
    return int(text)


def share(text: str) -> float:
    """`5` and `5%` are 0.05."""
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: a percentage such as 5")
    return number / 100


def list_things(arguments) -> int:
    if arguments.what == "servers":
        servers_view.list_servers()
    elif arguments.what == "experiments":
        rows = []
        for file in sorted(experiment.EXPERIMENTS.glob("*.toml")):
            read = experiment.read(file)
            rows.append([file.stem, read.scenario, str(len(read.cells())), str(read.timing.rounds), read.question])
        terminal.table(None, ["experiment", "scenario", "cells", "rounds", "question"], rows, right={2, 3})
    elif arguments.what == "claims":
        claims_view.listed()
    elif arguments.what == "metrics":
        rows = [[one.name, one.unit, one.direction, one.text.splitlines()[0]] for one in metrics.METRICS.values()]
        terminal.table(None, ["metric", "unit", "better", "meaning"], rows)
    else:
        rows = []
        for folder in sorted(RUNS.glob("*/campaign.json")):
            run = RunFolder(folder.parent)
            record, done = run.campaign, sum(1 for _ in run.finished())
            known = record.departures is not None
            departures = "; ".join(record.departures) or "none" if known else "not recorded"
            rows.append([str(run.path), f"{done}/{len(run.order)}", str(record.rounds), departures, record.command])
        terminal.table(None, ["run", "trials", "rounds", "departures", "command"], rows, right={2})
    return 0


def build_servers(arguments) -> int:
    return servers_view.build_servers(catalogue.select(arguments.servers, catalogue.read()), arguments.jobs)


def check_servers(arguments) -> int:
    depth = gate.Depth(
        deep=arguments.deep,
        idle_s=arguments.idle_s,
        suite=autobahn.find(catalogue.ROOT / ".autobahn") if arguments.autobahn else None,
    )
    variants = catalogue.select(arguments.servers, catalogue.read())
    built = servers_view.build_with_progress(variants, arguments.jobs, quiet=arguments.json)
    progress = gate_view.Progress(len(variants), quiet=arguments.json)
    rows = []
    for variant in variants:
        progress.begin(variant.name)
        rows.append(gate.hold(variant, built[variant.name], depth, progress.watch))
        progress.end(rows[-1])
    if arguments.json:
        print(gate_view.document(rows))
    else:
        gate_view.summary(rows)
    return int(any(one.outcome == "fails" for one in rows))


def start_server(arguments) -> int:
    chosen = catalogue.select([arguments.server], catalogue.read())
    if len(chosen) != 1:
        raise UserError(f"one server, please; found {', '.join(variant.name for variant in chosen)}")
    built = build.build(chosen[0], machine.placement().server)
    if built.problem is not None:
        raise UserError(f"{chosen[0].name}: {built.problem}")
    gate.keep_running(chosen[0], arguments.port, lambda line: print(line, flush=True))
    return 0


def request_of(arguments) -> campaign.Request:
    return campaign.request(
        arguments.experiment,
        "wsbench " + shlex.join(sys.argv[1:]),
        servers=arguments.servers.split(",") if arguments.servers else None,
        rounds=arguments.rounds,
        seed=arguments.seed,
        scale=arguments.scale,
        time_scale=arguments.time_scale,
        tags=arguments.tag,
        control=not arguments.no_control,
        **{name: getattr(arguments, name, None) for name in ("engines", "server_processes")},
    )


def plan_campaign(arguments) -> int:
    asked = request_of(arguments)
    left_out = campaign.left_out(asked)
    serving = [variant for variant in asked.variants if variant.name not in left_out]
    control = campaign.control_of(asked, serving)
    order = campaign.order_of(asked.experiment, serving, asked.seed, control)
    rows = [[str(one.number), str(one.round), one.name, terminal.cell_text(one.cell)] for one in order]
    terminal.table(None, ["trial", "round", "server", "cell"], rows, right={0, 1})
    placed = machine.placement()
    estimate = terminal.duration(campaign.estimate_s(asked.experiment, len(order)))
    print(
        f"{len(order)} trials, about {estimate}; seed {asked.seed}; server on CPUs {placed.server}, engine on {placed.engine}"
    )
    for departure in asked.departures:
        print(f"departure: {departure}")
    for name, reason in left_out.items():
        print(f"left out {name}: {reason}")
    return 0


def run_campaign(arguments) -> int:
    watcher = terminal.Progress()
    if (arguments.experiment is None) == (arguments.resume is None):
        raise UserError("give either an experiment or --resume RUN (see `wsbench run --help`)")
    if arguments.port is not None:
        machine.free_port("127.0.0.1", arguments.port, 0)
    if arguments.resume is not None:
        run = campaign.resume(RunFolder.open(arguments.resume), arguments.port, watcher)
    else:
        run = campaign.begin(request_of(arguments), RUNS, arguments.port, watcher)
    terminal.campaign_summary(run)
    if not arguments.no_report:
        write_report(run)
    return 0


def report_campaign(arguments) -> int:
    write_report(RunFolder.open(arguments.run))
    return 0


def judge_claims(arguments) -> int:
    claims_view.show(arguments.runs, arguments.source, arguments.json, arguments.markdown)
    return 0


def write_report(run: RunFolder) -> None:
    from wsbench import report

    print(f"report: {report.build(run).resolve()}")


def compare_campaigns(arguments) -> int:
    from wsbench import compare

    base, new = compare.side(arguments.base), compare.side(arguments.new)
    found = compare.compare(base, new, arguments.metric, arguments.anyway)
    if arguments.json:
        print(json.dumps(compare.document(found), indent=1, ensure_ascii=False))
    elif arguments.markdown:
        print(compare.markdown(found), end="")
    else:
        for text in found.differences:
            print(f"compared anyway: {text}")
        terminal.table(None, compare.HEADERS, compare.table(found), right={3, 4, 5})
        for text in found.left_out:
            print(f"left out: {text}")
        print(compare.summary(found))
    beyond = arguments.fail_if is not None and any(row.worse_by > arguments.fail_if for row in found.rows)
    return 3 if beyond else 0


def tell_history(arguments) -> int:
    from wsbench import history
    from wsbench.browse.campaigns import find

    if arguments.metric is not None and arguments.metric not in metrics.METRICS:
        raise UserError(f"no metric is called {arguments.metric!r}; `wsbench list metrics` has them all")
    metric, lines, elsewhere = history.history(find(folders_of(arguments)), arguments.experiment, arguments.metric)
    rows = []
    for line in lines:
        steps = "; ".join(
            f"{step.ratio.mean:.3f} ({step.ratio.low:.3f}–{step.ratio.high:.3f}) between {step.before.id} and {step.after.id}"
            for step in line.steps
        )
        values = [value for _, value in line.points]
        shown = f"{values[0]:,.4g} … {values[-1]:,.4g} {metrics.METRICS[metric].unit}"
        rows.append(
            [
                line.server,
                terminal.cell_text(dict(line.cell)),
                str(len(values)),
                shown,
                steps or line.reason or "none found",
            ]
        )
    terminal.table(None, ["server", "cell", "campaigns", f"{metric}, first and last", "steps"], rows, right={2})
    if elsewhere:
        print(
            f"left out: {elsewhere} campaign{'' if elsewhere == 1 else 's'} of another machine, or of this one set otherwise"
        )
    return 0


def export_campaign(arguments) -> int:
    from wsbench import export  # the heaviest import of all: what needs it waits for it, nothing else does
    from wsbench.report.reading import load as load_results

    if arguments.format not in export.FORMATS:
        raise UserError(f"FORMAT: found {arguments.format!r}, allowed: {', '.join(export.FORMATS)}")
    results = load_results(RunFolder.open(arguments.run))
    asked = export.Asked(results, export.chosen(results, arguments.metric), arguments.fail_if)
    made = export.write(asked, arguments.format, arguments.out)
    if made is not None:
        sys.stdout.buffer.write(made)
    return 0


def folders_of(arguments) -> list[Path]:
    """UserError where one was named that is not there, or none is."""
    for folder in arguments.folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder")
    found = arguments.folders or [folder for folder in (RUNS, RESULTS) if folder.is_dir()]
    if not found:
        raise UserError("there is neither runs nor results here; name the folders that hold your campaigns")
    return found


def serve_campaigns(arguments) -> int:
    from wsbench.browse import app

    folders = folders_of(arguments)
    machine.free_port(arguments.host, arguments.port, 0)
    print(f"http://{arguments.host}:{arguments.port}/ shows {', '.join(map(str, folders))}; Ctrl-C ends it", flush=True)
    app.serve(folders, arguments.host, arguments.port)
    return 0


def write_site(arguments) -> int:
    from wsbench.browse import site

    number = site.write(folders_of(arguments), arguments.out)
    print(f"{arguments.out / 'index.html'}: {number} campaign{'' if number == 1 else 's'}")
    return 0


def pack_campaign(arguments) -> int:
    packed = packing.pack(RunFolder.open(arguments.run).path, arguments.folder)
    print(f"{packed}: {sum(file.stat().st_size for file in packed.iterdir()) / 1e6:.1f} MB")
    return 0


def load_url(arguments) -> int:
    asked = load_options.request(arguments)
    folder = load.new_folder(RUNS)
    seconds = getattr(asked.measure, "seconds", None)
    with load_view.Progress(seconds, quiet=arguments.json) as progress:
        done = load.carry_out(asked, folder, progress.look, progress.say)
    view = TrialView(folder, done.record)
    judged = [] if done.interrupted else thresholds.judge(view, arguments.fail_if)
    if arguments.json:
        print(load_view.document(folder, done.record, judged, done.interrupted))
    else:
        load_view.summary(folder, done.record, judged)
        print(f"kept in {folder.path}")
    written = hdr.export(view, arguments.hdr) if arguments.hdr and folder.latency_log.exists() else []
    if arguments.csv:
        load_view.write_csv(folder, done.record, arguments.csv)
        written.append(arguments.csv)
    if written and not arguments.json:
        print(f"written: {', '.join(map(str, written))}")
    kind = verdict.verdict(view).kind
    return load_view.exit_code(done.record.outcome == "ok", done.interrupted, kind, judged)


def test_itself(arguments) -> int:
    for name in arguments.checks:
        if name not in selftest.CHECKS:
            raise UserError(f"no check is called {name!r}; there are: {', '.join(selftest.CHECKS)}")
    rows = selftest.run(arguments.checks, terminal.Progress().say)
    return terminal.selftest_table(rows)


def doctor(_) -> int:
    findings = machine.examine(catalogue.read(), engine.binary())
    rows = [["ok" if one.fine else "!!", one.what, one.found, "" if one.fine else one.advice] for one in findings]
    terminal.table(None, ["", "what", "found", "what to do"], rows)
    return 0


if __name__ == "__main__":
    main()

"""What may be typed: every command with its arguments, and the checks of single words."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from wsbench import __version__, claims_view, doctor, load_options, selftest, thresholds
from wsbench.cli import measuring, reading
from wsbench.cluster import commands as cluster_commands
from wsbench.errors import UserError
from wsbench.load_options import positive


class Parser(argparse.ArgumentParser):
    """One plain line instead of a page."""

    def error(self, message: str):
        raise UserError(f"{message} (see `{self.prog} --help`)")


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="wsbench", description="A benchmark system for WebSocket servers whose numbers can be proven.")
    top.add_argument("--version", action="version", version=f"wsbench {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, function, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=function)
        return made

    listing = command("list", reading.list_things, "what there is: servers, experiments, metrics, claims, runs")
    listing.add_argument("what", choices=["servers", "experiments", "metrics", "claims", "runs"])
    building = command("build", measuring.build_servers, "build servers (only what changed)")
    checking = command("check", measuring.check_servers, "hold servers against the server contract and RFC 6455")
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
    starting = command("start", measuring.start_server, "start a server as a trial would, and hold it until Ctrl-C")
    starting.add_argument("server", help="a name, such as netty or netty@4.1.19")
    starting.add_argument("--port", type=port, help="the port it listens on (default: a free one)")
    planning = command("plan", measuring.plan_campaign, "print every trial and the estimated time; run nothing")
    running = command("run", measuring.run_campaign, "run an experiment")
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
    running.add_argument(
        "--again",
        type=count,
        metavar="N",
        help="run a trial that the machine disturbed (INVALID by stolen or throttled CPU time) once more at the end of its "
        "round, N times at most, instead of as the experiment says",
    )
    running.add_argument(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="on the hosts of cluster.toml, of which one serves (docs/cluster.md)",
    )
    running.add_argument("--no-report", action="store_true", help="leave the report to `wsbench report`")
    reporting = command("report", reading.report_campaign, "write report.html and trials.parquet of a run")
    reporting.add_argument("run", type=Path)
    comparing = command(
        "compare", reading.compare_campaigns, "what became better or worse between two campaigns or two servers of one"
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
        "history", reading.tell_history, "where servers became faster or slower over many campaigns of one experiment"
    )
    remembering.add_argument("experiment")
    remembering.add_argument("folders", nargs="*", type=Path, help=reading.FOLDERS)
    remembering.add_argument("--metric", metavar="NAME", help="instead of the experiment's headline")
    exporting = command("export", reading.export_campaign, "a campaign for other programs")
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
    serving = command("serve", reading.serve_campaigns, "look through campaigns in a browser, also while one runs")
    serving.add_argument("folders", nargs="*", type=Path, help=reading.FOLDERS)
    serving.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    serving.add_argument("--port", type=port, default=8123, help="default: 8123")
    writing = command("site", reading.write_site, "the same pages as a folder to publish")
    writing.add_argument("out", type=Path, help="the folder to write; must not exist")
    writing.add_argument("folders", nargs="*", type=Path, help=reading.FOLDERS)
    packing_ = command("pack", reading.pack_campaign, "a copy of a campaign to publish, its trials in one archive")
    packing_.add_argument("run", type=Path)
    packing_.add_argument("folder", type=Path, help="the copy; must not exist")
    claims_view.add(command("claims", reading.judge_claims, "hold published statements against campaigns"))
    loading = command("load", measuring.load_url, "load a server of your own")
    load_options.add(loading)
    cluster_commands.add(
        command("cluster", cluster_commands.run, "hosts for `load --cluster`: bring Ray up on them, and down")
    )
    testing = command("selftest", measuring.test_itself, "is the instrument right, on this machine, now? (a minute)")
    testing.add_argument("checks", nargs="*", metavar="CHECK", help=f"{', '.join(selftest.CHECKS)} (default: all)")
    doctor.add(command("doctor", doctor.examine, "what this machine has and lacks, and what to do about it"))
    return top


def port(text: str) -> int:
    if not text.isdigit() or not 1024 <= int(text) <= 65_535:
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 1024 to 65535")
    return int(text)


def count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"found {text!r}, allowed: 0, 1, 2, …")
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

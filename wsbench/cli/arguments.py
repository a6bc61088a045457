"""What may be typed: every command with its arguments.

A command's arguments are added only where it is the one that is typed, and what carries it out is imported only then: `--help`
waits for nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from wsbench.cli.values import count, host, port, positive, seed, share
from wsbench.records.errors import UserError

FOLDERS = "folders that hold campaigns (default: runs and results, those that exist)"


class Parser(argparse.ArgumentParser):
    """One plain line instead of a page."""

    def error(self, message: str):
        raise UserError(f"{message} (see `{self.prog} --help`)")


class Version(argparse.Action):
    """Harness, engine and catalogue: what a number depends on."""

    def __init__(self, *words, **options):
        super().__init__(*words, nargs=0, help="harness, engine and catalogue", **options)

    def __call__(self, parser, *_):
        from wsbench.cli.version import text

        print(text())
        parser.exit()


def parser(words: list[str]) -> argparse.ArgumentParser:
    """The parser for these words of a command line."""
    top = Parser(prog="wsbench", description="A benchmark system for WebSocket servers whose numbers can be proven.")
    top.add_argument("--version", action=Version)
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    typed = next((word for word in words if not word.startswith("-")), None)
    for name, (text, command, add) in COMMANDS.items():
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=command)
        if name == typed:
            add(made)
    return top


def _list(made: Parser) -> None:
    made.add_argument("what", choices=["servers", "experiments", "metrics", "claims", "runs"])


def _servers(made: Parser) -> None:
    made.add_argument(
        "servers",
        nargs="*",
        default=["*@*"],
        help="names, globs, tag:TAG, !… to leave out, with +jdk25, +ZGC, +heap4g behind (default: all)",
    )
    made.add_argument(
        "--jobs", type=positive, default=os.cpu_count() or 1, help="servers built at once (default: the CPUs)"
    )
    _install(made)


def _install(made: Parser) -> None:
    made.add_argument(
        "--install", action="store_true", help="first install the compilers and runtimes that these servers lack"
    )


def _check(made: Parser) -> None:
    _servers(made)
    made.add_argument("--deep", action="store_true", help="also what takes minutes: 15,000 members, idle connections")
    made.add_argument("--idle-s", type=positive, default=90, help="how long --deep holds still (default: 90)")
    made.add_argument("--autobahn", action="store_true", help="also the cases of Autobahn|Testsuite, on /echo")
    made.add_argument("--json", action="store_true", help="one document instead of tables")


def _start(made: Parser) -> None:
    made.add_argument("server", help="a name, such as netty or netty@4.1.19")
    made.add_argument("--port", type=port, help="the port it listens on (default: a free one)")


def _plan(made: Parser) -> None:
    made.add_argument("experiment", help="a name, or a path to a .toml file")
    _campaign(made)


def _campaign(made: Parser) -> None:
    made.add_argument("--servers", help="comma-separated names, globs, tags instead of the experiment's own")
    made.add_argument("--rounds", type=positive, help="instead of the experiment's own")
    made.add_argument("--scale", type=float, default=1.0, help="of the size that the experiment is written for")
    made.add_argument("--time-scale", type=float, default=1.0, help="of the time that its phases and stages last")
    made.add_argument("--no-control", action="store_true", help="run no server twice, to see how far chance alone goes")
    made.add_argument("--tag", action="append", default=[], metavar="TAG", help="a word to find the campaign by")
    made.add_argument("--seed", type=seed, help="for the order of trials and all else drawn at random")


def _run(made: Parser) -> None:
    made.add_argument("experiment", nargs="?", help="a name, or a path to a .toml file")
    _campaign(made)
    made.add_argument("--resume", type=Path, metavar="RUN", help="finish a campaign that was stopped")
    made.add_argument("--port", type=port, help="the port the servers listen on (default: a free one for each trial)")
    for name, text in (("--engines", "engine processes"), ("--server-processes", "processes of a server, a port each")):
        made.add_argument(name, type=positive, metavar="N", help=f"{text} (default: as the file limit demands)")
    made.add_argument(
        "--again",
        type=count,
        metavar="N",
        help="run a trial that the machine disturbed (INVALID by stolen or throttled CPU time) once more at the end of its "
        "round, N times at most, instead of as the experiment says",
    )
    made.add_argument(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="on the hosts of cluster.toml, of which one serves (docs/cluster.md)",
    )
    made.add_argument("--no-report", action="store_true", help="leave the report to `wsbench report`")
    _install(made)


def _report(made: Parser) -> None:
    made.add_argument("run", type=Path)
    made.add_argument(
        "--rebuild", action="store_true", help="compute every metric and verdict again from the raw trials"
    )


def _compare(made: Parser) -> None:
    made.add_argument("base", help="RUN, or RUN:SERVER@VARIANT")
    made.add_argument("new", help="the same form")
    made.add_argument("--metric", action="append", default=[], metavar="NAME", help="these instead of the usual ones")
    made.add_argument("--anyway", action="store_true", help="although machines or settings differ, which is then said")
    made.add_argument(
        "--fail-if", type=share, metavar="PERCENT", help="exit 3 where something is shown to be worse by more than this"
    )
    written = made.add_mutually_exclusive_group()
    written.add_argument("--markdown", action="store_true", help="for a pull request")
    written.add_argument("--json", action="store_true", help="for programs")


def _history(made: Parser) -> None:
    made.add_argument("experiment")
    made.add_argument("folders", nargs="*", type=Path, help=FOLDERS)
    made.add_argument("--metric", metavar="NAME", help="instead of the experiment's headline")


def _export(made: Parser) -> None:
    from wsbench.analysis import thresholds

    made.add_argument("run", type=Path)
    made.add_argument(
        "format",
        metavar="FORMAT",
        help="json, csv, parquet, bmf, github-bigger, github-smaller, junit, openmetrics, hgrm",
    )
    made.add_argument("out", type=Path, nargs="?", help="a file (default: standard output)")
    made.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="for bmf, github-… and openmetrics: these instead of the headline and the usual ones",
    )
    made.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        type=thresholds.parse,
        help="for junit: a trial of which it holds is a failure, such as 'service_us_p99 > 5000'",
    )


def _serve(made: Parser) -> None:
    made.add_argument("folders", nargs="*", type=Path, help=FOLDERS)
    made.add_argument("--host", type=host, default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    made.add_argument("--port", type=port, default=8123, help="default: 8123")


def _site(made: Parser) -> None:
    made.add_argument("out", type=Path, help="the folder to write; must not exist")
    made.add_argument("folders", nargs="*", type=Path, help=FOLDERS)


def _pack(made: Parser) -> None:
    made.add_argument("run", type=Path)
    made.add_argument("folder", type=Path, help="the copy; must not exist")


def _claims(made: Parser) -> None:
    from wsbench.cli import show_claims

    show_claims.add(made)


def _load(made: Parser) -> None:
    from wsbench.cli import load_options

    load_options.add(made)


def _cluster(made: Parser) -> None:
    from wsbench.run.cluster import commands

    commands.add(made)


def _selftest(made: Parser) -> None:
    from wsbench.checks.selftest.runner import CHECKS

    made.add_argument("checks", nargs="*", metavar="CHECK", help=f"{', '.join(CHECKS)} (default: all)")


def _doctor(made: Parser) -> None:
    from wsbench.cli import doctor

    doctor.add(made)


#: name → what it does; the function that does it, as `module:function` of `wsbench`; the one that adds its arguments.
COMMANDS: dict[str, tuple[str, str, Callable[[Parser], None]]] = {
    "list": ("what there is: servers, experiments, metrics, claims, runs", "cli.reading:list_things", _list),
    "build": ("build servers (only what changed)", "cli.measuring:build_servers", _servers),
    "check": ("hold servers against the server contract and RFC 6455", "cli.measuring:check_servers", _check),
    "start": ("start a server as a trial would, and hold it until Ctrl-C", "cli.measuring:start_server", _start),
    "plan": ("print every trial and the estimated time; run nothing", "cli.measuring:plan_campaign", _plan),
    "run": ("run an experiment", "cli.measuring:run_campaign", _run),
    "report": ("write report.html and trials.parquet of a run", "cli.reading:report_campaign", _report),
    "compare": (
        "what became better or worse between two campaigns or two servers of one",
        "cli.reading:compare_campaigns",
        _compare,
    ),
    "history": (
        "where servers became faster or slower over many campaigns of one experiment",
        "cli.reading:tell_history",
        _history,
    ),
    "export": ("a campaign for other programs", "cli.reading:export_campaign", _export),
    "serve": ("look through campaigns in a browser, also while one runs", "cli.reading:serve_campaigns", _serve),
    "site": ("the same pages as a folder to publish", "cli.reading:write_site", _site),
    "pack": ("a copy of a campaign to publish, its trials in one archive", "cli.reading:pack_campaign", _pack),
    "claims": ("hold published statements against campaigns", "cli.reading:judge_claims", _claims),
    "load": ("load a server of your own", "cli.measuring:load_url", _load),
    "cluster": (
        "hosts for `load --cluster`: bring Ray up on them, and down",
        "run.cluster.commands:run",
        _cluster,
    ),
    "selftest": (
        "is the instrument right, on this machine, now? (a minute)",
        "cli.measuring:test_itself",
        _selftest,
    ),
    "doctor": ("what this machine has and lacks, and what to do about it", "cli.doctor:examine", _doctor),
}

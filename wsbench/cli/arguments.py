"""Every command with its arguments.

The arguments of a command are added, and its module imported, only if that command is typed, so `--help` is fast.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from wsbench.cli import exits
from wsbench.cli.values import count, factor, host, margin, port, positive, seconds_above_zero, seed, share
from wsbench.records.errors import UserError

FOLDERS = "folders of campaigns (default: runs and results, if they exist)"


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
        made = commands.add_parser(
            name, help=text, description=text, epilog=exits.epilog(name), formatter_class=argparse.RawDescriptionHelpFormatter
        )
        made.set_defaults(command=command)
        if name == typed:
            add(made)
    return top


def _list(made: Parser) -> None:
    made.add_argument("what", choices=["servers", "experiments", "sessions", "metrics", "claims", "runs"])
    made.add_argument("--session", metavar="NAME", help="servers: only those that this session loads, and its settings for each")


def _servers(made: Parser) -> None:
    made.add_argument(
        "servers",
        nargs="*",
        default=["*@*"],
        help="names, globs or tag:TAG, separated by spaces or commas; !NAME excludes; suffixes +jdk25, +ZGC, +heap4g choose "
        "the runtime (default: all)",
    )
    made.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count() or 1,
        help="servers built concurrently (default: the number of CPUs)",
    )
    _install(made)


def _install(made: Parser) -> None:
    made.add_argument("--install", action="store_true", help="first install the compilers and runtimes that these servers need")


def _check(made: Parser) -> None:
    _servers(made)
    made.add_argument("--deep", action="store_true", help="add slow checks: 15,000 push members, idle connections")
    made.add_argument("--idle-s", type=seconds_above_zero, default=90.0, help="idle time of --deep, such as 5m (default: 90)")
    made.add_argument("--autobahn", action="store_true", help="add the cases of Autobahn|Testsuite on /echo")
    made.add_argument("--json", action="store_true", help="print one JSON document instead of tables")


def _start(made: Parser) -> None:
    made.add_argument("server", help="a server, such as netty or netty@4.1.19")
    made.add_argument("--port", type=port, help="the port to listen on (default: a free port)")
    made.add_argument("--tls", action="store_true", help="with TLS, by a certificate of wsbench whose key is public")
    made.add_argument("--deflate", action="store_true", help="with permessage-deflate")


def _plan(made: Parser) -> None:
    made.add_argument("experiment", help="a name, or a path to a .toml file")
    _campaign(made)


def _campaign(made: Parser) -> None:
    made.add_argument("--servers", help="comma-separated names, globs or tags, in place of the experiment's servers")
    made.add_argument("--rounds", type=positive, help="number of rounds, in place of the experiment's")
    made.add_argument(
        "--only",
        action="append",
        metavar="KEY=VALUES",
        help="of the experiment's cells, only those with these values, such as connections=1000,10000; repeatable",
    )
    made.add_argument("--scale", type=factor, default=1.0, help="multiply connections, messages and heap by this factor")
    made.add_argument("--time-scale", type=factor, default=1.0, help="multiply the duration of phases and stages by this factor")
    made.add_argument(
        "--arrangement",
        choices=("trials", "slices", "together"),
        help="how the trials of a round run, not as the experiment says",
    )
    made.add_argument("--no-control", action="store_true", help="skip the A/A control")
    made.add_argument("--tag", action="append", default=[], metavar="TAG", help="label the campaign; repeatable")
    made.add_argument("--seed", type=seed, help="seed of the trial order and all other random choices")


def _run(made: Parser) -> None:
    made.add_argument("experiment", nargs="?", help="a name, or a path to a .toml file")
    _campaign(made)
    made.add_argument("--resume", type=Path, metavar="RUN", help="finish an interrupted campaign")
    made.add_argument(
        "--anyway",
        action="store_true",
        help="resume even if the experiment's file, a server, the engine or the machine has changed; each further trial records it",
    )
    made.add_argument("--port", type=port, help="the port of the servers (default: a free port for each trial)")
    for name, text in (
        ("--engines", "engine processes"),
        ("--server-processes", "processes of each server, one port each"),
    ):
        made.add_argument(name, type=positive, metavar="N", help=f"{text} (default: as many as the file limit requires)")
    made.add_argument(
        "--again",
        type=count,
        metavar="N",
        help="rerun a disturbed trial (INVALID numbers because of the host) at the end of its round, at most N times",
    )
    made.add_argument(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="run on the hosts of this cluster.toml, one of which serves",
    )
    made.add_argument("--until", choices=["decided"], help="run rounds until every comparison is decided, or the budget is spent")
    made.add_argument(
        "--budget",
        type=seconds_above_zero,
        metavar="TIME",
        help="with --until: time for all rounds, such as 20m (default: 20m); "
        "of an experiment that searches for capacities: time of each search",
    )
    made.add_argument("--within", type=margin, metavar="PERCENT", help="end each search at this half width of the interval")
    made.add_argument("--probes", type=positive, metavar="N", help="end each search after so many probes")
    made.add_argument(
        "--promise",
        action="append",
        metavar="PROMISE",
        help="of the promises that an experiment searches for, only this, such as 'response.p99 < 5ms'; repeatable",
    )
    made.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="with --until: decide this metric; repeatable (default: the one that the experiment is about)",
    )
    made.add_argument("--no-report", action="store_true", help="do not write the report; `wsbench report` can do so later")
    _install(made)


def _capacity(made: Parser) -> None:
    from wsbench.cli import show_capacity

    show_capacity.add(made)


def _size(made: Parser) -> None:
    from wsbench.cli import show_size

    show_size.add(made)


def _duel(made: Parser) -> None:
    from wsbench.cli import show_duel

    show_duel.add(made)


def _report(made: Parser) -> None:
    made.add_argument("run", type=Path)
    made.add_argument("--rebuild", action="store_true", help="recompute every metric and verdict from the raw trials")


def _compare(made: Parser) -> None:
    made.add_argument("base", help="RUN, RUN:SERVER or RUN:SERVER@VARIANT")
    made.add_argument("new", help="the same form")
    made.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="compare this metric only; repeatable",
    )
    made.add_argument("--anyway", action="store_true", help="compare even if machines or settings differ, and list the differences")
    made.add_argument(
        "--margin", type=share, metavar="PERCENT", help="smaller differences do not matter; default: the experiment's, or 3"
    )
    made.add_argument(
        "--anchor",
        metavar="SERVER",
        help="of two campaigns: divide by this server, the same build in both (default: the reference); else nothing is decided",
    )
    made.add_argument(
        "--fail-if", type=share, metavar="PERCENT", help="exit 3 if the whole interval of a metric is worse by more than this"
    )
    made.add_argument("--orders", action="store_true", help="also count the pairs of servers that are in the same order in both")
    written = made.add_mutually_exclusive_group()
    written.add_argument("--markdown", action="store_true", help="print a Markdown table")
    written.add_argument("--json", action="store_true", help="print JSON")


def _history(made: Parser) -> None:
    made.add_argument("experiment")
    made.add_argument("folders", nargs="*", type=Path, help=FOLDERS)
    made.add_argument("--metric", metavar="NAME", help="in place of the experiment's headline metric")


def _export(made: Parser) -> None:
    from wsbench.analysis import thresholds

    made.add_argument("run", type=Path)
    made.add_argument(
        "format",
        metavar="FORMAT",
        help="json, csv, parquet, bmf, github-bigger, github-smaller, junit, openmetrics, hgrm",
    )
    made.add_argument("out", type=Path, nargs="?", help="the file to write (default: standard output)")
    made.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="bmf, github-… and openmetrics: export this metric in place of the default ones; repeatable",
    )
    made.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="CONDITION",
        type=thresholds.parse,
        help="junit: report a trial as failed if this holds, such as 'p99 > 5ms'; repeatable",
    )


def _serve(made: Parser) -> None:
    made.add_argument("folders", nargs="*", type=Path, help=FOLDERS)
    made.add_argument("--host", type=host, default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    made.add_argument("--port", type=port, default=8123, help="default: 8123")


def _site(made: Parser) -> None:
    made.add_argument("out", type=Path, help="the folder to create")
    made.add_argument("folders", nargs="*", type=Path, help=FOLDERS)


def _pack(made: Parser) -> None:
    made.add_argument("run", type=Path)
    made.add_argument("folder", type=Path, help="the folder to create")
    made.add_argument(
        "--trials", type=Path, metavar="FILE", help="write the archive of the trials to this file, and its checksum to the folder"
    )


def _claims(made: Parser) -> None:
    from wsbench.cli import show_claims

    show_claims.add(made)


def _load(made: Parser) -> None:
    from wsbench.cli import load_options

    load_options.add(made)


def _session(made: Parser) -> None:
    from wsbench.cli import show_session

    show_session.add(made)


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
    "list": ("list servers, experiments, sessions, metrics, claims or runs", "cli.reading:list_things", _list),
    "build": ("build servers that have changed", "cli.measuring:build_servers", _servers),
    "check": ("check servers against the server contract and RFC 6455", "cli.measuring:check_servers", _check),
    "start": ("start a server as a trial would, until Ctrl-C", "cli.measuring:start_server", _start),
    "plan": ("print every trial and the estimated duration; run nothing", "cli.measuring:plan_campaign", _plan),
    "run": ("run an experiment", "cli.measuring:run_campaign", _run),
    "capacity": ("find the highest load that keeps a promise", "cli.measuring:find_capacity", _capacity),
    "size": ("servers, CPUs, memory and hosts for a load, from measured capacities", "cli.show_size:run", _size),
    "duel": ("compare two servers until decided", "cli.measuring:duel_servers", _duel),
    "report": ("write the report and the data set of a campaign", "cli.reading:report_campaign", _report),
    "compare": (
        "compare two campaigns, or two servers of one campaign",
        "cli.reading:compare_campaigns",
        _compare,
    ),
    "history": (
        "find steps in performance over many campaigns of one experiment",
        "cli.reading:tell_history",
        _history,
    ),
    "export": ("export a campaign to other formats", "cli.reading:export_campaign", _export),
    "serve": ("browse campaigns, finished or running", "cli.reading:serve_campaigns", _serve),
    "site": ("write the pages of `serve` as a static site", "cli.reading:write_site", _site),
    "pack": ("copy a campaign with its trials in one archive, to publish", "cli.reading:pack_campaign", _pack),
    "claims": ("test published claims on campaigns", "cli.reading:judge_claims", _claims),
    "load": ("load any server", "cli.measuring:load_url", _load),
    "session": ("check, try or record a session file", "cli.show_session:run", _session),
    "cluster": (
        "start, list or stop Ray on the hosts of a cluster",
        "run.cluster.commands:run",
        _cluster,
    ),
    "selftest": (
        "check the engine on this machine (about a minute)",
        "cli.measuring:test_itself",
        _selftest,
    ),
    "doctor": ("what this machine has and lacks, and what to do about it", "cli.doctor:examine", _doctor),
}

"""Every command with its arguments.

The arguments of a command are added, and its module imported, only if that command is typed, so `--help` is fast.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wsbench.cli import exits
from wsbench.cli.values import count, factor, host, margin, port, positive, seconds_above_zero, seed, share
from wsbench.records.errors import UserError, nearest

FOLDERS = "folders of campaigns (default: runs and results, if they exist)"


class Parser(argparse.ArgumentParser):
    """One plain line instead of a page."""

    def error(self, message: str):
        raise UserError(f"{message} (see `{self.prog} --help`)")


class Top(Parser):
    """All commands, in groups."""

    def format_help(self) -> str:
        lines = ["usage: wsbench COMMAND …", "", self.description]
        for group, names in GROUPS.items():
            lines += ["", f"{group}:", *(f"  {name:<12}{COMMANDS[name].about}" for name in names)]
        first = ("load", "duel", "run")
        lines += ["", "examples:", *(f"  {COMMANDS[name].examples[0]}" for name in first)]
        lines += ["", "`wsbench COMMAND --help` has the options, examples and exit codes of a command; -V tells the versions.", ""]
        return "\n".join(lines)


class Version(argparse.Action):
    """Harness, engine and catalogue: what a number depends on."""

    def __init__(self, *words, **options):
        super().__init__(*words, nargs=0, help="harness, engine and catalogue", **options)

    def __call__(self, parser, *_):
        from wsbench.cli.version import text

        print(text())
        parser.exit()


def parsed(words: list[str]) -> argparse.Namespace:
    """The arguments in these words of a command line. UserError, with the nearest name, for a command or an option that there is
    not; SystemExit once help or version is printed."""
    words = _usual(words)
    made, typed = parser(words), _typed(words)
    if typed is not None and typed not in COMMANDS:
        raise UserError(f"no command {typed!r}{nearest(typed, COMMANDS)} (see `wsbench --help`)")
    asked, unknown = made.parse_known_args(words)
    if unknown:
        options = [option for action in made.commands[typed]._actions for option in action.option_strings]
        hint = nearest(unknown[0].partition("=")[0], options) if unknown[0].startswith("-") else ""
        raise UserError(f"unrecognized arguments: {' '.join(unknown)}{hint} (see `wsbench {typed} --help`)")
    return asked


def _usual(words: list[str]) -> list[str]:
    """The same in the form that argparse knows: `wsbench` alone and `help` are `--help`, `version` and `-V` are `--version`."""
    match words:
        case [] | ["help"]:
            return ["--help"]
        case ["help", name, *_]:
            return [name, "--help"]
        case ["version" | "-V"]:
            return ["--version"]
    return words


def _typed(words: list[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def parser(words: list[str], whole: bool = False) -> Top:
    """The parser for these words of a command line. `commands` has that of each command; `whole`: with the arguments of all."""
    top = Top(prog="wsbench", description="Load-test WebSocket servers, and know whether the numbers can be trusted.")
    top.add_argument("-V", "--version", action=Version)
    commands = top.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    top.commands, typed = commands.choices, _typed(words)
    for name, command in COMMANDS.items():
        examples = "\n".join(["examples:", *(f"  {line}" for line in command.examples)])
        made = commands.add_parser(
            name,
            help=command.about,
            description=command.about,
            epilog=f"{examples}\n\n{exits.epilog(name)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(command=command.function)
        if whole or name == typed:
            command.add(made)
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
        help="time for all rounds, such as 20m: with --until (default: 20m), or with --resume of a campaign of `wsbench capacity`",
    )
    made.add_argument(
        "--within",
        type=margin,
        metavar="PERCENT",
        help="with --resume of a campaign of `wsbench capacity`: end at this half width of the interval",
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


def _completion(made: Parser) -> None:
    made.add_argument("shell", choices=["bash", "zsh", "fish"])


def complete(arguments) -> int:
    """Prints what teaches a shell the commands and their options."""
    import shtab

    print(shtab.complete(parser([], whole=True), shell=arguments.shell))
    return exits.DONE


def _doctor(made: Parser) -> None:
    from wsbench.cli import doctor

    doctor.add(made)


@dataclass(frozen=True)
class Command:
    """`function` does it, as `module:function` of `wsbench`; `add` adds its arguments."""

    about: str
    function: str
    add: Callable[[Parser], None]
    examples: tuple[str, ...]


#: In the order of the groups below.
COMMANDS: dict[str, Command] = {
    "load": Command(
        "load a server and tell rate, latency, losses and the verdict",
        "cli.measuring:load_url",
        _load,
        (
            "wsbench load ws://127.0.0.1:8080/chat --session chat.toml -c 100 --rate 1k",
            "wsbench load ws://127.0.0.1:8080/echo --rate 5k --fail-if 'p99 > 5ms'",
        ),
    ),
    "session": Command(
        "check, try or record a session file",
        "cli.show_session:run",
        _session,
        ("wsbench session try chat.toml ws://127.0.0.1:8080/chat",),
    ),
    "duel": Command(
        "compare two servers until decided",
        "cli.measuring:duel_servers",
        _duel,
        (
            "wsbench duel './server-old' './server-new' --path /ws --fail-if 'messages_per_s < -3 %'",
            "wsbench duel netty go-gorilla",
        ),
    ),
    "capacity": Command(
        "find the highest load that keeps an SLO",
        "cli.measuring:find_capacity",
        _capacity,
        ("wsbench capacity netty@4.2 --slo 'response.p99 < 20ms'",),
    ),
    "size": Command(
        "servers, CPUs, memory and hosts for a load, from measured capacities",
        "cli.show_size:run",
        _size,
        ("wsbench size -c 1M --rate-each 0.1 --from runs/idle-memory --from runs/capacity",),
    ),
    "list": Command(
        "list servers, experiments, sessions, metrics, claims or runs",
        "cli.reading:list_things",
        _list,
        ("wsbench list servers",),
    ),
    "build": Command(
        "build servers that have changed", "cli.measuring:build_servers", _servers, ("wsbench build --install netty",)
    ),
    "check": Command(
        "check servers against the server contract and RFC 6455",
        "cli.measuring:check_servers",
        _check,
        ("wsbench check --install netty@4.2",),
    ),
    "start": Command(
        "start a server as a trial would, until Ctrl-C",
        "cli.measuring:start_server",
        _start,
        ("wsbench start reference@websocket --port 21000",),
    ),
    "plan": Command(
        "print every trial and the estimated duration; run nothing", "cli.measuring:plan_campaign", _plan, ("wsbench plan quick",)
    ),
    "run": Command(
        "run an experiment",
        "cli.measuring:run_campaign",
        _run,
        ("wsbench run quick --install", "wsbench run --resume runs/2026-11-30T120000-quick"),
    ),
    "report": Command(
        "write the report and the data set of a campaign",
        "cli.reading:report_campaign",
        _report,
        ("wsbench report results/2026-11-25-hoticn-2018-concurrency",),
    ),
    "compare": Command(
        "compare two campaigns, or two servers of one campaign",
        "cli.reading:compare_campaigns",
        _compare,
        ("wsbench compare runs/before runs/after --fail-if 3%", "wsbench compare runs/quick:netty runs/quick:reference"),
    ),
    "history": Command(
        "find steps in performance over many campaigns of one experiment",
        "cli.reading:tell_history",
        _history,
        ("wsbench history quick",),
    ),
    "claims": Command(
        "test published claims on campaigns",
        "cli.reading:judge_claims",
        _claims,
        ("wsbench claims results/2026-11-25-hoticn-2018-concurrency",),
    ),
    "export": Command(
        "export a campaign to other formats", "cli.reading:export_campaign", _export, ("wsbench export runs/quick csv quick.csv",)
    ),
    "serve": Command("browse campaigns, finished or running", "cli.reading:serve_campaigns", _serve, ("wsbench serve",)),
    "site": Command(
        "write the pages of `serve` as a static site", "cli.reading:write_site", _site, ("wsbench site build/campaigns results",)
    ),
    "pack": Command(
        "copy a campaign with its trials in one archive, to publish",
        "cli.reading:pack_campaign",
        _pack,
        ("wsbench pack runs/quick results/2026-11-30-quick",),
    ),
    "doctor": Command(
        "what this machine has and lacks, and what to do about it", "cli.doctor:examine", _doctor, ("wsbench doctor",)
    ),
    "selftest": Command(
        "check the engine on this machine (about a minute)", "cli.measuring:test_itself", _selftest, ("wsbench selftest",)
    ),
    "cluster": Command(
        "start, list or stop Ray on the hosts of a cluster",
        "run.cluster.commands:run",
        _cluster,
        ("wsbench cluster status cluster.toml",),
    ),
    "completion": Command(
        "print what lets a shell complete commands and options",
        "cli.arguments:complete",
        _completion,
        ("wsbench completion bash > ~/.local/share/bash-completion/completions/wsbench",),
    ),
}
GROUPS = {
    "your server": ("load", "session", "duel", "capacity", "size"),
    "servers and experiments": ("list", "build", "check", "start", "plan", "run"),
    "campaigns and loads that were measured": ("report", "compare", "history", "claims", "export", "serve", "site", "pack"),
    "this machine and others": ("doctor", "selftest", "cluster", "completion"),
}

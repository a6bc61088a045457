"""The commands that build, start, load or test something."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import get_args

from wsbench import metrics
from wsbench.analysis import thresholds
from wsbench.checks import autobahn, contract
from wsbench.checks.selftest import runner
from wsbench.cli import (
    live,
    load_options,
    reading,
    require_report,
    show_campaign,
    show_capacity,
    show_check,
    show_duel,
    show_load,
    show_servers,
    terminal,
)
from wsbench.cli.arguments import parser
from wsbench.cli.exits import BREACHED, DONE, NOTHING_USABLE
from wsbench.engine import program
from wsbench.experiments.duration import estimate_s
from wsbench.host import installation, leftovers, machine, toolchains
from wsbench.metrics import verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.records import packing, plain
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.goals import Goal
from wsbench.records.rundir import RunFolder
from wsbench.report import hdr
from wsbench.run import campaign, duel, load, ordering, preparing, request, testbed
from wsbench.servers import build, catalogue, serving
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Offer, Running

#: Time for all rounds of `--until decided`, in seconds.
BUDGET_S = 1200.0
#: Options that go with `--resume`. The others say what a campaign measures, and how often.
OF_RESUMING = {"resume", "port", "again", "cluster", "budget", "within", "no_report", "install", "anyway"}


def _patterns(words: list[str]) -> list[str]:
    """`run --servers` separates servers by commas, `build` and `check` also by spaces."""
    return [pattern for word in words for pattern in word.split(",")]


def build_servers(arguments) -> int:
    variants = catalogue.select(_patterns(arguments.servers), catalogue.read())
    if arguments.install:
        install_for(variants)
    return show_servers.build_servers(variants, arguments.jobs)


def install_for(variants: list[Variant], say=print) -> None:
    """Installs the compilers and runtimes that they lack. A server whose tools cannot be installed is skipped later."""
    wanted = [one for variant in variants for one in build.missing(variant)]
    for problem in toolchains.install(wanted, say):
        say(f"cannot install: {problem}")


def check_servers(arguments) -> int:
    depth = contract.Depth(
        deep=arguments.deep,
        idle_s=arguments.idle_s,
        suite=autobahn.find(installation.ROOT / ".autobahn") if arguments.autobahn else None,
    )
    variants = catalogue.select(_patterns(arguments.servers), catalogue.read())
    if arguments.install:
        install_for(variants, say=lambda line: print(line, file=sys.stderr if arguments.json else sys.stdout))
    built = show_servers.build_with_progress(variants, arguments.jobs, quiet=arguments.json)
    progress = show_check.Progress(len(variants), quiet=arguments.json)
    rows = []
    for variant in variants:
        progress.begin(variant.name)
        rows.append(contract.hold(variant, built[variant.name], depth, progress.watch))
        progress.end(rows[-1])
    if arguments.json:
        print(show_check.document(rows))
    else:
        show_check.summary(rows)
    return BREACHED if any(one.outcome == "fails" for one in rows) else DONE


def start_server(arguments) -> int:
    chosen = catalogue.select([arguments.server], catalogue.read())
    if len(chosen) != 1:
        raise UserError(f"expected one server; matched {', '.join(variant.name for variant in chosen) or 'none'}")
    if isinstance(chosen[0].table, Running):
        raise UserError(f"{chosen[0].name} runs already, at {chosen[0].table.url}")
    asks = [one for one in get_args(Offer) if getattr(arguments, one)]
    if lacking := [one for one in asks if one not in chosen[0].offers]:
        raise UserError(f"{chosen[0].name} does not offer {' and '.join(lacking)}")
    built = build.build(chosen[0], machine.placement().server)
    if built.problem is not None:
        raise UserError(f"{chosen[0].name}: {built.problem}")
    try:
        contract.keep_running(chosen[0], arguments.port, asks, lambda line: print(line, flush=True))
    except TrialFailed as failure:
        terminal.say(f"wsbench: {failure}; its output is in {contract.log_of(chosen[0], 'start')}")
        return BREACHED
    return DONE


def request_of(arguments) -> request.Request:
    return request.request(
        arguments.experiment,
        "wsbench " + shlex.join(sys.argv[1:]),
        servers=arguments.servers.split(",") if arguments.servers else None,
        rounds=arguments.rounds,
        only=arguments.only,
        seed=arguments.seed,
        scale=arguments.scale,
        time_scale=arguments.time_scale,
        arrangement=arguments.arrangement,
        tags=arguments.tag,
        control=False if arguments.no_control else None,
        until=_goal(arguments),
        **{name: getattr(arguments, name, None) for name in ("engines", "server_processes", "again")},
    )


def _goal(arguments) -> Goal | None:
    """What `--until decided` asks for. UserError for an option that does not go with it, or without it."""
    until, budget, named, within = (getattr(arguments, name, None) for name in ("until", "budget", "metric", "within"))
    if until is None:
        if within is not None:
            raise UserError("--within needs --resume, of a campaign of `wsbench capacity`")
        for option, value in (("--metric", named), ("--budget", budget)):
            if value:
                raise UserError(f"{option} needs --until decided")
        return None
    if arguments.rounds is not None:
        raise UserError("--rounds and --until exclude each other: the budget limits the rounds")
    metrics.require(named)
    return Goal(budget_s=budget or BUDGET_S, metrics=named)


def plan_campaign(arguments) -> int:
    asked = request_of(arguments)
    left_out = request.left_out(asked)
    serving = [variant for variant in asked.variants if variant.name not in left_out]
    control = ordering.control_of(asked.experiment.timing.rounds, serving, asked.control)
    order = ordering.order_of(asked.experiment, serving, asked.seed, control)
    rows = [[str(one.number), str(one.round), one.name, show_campaign.cell_text(one.cell)] for one in order]
    terminal.table(None, ["trial", "round", "server", "cell"], rows, right={0, 1})
    placed = machine.placement()
    estimate = terminal.duration(estimate_s(asked.experiment, len(order)))
    terminal.say(
        f"{len(order)} trials, about {estimate}; seed {asked.seed}; server on CPUs {placed.server}, engine on {placed.engine}"
    )
    for departure in asked.departures:
        terminal.say(f"override: {departure}")
    for line in preparing.cells_left_out(asked.experiment, serving):
        terminal.say(line)
    for name, reason in left_out.items():
        terminal.say(f"left out {name}: {reason}")
    return DONE


def run_campaign(arguments) -> int:
    if not arguments.no_report:
        require_report()
        require_drawings()
    if (arguments.experiment is None) == (arguments.resume is None):
        raise UserError("expected either an experiment or --resume RUN (see `wsbench run --help`)")
    if arguments.anyway and arguments.resume is None:
        raise UserError("--anyway goes with --resume")
    unfinished = None if arguments.resume is None else _unfinished(arguments)
    asked = request_of(arguments) if unfinished is None else None
    if asked is not None and arguments.install:
        install_for(asked.variants)
    with _testbed(arguments) as where, show_campaign.CampaignView() as watcher:
        if unfinished is not None:
            changed = {"within": arguments.within, "budget_s": arguments.budget}
            run = campaign.resume(unfinished, where, arguments.port, watcher, arguments.again, arguments.anyway, **changed)
        else:
            run = campaign.begin(asked, reading.RUNS, where, arguments.port, watcher)
    results = reading.results_of(run)
    if results.climb is not None:
        show_capacity.summary(results)
    else:
        show_campaign.summary(results)
    _tell_end(results)
    if not arguments.no_report:
        reading.write_report(run, results)
    if results.usable:
        return DONE
    terminal.say(f"no trial has a usable number. {results.why_not(results.leading)}")
    return NOTHING_USABLE


def _unfinished(arguments) -> RunFolder:
    """The campaign to resume. UserError for an option that says what it measures: that is settled."""
    usual = vars(parser(["run"]).parse_args(["run"]))
    given = [name for name, value in vars(arguments).items() if name not in OF_RESUMING and value != usual[name]]
    if "rounds" in given:
        raise UserError(
            "--rounds does not go with --resume: rounds that are added once results are known raise the error of decisions. "
            "Begin another campaign, with more rounds or with --until decided"
        )
    if given:
        raise UserError(f"--{given[0].replace('_', '-')} does not go with --resume: a campaign keeps what it began with")
    return RunFolder.open(arguments.resume)


def _tell_end(results) -> None:
    """How rounds that go on until decided have ended."""
    if results.campaign.until is None:
        return
    from wsbench.analysis import until

    for line in until.standing(results).closing:
        terminal.say(line)
    if results.campaign.until.pair:
        show_duel.result(_duel_of(results), [], False, False)


def _duel_of(results):
    from wsbench.analysis.duel import Duel

    return Duel(results, *duel.texts(results.folder))


def duel_servers(arguments) -> int:
    from wsbench.analysis import gates
    from wsbench.analysis.reading import load as load_results

    conditions = [gates.parse(text) for text in arguments.fail_if]
    quiet = arguments.json or arguments.markdown
    asked = duel.Asked(
        base=arguments.base,
        new=arguments.new,
        path=arguments.path,
        connections=arguments.connections,
        payload_bytes=arguments.size,
        depth=arguments.depth,
        warmup_s=arguments.warmup,
        measure_s=arguments.measure,
        budget_s=arguments.budget,
        margin=arguments.margin,
        metrics=tuple(arguments.metric),
        gated=tuple(one.metric for one in conditions),
        gates=tuple(one.text for one in conditions),
        slos=tuple(arguments.slo),
        pids=tuple(arguments.pid),
        seed=arguments.seed,
        as_is=arguments.as_is,
    )
    end_leftovers(sys.stderr)
    with duel.request(asked, "wsbench " + shlex.join(sys.argv[1:])) as made, show_duel.DuelView(quiet) as watcher:
        where = testbed.ThisHost(program.require_binary(), machine.placement())
        run = campaign.begin(made, reading.RUNS, where, None, watcher)
    results = load_results(run)
    found = _duel_of(results)
    show_duel.result(found, conditions, arguments.json, arguments.markdown)
    if not quiet:
        print(f"kept in {run.path}; `wsbench report {run.path}` writes its report")
    return show_duel.exit_code(found, conditions)


def _scenario(arguments) -> str:
    """What `wsbench capacity` loads its servers with. UserError for two at once."""
    asked = [name for name in ("push", "rooms", "rpc") if getattr(arguments, name)]
    if len(asked) > 1 or (arguments.push and arguments.session):
        raise UserError("give one of --push, --rooms, --rpc; --session goes with --rooms and --rpc")
    if arguments.set and arguments.session is None:
        raise UserError("--set needs --session")
    return asked[0] if asked else "rpc" if arguments.session else "echo"


def _spoken(arguments) -> duel.Spoken | None:
    """What commands and URLs speak in place of an echo."""
    if arguments.session is None:
        return None
    return duel.Spoken(arguments.session, dict(arguments.set), "rooms" if arguments.rooms else "rpc")


def find_capacity(arguments) -> int:
    from wsbench.analysis.reading import load as load_results
    from wsbench.run import capacity

    asked = capacity.Asked(
        targets=tuple(arguments.targets),
        slos=tuple(arguments.slo),
        over=arguments.over,
        connections=arguments.connections,
        payload_bytes=arguments.size,
        scenario=_scenario(arguments),
        spoken=_spoken(arguments),
        room_size=arguments.rooms,
        tls=arguments.tls,
        deflate=arguments.deflate,
        each_per_s=arguments.rate_each,
        start=arguments.start,
        most=arguments.most,
        warmup_s=arguments.warmup,
        rung_s=arguments.rung,
        within=arguments.within,
        budget_s=arguments.budget,
        as_is=arguments.as_is,
        path=arguments.path,
        pid=arguments.pid,
        seed=arguments.seed,
    )
    end_leftovers(sys.stderr)
    view = show_duel.DuelView(quiet=True) if arguments.json else show_campaign.CampaignView()
    with capacity.request(asked, "wsbench " + shlex.join(sys.argv[1:])) as made, view as watcher:
        where = testbed.ThisHost(program.require_binary(), machine.placement())
        run = campaign.begin(made, reading.RUNS, where, None, watcher)
    results = load_results(run)
    if arguments.json:
        print(show_capacity.document(results))
    else:
        show_capacity.summary(results)
        print(f"kept in {run.path}; `wsbench report {run.path}` writes its report")
    return show_capacity.exit_code(results)


def require_drawings() -> None:
    """UserError if the address space is too small for what draws a report before it is opened."""
    from wsbench.report import still

    if still.can_draw():
        installation.require_addresses()


def end_leftovers(out=None) -> None:
    """Ends processes of an earlier wsbench that was killed together with its leash, and reports them. Removes what it unpacked."""
    packing.remove_leftovers()
    if found := leftovers.orphans():
        leftovers.end({one.mark for one in found})
        named = "; ".join(f"{one.pid} ({plain.line(one.command)})" for one in found)
        print(f"ended processes of an earlier wsbench: {named}", file=out or sys.stdout)


@contextlib.contextmanager
def _testbed(arguments):
    """The testbed of a campaign; a cluster is disconnected at the end."""
    end_leftovers()
    if arguments.cluster is None:
        if arguments.port is not None:
            machine.free_port(serving.HOST, arguments.port, 0)
        yield testbed.ThisHost(program.require_binary(), machine.placement())
        return
    from wsbench.run.cluster.testbed import reach

    with reach(arguments.cluster) as found:
        yield found


def load_url(arguments) -> int:
    asked = load_options.request(arguments)
    if arguments.report:
        require_drawings()
    seconds = getattr(asked.measure, "seconds", None)
    load.require_sound(asked)
    end_leftovers(sys.stderr)
    folder = load.claimed(reading.RUNS)
    with live.LoadView(seconds, quiet=arguments.json) as progress:
        done = load.carry_out(asked, folder, progress.look, progress.say)
    trial = TrialData(folder, done.record)
    judged = [] if done.interrupted else thresholds.judge(trial, arguments.fail_if)
    if arguments.json:
        print(show_load.document(folder, done.record, judged, done.interrupted))
    else:
        show_load.summary(folder, done.record, judged, arguments.verbose)
        print(f"kept in {folder.path}" if done.unkept is None else "not kept")
    if done.unkept is not None:
        raise done.unkept
    written = hdr.export(trial, arguments.hdr) if arguments.hdr and folder.latency_log.exists() else []
    if arguments.csv:
        show_load.write_csv(folder, done.record, arguments.csv)
        written.append(arguments.csv)
    if arguments.report:
        show_load.write_report(folder, done.record, judged, arguments.report)
        written.append(arguments.report)
    if written and not arguments.json:
        print(f"written: {', '.join(map(str, written))}")
    return show_load.exit_code(verdict.of_load(trial), done.interrupted, judged)


def test_itself(arguments) -> int:
    for name in arguments.checks:
        if name not in runner.CHECKS:
            raise UserError(f"unknown check {name!r}; known: {', '.join(runner.CHECKS)}")
    rows = runner.run(arguments.checks, terminal.say)
    return terminal.selftest_table(rows)

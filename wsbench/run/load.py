"""`wsbench load URL`: one run of the engine against any server the user names, kept as a trial folder.

It samples the server's processes if the user names them, and starts the server if the user gives its command. Either way, server
and engine then get different CPUs.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from wsbench.engine import program, shards
from wsbench.host import machine, places
from wsbench.metrics import spans
from wsbench.monitoring.sampler import Sampler
from wsbench.records.engine_files import Plan
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.files import new_folder
from wsbench.records.rundir import TrialFolder, TrialRecord
from wsbench.run import preflight, target
from wsbench.run.load_plan import SCHEMES, Request, path, plan_of, require_files, resolved, subprotocols, url_of
from wsbench.servers import serving

PLAN_WAS_WRONG = 2


@dataclass(frozen=True)
class Done:
    """A finished load: its record, whether Ctrl-C or SIGTERM ended it, and why the record is not on disk, if so."""

    record: TrialRecord
    interrupted: bool
    unkept: OSError | None = None


def require_sound(asked: Request) -> None:
    """UserError for everything that can be wrong before a server is started or a folder is made."""
    require_files(asked)
    target.side_of(_server(asked), TrialFolder(Path()))
    if asked.start is None:
        plan_of(replace(asked, busy_poll=False))  # whether the engine has its own CPUs is not known yet


def carry_out(asked: Request, folder: TrialFolder, watch, say=lambda line: None) -> Done:
    """Finds or starts the server, runs the engine and writes a trial's files. After Ctrl-C the results so far are kept.

    `watch(folder, sampler)` is called a few times a second. `say(line)` gets notes for the user before the run. UserError if the
    load cannot start; the folder is then removed.
    """
    try:
        return _carried_out(asked, folder, watch, say)
    except BaseException as error:
        if isinstance(error, UserError) or folder.record is None:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _carried_out(asked: Request, folder: TrialFolder, watch, say) -> Done:
    binary = program.require_binary()
    began, clock = time.time(), time.monotonic()
    reason, interrupted, plan, count = None, False, None, 1
    side = target.side_of(_server(asked), folder)
    try:
        with side:
            plan = plan_of(asked, side.engine_cpus)
            with _hosts(asked, binary) as (hosts, sampling):
                count = hosts.count(asked.engines, plan)
                hosts.plans(plan, count)
                if asked.preflight and asked.cluster is None and (wrong := preflight.problem(plan)) is not None:
                    ended = "" if side.is_alive else "the server ended at the first exchange: "
                    raise UserError(f"{asked.url}: {ended}{wrong}")
                for note in side.notes:
                    say(note)
                _tell_shape(asked, plan, count, hosts, side, say)
                interrupted = _load(plan, count, hosts, sampling, side, folder, watch)
            if not interrupted:
                side.require_alive()
    except TrialFailed as failure:
        reason = str(failure)
        if getattr(failure, "code", None) == PLAN_WAS_WRONG:
            raise UserError(reason.rpartition("plan.json: ")[2]) from failure
    record = TrialRecord(
        number=1,
        round=1,
        server=asked.url,
        variant="",
        cell={},
        outcome="ok" if reason is None else "failed",
        reason=reason,
        started_unix_s=began,
        duration_s=time.monotonic() - clock,
        ready_s=side.ready_s,
        server_cpus=side.server_cpus,
        engine_cpus=plan.cpus if plan is not None else [],
        server_exit=side.exit_words,
        server_env=side.env,
        log_tail=side.log_tail(),
        engines=count,
        restarted=asked.start is not None,
    )
    record = places.of(folder.path.parent).in_value(record)
    try:
        folder.end(record)
    except OSError as error:  # what was measured can still be shown
        return Done(record, interrupted, error)
    return Done(record, interrupted)


def _server(asked: Request) -> target.Asked:
    """What the request says of the server's side."""
    url = url_of(asked)
    transport, sealed, usual_port = SCHEMES[url.scheme]
    host, port = resolved(url, usual_port)
    question = None
    if transport == "websocket" and not sealed:
        question = serving.Question(path(asked, url))
    return target.Asked(
        host=host,
        port=port,
        name=url.netloc,
        question=question or serving.Question(None),
        headers=[*asked.headers, *_offered(asked)],
        pids=asked.pids,
        start=asked.start,
        pin=asked.pin and asked.cluster is None,
        engine_cpus=asked.cpus,
        finds=asked.cluster is None,
    )


def _offered(asked: Request) -> list[tuple[str, str]]:
    offered = subprotocols(asked)
    return [("Sec-WebSocket-Protocol", ", ".join(offered))] if offered else []


@contextlib.contextmanager
def _hosts(asked: Request, binary: Path):
    """The testbed of the engines, here or on a cluster, until the context ends; and a function that samples its hosts."""
    if asked.cluster is None:
        yield shards.ThisHost(binary), lambda folder: contextlib.nullcontext()
        return
    from wsbench.run.cluster.testbed import loading

    with loading(asked.cluster) as found:
        yield found


def _tell_shape(asked: Request, plan: Plan, count: int, hosts: shards.Hosts, side: target.Side, say) -> None:
    """Notes on the number of processes, and on a server that may open too few files."""
    told = shards.words(plan, count) if asked.cluster is None else f"{count} engine processes on {hosts.words}" if count > 1 else ""
    if told:
        say(told)
    limits = [machine.file_limit(pid) for pid in side.pids]
    if limits and None not in limits and sum(limits) <= plan.connections and not asked.replicas:
        processes = ", ".join(map(str, side.pids))
        say(f"the server (process {processes}) may open {sum(limits):,} files, too few for all {plan.connections:,} connections")


def _load(plan: Plan, count: int, hosts: shards.Hosts, sampling, side: target.Side, folder: TrialFolder, watch) -> bool:
    """Runs the engines. Returns whether Ctrl-C ended them."""
    # An engine that is not pinned may use every CPU.
    both = [*side.server_cpus, *plan.cpus] if side.server_cpus and plan.cpus else []

    with (
        Sampler(folder.path / "resources.jsonl", *side.pids, cpus=both) as sampler,
        sampling(folder.path) as hosts_sampler,
        shards.Engines(plan, count, folder, hosts) as running,
    ):
        events = running.folders[0].path / "events.jsonl"
        (hosts_sampler or sampler).watch_engine(events, spans.quiet_s(plan), *running.pids)

        def look() -> None:
            side.look()
            watch(folder, sampler)

        try:
            running.carry_out(look)
            watch(folder, sampler)
        except KeyboardInterrupt:
            running.interrupt()
            running.conclude(interrupted=True)
            return True
    return False


def claimed(runs: Path) -> TrialFolder:
    """A new folder for a load; loads that start in the same second are numbered."""
    return TrialFolder(new_folder(runs, f"{time.strftime('%Y-%m-%dT%H%M%S', time.gmtime())}-load"))

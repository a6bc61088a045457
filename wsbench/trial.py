"""One trial: a fresh server, readiness, the engine, samples, the server stopped, one outcome.

Everything goes into the trial's folder; `trial.json` is written last, so that a folder with it is a finished trial. It knows
no metric: whether the numbers are good is asked later, of the files.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from wsbench import engine, machine, runtime, shards, spans, stopping
from wsbench.catalogue import Variant
from wsbench.engine_files import Seconds, Target
from wsbench.errors import TrialFailed, UserError
from wsbench.experiment import Experiment, Load
from wsbench.frozen import write_json
from wsbench.process import Server
from wsbench.rundir import TrialFolder, TrialOrder, TrialRecord
from wsbench.runtimes import probes
from wsbench.sampler import Sampler

HOST = "127.0.0.1"
READY_S = 60.0
LOG_LINES, LOG_BYTES = 20, 65_536
#: What a server may open beside its connections: a JVM opens some two hundred.
SERVER_FILES = 500
#: A trial that leaves the machine less than this is ended, before the kernel kills some process to get memory back.
MEMORY_FLOOR = 768 << 20


class Stopped(Exception):
    """The experiment's stop rule ends the trial; the message says why."""


@dataclass(frozen=True)
class Setting:
    """What all trials of a campaign share."""

    experiment: Experiment
    seed: int
    placement: machine.Placement
    port: int | None
    engine: Path
    engines: int | None = None  # as many as each trial needs
    server_processes: int | None = None


def carry_out(
    order: TrialOrder, variant: Variant, setting: Setting, folder: TrialFolder, watch: Callable
) -> TrialRecord:
    """Runs the trial and returns its record, which is on disk by then. Ctrl-C leaves no record: the trial did not happen.

    `watch(folder)` is called a few times a second while the engine runs.
    """
    began, clock = time.time(), time.monotonic()
    outcome, reason = "ok", None
    ready_s = server_exit = seen = started_ns = None
    shape, probe = Shape(1, 1), probes.probe_of(variant.tags)
    log = folder.path / "server.log"
    try:
        shape = shape_of(setting, setting.experiment.load_of(order.cell))
        # What a runtime tells of itself goes into one file, which several processes would write over each other.
        probe = probe if shape.servers == 1 else None
        with group_started(variant, setting, order.number, log, probe, shape.servers) as (servers, ports, ready_s):
            first = servers[0]
            started_ns = first.started_ns
            # The PATH is this machine's; what it led to is recorded instead.
            given = {name: value for name, value in first.env.items() if name != "PATH"}
            seen = (given, runtime.executable(first.pid), runtime.pollers(first.pid))
            reason = _measure(order, variant, setting, folder, shape, (servers, ports), watch)
            time.sleep(probes.settle_s(probe))
            if reason is not None:
                outcome = "stopped"
            elif any(server.exit_code is not None for server in servers):
                raise TrialFailed("the server ended before it was stopped")
            server_exit = "; ".join(dict.fromkeys(server.stop() for server in servers))
    except (TrialFailed, UserError) as failure:
        outcome, reason = "failed", str(failure)
    server_env, executable, pollers = seen or (None, None, None)
    record = TrialRecord(
        **order.model_dump(),
        outcome=outcome,
        reason=reason,
        started_unix_s=began,
        duration_s=time.monotonic() - clock,
        ready_s=ready_s,
        server_cpus=setting.placement.server,
        engine_cpus=setting.placement.engine,
        server_exit=server_exit,
        server_env=server_env,
        server_executable=executable,
        server_pollers=pollers,
        log_tail=_tail(log, probe),
        server_started_ns=started_ns,
        probe=probe,
        engines=shape.engines,
        server_processes=shape.servers,
    )
    write_json(folder.path / "trial.json", record)
    return record


@dataclass(frozen=True)
class Shape:
    """How many processes load, and how many serve."""

    engines: int
    servers: int

    @property
    def words(self) -> str:
        """For people; nothing where there is one of each."""
        parts = [(self.engines, "engine processes"), (self.servers, "server processes")]
        return ", ".join(f"{count} {name}" for count, name in parts if count > 1)


def shape_of(setting: Setting, load: Load) -> Shape:
    """As many as were asked for, or as the file limit demands. UserError where that cannot be."""
    threads = len(setting.placement.engine)
    engines = setting.engines or shards.needed(load.most_connections, threads)
    least = server_processes_for(load.most_connections)
    servers = setting.server_processes or least
    if servers < least:
        raise UserError(
            f"{load.most_connections:,} connections need {least} server processes: the file limit here is "
            f"{machine.file_limit():,} a process"
        )
    return Shape(engines, servers)


def server_processes_for(connections: int) -> int:
    """How many processes of a server so many connections take, by the files that one may open."""
    limit = machine.file_limit()
    return 1 if limit is None else -(-connections // max(1, limit - SERVER_FILES))


@contextlib.contextmanager
def group_started(variant: Variant, setting: Setting, number: int, log: Path, probe: str | None, count: int):
    """So many processes of one server, each on a port of its own: they, their ports, the seconds until all were ready."""
    with contextlib.ExitStack() as stack:
        found = []
        for place in range(count):
            port = None if setting.port is None else setting.port + place
            one = replace(setting, port=port)
            found.append(stack.enter_context(started(variant, one, number + place, log, probe)))
        servers, ports, ready = zip(*found, strict=True)
        yield servers, ports, sum(ready)


@contextlib.contextmanager
def started(variant: Variant, setting: Setting, number: int, log: Path, probe: str | None = None):
    """A running server that is ready: itself, its port, the seconds until it was ready. Stopped at the end, whatever happens.

    Its output goes into `log`; what a probe has it tell of its runtime goes into the same folder.
    """
    port = machine.free_port(HOST, setting.port, number)
    cpus = setting.placement.server
    env = {**runtime.environment(variant), "HOST": HOST, "PORT": str(port), "THREADS": str(len(cpus))}
    env = probes.environment(probe, env, log.parent)
    clock = time.monotonic()
    with Server(variant.table.run, variant.folder, env, cpus, log) as server:
        _await_ready(server, port, variant.transport)
        yield server, port, time.monotonic() - clock


def _await_ready(server: Server, port: int, transport: str) -> None:
    """Ready is an answer, never a log line: a TCP connect for plain TCP, else a 101 to an upgrade of /ping or a 200 for /doc."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if server.exit_code is not None:
            raise TrialFailed("the server ended before it was ready")
        if _answers(port, transport):
            return
        time.sleep(0.02)
    raise TrialFailed(f"the server was not ready within {READY_S:g} s")


def _answers(port: int, transport: str) -> bool:
    try:
        if transport == "tcp":
            with socket.create_connection((HOST, port), 1):
                return True
        connection = http.client.HTTPConnection(HOST, port, timeout=2)
        with contextlib.closing(connection):
            upgrade = {
                "Upgrade": "websocket",
                "Connection": "Upgrade",
                "Sec-WebSocket-Key": "d3NiZW5jaCBpcyByZWFkeQ==",
                "Sec-WebSocket-Version": "13",
            }
            connection.request("GET", "/ping", headers=upgrade)
            return connection.getresponse().status == 101
    except (OSError, http.client.HTTPException):
        return False


def _measure(order, variant, setting, folder, shape, serving, watch) -> str | None:
    """Carries the load out; the reason where the experiment's stop rule ended it."""
    servers, ports = serving
    experiment = setting.experiment
    load = experiment.load_of(order.cell)
    scenario = load.scenario(experiment.scenario)
    transport = "http" if scenario.kind == "doc" else variant.transport
    address, *replicas = (f"{HOST}:{port}" for port in ports)
    plan = engine.plan(
        scenario=scenario,
        transport=transport,
        target=Target(address=address, replicas=replicas, host=address, path=engine.path_for(scenario, transport)),
        connections=load.most_connections,
        warmup=Seconds(seconds=experiment.timing.warmup_s) if experiment.timing.warmup_s else None,
        measure=experiment.measure_of(load),
        seed=setting.seed + order.number,
        cpus=setting.placement.engine,
        loop=load.loop(experiment.loop),
        connect=load.connect,
        stages=load.stages,
        # On CPUs of its own the engine need not sleep, so that no response includes its waking up. Where a stop rule must
        # be able to tell whether the engine was the limit, it sleeps: of workers that poll nobody knows how busy they are.
        busy_poll=experiment.loop == "open"
        and experiment.stop is None
        and not set(setting.placement.engine) & set(setting.placement.server),
        reply_s=load.reply_s,
        connect_s=load.connect_s,
    )
    count = shards.chosen(shape.engines, plan)
    with (
        Sampler(folder.path / "resources.jsonl", *(server.pid for server in servers)) as sampler,
        shards.Engines(plan, count, folder, shards.ThisHost(setting.engine)) as running,
    ):
        events = running.folders[0].path / "events.jsonl"
        sampler.watch_engine(running.pids[0], events, spans.quiet_s(plan), *running.pids[1:])

        def look() -> None:
            watch(folder)
            require_memory()
            if reason := _stop_reason(experiment, load, running, servers):
                raise Stopped(reason)

        try:
            running.carry_out(look)
        except Stopped as stop:
            running.interrupt()
            with contextlib.suppress(TrialFailed):
                running.conclude(interrupted=True)
            return str(stop)
        except TrialFailed:
            if reason := _stop_reason(experiment, load, running, servers):
                return reason
            raise
        return _stop_reason(experiment, load, running, servers)


def require_memory() -> None:
    left = machine.memory_available()
    if left is not None and left < MEMORY_FLOOR:
        raise TrialFailed(
            f"the machine ran out of memory: {left >> 20} MiB left, the trial was ended at {MEMORY_FLOOR >> 20} MiB; "
            "see `wsbench doctor --connections N`"
        )


def _stop_reason(
    experiment: Experiment, load: Load, running: shards.Engines, servers: tuple[Server, ...]
) -> str | None:
    if experiment.stop is None:
        return None
    ended = any(server.exit_code is not None for server in servers)
    return stopping.reason(experiment.stop, running.so_far(), load.most_connections, ended)


def _tail(log: Path, probe: str | None) -> list[str]:
    """The last lines that the server wrote itself."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return [line[:500] for line in lines if not probes.is_told(probe, line)][-LOG_LINES:]

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
from dataclasses import dataclass
from pathlib import Path

from wsbench import engine, machine, runtime, spans, stopping
from wsbench.catalogue import Variant
from wsbench.engine_files import Seconds, Target
from wsbench.errors import TrialFailed
from wsbench.experiment import Experiment, Load
from wsbench.frozen import write_json
from wsbench.process import Engine, Server
from wsbench.rundir import TrialFolder, TrialOrder, TrialRecord
from wsbench.runtimes import probes
from wsbench.sampler import Sampler

HOST = "127.0.0.1"
READY_S = 60.0
LOG_LINES, LOG_BYTES = 20, 65_536


@dataclass(frozen=True)
class Setting:
    """What all trials of a campaign share."""

    experiment: Experiment
    seed: int
    placement: machine.Placement
    port: int | None
    engine: Path


def carry_out(
    order: TrialOrder, variant: Variant, setting: Setting, folder: TrialFolder, watch: Callable
) -> TrialRecord:
    """Runs the trial and returns its record, which is on disk by then. Ctrl-C leaves no record: the trial did not happen.

    `watch(folder)` is called a few times a second while the engine runs.
    """
    began, clock = time.time(), time.monotonic()
    outcome, reason = "ok", None
    ready_s = server_exit = seen = started_ns = None
    probe = probes.probe_of(variant.tags)
    log = folder.path / "server.log"
    try:
        with started(variant, setting, order.number, log, probe) as (server, port, ready_s):
            started_ns = server.started_ns
            # The PATH is this machine's; what it led to is recorded instead.
            given = {name: value for name, value in server.env.items() if name != "PATH"}
            seen = (given, runtime.executable(server.pid), runtime.pollers(server.pid))
            reason = _measure(order, variant, setting, folder, server, port, watch)
            time.sleep(probes.settle_s(probe))
            if reason is not None:
                outcome = "stopped"
            elif server.exit_code is not None:
                raise TrialFailed("the server ended before it was stopped")
            server_exit = server.stop()
    except TrialFailed as failure:
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
    )
    write_json(folder.path / "trial.json", record)
    return record


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


def _measure(order, variant, setting, folder, server, port, watch) -> str | None:
    """Carries the load out; the reason where the experiment's stop rule ended it."""
    experiment = setting.experiment
    load = experiment.load_of(order.cell)
    scenario = load.scenario(experiment.scenario)
    transport = "http" if scenario.kind == "doc" else variant.transport
    address = f"{HOST}:{port}"
    plan = engine.plan(
        scenario=scenario,
        transport=transport,
        target=Target(address=address, host=address, path=engine.path_for(scenario, transport)),
        connections=load.connections,
        warmup=Seconds(seconds=experiment.timing.warmup_s) if experiment.timing.warmup_s else None,
        measure=experiment.measure_of(load),
        seed=setting.seed + order.number,
        cpus=setting.placement.engine,
        loop=load.loop(experiment.loop),
        connect=load.connect,
        stages=load.stages,
        # On CPUs of its own the engine need not sleep, so that no response includes its waking up.
        busy_poll=experiment.loop == "open" and not set(setting.placement.engine) & set(setting.placement.server),
        reply_s=load.reply_s,
        connect_s=load.connect_s,
    )
    write_json(folder.path / "plan.json", plan)
    log = folder.path / "engine.log"
    with (
        Sampler(folder.path / "resources.jsonl", server.pid) as sampler,
        Engine(setting.engine, folder.path / "plan.json", folder.path, log) as running,
    ):
        sampler.watch_engine(running.pid, folder.path / "events.jsonl", spans.quiet_s(plan))
        until = time.monotonic() + plan.limits.deadline_s + 10
        while (code := running.wait(0.25)) is None and time.monotonic() < until:
            watch(folder)
            if reason := _stop_reason(experiment, load, folder, server):
                running.interrupt()
                return reason
        reason = _stop_reason(experiment, load, folder, server)
        if reason is None:
            engine.check_exit(code, log)
        return reason


def _stop_reason(experiment: Experiment, load: Load, folder: TrialFolder, server: Server) -> str | None:
    if experiment.stop is None:
        return None
    return stopping.reason(experiment.stop, folder.events(), load.connections, server.exit_code is not None)


def _tail(log: Path, probe: str | None) -> list[str]:
    """The last lines that the server wrote itself."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return [line[:500] for line in lines if not probes.is_told(probe, line)][-LOG_LINES:]

"""One trial: start a fresh server, await readiness, run the engine and the sampler, stop the server, record one outcome.

All files go to the trial's folder. `trial.json` is written last, so a folder with it is a finished trial. This module knows
no metric: results are evaluated later, from the files.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wsbench.engine import program, shards
from wsbench.experiments.experiment import Experiment
from wsbench.experiments.load import Load
from wsbench.host import places
from wsbench.metrics import spans
from wsbench.monitoring import sampler
from wsbench.monitoring.runtime_logs import probes
from wsbench.records import contained
from wsbench.records.engine_files import Doc, Echo, Plan, Scenario, Seconds, Target
from wsbench.records.errors import HostLost, TrialFailed, UserError
from wsbench.records.rundir import LOG_LINES, TrialFolder, TrialOrder, TrialRecord
from wsbench.run import content, stopping
from wsbench.run.testbed import Server, Testbed
from wsbench.servers import serving, speaking
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Started
from wsbench.servers.speaking import Asked, Talk


class Stopped(Exception):
    """The experiment's stop rule ended the trial; the message is the reason."""


@dataclass(frozen=True)
class Setting:
    """Settings that all trials of a campaign share."""

    experiment: Experiment
    seed: int
    testbed: Testbed
    port: int | None
    engines: int | None = None  # None: as many as each trial needs
    server_processes: int | None = None
    anyway: Sequence[str] = ()  # what differs from the trials before the campaign was resumed


def is_started(variant: Variant) -> bool:
    """Whether each trial starts a fresh process of this variant."""
    return isinstance(variant.table, Started)


def carry_out(order: TrialOrder, variant: Variant, setting: Setting, folder: TrialFolder, watch: Callable) -> TrialRecord:
    """Runs the trial, writes its record to disk and returns it. Ctrl-C leaves no record: the trial did not happen.

    `watch(folder)` is called a few times a second while the engine runs.
    """
    attempt = Attempt(order, variant, setting, folder)
    with attempt.judged(), attempt.serving() as server:
        attempt.stopped = _measure(attempt, server, watch)
        attempt.settle(server)
    return attempt.record()


class Attempt:
    """A trial under way: its server, and its outcome so far."""

    def __init__(self, order: TrialOrder, variant: Variant, setting: Setting, folder: TrialFolder):
        self.order, self.variant, self.setting, self.folder = order, variant, setting, folder
        if order.ladder is not None:
            self.experiment = setting.experiment.climbing(order.cell, variant.runtime, order.ladder)
            self.load = self.experiment.load
        elif order.follow_up is not None:
            self.experiment = setting.experiment.following(order.cell, variant.runtime, order.follow_up)
            self.load = self.experiment.load
        else:
            self.experiment, self.load = setting.experiment, setting.experiment.load_of(order.cell)
        #: Why the trial failed, or why the experiment's stop rule ended it.
        self.failed: str | None = None
        self.stopped: str | None = None
        self._began, self._clock = time.time(), time.monotonic()
        self._shape, self._probe = Shape(1, 1), probes.probe_of(variant.tags)
        self._ready: serving.Ready | None = None
        self._exit: str | None = None

    @property
    def engines(self) -> int:
        """How many engine processes share the load."""
        return self._shape.engines

    @contextlib.contextmanager
    def judged(self):
        """A failure inside is the outcome of the trial; so is a fault of wsbench, which is not booked to the server."""
        try:
            yield
        except (TrialFailed, UserError) as failure:
            self.failed = self.failed or str(failure)
        except Exception as error:
            reason = contained.fault(f"trial of {self.variant.name}", error)
            self.failed = self.failed or reason

    @contextlib.contextmanager
    def serving(self):
        """A fresh, ready server, or one that runs already."""
        setting = self.setting
        self._shape = shape_of(setting, self.load, is_started(self.variant))
        # Only a server that is started can be asked for reports.
        self._probe = self._probe if is_started(self.variant) else None
        # The runtime's log is one file, which several processes would overwrite.
        self._probe = self._probe if self._shape.servers == 1 else None
        asked = serving.Order(
            address=setting.testbed.server_address,
            port=setting.port,
            number=self.order.number,
            cpus=setting.testbed.server_cpus,
            processes=self._shape.servers,
            share_heap="heap" in self.experiment.scales,
            probe=self._probe,
            asks=self.load.asks,
        )
        with setting.testbed.serving(self.variant, self.experiment.runtime, asked, self.folder.path) as server:
            self._ready = server.ready
            yield server

    def plan(self) -> Plan:
        """The combined plan of the engine processes for the server that is ready."""
        experiment, load, testbed = self.experiment, self.load, self.setting.testbed
        asked = _asked(self.variant, experiment.scenario, load)
        transport = "http" if experiment.scenario == "doc" else self.variant.transport
        address, *replicas = self._ready.addresses
        return program.plan(
            scenario=self._filled(asked.scenario),
            transport=transport,
            target=Target(address=address, replicas=replicas, host=self._ready.host, path=asked.path),
            subprotocols=asked.subprotocols,
            connections=load.most_connections,
            warmup=Seconds(seconds=experiment.timing.warmup_s) if experiment.timing.warmup_s else None,
            measure=experiment.measure_of(load),
            seed=self.setting.seed + self.order.number,
            cpus=testbed.engine_cpus,
            loop=load.loop(experiment.loop),
            connect=load.connect,
            stages=load.stages,
            # With its own CPUs the engine need not sleep, so no response time includes a wake-up. With a stop rule it sleeps:
            # the rule must detect whether the engine was the limit, and the load of polling workers is unknown.
            busy_poll=experiment.loop in ("open", "ladder") and experiment.stop is None and testbed.apart,
            reply_s=load.reply_s,
            connect_s=load.connect_s,
            tick_s=experiment.timing.tick_s,
            asks=load.asks,
        )

    def _filled(self, scenario: Scenario) -> Scenario:
        """The scenario, with the content that the load asks for in a file of the trial."""
        if not isinstance(scenario, Echo) or self.load.content == "letters":
            return scenario
        file = self.folder.path / "content.json"
        file.write_bytes(content.json_text(scenario.bytes))
        # The engine runs in the folder of wsbench; the plan names no folder of the machine.
        return scenario.model_copy(update={"content": os.path.relpath(file)})

    def settle(self, server: Server) -> None:
        """Lets the runtime write its last lines, and stops the server. TrialFailed if it had ended by itself."""
        time.sleep(probes.settle_s(self._probe))
        if self.stopped is None and (ended := server.ended()) is not None:
            raise TrialFailed(ended)
        self._exit = server.stop()

    def record(self) -> TrialRecord:
        """Writes the record to disk and returns it."""
        ready, testbed = self._ready, self.setting.testbed
        outcome = "failed" if self.failed is not None else "stopped" if self.stopped is not None else "ok"
        record = TrialRecord(
            **self.order.model_dump(),
            outcome=outcome,
            reason=self.failed or self.stopped,
            started_unix_s=self._began,
            duration_s=time.monotonic() - self._clock,
            ready_s=ready and ready.ready_s,
            server_cpus=testbed.server_cpus if ready is None else ready.cpus,
            engine_cpus=testbed.engine_cpus,
            server_exit=self._exit,
            server_env=ready and ready.env,
            server_executable=ready and ready.executable,
            server_pollers=ready and ready.pollers,
            log_tail=_tail(self.folder.path / serving.LOG, self._probe),
            server_started_ns=ready and ready.started_ns,
            probe=self._probe,
            engines=self._shape.engines,
            server_processes=self._shape.servers,
            restarted=is_started(self.variant),
            anyway=list(self.setting.anyway),
        )
        record = places.of(self.folder.path.parent.parent).in_value(record)
        self.folder.end(record)
        return record


@dataclass(frozen=True)
class Shape:
    """Numbers of engine and server processes."""

    engines: int
    servers: int

    @property
    def words(self) -> str:
        """Both numbers in words; empty if there is one of each."""
        parts = [(self.engines, "engine processes"), (self.servers, "server processes")]
        return ", ".join(f"{count} {name}" for count, name in parts if count > 1)


def shape_of(setting: Setting, load: Load, started: bool = True) -> Shape:
    """The requested numbers, or as many as the file limit demands. UserError if the request is below that. A server that runs
    already has one process, whatever it may open."""
    engines = setting.engines or setting.testbed.engines.least(load.most_connections, len(setting.testbed.engine_cpus))
    if not started:
        return Shape(engines, 1)
    limit = setting.testbed.server_files
    least = serving.processes_for(load.most_connections, limit)
    servers = setting.server_processes or least
    if servers < least:
        raise UserError(
            f"{load.most_connections:,} connections need {least} server processes: the file limit is {limit:,} per process"
        )
    if servers > 1 and load.room_size is not None:
        raise UserError(f"rooms need a single server process, found {servers}: take fewer connections, or raise `ulimit -Hn`")
    return Shape(engines, servers)


def _measure(attempt: Attempt, server: Server, watch: Callable) -> str | None:
    """Runs the load. Returns the reason if the experiment's stop rule ended it."""
    setting, folder, load, experiment = attempt.setting, attempt.folder, attempt.load, attempt.experiment
    plan = attempt.plan()
    count = setting.testbed.engines.count(attempt.engines, plan)
    with (
        setting.testbed.sampling(server, folder.path) as samples,
        shards.Engines(plan, count, folder, setting.testbed.engines) as running,
    ):
        events = running.folders[0].path / "events.jsonl"
        samples.watch_engine(events, spans.quiet_s(plan), *running.pids, longest_s=sampler.longest_s(plan))

        def look() -> None:
            watch(folder)
            server.look()
            if reason := _stop_reason(experiment, load, running, server):
                raise Stopped(reason)

        try:
            running.carry_out(look)
        except Stopped as stop:
            running.interrupt()
            with contextlib.suppress(TrialFailed):
                running.conclude(interrupted=True)
            return str(stop)
        except HostLost:
            raise
        except TrialFailed:
            if reason := _stop_reason(experiment, load, running, server):
                return reason
            raise
        return _stop_reason(experiment, load, running, server)


def _asked(variant: Variant, kind: str, load: Load) -> Asked:
    """The session of a role, or a scenario of the contract. Idle connections are those of echo."""
    if kind in variant.roles:
        return speaking.asked(variant, kind, Talk(load.payload_bytes, load.connections, load.room_size, load.publishers))
    scenario = load.scenario(kind)
    if variant.transport == "tcp":
        return Asked(scenario, "/")
    if isinstance(scenario, Doc):
        return Asked(scenario, serving.document(variant.paths, scenario.bytes))
    return Asked(scenario, variant.paths["echo" if kind == "idle" else kind])


def _stop_reason(experiment: Experiment, load: Load, running: shards.Engines, server: Server) -> str | None:
    if experiment.stop is None:
        return None
    return stopping.reason(experiment.stop, running.so_far(), load.most_connections, server.ended() is not None)


def _tail(log: Path, probe: str | None) -> list[str]:
    """The last lines of the server's own output."""
    return [line for line in serving.last_lines(log) if not probes.is_told(probe, line)][-LOG_LINES:]

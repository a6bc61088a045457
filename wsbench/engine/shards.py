"""Runs one trial with several engine processes (shards): their number, their plans, and their common start, supervision and end.

Several processes use several hosts, or what the user asks for. A low file limit takes more workers first, and more processes only
after that: each worker can have a file table of its own, and the limit holds for a table. The plans of the processes differ only in
`shard`, workers, CPUs and source addresses (protocol, section 1). Each process waits at two gates: before it connects and before
its first phase. When the last one has arrived, all get the same instant to continue. If one process fails, the trial ends.
"""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wsbench.engine import merge, program
from wsbench.host import machine
from wsbench.host.process import Engine
from wsbench.records.engine_files import End, Event, Gate, Plan, parse_event
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.frozen import Tail, write_json
from wsbench.records.rundir import TrialFolder

ENGINE_FILES = 32  # open files in each of an engine's file tables, in addition to connections and to four per worker
#: Lead time before a gate opens: longer than a line needs to reach a process on a busy machine.
AHEAD_NS = 200_000_000
LOOK_S, WATCH_S = 0.02, 0.25
#: Share of a source's ports to use. With the rest free, the kernel finds a free port quickly.
PORTS_USED = 0.5


def needed(connections: int, threads: int) -> int:
    """Number of engine processes for these connections, under this host's file limit."""
    return needed_with(machine.file_limit(), connections, threads)


def needed_with(limit: int | None, connections: int, threads: int) -> int:
    """Same as `needed`, for a given file limit. None: unlimited."""
    if workers_with(limit, 1, 1) is None:
        raise UserError(f"the limit of {limit} open files is too low for an engine; raise it with `ulimit -Hn`")
    return next(
        count for count in range(1, connections + 1) if workers_with(limit, -(-connections // count), threads if count == 1 else 1)
    )


def workers_with(limit: int | None, connections: int, threads: int) -> int | None:
    """Workers of a process: `threads`, or as many as it takes for these connections. None: no number suffices."""
    besides = ENGINE_FILES + 4 * threads
    if limit is None or connections + besides <= limit:
        return threads
    most = min(connections, limit // 4)
    return next((count for count in range(threads, most + 1) if -(-connections // count) + ENGINE_FILES + 4 * count <= limit), None)


def chosen(asked: int | None, plan: Plan) -> int:
    """The requested number of processes, or the smallest possible one. UserError if the request cannot be met."""
    least = needed(plan.connections, plan.threads)
    if asked is not None and asked < least:
        raise UserError(
            f"{plan.connections:,} connections need {least} engine processes: each worker may open at most "
            f"{machine.file_limit():,} files here"
        )
    count = least if asked is None else asked
    require_shares(count, plan)
    return count


def require_shares(count: int, plan: Plan) -> None:
    """UserError if that number of processes cannot share the plan."""
    if count > plan.connections:
        raise UserError(f"{count} engine processes for {plan.connections} connections; each process needs at least one")
    if count > 1 and plan.scenario.kind == "push" and plan.stages is not None:
        raise UserError("broadcasts with a changing number of connections (stages) need a single engine process")


def plans(whole: Plan, count: int) -> list[Plan]:
    """The plan of each process. UserError if the target's ports do not suffice."""
    _require_ports(whole)
    if count == 1:
        workers = staff(machine.file_limit(), whole.connections, whole.threads, whole.busy_poll)
        return connecting([whole.model_copy(update={"source_addresses": sources(whole, 0, 1), **workers})])
    found = []
    for number in range(count):
        connections = whole.connections // count + (number < whole.connections % count)
        cpus = whole.cpus[number::count] or whole.cpus[number % len(whole.cpus) :][:1] if whole.cpus else []
        threads = len(cpus) if cpus else max(1, whole.threads // count)
        changed = {
            "shard": (number, count),
            "cpus": cpus,
            "source_addresses": sources(whole, number, count),
            "gate_s": patience_s(whole),
            **staff(machine.file_limit(), connections, min(threads, connections), whole.busy_poll and count <= len(whole.cpus)),
        }
        found.append(whole.model_copy(update=changed))
    return connecting(found)


def connecting(plans: list[Plan]) -> list[Plan]:
    """Plans in which every worker of every process may open a connection."""
    connect = plans[0].connect
    workers = len(plans) * max(plan.threads for plan in plans)
    widened = connect.model_copy(update={"at_once": max(connect.at_once, workers)})
    return [plan.model_copy(update={"connect": widened}) for plan in plans]


def staff(limit: int | None, connections: int, threads: int, busy_poll: bool) -> dict:
    """The workers of a process, in its plan's words. Workers that poll without sleeping must not share a CPU."""
    workers = workers_with(limit, connections, threads) or threads
    return {"threads": workers, "busy_poll": busy_poll and workers == threads}


def patience_s(plan: Plan) -> float:
    """Seconds to wait at a gate: enough for the slowest process to connect, plus a margin."""
    return min(3600.0, program.connecting_s(plan.connections, plan.connect.per_s) + plan.limits.connect_s + 20)


def sources(whole: Plan, number: int, count: int) -> list[str]:
    """A shard's part of the given source addresses. On loopback, where all of 127.0.0.0/8 is local, as many as needed."""
    given = whole.source_addresses
    if given != ["0.0.0.0"]:
        return given[number::count] if len(given) >= count else given
    ports, places = machine.local_ports(), 1 + len(whole.target.replicas)
    own = -(-whole.connections // count)
    if ports is None or not ipaddress.ip_address(whole.target.address.rpartition(":")[0]).is_loopback:
        return given
    each = -(-own // max(1, int(ports * PORTS_USED) * places))
    if count == each == 1:
        return given
    first = ipaddress.IPv4Address("127.0.0.1") + number * each
    return [str(first + more) for more in range(each)]


def _require_ports(plan: Plan) -> None:
    """UserError if the source addresses have too few ports. On loopback, addresses are added as needed."""
    ports, places = machine.local_ports(), 1 + len(plan.target.replicas)
    loopback = ipaddress.ip_address(plan.target.address.rpartition(":")[0].strip("[]")).is_loopback
    automatic = plan.source_addresses == ["0.0.0.0"] and loopback
    if ports is None or automatic or plan.connections <= ports * places * len(plan.source_addresses):
        return
    wanted = -(-plan.connections // (ports * places))
    raise UserError(
        f"{plan.connections:,} connections to one address need {wanted} source addresses with {ports:,} local ports each; "
        "give --source several times"
    )


def words(plan: Plan, count: int) -> str:
    """A note for the user on the numbers of processes and workers; empty for one process with the workers that were asked."""
    limit, own = machine.file_limit(), -(-plan.connections // count)
    several = [f"{count} engine processes"] if count > 1 else []
    if (workers := workers_with(limit, own, plan.threads)) != plan.threads:
        several.append(f"{workers} workers{' each' if count > 1 else ''}: a worker may open at most {limit:,} files here")
    return ", ".join(several)


class Hosts(Protocol):
    """The hosts of a trial's engine processes: the plan of each process, and its start.

    `start` returns an object like `process.Engine`. Output of a remote process must arrive in `folder`, on this host's clock.
    """

    def least(self, connections: int, threads: int) -> int: ...
    def count(self, asked: int | None, whole: Plan) -> int: ...
    def plans(self, whole: Plan, count: int) -> list[Plan]: ...
    def start(self, number: int, folder: Path, log: Path) -> Engine: ...


@dataclass(frozen=True)
class ThisHost:
    binary: Path

    def least(self, connections: int, threads: int) -> int:
        return needed(connections, threads)

    def count(self, asked: int | None, whole: Plan) -> int:
        return chosen(asked, whole)

    def plans(self, whole: Plan, count: int) -> list[Plan]:
        return plans(whole, count)

    def start(self, number: int, folder: Path, log: Path) -> Engine:
        return Engine(self.binary, folder / "plan.json", folder, log)


@dataclass
class Member:
    """One engine process and its events so far."""

    name: str
    process: Engine
    events: Tail
    log: Path
    gates: set[str]
    end: End | None = None
    said: list[Event] = field(default_factory=list)

    def look(self) -> None:
        for line in self.events.new_lines():
            event = parse_event(line)
            self.said.append(event)
            if isinstance(event, Gate):
                self.gates.add(event.gate)
            elif isinstance(event, End):
                self.end = event

    def check(self) -> None:
        """TrialFailed if the process ended without carrying out its plan."""
        if self.process.exit_code not in (None, 0):
            self.conclude(self.process.exit_code)

    def conclude(self, code: int | None) -> None:
        try:
            program.check_exit(code, self.log)
        except TrialFailed as failure:
            raise program.EngineFailed(f"{self.name}: {failure}" if self.name else str(failure), code) from failure


class Engines:
    """The engine processes of one trial. They start at entry and have ended at exit. `whole` is their combined plan."""

    def __init__(self, whole: Plan, count: int, folder: TrialFolder, hosts: Hosts):
        self._folder = folder
        self._hosts = hosts
        self._plans = self._hosts.plans(whole, count)
        write_json(folder.path / "plan.json", self._plans[0] if count == 1 else whole)
        self._members: list[Member] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Engines:
        count = len(self._plans)
        try:
            for number, plan in enumerate(self._plans):
                path = self._folder.path if count == 1 else self._folder.path / f"engine-{number}"
                path.mkdir(exist_ok=True)
                if count > 1:
                    write_json(path / "plan.json", plan)
                log = path / "engine.log"
                process = self._stack.enter_context(self._hosts.start(number, path, log))
                name = "" if count == 1 else merge.name_of(number, count)
                self._members.append(Member(name, process, Tail(path / "events.jsonl"), log, set()))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    @property
    def pids(self) -> list[int]:
        return [member.process.pid for member in self._members]

    @property
    def folders(self) -> list[TrialFolder]:
        return [TrialFolder(member.log.parent) for member in self._members]

    def so_far(self) -> list[Event]:
        """Phases, ticks and errors of all processes. Each line is read only once, however often this is called."""
        for member in self._members:
            member.look()
        return merge.so_far([member.said for member in self._members])

    def carry_out(self, watch: Callable[[], None]) -> None:
        """Waits for the end and merges the output. TrialFailed as soon as one process fails."""
        if len(self._members) > 1:
            for gate in ("connect", "begin"):
                self.reach(gate, watch)
                self.open(gate, time.monotonic_ns() + AHEAD_NS)
        self.await_end(watch)

    def await_end(self, watch: Callable[[], None]) -> None:
        """Waits for the end and merges the output, once all gates are open."""
        until = time.monotonic() + self._plans[0].limits.deadline_s + 10
        while time.monotonic() < until and (left := [one for one in self._members if one.process.exit_code is None]):
            left[0].process.wait(WATCH_S)
            watch()
            for member in self._members:
                member.check()
        self.conclude()

    def interrupt(self, timeout_s: float = 6.0) -> None:
        """Tells all processes to write their measurements and exit, and waits for up to `timeout_s`."""
        for member in self._members:
            member.process.interrupt()
        until = time.monotonic() + timeout_s
        for member in self._members:
            member.process.wait(max(0.0, until - time.monotonic()))

    def conclude(self, interrupted: bool = False) -> None:
        """Completes the trial's files. TrialFailed unless all processes carried out their plans."""
        for member in self._members:
            member.conclude(member.process.exit_code)
        if len(self._members) > 1:
            merge.merge(self._folder, interrupted)

    def reach(self, gate: str, watch: Callable[[], None]) -> None:
        """Waits until the last process has reached the gate. TrialFailed if one never does."""
        until = time.monotonic() + self._plans[0].gate_s
        looked = time.monotonic()
        while True:
            for member in self._members:
                member.look()
                member.check()
            absent = [one for one in self._members if gate not in one.gates]
            if all(one.process.exit_code is not None for one in absent):
                break
            if time.monotonic() > until:
                running = [one.name for one in absent if one.process.exit_code is None]
                raise TrialFailed(f"{running[0]} did not reach its gate `{gate}` in time")
            if time.monotonic() - looked > WATCH_S:
                watch()
                looked = time.monotonic()
            time.sleep(LOOK_S)
        if absent and len(absent) < len(self._members):
            said = f" as {absent[0].end.outcome}" if absent[0].end else ""
            raise TrialFailed(f"{absent[0].name} ended{said} before the others began")

    def open(self, gate: str, t_ns: int) -> None:
        """Opens the gate: tells all processes the same instant."""
        for member in self._members:
            member.process.tell(f"{gate} {t_ns}")

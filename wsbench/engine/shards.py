"""One trial by several engine processes: how many it takes, what each is to do, and how they are started together, watched,
and ended as one.

One process may open only so many files; what needs more connections needs more processes. Their plans differ in `shard`,
CPUs and source addresses only (protocol, section 1). Each stands at two gates, before it connects and before its first
phase, and all are told the same instant when the last stands there. One that fails is the end of the trial.
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

ENGINE_FILES = 32  # what an engine opens beside its connections, and four a worker
#: From telling the instant to the instant: longer than a line to a process takes on a busy machine.
AHEAD_NS = 200_000_000
LOOK_S, WATCH_S = 0.02, 0.25
#: What is left of a source's ports where half are taken: the kernel's search for a free one stays short.
PORTS_USED = 0.5


def needed(connections: int, threads: int) -> int:
    """How many engine processes so many connections take, by the files that one may open."""
    return needed_with(machine.file_limit(), connections, threads)


def needed_with(limit: int | None, connections: int, threads: int) -> int:
    """The same where a process may open so many files; None: as many as it likes."""
    if limit is None:
        return 1
    room = limit - ENGINE_FILES - 4 * threads
    if room < 1:
        raise UserError(f"one process may open {limit} files here, too few for an engine; raise it with `ulimit -Hn`")
    return -(-connections // room)


def chosen(asked: int | None, plan: Plan) -> int:
    """As many as were asked for, or as many as it takes; UserError where that cannot be."""
    least = needed(plan.connections, plan.threads)
    if asked is not None and asked < least:
        raise UserError(
            f"{plan.connections:,} connections need {least} engine processes: the file limit here is "
            f"{machine.file_limit():,} a process"
        )
    count = least if asked is None else asked
    require_shares(count, plan)
    return count


def require_shares(count: int, plan: Plan) -> None:
    """UserError where so many processes cannot share the plan."""
    if count > plan.connections:
        raise UserError(f"{count} engine processes for {plan.connections} connections; give each at least one")
    if count > 1 and plan.scenario.kind == "push" and plan.stages is not None:
        raise UserError("broadcasts to connections that come and go are counted by one engine process only")


def plans(whole: Plan, count: int) -> list[Plan]:
    """What each of so many processes is to do. UserError where the target's ports do not suffice."""
    _require_ports(whole)
    if count == 1:
        return [whole.model_copy(update={"source_addresses": sources(whole, 0, 1)})]
    found = []
    for number in range(count):
        connections = whole.connections // count + (number < whole.connections % count)
        cpus = whole.cpus[number::count] or whole.cpus[number % len(whole.cpus) :][:1] if whole.cpus else []
        threads = len(cpus) if cpus else max(1, whole.threads // count)
        changed = {
            "shard": (number, count),
            "cpus": cpus,
            "threads": min(threads, connections),
            # Workers that never sleep must not share a CPU.
            "busy_poll": whole.busy_poll and count <= len(whole.cpus),
            "source_addresses": sources(whole, number, count),
            "gate_s": patience_s(whole),
        }
        found.append(whole.model_copy(update=changed))
    return found


def patience_s(plan: Plan) -> float:
    """How long the slowest may take to connect, and some: then the others need not wait any more."""
    return min(3600.0, program.connecting_s(plan.connections, plan.connect.per_s) + plan.limits.connect_s + 20)


def sources(whole: Plan, number: int, count: int) -> list[str]:
    """Those that were asked for, shared out; on loopback, where every address is our own, as many as it takes."""
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
    """UserError where one address has not enough ports; loopback has as many addresses as are needed."""
    ports, places = machine.local_ports(), 1 + len(plan.target.replicas)
    loopback = ipaddress.ip_address(plan.target.address.rpartition(":")[0].strip("[]")).is_loopback
    automatic = plan.source_addresses == ["0.0.0.0"] and loopback
    if ports is None or automatic or plan.connections <= ports * places * len(plan.source_addresses):
        return
    wanted = -(-plan.connections // (ports * places))
    raise UserError(
        f"{plan.connections:,} connections to one address need {wanted} source addresses, each has {ports:,} local ports; "
        "give --source several times"
    )


def words(count: int) -> str:
    """What was done, for people; nothing where one process does it all."""
    limit = machine.file_limit()
    why = f": the file limit here is {limit:,} a process" if limit is not None else ""
    return "" if count == 1 else f"{count} engine processes{why}"


class Hosts(Protocol):
    """Where the processes of a trial run: what each is to do there, and one that is started, as `process.Engine`.

    What a process on another host writes must come into `folder` in this host's clock.
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
    """One of the processes, and what it has said so far."""

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
        """TrialFailed where it has ended by anything but carrying out its plan."""
        if self.process.exit_code not in (None, 0):
            self.conclude(self.process.exit_code)

    def conclude(self, code: int | None) -> None:
        try:
            program.check_exit(code, self.log)
        except TrialFailed as failure:
            raise program.EngineFailed(f"{self.name}: {failure}" if self.name else str(failure), code) from failure


class Engines:
    """The processes of one trial, started at entry and gone at exit. `whole` is what they are to do together."""

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
        """Phases, ticks and errors of all processes together; each line is read once, however often this is asked."""
        for member in self._members:
            member.look()
        return merge.so_far([member.said for member in self._members])

    def carry_out(self, watch: Callable[[], None]) -> None:
        """Waits for the end and merges what was written. TrialFailed as soon as one of them fails."""
        if len(self._members) > 1:
            self._pass("connect", watch)
            self._pass("begin", watch)
        until = time.monotonic() + self._plans[0].limits.deadline_s + 10
        while time.monotonic() < until and (left := [one for one in self._members if one.process.exit_code is None]):
            left[0].process.wait(WATCH_S)
            watch()
            for member in self._members:
                member.check()
        self.conclude()

    def interrupt(self, timeout_s: float = 6.0) -> None:
        """Asks all to write what was measured and to end, and waits for that."""
        for member in self._members:
            member.process.interrupt()
        until = time.monotonic() + timeout_s
        for member in self._members:
            member.process.wait(max(0.0, until - time.monotonic()))

    def conclude(self, interrupted: bool = False) -> None:
        """TrialFailed unless all carried out their plans; the trial's files are there then."""
        for member in self._members:
            member.conclude(member.process.exit_code)
        if len(self._members) > 1:
            merge.merge(self._folder, interrupted)

    def _pass(self, gate: str, watch: Callable[[], None]) -> None:
        """All pass the gate at one instant, which they are told when the last stands there."""
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
        t_ns = time.monotonic_ns() + AHEAD_NS
        for member in self._members:
            member.process.tell(f"{gate} {t_ns}")

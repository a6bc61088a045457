"""The run directory: what the harness writes into it, as frozen types, and every file of it by name.

The only room that both sides share: campaign and trial write here, metrics and report read here. Raw files are append-only
text; derived files may be deleted. It knows no metric and starts nothing. The contract is protocol/README.md, section 6; the
engine's own files are in `engine_files`, the lines of samples in `samples`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from wsbench.records.engine_files import EVENTS, Broadcast, Copies, Event, Plan, Receivers, Tick, parse_event, summed
from wsbench.records.errors import UserError
from wsbench.records.files import is_plain
from wsbench.records.frozen import Frozen, read_every_line, read_json, read_json_if_any, read_json_list
from wsbench.records.packing import ARCHIVE, unpacked
from wsbench.records.samples import SAMPLES, Sample, parse_sample

# ---- the campaign --------------------------------------------------------------------------------------------------

CellValue = int | float | str | bool
#: From 1970 to the year 9999, which is as far as dates go.
UnixSeconds = Annotated[float, Field(ge=0, lt=253_402_300_800)]
#: What stands behind the name of a server that runs a second time in every round: the A/A control.
CONTROL = " (control)"
#: Holds more than a second of an engine's ticks.
LAST_EVENTS_BYTES = 64 << 10
TOLD_LATE = (Broadcast, Copies, Receivers)


class CheckResult(Frozen):
    """One conformance check against one server variant."""

    name: str
    section: str
    required: bool
    passed: bool
    detail: str


class RuntimeRecord(Frozen):
    """What a runtime said of itself, under the server's settings and on the server's CPUs. None is what it does not tell."""

    name: Literal["java", "node"]
    version: str | None
    vendor: str | None
    home: str | None
    collector: str | None
    #: Whether somebody chose the collector; else the JVM did, by the machine's CPUs and memory.
    collector_asked: bool
    heap_bytes: int | None
    options: str

    @property
    def text(self) -> str:
        parts = [f"{self.name} {self.version or 'of unknown version'}{f' ({self.vendor})' if self.vendor else ''}"]
        if self.name == "java":
            chosen = "" if self.collector_asked else " (the JVM's own choice)"
            parts.append(f"collector {self.collector or 'unknown'}{chosen}")
        if self.heap_bytes is not None:
            parts.append(f"heap at most {self.heap_bytes / 2**20:,.0f} MiB")
        return ", ".join(parts)


class ServerRow(Frozen):
    """A server variant in a campaign: what it is, how it was started, or why it was left out."""

    server: str
    variant: str
    language: str
    library: str
    homepage: str
    tags: list[str]
    transport: Literal["websocket", "tcp"]
    library_version: str
    receipt: str | None
    #: None: a server of which no runtime can be chosen, or a run from before it was recorded.
    runtime: RuntimeRecord | None = None
    build: list[list[str]]
    run: list[str]
    env: dict[str, str]
    departures: list[str]
    conformance: list[CheckResult]
    skipped: str | None = None

    @property
    def name(self) -> str:
        return f"{self.server}@{self.variant}"


class TrialOrder(Frozen):
    """A trial before it ran; `again_of` is the number of the one it repeats, which the machine disturbed."""

    number: int
    round: int
    server: str
    variant: str
    cell: dict[str, CellValue]
    control: bool = False
    again_of: int | None = None

    @property
    def variant_name(self) -> str:
        return f"{self.server}@{self.variant}"

    @property
    def name(self) -> str:
        """The row it belongs to: a control is a row of its own."""
        return self.variant_name + (CONTROL if self.control else "")


class TrialRecord(Frozen):
    """A trial after it ran: exactly one outcome, `ok`, `failed` with a reason, or `stopped` with the one the stop rule gave.

    `server_started_ns` is on the monotonic clock; `probe` is the runtime that was asked to tell of itself. Both are null in
    runs that are older than they are.
    """

    format: Literal[1] = 1
    number: int
    round: int
    server: str
    variant: str
    cell: dict[str, CellValue]
    control: bool = False
    again_of: int | None = None
    outcome: Literal["ok", "failed", "stopped"]
    reason: str | None
    #: None: a trial of a published campaign that kept neither.
    started_unix_s: UnixSeconds | None
    duration_s: float | None
    ready_s: float | None
    server_cpus: list[int]
    engine_cpus: list[int]
    server_exit: str | None
    #: What the server was given, the program of its first process, and how it waits for events: None where it never was ready.
    server_env: dict[str, str] | None = None
    server_executable: str | None = None
    server_pollers: list[str] | None = None
    log_tail: list[str]
    server_started_ns: int | None = None
    probe: str | None = None
    #: Processes that shared the load, and the server's.
    engines: int = 1
    server_processes: int = 1

    @property
    def name(self) -> str:
        return f"{self.server}@{self.variant}" + (CONTROL if self.control else "")


class CampaignRecord(Frozen):
    """What was asked of a campaign; `departures` says in words where that is not what experiment.toml says."""

    format: Literal[1] = 1
    wsbench: str
    experiment: str
    command: str
    created_unix_s: UnixSeconds
    seed: int
    rounds: int
    scale: float = 1.0
    time_scale: float = 1.0
    departures: list[str] | None = None  # None: a run from before they were recorded
    tags: list[str] = []
    servers: list[str]
    skipped: list[str]
    engines: int | None = None  # None: as many as each trial needs
    server_processes: int | None = None
    again: int = 0  # how many times a trial that the machine disturbed may be run once more


class Tool(Frozen):
    name: str
    version: str | None


class MachineRecord(Frozen):
    """The machine a campaign ran on. `None` is a thing that this machine does not tell."""

    hostname: str
    kernel: str
    distribution: str | None
    cpu_model: str | None
    cpus: int
    memory_bytes: int
    virtualisation: str | None
    governor: str | None
    clocksource: str | None
    file_limit: tuple[int, int]
    port_range: tuple[int, int] | None
    sysctls: dict[str, str]
    tools: list[Tool]
    git_revision: str | None


class HostKey(Frozen):
    """A host of a cluster: what it does in a campaign, and with which CPUs."""

    name: str
    role: Literal["serve", "load"]
    address: str
    cpus: list[int]


class HostRow(Frozen):
    """A host in a campaign, and its machine as machine.json has it."""

    key: HostKey
    machine: MachineRecord


class ClockRecord(Frozen):
    """A host's monotonic clock is ours plus the offset, give or take the bound; `t_ns` is when that was found, by ours."""

    t_ns: int
    offset_ns: int
    bound_ns: int


class HostRecord(Frozen):
    """A host in a trial. What it wrote was moved into our clock by the first of `clocks`; the others are from while the trial ran
    and, unless the host was lost, from after it. `epoch_ns` is its wall clock minus its monotonic one, `engines` are the shards
    that ran there."""

    name: str
    role: Literal["serve", "load"]
    address: str
    engines: list[int]
    epoch_ns: int
    clocks: list[ClockRecord]
    lost: bool


def _require_order(file: Path, found: Iterable[tuple[int, str]]) -> None:
    """UserError where the instant of one is before that of an earlier one of its kind."""
    latest: dict[str, int] = {}
    for t_ns, kind in found:
        if t_ns < latest.get(kind, t_ns):
            raise UserError(f"{file}: a line of `{kind}` stands behind a later one")
        latest[kind] = t_ns


@dataclass(frozen=True)
class TrialFolder:
    """One trial's folder: typed access to each of its files. A file that is absent reads as None or as nothing."""

    path: Path

    @property
    def record(self) -> TrialRecord | None:
        return read_json_if_any(TrialRecord, self.path / "trial.json")

    @property
    def plan(self) -> Plan | None:
        return read_json_if_any(Plan, self.path / "plan.json")

    def events(self) -> list[Event]:
        """In the order of their time, but for what is told of broadcasts at the end; UserError where they are not."""
        file = self.path / "events.jsonl"
        found = read_every_line(file, EVENTS, parse_event)
        _require_order(file, ((event.t_ns, "event") for event in found if not isinstance(event, TOLD_LATE)))
        return found

    def samples(self) -> list[Sample]:
        """Those of each kind in the order of their time; UserError where they are not."""
        file = self.path / "resources.jsonl"
        found = read_every_line(file, SAMPLES, parse_sample)
        _require_order(file, ((sample.t_ns, sample.of) for sample in found))
        return found

    def parts(self) -> list[TrialFolder]:
        """The folders of its engine processes, where there were several; what they wrote is merged into this one at the end."""
        found = self._folders("engine-")
        return sorted(found, key=lambda part: int(part.path.name.partition("-")[2]))

    def hosts(self) -> list[TrialFolder]:
        """A folder for each host of a cluster that took part."""
        return sorted(self._folders("host-"), key=lambda host: host.path)

    def _folders(self, prefix: str) -> list[TrialFolder]:
        inside = self.path.iterdir() if self.path.exists() else []  # a third of a glob's time
        return [TrialFolder(path) for path in inside if path.name.startswith(prefix)]

    @property
    def host(self) -> HostRecord:
        """Of a host's folder."""
        return read_json(HostRecord, self.path / "host.json")

    def latest(self) -> Tick | None:
        """What was ticked last, by all of its engine processes together; None where one has yet to begin."""
        ticks = [part.last_tick() for part in self.parts() or [self]]
        return None if None in ticks else summed(ticks[-1].t_ns, ticks)

    def last_tick(self) -> Tick | None:
        """Of one engine process; only the end of its file is read, since this is asked again and again while it grows."""
        file = self.path / "events.jsonl"
        if not is_plain(file):
            return None
        begin = max(0, file.stat().st_size - LAST_EVENTS_BYTES)
        with file.open("rb") as opened:
            opened.seek(begin)
            lines = opened.read().rpartition(b"\n")[0].splitlines()
        whole = lines[1:] if begin else lines
        return next((parse_event(line) for line in reversed(whole) if b'"event":"tick"' in line), None)

    @property
    def latency_log(self) -> Path:
        return self.path / "latency.hlog"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"


@dataclass(frozen=True)
class RunFolder:
    """A campaign's folder; a packed one has its trials in an archive, and reads the same."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an existing campaign; UserError if it is none."""
        if not (path / "campaign.json").is_file():
            raise UserError(f"{path} is not a run directory: it has no campaign.json")
        return cls(path)

    @property
    def campaign(self) -> CampaignRecord:
        return read_json(CampaignRecord, self.path / "campaign.json")

    @property
    def machine(self) -> MachineRecord:
        return read_json(MachineRecord, self.path / "machine.json")

    @property
    def machine_after(self) -> MachineRecord | None:
        """The machine as it was read again after the last trial; None where that has not been."""
        return read_json_if_any(MachineRecord, self.path / "machine-after.json")

    @property
    def hosts(self) -> list[HostRow]:
        """Nothing where the campaign ran on one machine."""
        file = self.path / "hosts.json"
        return read_json_list(HostRow, file) if file.exists() else []

    @property
    def servers(self) -> list[ServerRow]:
        return read_json_list(ServerRow, self.path / "servers.json")

    @property
    def order(self) -> list[TrialOrder]:
        return read_json_list(TrialOrder, self.path / "order.json")

    @property
    def experiment_toml(self) -> Path:
        return self.path / "experiment.toml"

    @cached_property
    def trials(self) -> Path:
        """Where the trials' folders are: in the campaign's own, or unpacked from its archive for as long as this process lives."""
        archive = self.path / ARCHIVE
        return unpacked(archive) if is_plain(archive) else self.path

    @property
    def packed(self) -> bool:
        return is_plain(self.path / ARCHIVE)

    def trial(self, number: int) -> TrialFolder:
        return TrialFolder(self.trials / f"{number:04}")

    def finished_numbers(self) -> set[int]:
        """The numbers of the trials that have an outcome, without reading any."""
        return {planned.number for planned in self.order if is_plain(self.trial(planned.number).path / "trial.json")}

    def finished(self) -> Iterator[tuple[TrialFolder, TrialRecord]]:
        """Every trial that has an outcome, by number."""
        for planned in self.order:
            folder = self.trial(planned.number)
            if (record := folder.record) is not None:
                yield folder, record

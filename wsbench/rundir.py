"""The run directory: every file in it, as frozen types that refuse unknown keys, and how they are read and written.

The only room that both sides share: campaign and trial write here, metrics and report read here. Raw files are append-only
text; derived files may be deleted. It knows no metric and starts nothing. The contract is protocol/README.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from wsbench.errors import UserError

FORMAT = 1


class Frozen(BaseModel):
    """Base of everything on disk: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# ---- the plan (protocol §1) ----------------------------------------------------------------------------------------


class Doc(Frozen):
    kind: Literal["doc"] = "doc"
    persistent: bool
    bytes: Annotated[int, Field(ge=0)]


class Echo(Frozen):
    kind: Literal["echo"] = "echo"
    opcode: Literal["text", "binary"]
    bytes: Annotated[int, Field(ge=0)]


class Ping(Frozen):
    kind: Literal["ping"] = "ping"


Scenario = Annotated[Doc | Echo | Ping, Field(discriminator="kind")]


class Seconds(Frozen):
    seconds: Annotated[float, Field(gt=0)]


class Messages(Frozen):
    messages: Annotated[int, Field(gt=0)]


class Target(Frozen):
    address: str
    host: str
    path: str


class Closed(Frozen):
    kind: Literal["closed"] = "closed"


class Limits(Frozen):
    connect_s: float
    reply_s: float
    deadline_s: float


class Plan(Frozen):
    """What one engine process is to do; nothing about it is left to a default."""

    format: Literal[1] = 1
    scenario: Scenario
    transport: Literal["http", "websocket", "tcp"]
    target: Target
    loop: Closed
    connections: Annotated[int, Field(ge=1)]
    mask: Literal["random"]
    warmup: Seconds | Messages | None
    measure: Seconds | Messages
    drain_s: float
    limits: Limits
    threads: Annotated[int, Field(ge=1)]
    cpus: list[int]
    source_addresses: list[str]
    headers: list[tuple[str, str]]
    seed: int
    shard: tuple[int, int]


# ---- the engine's events (protocol §2) -----------------------------------------------------------------------------

Phase = Literal["connect", "warmup", "measure", "drain"]


class Anchor(Frozen):
    event: Literal["anchor"]
    t_ns: int
    unix_ns: int
    engine: str
    pid: int


class PhaseBegin(Frozen):
    event: Literal["phase"]
    t_ns: int
    phase: Phase


class Tick(Frozen):
    event: Literal["tick"]
    t_ns: int
    phase: Phase
    open: int
    sent: int
    answered: int
    failed: int
    bytes_sent: int
    bytes_received: int
    cpu_ns: int
    wait_ns: int | None


class Error(Frozen):
    event: Literal["error"]
    t_ns: int
    phase: Phase
    kind: str
    count: int
    example: str


class ConnectionCounts(Frozen):
    asked: int
    established: int
    open: int


class Measured(Frozen):
    """Ledger over the messages sent in the measured window: sent = answered + failed + unanswered.

    `window_ns` is null where the window never began.
    """

    sent: int
    answered: int
    failed: int
    unanswered: int
    window_ns: int | None
    replies_in_window: int
    bytes_sent: int
    bytes_received: int


class Control(Frozen):
    pings_answered: int
    fragmented_replies: int
    reconnects: int


class Worker(Frozen):
    """One worker over the measured window; `wait_ns` is null where the kernel keeps no schedstat."""

    cpu_ns: int
    wait_ns: int | None
    wall_ns: int
    voluntary_switches: int
    involuntary_switches: int


class End(Frozen):
    event: Literal["end"]
    t_ns: int
    outcome: Literal["completed", "interrupted", "deadline", "no_connection"]
    connections: ConnectionCounts
    measured: Measured
    control: Control
    errors: dict[str, int]
    threads: list[Worker]


Event = Annotated[Anchor | PhaseBegin | Tick | Error | End, Field(discriminator="event")]
_event = TypeAdapter(Event)


def parse_event(line: str | bytes) -> Event:
    """One line of `events.jsonl`. Raises pydantic's ValidationError where it breaks the contract."""
    return _event.validate_json(line)


# ---- samples (protocol §6) -----------------------------------------------------------------------------------------


class ProcessSample(Frozen):
    """A process tree at one instant; CPU is cumulative since the trial began."""

    t_ns: int
    of: Literal["server", "engine"]
    processes: int
    threads: int
    fds: int | None
    rss_bytes: int
    cpu_user_s: float
    cpu_system_s: float


class MachineCpu(Frozen):
    user: float
    system: float
    idle: float
    iowait: float
    steal: float
    irq: float
    softirq: float


class MachineSample(Frozen):
    """The whole machine at one instant, cumulative seconds over all CPUs; `throttled_s` is null without a CPU quota."""

    t_ns: int
    of: Literal["machine"]
    cpu_s: MachineCpu
    throttled_s: float | None


Sample = Annotated[ProcessSample | MachineSample, Field(discriminator="of")]
_sample = TypeAdapter(Sample)


# ---- the campaign --------------------------------------------------------------------------------------------------

CellValue = int | float | str | bool


class CheckResult(Frozen):
    """One conformance check against one server variant."""

    name: str
    section: str
    required: bool
    passed: bool
    detail: str


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
    """A trial before it ran."""

    number: int
    round: int
    server: str
    variant: str
    cell: dict[str, CellValue]

    @property
    def name(self) -> str:
        return f"{self.server}@{self.variant}"


class TrialRecord(Frozen):
    """A trial after it ran: exactly one outcome, `ok` or `failed` with a reason."""

    format: Literal[1] = 1
    number: int
    round: int
    server: str
    variant: str
    cell: dict[str, CellValue]
    outcome: Literal["ok", "failed"]
    reason: str | None
    started_unix_s: float
    duration_s: float
    ready_s: float | None
    server_cpus: list[int]
    engine_cpus: list[int]
    server_exit: str | None
    log_tail: list[str]

    @property
    def name(self) -> str:
        return f"{self.server}@{self.variant}"


class CampaignRecord(Frozen):
    """What was asked of a campaign."""

    format: Literal[1] = 1
    wsbench: str
    experiment: str
    command: str
    created_unix_s: float
    seed: int
    rounds: int
    servers: list[str]
    skipped: list[str]


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


@dataclass(frozen=True)
class TrialFolder:
    """One trial's folder: typed access to each of its files. A file that is absent reads as None or as nothing."""

    path: Path

    @property
    def record(self) -> TrialRecord | None:
        file = self.path / "trial.json"
        return read_json(TrialRecord, file) if file.exists() else None

    @property
    def plan(self) -> Plan | None:
        file = self.path / "plan.json"
        return read_json(Plan, file) if file.exists() else None

    def events(self) -> list[Event]:
        return list(_lines(self.path / "events.jsonl", parse_event))

    def samples(self) -> list[Sample]:
        return list(_lines(self.path / "resources.jsonl", _sample.validate_json))

    @property
    def latency_log(self) -> Path:
        return self.path / "latency.hlog"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"


@dataclass(frozen=True)
class RunFolder:
    """A campaign's folder."""

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
    def servers(self) -> list[ServerRow]:
        return read_json_list(ServerRow, self.path / "servers.json")

    @property
    def order(self) -> list[TrialOrder]:
        return read_json_list(TrialOrder, self.path / "order.json")

    @property
    def experiment_toml(self) -> Path:
        return self.path / "experiment.toml"

    def trial(self, number: int) -> TrialFolder:
        return TrialFolder(self.path / f"{number:04}")

    def finished(self) -> Iterator[tuple[TrialFolder, TrialRecord]]:
        """Every trial that has an outcome, by number."""
        for planned in self.order:
            folder = self.trial(planned.number)
            if (record := folder.record) is not None:
                yield folder, record


# ---- reading and writing -------------------------------------------------------------------------------------------


def read_json(kind: type[Frozen], file: Path):
    """A frozen value from a JSON file; a UserError of one line if the file is broken."""
    try:
        return kind.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(f"{file}: {one_line(error)}") from error


def read_json_list(kind: type[Frozen], file: Path) -> list:
    """Like `read_json`, for a list."""
    try:
        return TypeAdapter(list[kind]).validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise UserError(f"{file}: {one_line(error)}") from error


def write_json(file: Path, value: Frozen | list) -> None:
    """Written whole or not at all: a reader never sees half a file, also after a power cut."""
    plain = [item.model_dump() for item in value] if isinstance(value, list) else value.model_dump()
    part = file.with_name(file.name + ".part")
    with part.open("w", encoding="utf-8") as out:
        json.dump(plain, out, indent=1, ensure_ascii=False)
        out.write("\n")
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)


def one_line(error: Exception) -> str:
    """An error as one plain line: for a validation error the key, what is wrong and what was found."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "the file"
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'"
    if first["type"] == "missing":
        return f"missing key '{key}'"
    found = first.get("input")
    shown = f", found {found!r}" if isinstance(found, str | int | float | bool | type(None)) else ""
    return f"'{key}': {first['msg'][:1].lower()}{first['msg'][1:]}{shown}"


def _lines(file: Path, parse) -> Iterator:
    """Parsed lines; a last line cut off by a crash is left out, any other broken line is an error."""
    if not file.exists():
        return
    lines = file.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        try:
            yield parse(line)
        except ValidationError as error:
            raise UserError(f"{file}:{number}: {one_line(error)}") from error

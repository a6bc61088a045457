"""The run directory: frozen types for the files that the harness writes, and access to every file by name.

Both sides share this module: campaign and trial write here, metrics and report read here. Raw files are append-only text; derived
files may be deleted. This module knows no metric and starts nothing. The contract is protocol/README.md, section 6. The engine's
files are in `engine_files`, the lines of samples in `samples`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from wsbench.records import sums
from wsbench.records.engine_files import EVENTS, Broadcast, Copies, Event, Gate, Plan, Receivers, Tick, parse_event, summed
from wsbench.records.errors import UserError
from wsbench.records.files import is_plain
from wsbench.records.frozen import Frozen, json_of, parse_json, parse_json_list, read_every_line, read_json, read_json_if_any
from wsbench.records.goals import Until
from wsbench.records.hosts import HostRecord, HostRow, MachineRecord
from wsbench.records.packing import ARCHIVE, CHECKSUM, OWN, names_in, unpacked
from wsbench.records.samples import SAMPLES, Sample, parse_sample
from wsbench.records.session_table import Exchange

# ---- the campaign --------------------------------------------------------------------------------------------------

CellValue = int | float | str | bool
Sweep = dict[str, list[CellValue]]
#: From 1970 to 9999, the last year that datetime supports.
UnixSeconds = Annotated[float, Field(ge=0, lt=253_402_300_800)]
CONTROL = " (control)"  # suffix of the server that runs a second time in every round: the A/A control
#: What is written last: a campaign can be resumed, and a trial has ended, when this file exists.
CAMPAIGN, RECORD = "campaign.json", "trial.json"
AWAY = "the server is away"  # how the reason begins that nothing answers at the URL of a server that runs already
CHECK_ENDED = "check failed to run"  # how the reason of a server begins that was left out because its check had no result
COMMAND, RUNNING = "command", "running"  # variants that are no rows of the catalogue: a user's command, and a user's URL
LAST_EVENTS_BYTES = 64 << 10  # longer than one second of an engine's ticks
LOG_LINES = 20  # of a server's log, in its trial's record and shown of one
TOLD_LATE = (Gate, Exchange, Broadcast, Copies, Receivers)


class CheckResult(Frozen):
    """One conformance check against one server variant."""

    name: str
    section: str
    required: bool
    passed: bool
    detail: str = ""


class RuntimeRecord(Frozen):
    """A runtime's own report, with the server's settings and CPUs. Unknown values are None."""

    name: Literal["java", "node"]
    version: str | None
    vendor: str | None
    home: str | None
    collector: str | None
    collector_asked: bool  # whether the user chose it; otherwise the JVM did, based on the machine's CPUs and memory
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


class RunningRow(Frozen):
    """A server that ran already: its address, and its first process if that is known. wsbench neither started nor stopped it."""

    url: str
    pid: int | None

    @property
    def text(self) -> str:
        """One line for reports."""
        known = "its process is unknown, so its CPU and memory were not sampled" if self.pid is None else f"process {self.pid}"
        return f"one process, not restarted: it ran already at {self.url}, {known}"


#: What a server does in a protocol of its own: it sends a message to every member of a room, or answers calls.
RoleName = Literal["rooms", "rpc"]


class RoleRow(Frozen):
    """The session that loads a server in a role: its name, or a file in the server's folder. `path` None: that of the session."""

    session: str
    path: Annotated[str, Field(pattern=r"^/[!-\"$-~]*$")] | None = None
    set: dict[str, str] = {}


class ServerRow(Frozen):
    """A server variant in a campaign: what it is, its commands, or why it was skipped. `running`: if it was not started."""

    server: str
    variant: str
    language: str
    library: str
    homepage: str
    tags: list[str]
    transport: Literal["websocket", "tcp"]
    library_version: str
    receipt: str | None
    runtime: RuntimeRecord | None = None  # None: none can be chosen for this server, or the run is older than this field
    build: list[list[str]]
    run: list[str]
    env: dict[str, str]
    departures: list[str]
    conformance: list[CheckResult]
    skipped: str | None = None
    running: RunningRow | None = None
    roles: dict[RoleName, RoleRow] = {}

    @property
    def name(self) -> str:
        return f"{self.server}@{self.variant}"

    @property
    def title(self) -> str:
        """Its name or, for a command or a URL, what its user wrote."""
        return self.library if self.variant in (COMMAND, RUNNING) else self.name

    @property
    def why_skipped(self) -> str:
        """Which server was left out, and why."""
        why = (self.skipped or "").removeprefix(f"{CHECK_ENDED}: ").removeprefix(f"{AWAY}: ")
        return why if why.startswith(self.title) else f"{self.title}: {why}"

    @property
    def was_checked(self) -> bool:
        """Whether its checks began: the server was started, or answered. False for a URL at which nothing answers."""
        why = self.skipped or ""
        return bool(self.conformance) or (why.startswith(CHECK_ENDED) and not why.startswith(f"{CHECK_ENDED}: {AWAY}"))


#: How the trials of a round run: one after another; alternately in short slices, with all servers alive; or all at once.
Arrangement = Literal["trials", "slices", "together"]


class Slo(Frozen):
    """What a server is to keep: conditions that must all hold, each a metric, an operator and a number in the metric's unit."""

    text: str
    conditions: Annotated[list[tuple[str, Literal["<", "<=", "==", ">", ">="], float]], Field(min_length=1)]


class Ladder(Frozen):
    """The loads that one process of a server carries one after another: `rates` in messages per second in all, each for `rung_s`
    seconds, and after each `relief_per_s` for `gap_s`, in which what was due is answered. `coarse`: it only finds where the
    capacities lie. `connections`: how many are open in each rung, if that is asked; before each, those that are missing are opened
    at the relief within `open_s`."""

    slos: Annotated[list[Slo], Field(min_length=1, max_length=3)]
    rates: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=2)]
    relief_per_s: Annotated[float, Field(gt=0)]
    rung_s: Annotated[float, Field(gt=0)]
    gap_s: Annotated[float, Field(gt=0)]
    coarse: bool = False
    #: No load may be higher.
    most: Annotated[float, Field(gt=0)] | None = None
    connections: list[Annotated[int, Field(ge=1)]] | None = None
    open_s: Annotated[float, Field(ge=0)] = 0.0

    @property
    def loads(self) -> list[float]:
        """What the capacity is counted in: connections if they are asked for, else messages per second."""
        return self.rates if self.connections is None else [float(number) for number in self.connections]

    @property
    def step_s(self) -> float:
        """From the beginning of a rung to that of the next."""
        return self.open_s + self.rung_s + self.gap_s


class FollowUp(Frozen):
    """A trial after the rounds of a ladder, about a capacity that they found. `confirmation`: a steady load for longer, that is to
    keep the SLO. `recovery`: an overload, then a light load, after which responses are to be in time again. `load`: messages per
    second in all, or connections."""

    purpose: Literal["confirmation", "recovery"]
    load: Annotated[float, Field(gt=0)]
    seconds: Annotated[float, Field(gt=0)]
    slo: Slo


class TrialOrder(Frozen):
    """A trial before it runs. `again_of` is the number of the disturbed trial that it repeats. Trials of the same `heat` run at the
    same time, in slices or together; None: alone. `ladder`: only with that loop, from when it runs. `follow_up`: only after its
    rounds."""

    number: int
    round: int
    server: str
    variant: str
    cell: dict[str, CellValue]
    control: bool = False
    again_of: int | None = None
    heat: int | None = None
    ladder: Ladder | None = None
    follow_up: FollowUp | None = None
    #: In slices and with ladders: what the host disturbed counts, too.
    as_is: bool = False

    @model_validator(mode="before")
    @classmethod
    def _without_search(cls, found):
        """Records of earlier versions have this key, always null."""
        if not isinstance(found, dict):
            return found
        return {key: value for key, value in found.items() if (key, value) != ("search", None)}

    @property
    def variant_name(self) -> str:
        return f"{self.server}@{self.variant}"

    @property
    def name(self) -> str:
        """The row of the trial. A control has a row of its own."""
        return self.variant_name + (CONTROL if self.control else "")


#: How the reasons of trials begin that failed because of the server. `servers.serving` and `run.trial` give them.
NEVER_READY = (
    *("the server ended before it was ready", "the server was not ready", "the server could not be started"),
    AWAY,
)
SERVER_FAILED = ("the server ended", "the server's log exceeds", *NEVER_READY)


class TrialRecord(TrialOrder):
    """A trial after it ran, with exactly one outcome: `ok`, `failed` or `stopped`; the last two have a reason.

    `server_started_ns` is on the monotonic clock. `probe` is the runtime whose probe was enabled. Both are null in older runs.
    """

    format: Literal[1] = 1
    outcome: Literal["ok", "failed", "stopped"]
    reason: str | None
    #: None: a trial of a published campaign whose data has neither time.
    started_unix_s: UnixSeconds | None
    duration_s: float | None
    ready_s: float | None
    server_cpus: list[int]
    engine_cpus: list[int]
    server_exit: str | None
    #: The server's environment, the program of its first process, and its event pollers. None if it never became ready.
    server_env: dict[str, str] | None = None
    server_executable: str | None = None
    server_pollers: list[str] | None = None
    log_tail: list[str]
    server_started_ns: int | None = None
    probe: str | None = None
    engines: int = 1  # processes that shared the load
    server_processes: int = 1
    restarted: bool = True  # False: the server ran already, in one process for all trials
    #: What differed from the trials before when the campaign was resumed with `--anyway`.
    anyway: list[str] = []

    @classmethod
    def alone(cls, server: str, **known) -> TrialRecord:
        """That of an engine's run that is part of no campaign and that went well; what is not `known` is None or empty."""
        usual = {"number": 1, "round": 1, "variant": "", "cell": {}, "outcome": "ok", "log_tail": [], "server_cpus": []}
        unknown = dict.fromkeys(("reason", "started_unix_s", "duration_s", "ready_s", "server_exit"))
        return cls(server=server, **{"engine_cpus": []} | usual | unknown | known)

    @property
    def failed_by_server(self) -> bool:
        """Whether the trial failed because of what the server did: it ended, was not ready in time, or filled the disk."""
        return self.outcome == "failed" and (self.reason or "").startswith(SERVER_FAILED)

    @property
    def never_loaded(self) -> bool:
        """Whether the server failed before any load reached it. That says nothing about how it carries one."""
        return self.outcome == "failed" and (self.reason or "").startswith(NEVER_READY)


class Artefacts(Frozen):
    """A built server: digests of its sources and commands and of what the build made, its version report, its runtime in words."""

    sources: str
    made: str
    receipt: str | None
    runtime: str | None


class Began(Frozen):
    """What the trials of a campaign share, as it was at the beginning: the text of experiment.toml, the version and digest of the
    engine on each host, and by variant what was built."""

    experiment: str
    engines: dict[str, str]
    artefacts: dict[str, Artefacts]


class CampaignRecord(Frozen):
    """The parameters of a campaign. `departures` lists its overrides of experiment.toml. `until`: its rounds go on until decided;
    `rounds` are then those that have begun."""

    format: Literal[1] = 1
    wsbench: str
    experiment: str
    command: str
    created_unix_s: UnixSeconds
    seed: int
    rounds: int
    scale: float = 1.0
    time_scale: float = 1.0
    arrangement: Arrangement | None = None  # None: the experiment's
    sweep: Sweep | None = None  # None: the experiment's
    departures: list[str] | None = None  # None: a run from before they were recorded
    tags: list[str] = []
    servers: list[str]
    skipped: list[str]
    engines: int | None = None  # None: as many as each trial needs
    server_processes: int | None = None
    again: int = 0  # how often a disturbed trial may be rerun
    #: Rounds until decided: wall time so far, in s, over all processes that ran them. None: a run from before it was recorded.
    spent_s: float | None = None
    until: Until | None = None
    began: Began | None = None  # None: a run from before it was recorded

    @model_validator(mode="before")
    @classmethod
    def _without_searching(cls, found):
        """Records of earlier versions have this key, with nothing in it."""
        if isinstance(found, dict) and not any((found.get("searching") or {}).values()):
            return {key: value for key, value in found.items() if key != "searching"}
        return found


def _require_order(file: Path, found: Iterable[tuple[int, str]]) -> None:
    """UserError if an entry is earlier than a previous entry of the same kind."""
    latest: dict[str, int] = {}
    for t_ns, kind in found:
        if t_ns < latest.get(kind, t_ns):
            raise UserError(f"{file}: a line of `{kind}` is out of order: a previous line has a later time")
        latest[kind] = t_ns


@dataclass(frozen=True)
class TrialFolder:
    """One trial's folder, with typed access to each file. A missing file reads as None or as an empty list."""

    path: Path

    @property
    def record(self) -> TrialRecord | None:
        """The outcome, if the trial has ended. Altered if it does not have its checksum."""
        file = self.path / RECORD
        return parse_json(TrialRecord, sums.read(self.path, RECORD), file) if os.path.lexists(file) else None

    def end(self, record: TrialRecord) -> None:
        """Writes the checksums of all files, and then the outcome."""
        sums.seal(self.path, RECORD, json_of(record))

    def verify(self) -> None:
        """Altered if a file of an ended trial does not have its checksum. A trial that has not ended has none yet."""
        sums.verify(self.path)

    @property
    def plan(self) -> Plan | None:
        return read_json_if_any(Plan, self.path / "plan.json")

    def events(self) -> list[Event]:
        """Events in order of time, except broadcast counts, which are written at the end. UserError if out of order."""
        file = self.path / "events.jsonl"
        found = read_every_line(file, EVENTS, parse_event)
        _require_order(file, ((event.t_ns, "event") for event in found if not isinstance(event, TOLD_LATE)))
        return found

    def samples(self) -> list[Sample]:
        """Samples, with each kind in order of time. UserError if out of order."""
        file = self.path / "resources.jsonl"
        found = read_every_line(file, SAMPLES, parse_sample)
        _require_order(file, ((sample.t_ns, sample.of) for sample in found))
        return found

    def parts(self) -> list[TrialFolder]:
        """The folders of the engine processes, if there were several. Their files are merged into this folder at the end."""
        found = self._folders("engine-")
        return sorted(found, key=lambda part: int(part.path.name.partition("-")[2]))

    def hosts(self) -> list[TrialFolder]:
        """The folders of the cluster hosts that took part."""
        return sorted(self._folders("host-"), key=lambda host: host.path)

    def _folders(self, prefix: str) -> list[TrialFolder]:
        inside = self.path.iterdir() if self.path.exists() else []  # takes a third of the time of a glob
        return [TrialFolder(path) for path in inside if path.name.startswith(prefix)]

    @property
    def host(self) -> HostRecord:
        """Only in a host's folder."""
        return read_json(HostRecord, self.path / "host.json")

    def latest(self) -> Tick | None:
        """The sum of the last ticks of all engine processes. None if one has not started yet."""
        ticks = [part.last_tick() for part in self.parts() or [self]]
        return None if None in ticks else summed(ticks[-1].t_ns, ticks)

    def last_tick(self) -> Tick | None:
        """The last tick of one engine process. Reads only the end of the file, because it is polled while the file grows."""
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
    """A campaign's folder. A packed campaign has its trials in an archive and reads the same way."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an existing campaign. UserError if there is none."""
        if not (path / CAMPAIGN).is_file():
            why = "is a single load: its page is written by `wsbench load … --report FILE`" if (path / RECORD).is_file() else None
            raise UserError(f"{path} {why or 'is not a run directory: it has no campaign.json'}")
        return cls(path)

    def read(self, name: str) -> bytes:
        """The content of one of the campaign's own files. Altered unless it has its checksum."""
        return sums.read(self.path, name)

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Writes some of the campaign's own files in this order, and their checksums."""
        sums.write(self.path, contents, [name for name in OWN if is_plain(self.path / name)])

    def write_json(self, name: str, value: Frozen | list) -> None:
        self.write({name: json_of(value)})

    def _json(self, kind: type[Frozen], name: str):
        return parse_json(kind, self.read(name), self.path / name)

    def _json_list(self, kind: type[Frozen], name: str) -> list:
        return parse_json_list(kind, self.read(name), self.path / name)

    @property
    def campaign(self) -> CampaignRecord:
        return self._json(CampaignRecord, CAMPAIGN)

    @property
    def machine(self) -> MachineRecord:
        return self._json(MachineRecord, "machine.json")

    @property
    def machine_after(self) -> MachineRecord | None:
        """The machine as read again after the last trial. None if it was not read again."""
        return self._json(MachineRecord, name) if os.path.lexists(self.path / (name := "machine-after.json")) else None

    @property
    def hosts(self) -> list[HostRow]:
        """Empty if the campaign ran on one machine."""
        return self._json_list(HostRow, "hosts.json") if (self.path / "hosts.json").exists() else []

    @property
    def servers(self) -> list[ServerRow]:
        return self._json_list(ServerRow, "servers.json")

    @property
    def order(self) -> list[TrialOrder]:
        return self._json_list(TrialOrder, "order.json")

    @property
    def own_servers(self) -> Path:
        """Servers of this campaign alone; it exists for a duel of commands or URLs."""
        return self.path / "servers"

    @property
    def lock(self) -> Path:
        """Locked by the process that runs the campaign, as long as it does (`records.lock`)."""
        return self.path / ".lock"

    @property
    def experiment_toml(self) -> Path:
        return self.path / "experiment.toml"

    @cached_property
    def trials(self) -> Path:
        """The folder of the trials: the campaign folder, or a temporary folder that lasts as long as this process."""
        return unpacked(self._archive()) if self.packed else self.path

    def _archive(self) -> Path:
        """The archive of the trials. Altered unless it has its checksum, here or beside the archive that was published apart."""
        sums.require(self.path, ARCHIVE, (sums.SUMS, CHECKSUM))
        return self.path / ARCHIVE

    @property
    def packed(self) -> bool:
        return is_plain(self.path / ARCHIVE)

    def trial(self, number: int) -> TrialFolder:
        return TrialFolder(self.trials / f"{number:04}")

    def finished_numbers(self) -> set[int]:
        """The numbers of the trials that have an outcome. Opens no trial file, and unpacks nothing."""
        if self.packed and "trials" not in self.__dict__:
            names = names_in(self._archive())
            return {planned.number for planned in self.order if f"{planned.number:04}/{RECORD}" in names}
        return {planned.number for planned in self.order if is_plain(self.trial(planned.number).path / RECORD)}

    def finished(self) -> Iterator[tuple[TrialFolder, TrialRecord]]:
        """Every trial that has an outcome, ordered by number."""
        for planned in self.order:
            folder = self.trial(planned.number)
            if (record := folder.record) is not None:
                yield folder, record


def runs_in(folder: Path) -> Iterator[RunFolder]:
    """The campaigns of a folder by name, readable or not. `require_own` says which of them are links."""
    return (RunFolder(file.parent) for file in sorted(folder.glob(f"*/{CAMPAIGN}")))


def require_own(run: RunFolder) -> None:
    """UserError if the campaign's folder is a link: it could lead anywhere."""
    if run.path.is_symlink():
        raise UserError(f"{run.path} is a link, and links are not followed; name its target's parent folder")


def why_left_out(run: RunFolder, error: Exception) -> str:
    """One line for a campaign that raised this. A broken campaign must not affect the others, whatever it contains and raises."""
    if isinstance(error, UserError):
        return str(error).split("\n", 1)[0]
    said = (str(error).splitlines() or [""])[0]
    return f"{run.path}: cannot be read: {type(error).__name__}{': ' * bool(said)}{said}"

"""Files exchanged with the engine: the plan, which the harness writes, and the events, which the engine writes.

The frozen types follow `protocol/README.md`, sections 1 and 2. This module knows no folder and starts nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from wsbench.records.frozen import Frozen
from wsbench.records.session_table import Exchange, Session, SessionCounts

# ---- the plan (protocol §1) ----------------------------------------------------------------------------------------


class Doc(Frozen):
    kind: Literal["doc"] = "doc"
    persistent: bool
    bytes: Annotated[int, Field(ge=0)]


class Echo(Frozen):
    """`content` is the path of a file of exactly `bytes` bytes. Without it, the payload is generated from the seed."""

    kind: Literal["echo"] = "echo"
    opcode: Literal["text", "binary"]
    bytes: Annotated[int, Field(ge=0)]
    content: str | None = None


class Ping(Frozen):
    kind: Literal["ping"] = "ping"


class Idle(Frozen):
    """Connections that are kept open without messages."""

    kind: Literal["idle"] = "idle"


class Push(Frozen):
    """Broadcasts. `slow_readers` is the share of connections that never read."""

    kind: Literal["push"] = "push"
    slow_readers: Annotated[float, Field(ge=0, le=1)] = 0.0


Scenario = Annotated[Doc | Echo | Ping | Idle | Push | Session, Field(discriminator="kind")]


class Seconds(Frozen):
    seconds: Annotated[float, Field(gt=0)]


class Messages(Frozen):
    messages: Annotated[int, Field(gt=0)]


class Target(Frozen):
    """`replicas` are further addresses of the same server, in other processes. Connections use all addresses in turn."""

    address: str
    replicas: list[str] = []
    host: str
    path: str


class ConstantThink(Frozen):
    kind: Literal["constant"] = "constant"
    mean_s: float


class UniformThink(Frozen):
    kind: Literal["uniform"] = "uniform"
    from_s: float
    to_s: float


class GaussianThink(Frozen):
    kind: Literal["gaussian"] = "gaussian"
    mean_s: float
    deviation_s: float


class ExponentialThink(Frozen):
    kind: Literal["exponential"] = "exponential"
    mean_s: float


class LognormalThink(Frozen):
    kind: Literal["lognormal"] = "lognormal"
    median_s: float
    sigma: float


Think = Annotated[ConstantThink | UniformThink | GaussianThink | ExponentialThink | LognormalThink, Field(discriminator="kind")]


class Closed(Frozen):
    """The next message is due when a reply is complete, after the think time, if any."""

    kind: Literal["closed"] = "closed"
    depth: Annotated[int, Field(ge=1)] = 1
    think: Think | None = None
    messages_per_connection: Annotated[int, Field(ge=1)] | None = None


class Segment(Frozen):
    """A rate that changes linearly over `for_s` seconds. The final rate of the last segment stays in force."""

    from_per_s: Annotated[float, Field(ge=0)]
    to_per_s: Annotated[float, Field(ge=0)]
    for_s: Annotated[float, Field(ge=0)]


class Open(Frozen):
    """Messages are due on a schedule that is independent of the replies."""

    kind: Literal["open"] = "open"
    arrivals: Literal["constant", "poisson"] = "constant"
    rate: Annotated[list[Segment], Field(min_length=1)]
    depth: Annotated[int, Field(ge=1)] | None = None

    def due_before(self, seconds: float) -> float:
        """Number of messages due in the first `seconds` of the schedule. For Poisson arrivals: the mean."""
        due = 0.0
        for segment in self.rate:
            inside = min(seconds, segment.for_s)
            grown = (segment.to_per_s - segment.from_per_s) * inside / segment.for_s if segment.for_s else 0.0
            due += (segment.from_per_s + grown / 2) * inside
            seconds -= inside
        return due + self.rate[-1].to_per_s * seconds


class NoLoop(Frozen):
    """No message is ever due."""

    kind: Literal["none"] = "none"


Loop = Annotated[Closed | Open | NoLoop, Field(discriminator="kind")]


class Connect(Frozen):
    """How connections are opened before the first phase: at a rate of `per_s`, or as fast as possible."""

    per_s: Annotated[float, Field(gt=0)] | None = None
    at_once: Annotated[int, Field(ge=1)] = 100


class Stage(Frozen):
    """The number of connections changes linearly to `to`, in steps of `chunk`."""

    to: Annotated[int, Field(ge=0)]
    over_s: Annotated[float, Field(ge=0)]
    chunk: Annotated[int, Field(ge=1)] = 1


class Tls(Frozen):
    """TLS under the transport. `ca` is a PEM file that replaces the host's trust store."""

    verify: bool = True
    ca: str | None = None


class Deflate(Frozen):
    """permessage-deflate (RFC 7692). The server must accept it. `level` is the zlib level."""

    client_context_takeover: bool = True
    server_context_takeover: bool = True
    level: Annotated[int, Field(ge=0, le=9)] = 6


class Limits(Frozen):
    connect_s: float
    reply_s: float
    deadline_s: float


class Slices(Frozen):
    """The process loads its server only in these windows, in seconds from the first phase, and takes turns with others.

    Each window is preceded by a lead, in which messages are sent but not counted, and followed by a tail, in which replies are
    awaited. `frozen`: the server is stopped between its slices.
    """

    windows: list[tuple[float, float]]
    lead_s: float
    tail_s: float
    frozen: bool


class Plan(Frozen):
    """The work of one engine process. The plans of several processes differ only in `shard`, CPUs and source addresses.

    Only keys that older runs lack have a default.
    """

    format: Literal[1] = 1
    scenario: Scenario
    transport: Literal["http", "websocket", "tcp"]
    target: Target
    loop: Loop
    connections: Annotated[int, Field(ge=1)]
    connect: Connect
    stages: Annotated[list[Stage], Field(min_length=1)] | None
    mask: Literal["random", "fixed", "zero"]
    tls: Tls | None
    deflate: Deflate | None
    fragment_bytes: Annotated[int, Field(ge=1)] | None
    subprotocols: list[str]
    warmup: Seconds | Messages | None
    measure: Seconds | Messages
    slices: Slices | None = None
    drain_s: float
    tick_s: Annotated[float, Field(gt=0)] = 1.0
    limits: Limits
    threads: Annotated[int, Field(ge=1)]
    cpus: list[int]
    busy_poll: bool
    receive_stamps: Annotated[int, Field(ge=1)] | None
    source_addresses: list[str]
    headers: list[tuple[str, str]]
    seed: int
    shard: tuple[int, int]
    gate_s: float | None = None

    @property
    def senders(self) -> int:
        """Connections that send: all, or in rooms the publishers."""
        rooms = self.scenario.rooms if isinstance(self.scenario, Session) else None
        publishers = None if rooms is None else rooms.publishers
        return self.connections if publishers is None else min(self.connections, rooms.count * publishers)


# ---- the engine's events (protocol §2) -----------------------------------------------------------------------------

Phase = Literal["connect", "warmup", "measure", "drain"]


class Anchor(Frozen):
    event: Literal["anchor"]
    t_ns: int
    unix_ns: int
    engine: str
    pid: int


class Gate(Frozen):
    """A process that starts together with others waits here for a given instant."""

    event: Literal["gate"]
    t_ns: int
    gate: Literal["connect", "begin"]


class PhaseBegin(Frozen):
    """`entered_ns` is the time at which the last worker entered the phase. Null in runs older than this field."""

    event: Literal["phase"]
    t_ns: int
    phase: Phase
    entered_ns: int | None = None


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


def summed(t_ns: int, ticks: list[Tick]) -> Tick:
    """The sum of the ticks of several processes at one instant. The phase is that of the last tick."""
    waits = [tick.wait_ns for tick in ticks]
    counted = ("open", "sent", "answered", "failed", "bytes_sent", "bytes_received", "cpu_ns")
    counts = {key: sum(getattr(tick, key) for tick in ticks) for key in counted}
    wait_ns = None if None in waits else sum(waits)
    return Tick(event="tick", t_ns=t_ns, phase=ticks[-1].phase, wait_ns=wait_ns, **counts)


class Error(Frozen):
    event: Literal["error"]
    t_ns: int
    phase: Phase
    kind: str
    count: int
    example: str


class Broadcast(Frozen):
    """One broadcast of this process: `t_ns` is when it was triggered; the others are the first and last arrival."""

    event: Literal["broadcast"]
    t_ns: int
    number: int
    expected: int
    received: int
    first_ns: int | None
    last_ns: int | None


class Copies(Frozen):
    """Copies that a shard received of a broadcast triggered by another shard. `t_ns` is the arrival of the first copy."""

    event: Literal["copies"]
    t_ns: int
    number: int
    received: int
    last_ns: int


class Receivers(Frozen):
    """Number of open, reading connections from this time on, in a shard that triggers no broadcasts."""

    event: Literal["receivers"]
    t_ns: int
    reading: int


class ConnectionCounts(Frozen):
    asked: int
    established: int
    open: int


class Measured(Frozen):
    """Ledger of the messages sent in the measured window: sent = answered + failed + unanswered.

    `unsent` messages were due in the window but never sent. `window_ns` is null if the window never began.
    """

    sent: int
    answered: int
    failed: int
    unanswered: int
    unsent: int
    window_ns: int | None
    replies_in_window: int
    bytes_sent: int
    bytes_received: int


class Control(Frozen):
    pings_answered: int
    fragmented_replies: int
    reconnects: int
    out_of_order: int
    foreign: int


class Worker(Frozen):
    """One worker over the measured window. `wait_ns` is null if the kernel has no schedstat.

    `held_up_ns`: the longest time by which it came back too late to its sockets. Null in runs older than this field.
    """

    cpu_ns: int
    wait_ns: int | None
    wall_ns: int
    held_up_ns: int | None = None
    voluntary_switches: int
    involuntary_switches: int


class ServerClose(Frozen):
    """Connections that the server closed with this code (null: none), and the reason of the first."""

    code: int | None
    count: int
    reason: str


class Refusal(Frozen):
    """Opening handshakes that the server answered with this status, and what it said to the first: the beginning of the body."""

    status: int
    count: int
    body: str
    location: str | None
    retry_after: str | None


class End(Frozen):
    event: Literal["end"]
    t_ns: int
    outcome: Literal["completed", "interrupted", "deadline", "no_connection", "connections_lost", "not_begun"]
    connections: ConnectionCounts
    measured: Measured
    control: Control
    #: Null unless the scenario is a session.
    session: SessionCounts | None = None
    errors: dict[str, int]
    #: Both are empty in runs older than these fields.
    closes: list[ServerClose] = []
    refusals: list[Refusal] = []
    threads: list[Worker]
    #: Largest change of the wall clock against the monotonic clock between two ticks. Null in runs older than this field.
    wall_moved_ns: int | None = None


Event = Annotated[
    Anchor | Gate | PhaseBegin | Tick | Error | Exchange | Broadcast | Copies | Receivers | End, Field(discriminator="event")
]
_event = TypeAdapter(Event)
EVENTS = TypeAdapter(list[Event])


def parse_event(line: str | bytes) -> Event:
    """Parses one line of `events.jsonl`. Raises pydantic's ValidationError if it violates the contract."""
    return _event.validate_json(line)

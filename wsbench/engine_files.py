"""What passes between harness and engine as files: the plan that the harness writes, the events that the engine writes.

Frozen types, a line each of `protocol/README.md` sections 1 and 2. It knows no folder and starts nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from wsbench.frozen import Frozen

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

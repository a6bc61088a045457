"""The load on a server: table [load] of an experiment, with the values of one cell. It becomes the scenario and loop of a plan."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from wsbench.records.engine_files import (
    Closed,
    Connect,
    Doc,
    Echo,
    Idle,
    Loop,
    NoLoop,
    Open,
    Ping,
    Push,
    Scenario,
    Segment,
    Stage,
    Think,
)
from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen
from wsbench.servers.manifest import Offer

REPLY_S = CONNECT_S = 10.0
#: Keys of [load] that a sweep may vary.
SWEPT = (
    "connections",
    "payload_bytes",
    "messages",
    "persistent",
    "opcode",
    "depth",
    "messages_per_connection",
    "rate_per_s",
    "slow_readers",
    "room_size",
    "publishers",
    "tls",
    "deflate",
    "content",
)


class Load(Frozen):
    """The load on the server. If every request has its own connection, `connections` is the number of concurrent requests.

    A closed loop may have `depth`, `think` and `messages_per_connection`. An open loop needs `rate_per_s` or `rate`: the rate of
    messages or, in scenario push, of broadcasts. There, `copies_per_s` is the same load for every number of receivers.
    """

    connections: Annotated[int, Field(ge=1, le=1_000_000)] = 50
    payload_bytes: Annotated[int, Field(ge=0, le=16 << 20)] = 128
    opcode: Literal["text", "binary"] = "text"
    #: Of echoed messages: letters and digits, which shrink to three quarters; or a part of a JSON document, as services send it.
    content: Literal["letters", "json"] = "letters"
    #: Over TLS. With permessage-deflate, each message compressed by itself. Only servers that offer it take part.
    tls: bool = False
    deflate: bool = False
    persistent: bool = True
    messages: Annotated[int, Field(ge=1)] | None = None
    depth: Annotated[int, Field(ge=1)] | None = None
    think: Think | None = None
    messages_per_connection: Annotated[int, Field(ge=1)] | None = None
    rate_per_s: Annotated[float, Field(gt=0)] | None = None
    rate: list[Segment] | None = None
    copies_per_s: Annotated[float, Field(gt=0)] | None = None
    arrivals: Literal["constant", "poisson"] = "constant"
    connect: Connect = Connect()
    stages: list[Stage] | None = None
    slow_readers: Annotated[float, Field(ge=0, le=1)] = 0.0
    #: Scenario rooms: members of a room, and how many of them publish (None: all).
    room_size: Annotated[int, Field(ge=1)] | None = None
    publishers: Annotated[int, Field(ge=1)] | None = None
    #: Seconds after which an incomplete reply counts as failed and its connection is closed. In slices at least four turns.
    reply_s: Annotated[float, Field(gt=0)] = REPLY_S
    #: Seconds allowed for opening a connection.
    connect_s: Annotated[float, Field(gt=0)] = CONNECT_S

    @property
    def asks(self) -> list[Offer]:
        """What the server must have switched on."""
        return [one for one in get_args(Offer) if getattr(self, one)]

    @property
    def most_connections(self) -> int:
        """The highest stage if there are stages, otherwise `connections`."""
        return self.connections if self.stages is None else max(stage.to for stage in self.stages)

    def scenario(self, kind: str) -> Scenario:
        """A scenario of the server contract. The roles `rooms` and `rpc` have sessions, which depend on the server."""
        match kind:
            case "doc":
                return Doc(persistent=self.persistent, bytes=self.payload_bytes)
            case "echo":
                return Echo(opcode=self.opcode, bytes=self.payload_bytes)
            case "push":
                return Push(slow_readers=self.slow_readers)
            case "idle":
                return Idle()
            case "ping":
                return Ping()
        raise ValueError(f"{kind!r} is no scenario of the contract")

    def loop(self, kind: str) -> Loop:
        """The loop of the load. UserError if the rate keys do not match the kind of loop."""
        rates = [one for one in (self.rate_per_s, self.rate, self.copies_per_s) if one is not None]
        # A ladder brings its own rates.
        if (kind != "ladder" and bool(rates) != (kind == "open")) or len(rates) > 1:
            number = "exactly one" if kind == "open" else "none"
            raise UserError(f"loop {kind!r} takes {number} of 'load.rate_per_s', 'load.rate', 'load.copies_per_s'")
        if kind in ("open", "ladder"):
            per_s = self.rate_per_s or (self.copies_per_s or 0) / self.most_connections
            steady = Segment(from_per_s=per_s, to_per_s=per_s, for_s=1)
            return Open(arrivals=self.arrivals, rate=self.rate or [steady], depth=self.depth)
        if kind == "none":
            return NoLoop()
        return Closed(depth=self.depth or 1, think=self.think, messages_per_connection=self.messages_per_connection)

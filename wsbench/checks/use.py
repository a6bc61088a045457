"""What a load uses of the server contract. A required check of anything else does not decide whether a server takes part."""

from __future__ import annotations

from typing import Literal

from wsbench.records.frozen import Frozen
from wsbench.servers.manifest import Offer

#: The largest message of the contract, in bytes.
CONTRACT_BYTES = 16 << 20


class Use(Frozen):
    """`sizes`: payloads of messages or documents in bytes; none of idle connections. `opcodes`: types of echoed messages.

    `connections`: most at once. `bursts`: a connection may have several messages in flight. `replaced`: connections come and go
    while messages are under way. `persistent`, `closing`: documents over connections that stay open, and of one connection each.
    `asks`: what the server has switched on for some of the loads. `strict`: also what the contract demands although no load depends
    on it. `exchange`: a few messages of the load and nothing else: the server is a user's own, which need not keep a contract.
    """

    sizes: list[int]
    opcodes: list[Literal["text", "binary"]]
    connections: int
    bursts: bool
    replaced: bool
    persistent: bool
    closing: bool
    asks: list[Offer] = []
    strict: bool = False
    exchange: bool = False

    @property
    def largest(self) -> int:
        """The largest payload in bytes; -1 if nothing is sent."""
        return max(self.sizes, default=-1)

    def sends(self, *opcodes: str) -> bool:
        """Whether messages of one of these types are sent."""
        return bool(set(opcodes) & set(self.opcodes))


def whole(message_bytes: int | None = None, connections: int | None = None) -> Use:
    """Everything that the contract has, up to the limits that a server declares."""
    return Use(
        sizes=[0, CONTRACT_BYTES if message_bytes is None else min(message_bytes, CONTRACT_BYTES)],
        opcodes=["text", "binary"],
        connections=1_000_000 if connections is None else connections,
        bursts=True,
        replaced=True,
        persistent=True,
        closing=True,
        strict=True,
    )

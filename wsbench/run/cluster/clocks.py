"""How far another host's monotonic clock is ahead of ours, from exchanges of the time over a connection that both ends answer at
once: the formula of NTP (RFC 5905, section 8), and the median over the quarter of the exchanges that took least.

Half the round trip of those bounds the error: a way that is slower in one direction than in the other cannot be seen from
either end. Times in nanoseconds. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Exchange:
    """Asked and answered by our clock, heard and replied by the other's."""

    asked: int
    heard: int
    replied: int
    answered: int

    @property
    def offset(self) -> float:
        return ((self.heard - self.asked) + (self.replied - self.answered)) / 2

    @property
    def round_trip(self) -> int:
        return (self.answered - self.asked) - (self.replied - self.heard)


@dataclass(frozen=True)
class Offset:
    """The other clock minus ours, and how much that may be wrong."""

    ns: int
    bound_ns: int


def offset(exchanges: list[Exchange]) -> Offset:
    best = sorted(exchanges, key=lambda one: one.round_trip)[: max(1, len(exchanges) // 4)]
    return Offset(round(median(one.offset for one in best)), -(-max(one.round_trip for one in best) // 2))


def measure(ask: Callable[[], tuple[int, int]], now: Callable[[], int], times: int) -> Offset:
    """`ask` returns when the other end heard and when it replied."""
    found = []
    for _ in range(times):
        asked = now()
        heard, replied = ask()
        found.append(Exchange(asked, heard, replied, now()))
    return offset(found)

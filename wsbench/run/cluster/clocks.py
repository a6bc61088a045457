"""Offset of another host's monotonic clock from ours, from exchanges over a connection that both ends answer at once: the
formula of NTP (RFC 5905, section 8), and the median over the quarter of exchanges with the shortest round trips.

Half of the longest of those round trips bounds the error: neither end can detect a path that is slower in one direction.
Times in nanoseconds. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Exchange:
    """`asked` and `answered` are times of our clock, `heard` and `replied` of the other."""

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
    """The other clock minus ours, and the bound of its error, in ns."""

    ns: int
    bound_ns: int


def offset(exchanges: list[Exchange]) -> Offset:
    best = sorted(exchanges, key=lambda one: one.round_trip)[: max(1, len(exchanges) // 4)]
    return Offset(round(median(one.offset for one in best)), -(-max(one.round_trip for one in best) // 2))


def measure(ask: Callable[[], tuple[int, int]], now: Callable[[], int], times: int) -> Offset:
    """The offset over `times` exchanges. `ask` returns when the other end received the request and when it replied, in ns."""
    found = []
    for _ in range(times):
        asked = now()
        heard, replied = ask()
        found.append(Exchange(asked, heard, replied, now()))
    return offset(found)

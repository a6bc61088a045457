"""What a load needs: servers, CPUs, memory and hosts, from what campaigns measured, with their intervals carried through.

Results in, frozen values out. `docs/sizing.md` has the same arithmetic for the hosts that make the load (`load_hosts`). Nothing is
assumed of a server with more CPUs than were measured: more load needs more servers of the measured size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from wsbench.analysis import ladders, slo, wording
from wsbench.analysis.memory import memory_fits
from wsbench.analysis.results import Results
from wsbench.host.machine import KERNEL_BYTES
from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen, read_toml

GIB = 1 << 30
#: Of a load host, as docs/sizing.md derives them: bytes for each connection (kernel and engine), CPU time for each message and to
#: open a connection, memory that is not used, and the share of its cores that may be busy.
LOAD_CONNECTION_BYTES, LOAD_MESSAGE_S, LOAD_OPEN_S, LOAD_SPARE_BYTES, LOAD_BUSY = 5700, 21e-6, 67e-6, 2 * GIB, 0.5
#: What a server's host keeps free.
SPARE_BYTES = GIB


@dataclass(frozen=True)
class Between:
    """A number with its interval. `low` and `high` are None where an end is not known."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def map(self, rising) -> Between:
        """The same function of all three; it must rise."""
        return Between(*(None if one is None else rising(one) for one in (self.value, self.low, self.high)))

    def under(self, total: float) -> Between:
        """`total` divided by it, so that the ends change places."""
        return Between(*(None if not one else total / one for one in (self.value, self.high, self.low)))

    def plus(self, other: Between) -> Between:
        pairs = zip((self.value, self.low, self.high), (other.value, other.low, other.high), strict=True)
        return Between(*(None if None in pair else sum(pair) for pair in pairs))

    @property
    def whole(self) -> Between:
        return self.map(lambda number: float(max(1, math.ceil(number - 1e-9))))


@dataclass(frozen=True)
class Wanted:
    """The load. `slo`: text of an SLO of the campaigns' ladders; None: the first of each."""

    connections: int
    each_per_s: float
    slo: str | None = None

    @property
    def per_s(self) -> float:
        return self.connections * self.each_per_s


@dataclass(frozen=True)
class Known:
    """What campaigns measured of a server: messages per second that one carries, with how many CPUs and connections; CPU time of a
    message in s; memory of a connection, and of a server without any, in bytes. None where no campaign has it. `campaign` and
    `ladders`: what the capacity rests on; `memory_campaign`: what the memory does."""

    server: str
    capacity: Between
    slo: str
    cpus: int
    connections: int
    message_s: float | None
    connection_bytes: Between | None
    server_bytes: float | None
    campaign: str
    ladders: int
    memory_campaign: str | None

    @property
    def rests_on(self) -> str:
        memory = f"; memory: {self.memory_campaign}" if self.memory_campaign else ""
        return f"{self.server}: capacity: {wording.count(self.ladders, 'ladder')} in {self.campaign}{memory}"


@dataclass(frozen=True)
class Need:
    """What the load needs of a server. `cpus`: of all servers. `busy_cpus`: CPU time that the messages take, in CPUs."""

    known: Known
    servers: Between
    cpus: Between
    busy_cpus: float | None
    memory_bytes: Between | None


class Host(Frozen):
    """A kind of host with its price, in any currency and for any time, the same for all."""

    name: str
    cpus: Annotated[int, Field(gt=0)]
    memory_gib: Annotated[float, Field(gt=1)]
    price: Annotated[float, Field(ge=0)] | None = None


class Prices(Frozen):
    """A user's file of hosts. `unit`: of the prices, such as `EUR a month`."""

    unit: str = ""
    host: Annotated[list[Host], Field(min_length=1)]


@dataclass(frozen=True)
class Hosts:
    """So many hosts of one kind, and whether their CPUs or their memory decide the number."""

    host: Host
    number: Between
    limit: str
    price: Between | None


def prices(file: Path) -> Prices:
    """UserError: path, key, what was found, what is allowed."""
    return read_toml(Prices, file)


def known(campaigns: Sequence[Results], wanted: Wanted) -> list[Known]:
    """Every server whose capacity one of these campaigns has. Where several cells have it: that with the most connections."""
    memory = {fit.name: (fit, one.folder.path.name) for one in campaigns for fit in memory_fits(one) if fit.slope is not None}
    found: dict[str, Known] = {}
    for results in campaigns:
        if results.climb is None or results.climb.over != "rate":
            continue
        place = _place(results, wanted.slo)
        if place is None:
            continue
        for cell in results.cells:
            for name in results.names:
                one = _of(results, name, cell, place, memory.get(name, (None, None)))
                if one is not None and (name not in found or one.connections > found[name].connections):
                    found[name] = one
    return list(found.values())


def _place(results: Results, asked: str | None) -> int | None:
    """The place of an SLO in a campaign; None if its ladders do not have it."""
    if asked is None:
        return 0
    wanted = slo.parse(asked).conditions
    return next((place for place, one in enumerate(ladders.slos(results)) if one.conditions == wanted), None)


def _of(results: Results, name: str, cell, place: int, memory) -> Known | None:
    fit, memory_campaign = memory
    found = ladders.of(results, name, cell, place)
    estimate = found.estimate
    if estimate.mean is None:
        return None
    first = results.group(name, cell)[0]
    record, plan = first.record, first.plan
    low = estimate.mean if estimate.at_least else estimate.low
    message_us = results.estimate(name, cell, "server_cpu_us_per_message").mean
    return Known(
        server=name,
        capacity=Between(estimate.mean, low, None if estimate.at_least else estimate.high),
        slo=found.slo.text,
        cpus=max(1, len(record.server_cpus)),
        connections=plan.connections if plan is not None else 0,
        message_s=None if message_us is None else message_us / 1e6,
        connection_bytes=None if fit is None else Between(fit.slope, fit.low, fit.high),
        server_bytes=None if fit is None else max(0.0, fit.intercept),
        campaign=results.folder.path.name,
        ladders=estimate.repeats,
        memory_campaign=memory_campaign,
    )


def need(of: Known, wanted: Wanted) -> Need:
    """Servers, CPUs and memory for a load."""
    servers = of.capacity.under(wanted.per_s).whole
    memory = None
    if of.connection_bytes is not None:
        connections = of.connection_bytes.map(lambda each: wanted.connections * (each + KERNEL_BYTES))
        memory = connections.plus(servers.map(lambda number: number * of.server_bytes))
    return Need(
        known=of,
        servers=servers,
        cpus=servers.map(lambda number: number * of.cpus),
        busy_cpus=None if of.message_s is None else wanted.per_s * of.message_s,
        memory_bytes=memory,
    )


def hosts(of: Need, kinds: Iterable[Host]) -> list[Hosts]:
    """The number of hosts of each kind, the cheapest first. A server is not divided between hosts."""
    found = []
    for kind in kinds:
        fitting = kind.cpus // of.known.cpus
        if fitting == 0:
            continue
        by_cpu = of.servers.map(lambda number, fitting=fitting: number / fitting).whole
        room = kind.memory_gib * GIB - SPARE_BYTES
        by_memory = Between(None) if of.memory_bytes is None else of.memory_bytes.map(lambda all_, room=room: all_ / room).whole
        limit = "memory" if (by_memory.value or 0) > (by_cpu.value or 0) else "CPUs"
        pairs = zip((by_cpu.value, by_cpu.low, by_cpu.high), (by_memory.value, by_memory.low, by_memory.high), strict=True)
        number = Between(*(None if one is None else max(one, other or 0.0) for one, other in pairs))
        price = None if kind.price is None else number.map(lambda count, each=kind.price: count * each)
        found.append(Hosts(kind, number, limit, price))
    return sorted(found, key=lambda one: (one.price is None, one.price.value or 0.0 if one.price else one.number.value or 0.0))


@dataclass(frozen=True)
class LoadHosts:
    """Load hosts by what each of their parts needs; `number` is the largest, rounded up."""

    by_memory: float
    by_messages: float
    by_opening: float

    @property
    def number(self) -> int:
        return max(1, math.ceil(max(self.by_memory, self.by_messages, self.by_opening)))


def load_hosts(wanted: Wanted, opening_s: float, cpus: int, memory_gib: float) -> LoadHosts:
    """The hosts that make the load; `opening_s`: within which all connections are opened."""
    room = memory_gib * GIB - LOAD_SPARE_BYTES
    if room <= 0:
        raise UserError(f"a load host needs more than {LOAD_SPARE_BYTES / GIB:g} GiB, found {memory_gib:g}")
    return LoadHosts(
        by_memory=wanted.connections * LOAD_CONNECTION_BYTES / room,
        by_messages=wanted.per_s * LOAD_MESSAGE_S / (LOAD_BUSY * cpus),
        by_opening=wanted.connections * LOAD_OPEN_S / (LOAD_BUSY * cpus * opening_s),
    )

"""Can this machine hold a number of connections? Reports its resources, what the connections need, how wsbench adapts by
itself, and which kernel settings to change.

Both ends are on this machine, as in every campaign. This module reads /proc and changes nothing; `sysctls` changes settings.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsbench.engine import shards
from wsbench.host import machine
from wsbench.host.machine import KERNEL_BYTES, Finding
from wsbench.records.errors import UserError
from wsbench.servers import serving, settings
from wsbench.servers.catalogue import Variant

#: Engine memory per idle connection (197 measured), and per engine process.
ENGINE_BYTES, ENGINE_PROCESS_BYTES = 256, 8 << 20
#: TCP keep-alive probes, every 15 s in Go, fall into slots of 256 or 512 ms, depending on the kernel's ticks: at most a
#: thirtieth of all at once. This allows three times that.
KEPT_ALIVE_AT_ONCE = 10
#: Open files in addition to the connections' sockets.
SPARE_FILES = 20_000
#: Memory reserved for everything else. Below it a trial is stopped (`serving.MEMORY_FLOOR`).
RESERVE_BYTES = 1 << 30
#: Estimated minimum of a server per connection; the leanest one measured takes about 400 bytes.
LEAST_SERVER_BYTES = 1024
#: Estimates for servers that are alive at the same time: per connection, and in addition to a JVM's heap.
USUAL_SERVER_BYTES, SERVER_BYTES = 64 << 10, 384 << 20


@dataclass(frozen=True)
class HostLimits:
    """The findings, and the kernel settings to change: name and value."""

    findings: list[Finding]
    wanted: dict[str, str]


def examine(connections: int) -> HostLimits:
    findings = [_files(connections), _ports(connections), _memory(connections)]
    wanted: dict[str, str] = {}
    for name, value, why in _settings(connections):
        found = machine.sysctl(name)
        if found is None:
            continue
        fine = all(int(have) >= int(want) for have, want in zip(found.split(), value.split(), strict=True))
        if not fine:
            wanted[name] = value
        findings.append(Finding(fine, name, found, f"{why}: sysctl -w {name}='{value}'"))
    findings.append(_tracking(connections))
    return HostLimits(findings, wanted)


def most_alive(variants: list[Variant], connections: int) -> int | None:
    """How many of these servers can be alive at the same time, each with that many connections. None if memory is unknown."""
    available = machine.memory_available()
    if available is None:
        return None
    of_connections = connections * (2 * KERNEL_BYTES + ENGINE_BYTES + USUAL_SERVER_BYTES)
    heaps = [one.settings.heap or settings.JVM_HEAP for one in variants if one.runtime == "jvm"]
    largest = max((settings.mebibytes(heap) << 20 for heap in heaps), default=0)
    return int((available - RESERVE_BYTES) // (largest + SERVER_BYTES + of_connections))


def require_room(connections: int, ends: int) -> None:
    """UserError if the available memory cannot hold the connections, whatever the server needs. `ends`: ends on this machine."""
    available = machine.memory_available()
    needed = connections * (ends * KERNEL_BYTES + ENGINE_BYTES)
    if available is not None and needed > available - RESERVE_BYTES:
        most = max(0, available - RESERVE_BYTES) // (ends * KERNEL_BYTES + ENGINE_BYTES)
        raise UserError(
            f"{connections:,} connections need {_gib(needed)} for the kernel and the engine alone; {_gib(available)} are "
            f"available, enough for about {most:,}; see `wsbench doctor --connections N`"
        )


def _settings(connections: int) -> list[tuple[str, str, str]]:
    """(name, minimum, reason) per kernel setting."""
    files = 2 * connections + SPARE_FILES
    # A socket with one unread byte is charged a page of TCP memory; a broadcast may leave one in every receiver.
    pressure = max(connections + connections // 2, 100_000)
    return [
        ("fs.file-max", str(files), "both ends of every connection are open files on this machine"),
        ("net.core.somaxconn", "1024", "limit of connections waiting to be accepted"),
        (
            "net.core.netdev_max_backlog",
            str(max(1000, connections // KEPT_ALIVE_AT_ONCE)),
            "limit of loopback packets waiting for a CPU; TCP keep-alive of many connections comes in bursts, and a server "
            "whose probes are dropped closes its connections",
        ),
        (
            "net.ipv4.tcp_mem",
            f"{pressure // 2} {pressure * 3 // 4} {pressure}",
            "pages for unread data; beyond the third number the kernel drops segments, which are resent 0.2 s later or more",
        ),
    ]


def _files(connections: int) -> Finding:
    limit = machine.file_limit()
    engines = shards.needed(connections, len(machine.placement().engine))
    servers = serving.processes_for(connections, machine.file_limit())
    if limit is None:
        return Finding(True, "files per process", "no limit", "")
    found = f"{limit:,}: wsbench uses {engines} engine and {servers} server processes"
    advice = f"or raise it for one of each: '* hard nofile {connections + serving.SERVER_FILES}' in /etc/security/limits.conf" + (
        f", after sysctl -w fs.nr_open={connections + serving.SERVER_FILES}" if _nr_open() < connections else ""
    )
    return Finding(engines == servers == 1, "files per process", found, advice)


def _nr_open() -> int:
    return int(machine.sysctl("fs.nr_open") or 0)


def _ports(connections: int) -> Finding:
    ports = machine.local_ports()
    if ports is None:
        return Finding(False, "local ports", "unknown", "")
    places = serving.processes_for(connections, machine.file_limit())
    sources = -(-connections // (ports * places))
    told = f"{ports:,} per address, {places} server port{'' if places == 1 else 's'}: "
    if sources == 1:
        return Finding(True, "local ports", told + "one source address is enough", "")
    return Finding(
        False,
        "local ports",
        f"{told}{sources} source addresses; on loopback wsbench chooses them by itself",
        f"elsewhere give --source {sources} times, or: sysctl -w net.ipv4.ip_local_port_range='15000 64999'",
    )


def _memory(connections: int) -> Finding:
    kernel = 2 * KERNEL_BYTES * connections
    engines = shards.needed(connections, len(machine.placement().engine))
    engine = ENGINE_BYTES * connections + ENGINE_PROCESS_BYTES * engines
    available = machine.memory_available()
    if available is None:
        return Finding(False, "memory", "unknown", "")
    left = available - kernel - engine - RESERVE_BYTES
    parts = f"{_gib(kernel)} for the kernel, {_gib(engine)} for the engine, {_gib(RESERVE_BYTES)} in reserve"
    rest = f"{left / connections / 1024:.1f} KiB per connection" if left > 0 else "nothing"
    found = f"{_gib(available)} available: {parts}; leaves a server {rest}"
    fine = left >= LEAST_SERVER_BYTES * connections
    fewer = (available - RESERVE_BYTES) // (2 * KERNEL_BYTES + ENGINE_BYTES + LEAST_SERVER_BYTES)
    return Finding(fine, "memory", found, f"this memory is enough for about {max(fewer, 0):,} connections to the leanest server")


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _tracking(connections: int) -> Finding:
    """Size of the connection tracking table. The firewall tracks every connection if a rule needs it."""
    most, now = (machine.sysctl(f"net.netfilter.nf_conntrack_{name}") for name in ("max", "count"))
    if most is None or now is None:
        return Finding(True, "connection tracking", "none", "")
    if now == "0":
        return Finding(True, "connection tracking", f"inactive (room for {int(most):,})", "")
    advice = f"sysctl -w net.netfilter.nf_conntrack_max={connections + int(now) + 10_000}"
    return Finding(int(most) - int(now) > connections, "connection tracking", f"{now} of {most}", advice)

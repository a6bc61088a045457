"""The machine: its record in a campaign, the checks of `doctor`, and the allocation of CPUs and ports.

This module reads /proc and /sys and runs tools for their versions. Unknown values are None, never guessed.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wsbench.host import installation, toolchains
from wsbench.host.process import output_of
from wsbench.records.errors import UserError
from wsbench.records.hosts import MachineRecord, Tool

#: Kernel memory for one end of an idle connection on loopback: 10.0 to 10.2 GB for both ends of a million
#: (results/2026-11-22-million).
KERNEL_BYTES = 5120
SYSCTLS = (
    "net.core.netdev_max_backlog",
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_wmem",
    "fs.file-max",
    "fs.nr_open",
    "vm.swappiness",
)
CPUS = Path("/proc/cpuinfo")
#: What its lines about family and model are called on x86 and on Arm.
CPU_ID = ("cpu family", "model", "stepping", "CPU implementer", "CPU variant", "CPU part", "CPU revision")
TOOLS = {
    "python3": ("python3", "--version"),
    "cargo": ("cargo", "--version"),
    "java": ("java", "-version"),
    "mvn": ("mvn", "--version"),
    "go": ("go", "version"),
    "node": ("node", "--version"),
    "ab": ("ab", "-V"),
}
#: Below the default ephemeral ports (32768–60999), so that no client connection can occupy a server's port.
SERVER_PORTS = range(21_000, 29_000)


@dataclass(frozen=True)
class Placement:
    """The CPUs of the server and of the engine. They are disjoint unless there is only one."""

    server: list[int]
    engine: list[int]

    @property
    def apart(self) -> bool:
        """Whether server and engine share no CPU."""
        return not set(self.engine) & set(self.server)


def placement() -> Placement:
    """The server gets the first half of the CPUs (rounded up), the engine the rest."""
    cpus = sorted(os.sched_getaffinity(0))
    half = (len(cpus) + 1) // 2
    return Placement(cpus[:half], cpus[half:] or cpus)


def port_in_use(host: str, port: int) -> bool:
    """Whether another socket listens there or blocks the port."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise UserError(f"{host} is not an address of this machine") from error
            return True
    return False


@contextmanager
def held_port(host: str, asked: int | None, start: int) -> Iterator[int]:
    """`asked` if it is free, else a UserError. If `asked` is None, the first free server port from index `start` on.

    Within the context no other wsbench of this machine gets it: a server takes its port long after it was found free.
    """
    first = start % len(SERVER_PORTS)
    for port in [asked] if asked is not None else [*SERVER_PORTS[first:], *SERVER_PORTS[:first]]:
        with socket.socket(socket.AF_UNIX) as hold:
            try:
                hold.bind(f"\0wsbench {host}:{port}")
            except OSError:
                continue
            if not port_in_use(host, port):
                yield port
                return
    if asked is not None:
        raise UserError(f"port {asked} on {host} is in use; stop its listener, or choose another --port")
    raise UserError(f"no free port on {host} between {SERVER_PORTS.start} and {SERVER_PORTS.stop - 1}")


def free_port(host: str, asked: int | None, start: int) -> int:
    """The port that `held_port` would give now."""
    with held_port(host, asked, start) as port:
        return port


@cache
def _tools() -> list[Tool]:
    return [Tool(name=name, version=toolchains.version_of(argv)) for name, argv in TOOLS.items()]


def read() -> MachineRecord:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    ports = sysctl("net.ipv4.ip_local_port_range")
    return MachineRecord(
        hostname=socket.gethostname(),
        kernel=platform.release(),
        distribution=_field(Path("/etc/os-release"), "PRETTY_NAME", "="),
        cpu_model=_field(CPUS, "model name", ":"),
        cpu_id=", ".join(f"{key} {value}" for key in CPU_ID if (value := _field(CPUS, key, ":")) is not None) or None,
        cpus=os.cpu_count() or 0,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        virtualisation=_virtualisation(),
        governor=_text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        clocksource=_text(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        file_limit=limits,
        port_range=tuple(int(part) for part in ports.split()) if ports else None,
        sysctls={name: value for name in SYSCTLS if (value := sysctl(name)) is not None},
        tools=_tools(),
        git_revision=installation.revision(),
    )


@dataclass(frozen=True)
class Finding:
    """One line of `doctor`: whether it is fine, what was found, and advice."""

    fine: bool
    what: str
    found: str
    advice: str


def examine(engine: Path) -> list[Finding]:
    """Checks this machine for wsbench, except for what runs on it and the servers' toolchains."""
    record = read()
    soft, hard = record.file_limit
    low, high = record.port_range or (0, 0)
    return [
        Finding(engine.exists(), "engine", str(engine) if engine.exists() else "not built", "make setup"),
        Finding(record.cpus >= 2, "CPUs", str(record.cpus), "with one CPU, server and engine compete for it"),
        Finding(
            hard >= 20_000,
            "open files",
            f"{soft} soft, {hard} hard",
            "raise the hard limit in /etc/security/limits.conf; the engine raises the soft limit itself",
        ),
        Finding(
            high - low >= 28_000,
            "local ports",
            f"{low}–{high}",
            "sysctl -w net.ipv4.ip_local_port_range='15000 64999'",
        ),
        Finding(
            int(record.sysctls.get("net.core.somaxconn", "0")) >= 1024,
            "accept queue",
            record.sysctls.get("net.core.somaxconn", "unknown"),
            "sysctl -w net.core.somaxconn=4096",
        ),
        Finding(
            record.governor in (None, "performance"),
            "CPU governor",
            record.governor or "unknown (usual in a virtual machine)",
            "cpupower frequency-set -g performance",
        ),
        Finding(
            record.clocksource in (None, "tsc", "kvm-clock", "arch_sys_counter"),
            "clock source",
            record.clocksource or "unknown",
            "a slow clock source adds time to every message: prefer tsc",
        ),
    ]


def sysctl(name: str) -> str | None:
    """A kernel setting. None if this kernel does not have it."""
    return _text(Path("/proc/sys") / name.replace(".", "/"))


def _text(file: Path) -> str | None:
    try:
        return " ".join(file.read_text().split())
    except OSError:
        return None


def _field(file: Path, key: str, separator: str) -> str | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, found, value = line.partition(separator)
        if found and name.strip() == key:
            return value.strip().strip('"')
    return None


def _virtualisation() -> str | None:
    output = output_of(["systemd-detect-virt"])
    return output.text if output.text and "not found" not in output.text else None


def file_limit(pid: int = 0) -> int | None:
    """Most files that a process may open at its hard limit. `pid` 0: this process and its children. None: unlimited."""
    if pid:  # what prlimit(2) tells only to those who may change it
        line = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max open files"))
        hard = line.split()[4]
        return None if hard == "unlimited" else int(hard)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return None if limit == resource.RLIM_INFINITY else limit


def local_ports() -> int | None:
    """Most connections from one source address to one target. None if unknown."""
    found = sysctl("net.ipv4.ip_local_port_range")
    if found is None:
        return None
    low, high = (int(part) for part in found.split())
    return high - low + 1


def memory_available() -> int | None:
    """Memory in bytes that a program could still get. None if unknown."""
    try:
        with open("/proc/meminfo", "rb", buffering=0) as file:  # noqa: PTH123  # read during trials: a third of a Path's CPU time
            _, found, rest = file.read(1 << 16).partition(b"\nMemAvailable:")
    except OSError:
        return None
    return int(rest.split(None, 1)[0]) * 1024 if found else None

"""The machine: what a campaign records of it, what `doctor` says about it, and how its CPUs and ports are shared out.

A leaf: it reads /proc and /sys and asks tools for their versions. What it cannot learn is None, never a guess.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import socket
from dataclasses import dataclass
from pathlib import Path

from wsbench.host import installation, toolchains
from wsbench.host.process import output_of
from wsbench.records.errors import UserError
from wsbench.records.rundir import MachineRecord, Tool

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
TOOLS = {
    "python3": ("python3", "--version"),
    "cargo": ("cargo", "--version"),
    "java": ("java", "-version"),
    "mvn": ("mvn", "--version"),
    "go": ("go", "version"),
    "node": ("node", "--version"),
    "ab": ("ab", "-V"),
}
#: Below the usual ephemeral ports (32768–60999), so that no client connection can sit on a server's port.
SERVER_PORTS = range(21_000, 29_000)


@dataclass(frozen=True)
class Placement:
    """Which CPUs the server has and which the engine; disjoint unless there is only one."""

    server: list[int]
    engine: list[int]

    @property
    def apart(self) -> bool:
        """Whether the engine has its CPUs for itself."""
        return not set(self.engine) & set(self.server)


def placement() -> Placement:
    """The first half of the CPUs (rounded up) for the server, the rest for the engine."""
    cpus = sorted(os.sched_getaffinity(0))
    half = (len(cpus) + 1) // 2
    return Placement(cpus[:half], cpus[half:] or cpus)


def port_in_use(host: str, port: int) -> bool:
    """Whether something listens there, or holds the port so that nothing else can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise UserError(f"{host} is no address of this machine") from error
            return True
    return False


def free_port(host: str, asked: int | None, start: int) -> int:
    """`asked` if it is free, else a UserError; without one, the first free server port from `start` on."""
    if asked is not None:
        if port_in_use(host, asked):
            raise UserError(f"port {asked} on {host} is in use; stop what listens there, or give another --port")
        return asked
    ports = list(SERVER_PORTS)
    for port in ports[start % len(ports) :] + ports:
        if not port_in_use(host, port):
            return port
    raise UserError(f"no free port on {host} between {SERVER_PORTS.start} and {SERVER_PORTS.stop - 1}")


def read() -> MachineRecord:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    ports = sysctl("net.ipv4.ip_local_port_range")
    return MachineRecord(
        hostname=socket.gethostname(),
        kernel=platform.release(),
        distribution=_field(Path("/etc/os-release"), "PRETTY_NAME", "="),
        cpu_model=_field(Path("/proc/cpuinfo"), "model name", ":"),
        cpus=os.cpu_count() or 0,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        virtualisation=_virtualisation(),
        governor=_text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        clocksource=_text(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        file_limit=limits,
        port_range=tuple(int(part) for part in ports.split()) if ports else None,
        sysctls={name: value for name in SYSCTLS if (value := sysctl(name)) is not None},
        tools=[Tool(name=name, version=toolchains.version_of(argv)) for name, argv in TOOLS.items()],
        git_revision=installation.revision(),
    )


@dataclass(frozen=True)
class Finding:
    """One line of `doctor`: fine or not, what was found, and what to do about it."""

    fine: bool
    what: str
    found: str
    advice: str


def examine(engine: Path) -> list[Finding]:
    """What this machine has and lacks for wsbench, the servers' tools apart."""
    record = read()
    soft, hard = record.file_limit
    low, high = record.port_range or (0, 0)
    load = os.getloadavg()[0]
    findings = [
        Finding(engine.exists(), "engine", str(engine) if engine.exists() else "not built", "make setup"),
        Finding(record.cpus >= 2, "CPUs", str(record.cpus), "with one CPU, server and engine disturb each other"),
        Finding(
            hard >= 20_000,
            "open files",
            f"{soft} soft, {hard} hard",
            "raise the hard limit in /etc/security/limits.conf; the engine raises the soft one itself",
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
            record.governor or "not told (usual in a virtual machine)",
            "cpupower frequency-set -g performance",
        ),
        Finding(
            record.clocksource in (None, "tsc", "kvm-clock", "arch_sys_counter"),
            "clock source",
            record.clocksource or "not told",
            "a slow clock source costs every message: prefer tsc",
        ),
        Finding(load < 0.5 * record.cpus, "other load", f"{load:.2f} (1 minute)", "stop what else is running"),
    ]
    return findings


def sysctl(name: str) -> str | None:
    """A kernel setting; None where this kernel has no such."""
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
    """How many files a process (0: this one, and those it starts) may open once it has raised its own limit; None: as many
    as it likes."""
    limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    return None if limit == resource.RLIM_INFINITY else limit


def local_ports() -> int | None:
    """How many connections one source address can have to one target; None where this machine does not tell."""
    found = sysctl("net.ipv4.ip_local_port_range")
    if found is None:
        return None
    low, high = (int(part) for part in found.split())
    return high - low + 1


def memory_available() -> int | None:
    """Bytes that a program could still get; None where this machine does not tell."""
    text = _field(Path("/proc/meminfo"), "MemAvailable", ":")
    return None if text is None else int(text.split()[0]) * 1024

"""Kernel counters of a process, the machine and a control group, read from /proc and /sys.

A file that is read repeatedly is opened once (`Standing`), so each reading is one system call. What is sampled during a trial is
only read then (`take`); its text is parsed later, when that takes no CPU time from a server. A value that the kernel does not
provide is None, never zero. This module starts nothing, writes nothing and knows no trial.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from wsbench.records.samples import GroupSample, MachineCpu, MachineMemory, MachineSample, MachineSockets, NetworkSample

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LARGEST = 1 << 16
#: The clock of a process is its number's complement and this kind (clock_getcpuclockid(3), include/linux/posix-timers.h).
CPU_CLOCK_KIND, CPU_CLOCK_BITS = 2, 3


class Standing:
    """A file that stays open. Each read starts at its beginning and returns None if the file is unreadable or has vanished."""

    def __init__(self, path: str | Path):
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a server may have put a pipe here
        except OSError:
            self._file = None

    def read(self) -> bytes | None:
        if self._file is None:
            return None
        try:
            return os.pread(self._file, LARGEST, 0)
        except OSError:
            return None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def read(path: str) -> bytes | None:
    """Reads a file once. None if it is unreadable. Takes a fifth of the time of a Path."""
    file = Standing(path)
    try:
        return file.read()
    finally:
        file.close()


def listed(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208
    except OSError:
        return []


# ---- a process -------------------------------------------------------------------------------------------------------


def cpu_clock_ns(pid: int) -> int | None:
    """CPU time of a process and all threads it ever had, from its CPU clock. None if the process or its clock does not exist."""
    try:
        return time.clock_gettime_ns(~pid << CPU_CLOCK_BITS | CPU_CLOCK_KIND)
    except OSError:
        return None


def open_files(pid: int) -> int | None:
    """Number of open files: since Linux 6.2 the folder's size (0.035 ms, against 30 ms for listing 15,000)."""
    try:
        size = os.stat(f"/proc/{pid}/fd").st_size  # noqa: PTH116
    except OSError:
        return None
    return size or None


def switches(pid: int) -> dict[int, tuple[int, int]]:
    """Cumulative voluntary and involuntary context switches of each living thread of a process."""
    found = {}
    for thread in listed(f"/proc/{pid}/task"):
        status = read(f"/proc/{pid}/task/{thread}/status")
        place = -1 if status is None else status.find(b"\nvoluntary_ctxt_switches:")
        if place >= 0:
            words = status[place:].split()
            found[int(thread)] = int(words[1]), int(words[3])
    return found


def pss_bytes(pid: int) -> int | None:
    """Proportional set size. Never read it while latency is measured: the kernel walks all page tables under the process's memory
    lock, up to 0.2 s at 4 GiB. During that time the process cannot map memory."""
    for line in (read(f"/proc/{pid}/smaps_rollup") or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


# ---- the machine -----------------------------------------------------------------------------------------------------


class Machine:
    """Repeated samples of the whole machine. `cpus`: those of the trial, if it does not use all; `server_cpus`: the server's."""

    def __init__(self, cpus: Iterable[int] = (), server_cpus: Iterable[int] = ()):
        self._cpus, self._server_cpus = frozenset(cpus), frozenset(server_cpus)
        self._stat = Standing("/proc/stat")
        self._memory = Standing("/proc/meminfo")
        self._sockets = Standing("/proc/net/sockstat")
        self._devices, self._protocols = Standing("/proc/net/dev"), Standing("/proc/net/snmp")
        self._extensions, self._queues = Standing("/proc/net/netstat"), Standing("/proc/net/softnet_stat")
        self._quota = own_quota()

    def sample(self) -> MachineSample:
        return self.take()()

    def take(self) -> Callable[[], MachineSample]:
        """Reads now. The result parses what was read."""
        t_ns, stat = time.monotonic_ns(), self._stat.read()
        quota = None if self._quota is None else self._quota.file.read()
        # Interrupts, which nobody asks for, are most of this file.
        return partial(self._parse, t_ns, stat.partition(b"\nintr")[0], quota, self._memory.read(), self._sockets.read())

    def _parse(self, t_ns: int, stat: bytes, quota: bytes | None, memory: bytes | None, sockets: bytes | None) -> MachineSample:
        of_trial = cpu_of_some(stat, self._cpus)
        return MachineSample(
            t_ns=t_ns,
            of="machine",
            cpu_s=cpu_of(stat),
            trial_cpu_s=of_trial,
            server_cpu_s=cpu_of_some(stat, self._server_cpus),
            cpus=stat.count(b"\ncpu") if of_trial is None else len(self._cpus),
            throttled_s=None if self._quota is None else self._quota.throttled_s(quota),
            quota_cpus=None if self._quota is None else self._quota.cpus,
            memory=memory_of(memory or b""),
            sockets=sockets_of(sockets or b""),
        )

    def take_network(self) -> Callable[[], NetworkSample | None]:
        """Reads now. The result parses what was read; None if the kernel lists no interfaces."""
        t_ns, files = time.monotonic_ns(), (self._devices, self._protocols, self._extensions, self._queues)
        devices, protocols, extensions, queues = (file.read() or b"" for file in files)
        return partial(network_of, t_ns, devices, protocols + extensions, queues)

    def close(self) -> None:
        network = (self._sockets, self._devices, self._protocols, self._extensions, self._queues)
        for file in (self._stat, self._memory, *network):
            file.close()
        if self._quota is not None:
            self._quota.file.close()


class Quota:
    """The CPU quota of a control group: `cpus` is how many CPUs' time it may use, `file` counts for how long it was throttled."""

    def __init__(self, folder: Path, version: int, cpus: float):
        self.folder, self.version, self.cpus = folder, version, cpus
        self.file = Standing(folder / "cpu.stat")

    def throttled_s(self, text: bytes | None) -> float | None:
        """None if the kernel does not say."""
        key, per_s = (b"throttled_usec", 1e6) if self.version == 2 else (b"throttled_time", 1e9)
        found = keyed(text or b"").get(key)
        return None if found is None else found / per_s


def own_quota() -> Quota | None:
    """The smallest CPU quota of the control groups that this process is in. None if there is none."""
    mounts, paths = (read("/proc/mounts") or b"").decode(), groups_of(os.getpid(), "cpu")
    found = []
    for version, path in paths.items():
        if (root := mounted(mounts, version, "cpu")) is None:
            continue
        # In a container the path may be that of the host, while the mount begins at the container's own group.
        own = root / path.lstrip("/")
        inside = [own, *own.parents[: len(own.parts) - len(root.parts)]]
        found += [(cpus, str(folder), version) for folder in inside if (cpus := quota_of(folder, version)) is not None]
    if not found:
        return None
    cpus, folder, version = min(found)
    return Quota(Path(folder), version, cpus)


def quota_of(folder: Path, version: int) -> float | None:
    """The CPUs whose time a control group may use. None if it has no limit, or does not exist."""
    if version == 2:
        words = (read(str(folder / "cpu.max")) or b"max").split()
    else:
        words = [word for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us") for word in (read(str(folder / name)) or b"").split()]
    if len(words) != 2 or words[0] in (b"max", b"-1"):
        return None
    return int(words[0]) / int(words[1])


def cpu_of(stat: bytes) -> MachineCpu:
    """The first line of /proc/stat: the sum over all CPUs, in seconds."""
    return _cpu([int(field) for field in stat.partition(b"\n")[0].split()[1:9]])


def cpu_of_some(stat: bytes, cpus: frozenset[int]) -> MachineCpu | None:
    """The lines of these CPUs in /proc/stat, added up, in seconds. None if they are all CPUs, or if one has no line."""
    names, found, others = {b"cpu%d" % number for number in cpus}, [], 0
    for line in stat.splitlines()[1:]:
        if not line.startswith(b"cpu"):
            break
        fields = line.split()
        if fields[0] in names:
            found.append([int(field) for field in fields[1:9]])
        else:
            others += 1
    if not others or not names or len(found) < len(names):
        return None
    return _cpu([sum(column) for column in zip(*found, strict=True)])


def _cpu(ticks: list[int]) -> MachineCpu:
    user, nice, system, idle, iowait, irq, softirq, steal = (one / TICKS_PER_S for one in ticks)
    return MachineCpu(user=user + nice, system=system, idle=idle, iowait=iowait, steal=steal, irq=irq, softirq=softirq)


def memory_of(meminfo: bytes) -> MachineMemory | None:
    """Values of /proc/meminfo in bytes. None if a line is missing."""
    wanted = (b"MemTotal:", b"MemFree:", b"MemAvailable:", b"Slab:")
    found = keyed(meminfo)
    if any(key not in found for key in wanted):
        return None
    total, free, available, slab = (found[key] * 1024 for key in wanted)
    return MachineMemory(total_bytes=total, free_bytes=free, available_bytes=available, slab_bytes=slab)


def sockets_of(sockstat: bytes) -> MachineSockets | None:
    """Values of /proc/net/sockstat, whose `mem` is in pages. None if it has no TCP line."""
    for line in sockstat.splitlines():
        if line.startswith(b"TCP:"):
            words = line.split()[1:]
            found = {key: int(value) for key, value in zip(words[::2], words[1::2], strict=True)}
            return MachineSockets(
                tcp_in_use=found[b"inuse"], tcp_time_wait=found[b"tw"], tcp_buffer_bytes=found[b"mem"] * PAGE_BYTES
            )
    return None


def network_of(t_ns: int, devices: bytes, protocols: bytes, queues: bytes) -> NetworkSample | None:
    """/proc/net/dev of all interfaces except loopback, the TCP lines of /proc/net/snmp and /proc/net/netstat, and
    /proc/net/softnet_stat, which has a hexadecimal line for each CPU. None if no interface is listed."""
    lines = [line.partition(b":") for line in devices.splitlines() if b":" in line]
    if not lines:
        return None
    rows = [[int(word) for word in counts.split()] for name, _, counts in lines if name.strip() != b"lo"]
    tcp = [line.split() for line in protocols.splitlines() if line.startswith((b"Tcp:", b"TcpExt:"))]
    # Lines come in pairs: names, then numbers.
    counted = {
        name: int(number)
        for names, numbers in zip(tcp[::2], tcp[1::2], strict=True)
        for name, number in zip(names[1:], numbers[1:], strict=True)
    }
    # Columns of /proc/net/dev: bytes, packets, errs, drop of the received traffic; from the ninth on the same of the sent traffic.
    received_bytes, received_packets, received_dropped, sent_bytes, sent_packets, sent_dropped = (
        sum(row[column] for row in rows) for column in (0, 1, 3, 8, 9, 11)
    )
    return NetworkSample(
        t_ns=t_ns,
        of="network",
        received_bytes=received_bytes,
        received_packets=received_packets,
        received_dropped=received_dropped,
        sent_bytes=sent_bytes,
        sent_packets=sent_packets,
        sent_dropped=sent_dropped,
        tcp_segments_sent=counted.get(b"OutSegs"),
        tcp_segments_sent_again=counted.get(b"RetransSegs"),
        listen_overflows=counted.get(b"ListenOverflows"),
        backlog_dropped=sum(int(line.split()[1], 16) for line in queues.splitlines()) if queues else None,
    )


def keyed(text: bytes) -> dict[bytes, int]:
    """Lines of a name and a number. Other lines are skipped."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) >= 2 and pair[1].isdigit()}


# ---- a control group -------------------------------------------------------------------------------------------------


GROUP_2 = ("memory.current", "memory.stat")
GROUP_1 = (
    "memory.usage_in_bytes",
    "memory.kmem.tcp.usage_in_bytes",
    "memory.kmem.usage_in_bytes",
    "memory.kmem.tcp.limit_in_bytes",
)
#: Version 1 counts socket buffers only once a limit for them has been set; until then it reports 0 (observed on Linux 6.18).
NO_LIMIT = 1 << 62


class Group:
    """The memory of a control group."""

    def __init__(self, version: int, folder: Path):
        self.version, self.folder = version, folder
        self._files = [Standing(folder / name) for name in (GROUP_2 if version == 2 else GROUP_1)]

    def take(self) -> Callable[[], GroupSample | None]:
        """Reads now. The result parses what was read; None once the group has been removed."""
        return partial(self._parse, time.monotonic_ns(), [file.read() for file in self._files])

    def _parse(self, t_ns: int, texts: list[bytes | None]) -> GroupSample | None:
        if not texts[0]:
            return None
        if self.version == 2:
            inside = keyed(texts[1] or b"")
            socket_bytes, kernel_bytes = inside.get(b"sock"), inside.get(b"slab")
        else:
            socket_bytes, kernel_bytes, limit = (int(text) if text else None for text in texts[1:])
            socket_bytes = None if limit is None or limit > NO_LIMIT else socket_bytes
        return GroupSample(
            t_ns=t_ns,
            of="cgroup",
            version=self.version,
            memory_bytes=int(texts[0]),
            socket_bytes=socket_bytes,
            kernel_bytes=kernel_bytes,
        )

    def close(self) -> None:
        for file in self._files:
            file.close()


def own_group(pid: int, other: int | None = None) -> Group | None:
    """The control group that accounts for a process's memory, version 2 preferred. None if process `other` (default: this one)
    shares it, because its numbers would then cover both."""
    mounts = (read("/proc/mounts") or b"").decode()
    server, harness = (groups_of(one, "memory") for one in (pid, os.getpid() if other is None else other))
    for version in (2, 1):
        path = server.get(version)
        if path is None or path == harness.get(version) or harness.get(version, "").startswith(path.rstrip("/") + "/"):
            continue
        root = mounted(mounts, version, "memory")
        name = "memory.current" if version == 2 else "memory.usage_in_bytes"
        if root is not None and (root / path.lstrip("/") / name).exists():
            return Group(version, root / path.lstrip("/"))
    return None


def groups_of(pid: int, controller: str) -> dict[int, str]:
    """A process's paths in the hierarchies that may have this controller, by version, from /proc/PID/cgroup."""
    found = {}
    for line in (read(f"/proc/{pid}/cgroup") or b"").decode().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            found[2] = path
        elif controller in controllers.split(","):
            found[1] = path
    return found


def mounted(mounts: str, version: int, controller: str) -> Path | None:
    """Mount point of that hierarchy, from the text of /proc/mounts."""
    for line in mounts.splitlines():
        _, place, kind, options = line.split()[:4]
        if (version == 2 and kind == "cgroup2") or (version == 1 and kind == "cgroup" and controller in options.split(",")):
            return Path(place)
    return None

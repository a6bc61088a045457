"""Lines of `resources.jsonl`, as frozen types: what the sampler writes and metrics read. The contract is protocol/README.md §6.

Whatever a kernel or a runtime does not tell is null. What was added later has a default, so that older runs can be read.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from wsbench.records.frozen import Frozen

Who = Literal["server", "engine"]


class ProcessSample(Frozen):
    """A process tree at one instant; CPU is cumulative since its processes began.

    `cpu_ns` is the scheduler's account; null where there is none, and in runs older than it. The seconds are in ticks.
    """

    t_ns: int
    of: Who
    processes: int
    threads: int
    fds: int | None
    rss_bytes: int
    cpu_ns: int | None = None
    cpu_user_s: float
    cpu_system_s: float


class MachineCpu(Frozen):
    user: float
    system: float
    idle: float
    iowait: float
    steal: float
    irq: float
    softirq: float


class MachineMemory(Frozen):
    """From /proc/meminfo. `available` is what a program could still get; `slab` holds the kernel's own objects, of which
    a TCP connection has several."""

    total_bytes: int
    free_bytes: int
    available_bytes: int
    slab_bytes: int


class MachineSockets(Frozen):
    """From /proc/net/sockstat: TCP sockets in use and in TIME_WAIT in this network namespace, and the memory of all TCP
    *buffers*. An empty socket has none: its own objects are in the slab."""

    tcp_in_use: int
    tcp_time_wait: int
    tcp_buffer_bytes: int


class MachineSample(Frozen):
    """The whole machine at one instant, cumulative seconds over all CPUs; `throttled_s` is null without a CPU quota."""

    t_ns: int
    of: Literal["machine"]
    cpu_s: MachineCpu
    throttled_s: float | None
    memory: MachineMemory | None = None
    sockets: MachineSockets | None = None


class NetworkSample(Frozen):
    """What the interfaces of this network namespace have carried so far, loopback apart, segments that its TCP sent again, how
    often it dropped a connect because a listening socket's queue was full, and how many packets the machine dropped because a
    CPU's queue was (loopback's too; both null in runs that are older than this)."""

    t_ns: int
    of: Literal["network"]
    received_bytes: int
    received_packets: int
    received_dropped: int
    sent_bytes: int
    sent_packets: int
    sent_dropped: int
    tcp_segments_sent: int | None
    tcp_segments_sent_again: int | None
    listen_overflows: int | None = None
    backlog_dropped: int | None = None


class SwitchesSample(Frozen):
    """Context switches of a process tree so far, of every thread that was ever seen; threads that came and went between two
    looks are missing."""

    t_ns: int
    of: Literal["switches"]
    who: Who
    voluntary: int
    involuntary: int


class SharedMemorySample(Frozen):
    """Proportional set size of the server's tree, read only when no latency is being measured; `took_s` is how long that was."""

    t_ns: int
    of: Literal["pss"]
    moment: Literal["ready", "idle", "ended"]
    pss_bytes: int
    took_s: float


class GroupSample(Frozen):
    """The server's own control group: all memory charged to it, of which socket buffers and the kernel's other objects.

    Version 2: memory.current, `sock` and `slab` of memory.stat. Version 1: memory.usage, memory.kmem.tcp.usage, and
    memory.kmem.usage as `kernel_bytes`, which is more than slab and holds socket buffers too; `socket_bytes` is null where no limit
    for them was ever set, because version 1 counts them only then.
    """

    t_ns: int
    of: Literal["cgroup"]
    version: Literal[1, 2]
    memory_bytes: int
    socket_bytes: int | None
    kernel_bytes: int | None


class HeapSample(Frozen):
    """A JVM's heap as its own performance counters have it; `used_bytes` is null where they stand still between collections."""

    t_ns: int
    of: Literal["heap"]
    used_bytes: int | None
    committed_bytes: int


class SamplerCost(Frozen):
    """The sampler's last line: the CPU time of its own thread since it began."""

    t_ns: int
    of: Literal["sampler"]
    began_ns: int
    cpu_ns: int


Sample = Annotated[
    ProcessSample
    | MachineSample
    | NetworkSample
    | SwitchesSample
    | SharedMemorySample
    | GroupSample
    | HeapSample
    | SamplerCost,
    Field(discriminator="of"),
]
_sample = TypeAdapter(Sample)
SAMPLES = TypeAdapter(list[Sample])


def parse_sample(line: str | bytes) -> Sample:
    """One line of `resources.jsonl`. Raises pydantic's ValidationError where it breaks the contract."""
    return _sample.validate_json(line)

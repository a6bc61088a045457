"""Lines of `resources.jsonl` as frozen types: the sampler writes them, metrics read them. Contract: protocol/README.md §6.

A value that a kernel or a runtime does not provide is null. Later fields have a default, so that older runs can be read.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from wsbench.records.frozen import Frozen

Who = Literal["server", "engine"]
#: `rival`: the servers and engines of other trials that ran on this machine at the same time.
Tree = Literal["server", "engine", "rival"]


class ProcessSample(Frozen):
    """A process tree at one instant. CPU time is cumulative since its processes began.

    `cpu_ns` is the scheduler's account: null where there is none, and in older runs. The seconds have tick resolution.
    """

    t_ns: int
    of: Tree
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
    """From /proc/meminfo. `available` is the memory that a program could still get. `slab` holds the kernel's objects, of which a
    TCP connection has several."""

    total_bytes: int
    free_bytes: int
    available_bytes: int
    slab_bytes: int


class MachineSockets(Frozen):
    """From /proc/net/sockstat: TCP sockets in use and in TIME_WAIT in this network namespace, and the memory of all TCP buffers.
    An empty socket has no buffer; its kernel objects are in the slab."""

    tcp_in_use: int
    tcp_time_wait: int
    tcp_buffer_bytes: int


class MachineSample(Frozen):
    """The whole machine at one instant: seconds are cumulative over all CPUs. `throttled_s` is null without a CPU quota,
    `quota_cpus` also in older runs: how many CPUs' time the quota allows.

    `trial_cpu_s`: the same seconds over the CPUs of the server and the engine alone. Null if they may use every CPU, and in older
    runs. `server_cpu_s`: over the CPUs of the server, likewise. `cpus`: how many CPUs `trial_cpu_s` is about, or `cpu_s` where that
    is null. Null in older runs.
    """

    t_ns: int
    of: Literal["machine"]
    cpu_s: MachineCpu
    trial_cpu_s: MachineCpu | None = None
    server_cpu_s: MachineCpu | None = None
    cpus: int | None = None
    throttled_s: float | None
    quota_cpus: float | None = None
    memory: MachineMemory | None = None
    sockets: MachineSockets | None = None


class NetworkSample(Frozen):
    """Cumulative counters of this network namespace: traffic of all interfaces except loopback, retransmitted TCP segments, and
    connects dropped because a listening socket's queue was full. `backlog_dropped` counts packets that the machine dropped because
    a CPU's queue was full, loopback included. The last two are null in older runs."""

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
    """Cumulative context switches of a process tree, over every thread ever sampled. Threads that start and end between two samples
    are missing."""

    t_ns: int
    of: Literal["switches"]
    who: Who
    voluntary: int
    involuntary: int


class SharedMemorySample(Frozen):
    """Proportional set size of the server's tree. Read only while no latency is measured; `took_s` is the duration of the read."""

    t_ns: int
    of: Literal["pss"]
    moment: Literal["ready", "idle", "ended"]
    pss_bytes: int
    took_s: float


class GroupSample(Frozen):
    """The server's control group: all memory charged to it, and of that socket buffers and other kernel objects.

    Version 2: memory.current, and `sock` and `slab` of memory.stat. Version 1: memory.usage, memory.kmem.tcp.usage, and
    memory.kmem.usage as `kernel_bytes`, which covers more than slab and includes socket buffers. Version 1 counts socket buffers
    only once a limit for them has been set; until then `socket_bytes` is null.
    """

    t_ns: int
    of: Literal["cgroup"]
    version: Literal[1, 2]
    memory_bytes: int
    socket_bytes: int | None
    kernel_bytes: int | None


class HeapSample(Frozen):
    """A JVM's heap from its performance counters. `used_bytes` is null if the JVM updates the counter only at collections."""

    t_ns: int
    of: Literal["heap"]
    used_bytes: int | None
    committed_bytes: int


class TurnSample(Frozen):
    """One turn of a heat, from `begin_ns` to `t_ns`: CPU seconds of all CPUs that were used, idle, and taken by the hypervisor, and
    seconds for which a quota throttled (null without one). `ours_s` is the part of `busy_s` that the heat's own servers, engines
    and harness used (null if unknown); the rest is other processes. `late_s`: the longest by which a server went on late."""

    t_ns: int
    of: Literal["turn"]
    number: int
    begin_ns: int
    busy_s: float
    idle_s: float
    steal_s: float
    throttled_s: float | None
    ours_s: float | None
    late_s: float


class SamplerCost(Frozen):
    """The CPU time that wsbench itself has used since the sampler's start. In older runs, and where servers take turns, there is a
    single line when sampling ends, with the CPU time of sampling alone."""

    t_ns: int
    of: Literal["sampler"]
    began_ns: int
    cpu_ns: int


class Program(Frozen):
    name: str
    cpu_s: float


class ProgramsSample(Frozen):
    """The programs outside the trial that used most CPU time from `began_ns` to `t_ns`. `cpu_s`: all of them together, without the
    kernel's workers; null in older runs."""

    t_ns: int
    of: Literal["programs"]
    began_ns: int
    programs: list[Program]
    cpu_s: float | None = None


Sample = Annotated[
    ProcessSample
    | MachineSample
    | NetworkSample
    | SwitchesSample
    | SharedMemorySample
    | GroupSample
    | HeapSample
    | TurnSample
    | ProgramsSample
    | SamplerCost,
    Field(discriminator="of"),
]
_sample = TypeAdapter(Sample)
SAMPLES = TypeAdapter(list[Sample])


def parse_sample(line: str | bytes) -> Sample:
    """Parses one line of `resources.jsonl`. Raises pydantic's ValidationError if it violates the contract."""
    return _sample.validate_json(line)

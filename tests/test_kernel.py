"""What the kernel tells: real processes, and the texts of files that not every machine has."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest
from conftest import PATIENCE_S

from wsbench.monitoring import hsperf, kernel
from wsbench.records.samples import GroupSample

MEMINFO = b"""MemTotal:       24684092 kB
MemFree:        19063252 kB
MemAvailable:   23526508 kB
Slab:             892236 kB
SReclaimable:     821180 kB
HugePages_Total:       0
"""
SOCKSTAT = b"sockets: used 25\nTCP: inuse 7 orphan 0 tw 3 alloc 9 mem 428\nUDP: inuse 0 mem 0\nFRAG: inuse 0 memory 0\n"
V1_MOUNTS = "tmpfs {root} tmpfs rw 0 0\ncgroup {root}/cpu cgroup rw,cpu 0 0\ncgroup {root}/memory cgroup rw,relatime,memory 0 0\n"
V2_MOUNTS = "cgroup2 {root}/unified cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"


def test_memory_is_in_bytes_and_none_where_the_kernel_is_too_old_for_it():
    found = kernel.memory_of(MEMINFO)
    assert found.total_bytes == 24_684_092 * 1024
    assert found.free_bytes < found.available_bytes < found.total_bytes
    assert found.slab_bytes == 892_236 * 1024
    assert kernel.memory_of(MEMINFO.replace(b"MemAvailable:", b"MemOther:")) is None


def test_tcp_buffers_are_counted_in_pages():
    found = kernel.sockets_of(SOCKSTAT)
    assert (found.tcp_in_use, found.tcp_time_wait) == (7, 3)
    assert found.tcp_buffer_bytes == 428 * os.sysconf("SC_PAGE_SIZE")
    assert kernel.sockets_of(b"sockets: used 25\n") is None


def test_this_machine_tells_all_of_it_again_and_again():
    machine = kernel.Machine()
    first = machine.sample()
    time.sleep(0.05)
    second = machine.sample()
    machine.close()
    assert second.t_ns > first.t_ns
    assert sum(dict(second.cpu_s).values()) > sum(dict(first.cpu_s).values())
    assert 0 < second.memory.free_bytes <= second.memory.total_bytes
    assert second.sockets is not None


def test_a_file_that_is_kept_open_tells_nothing_once_its_process_is_gone():
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    stat = kernel.Standing(f"/proc/{child.pid}/stat")
    assert stat.read()
    child.communicate(b"\n")
    assert stat.read() is None
    stat.close()


def test_context_switches_are_of_every_thread_and_tell_who_gave_up_its_cpu():
    program = (
        "import threading, time\n"
        "def nap():\n for _ in range(200): time.sleep(0.001)\n"
        "other = threading.Thread(target=lambda: (nap(), time.sleep(30)), daemon=True); other.start()\n"
        "time.sleep(0.6); print(flush=True); input()"
    )
    child = subprocess.Popen([sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    found = kernel.switches(child.pid)
    child.communicate(b"\n")
    assert len(found) == 2
    voluntary = {thread == child.pid: counts[0] for thread, counts in found.items()}
    assert voluntary[False] >= 200 > voluntary[True]


def test_pages_that_are_shared_count_by_their_share():
    own = kernel.pss_bytes(os.getpid())
    resident = int(kernel.read("/proc/self/statm").split()[1]) * kernel.PAGE_BYTES
    assert 0.2 * resident < own <= resident * 1.05
    assert kernel.pss_bytes(2**22 + 1) is None


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """A machine whose control groups are files: who is where, and what is mounted."""

    def build(mounts: str, server: str, harness: str) -> kernel.Group | None:
        texts = {"/proc/mounts": mounts.format(root=tmp_path), "/proc/7/cgroup": server, "/proc/8/cgroup": harness}
        monkeypatch.setattr(kernel, "read", lambda path: texts[path].encode())
        return kernel.own_group(7, 8)

    return build


def write(folder, files: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.fixture
def quota(tmp_path, monkeypatch):
    """The CPU quota of this process on a machine whose control groups are files."""

    def build(mounts: str, own: str) -> kernel.Quota | None:
        texts = {"/proc/mounts": mounts.format(root=tmp_path), f"/proc/{os.getpid()}/cgroup": own}
        of_file = kernel.read
        monkeypatch.setattr(kernel, "read", lambda path: texts[path].encode() if path in texts else of_file(path))
        return kernel.own_quota()

    return build


def test_the_smallest_quota_above_a_process_is_its_own(quota, tmp_path):
    write(tmp_path / "unified/pod", {"cpu.max": "150000 100000\n", "cpu.stat": "throttled_usec 2500000\n"})
    write(tmp_path / "unified/pod/box", {"cpu.max": "max 100000\n", "cpu.stat": "throttled_usec 0\n"})
    found = quota(V2_MOUNTS, "0::/pod/box\n")
    assert (found.cpus, found.folder) == (1.5, tmp_path / "unified/pod")
    assert found.throttled_s(found.file.read()) == 2.5


def test_a_quota_of_version_1_is_known(quota, tmp_path):
    files = {"cpu.cfs_quota_us": "20000\n", "cpu.cfs_period_us": "100000\n", "cpu.stat": "throttled_time 1500000000\n"}
    write(tmp_path / "cpu/a", files)
    found = quota(V1_MOUNTS, "4:memory:/\n3:cpu,cpuacct:/a\n")
    assert (found.cpus, found.throttled_s(found.file.read())) == (0.2, 1.5)


def test_the_quota_of_a_container_is_at_the_root_of_its_mount(quota, tmp_path):
    write(tmp_path / "unified", {"cpu.max": "50000 100000\n", "cpu.stat": "throttled_usec 0\n"})
    assert quota(V2_MOUNTS, "0::/docker/of-the-host\n").cpus == 0.5
    (tmp_path / "unified/cpu.max").write_text("max 100000\n")
    assert quota(V2_MOUNTS, "0::/docker/of-the-host\n") is None


def test_a_control_group_of_version_2_tells_of_its_sockets(groups, tmp_path):
    """The lines are those of the kernel's Documentation/admin-guide/cgroup-v2.rst."""
    stat = "anon 20480\nfile 0\nkernel 9999\nsock 8192\nshmem 0\nslab_reclaimable 1000\nslab_unreclaimable 2000\nslab 3000\n"
    write(tmp_path / "unified/system.slice/server", {"memory.current": "123456\n", "memory.stat": stat})
    group = groups(V2_MOUNTS, "0::/system.slice/server\n", "0::/user.slice\n")
    told = group.take()()
    assert told == GroupSample(t_ns=told.t_ns, of="cgroup", version=2, memory_bytes=123_456, socket_bytes=8192, kernel_bytes=3000)


#: As a group of a machine with both hierarchies told it, a limit for socket buffers set and not set.
V1_FILES = {
    "memory.usage_in_bytes": "5861376\n",
    "memory.kmem.usage_in_bytes": "835584\n",
    "memory.kmem.tcp.usage_in_bytes": "3276800\n",
    "memory.kmem.tcp.limit_in_bytes": "107374182400\n",
}


@pytest.mark.parametrize(("limit", "socket_bytes"), [("107374182400\n", 3_276_800), ("9223372036854771712\n", None)])
def test_version_1_tells_of_sockets_only_where_they_have_a_limit(groups, tmp_path, limit, socket_bytes):
    write(tmp_path / "memory/a/b", {**V1_FILES, "memory.kmem.tcp.limit_in_bytes": limit})
    group = groups(V1_MOUNTS + V2_MOUNTS, "4:memory:/a/b\n1:cpu:/\n0::/\n", "4:memory:/a\n1:cpu:/\n0::/\n")
    told = group.take()()
    assert (told.version, told.memory_bytes, told.kernel_bytes) == (1, 5_861_376, 835_584)
    assert told.socket_bytes == socket_bytes


def test_a_group_that_the_harness_is_in_too_is_not_the_servers(groups, tmp_path):
    write(tmp_path / "memory/a", V1_FILES)
    write(tmp_path / "memory/a/b", V1_FILES)
    assert groups(V1_MOUNTS, "4:memory:/a\n0::/\n", "4:memory:/a\n0::/\n") is None
    assert groups(V1_MOUNTS, "4:memory:/a\n0::/\n", "4:memory:/a/b\n0::/\n") is None
    assert groups(V1_MOUNTS, "4:memory:/a/b\n0::/\n", "4:memory:/a\n0::/\n") is not None


def test_a_process_that_is_no_jvm_has_no_heap():
    assert hsperf.heap_of(os.getpid()) is None
    assert hsperf.entries(b"\xca\xfe\xc0\xc0" + bytes(40)) == {}
    assert hsperf.entries(b"not a file of counters, but long enough to be one") == {}


STEADY = """public class Steady { static Object o; public static void main(String[] a) throws Exception {
    System.out.println("ready");
    while (true) { for (int k = 0; k < 64; k++) o = new byte[16384]; Thread.sleep(50); } } }
"""


@pytest.mark.system
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
@pytest.mark.parametrize("collector", ["Serial", "Parallel", "G1", "Z"])
def test_the_heap_of_a_jvm_is_seen_to_fill_or_is_not_told(collector, tmp_path):
    (tmp_path / "Steady.java").write_text(STEADY)
    subprocess.run(["javac", "Steady.java"], cwd=tmp_path, check=True, timeout=PATIENCE_S)
    argv = ["java", f"-XX:+Use{collector}GC", "-Xms256m", "-Xmx256m", "-cp", ".", "Steady"]
    child = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE)
    child.stdout.readline()
    heap, used, until = hsperf.heap_of(child.pid), [], time.monotonic() + 5
    while (first := heap.sample()) is None and time.monotonic() < until:
        time.sleep(0.05)
    for _ in range(4):
        time.sleep(0.3)
        used.append(heap.sample().used_bytes)
    child.kill()
    child.wait()
    heap.close()
    assert first.committed_bytes == pytest.approx(256 << 20, abs=32)
    told = [bytes_ for bytes_ in used if bytes_ is not None]
    assert len(told) == 0 or len(set(told)) >= 3, used
    assert told or collector != "G1"
    assert not told or collector != "Z"


def test_connects_that_a_full_listen_queue_drops_are_counted():
    looked_at = kernel.Machine()
    before = looked_at.take_network()()
    if before is None or before.listen_overflows is None:
        pytest.skip("this kernel does not tell of listen queues")
    with socket.create_server(("127.0.0.1", 0), backlog=1) as nobody_accepts, contextlib.ExitStack() as clients:
        for _ in range(8):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(nobody_accepts.getsockname())
        until = time.monotonic() + PATIENCE_S
        while looked_at.take_network()().listen_overflows <= before.listen_overflows and time.monotonic() < until:
            time.sleep(0.05)
    assert looked_at.take_network()().listen_overflows > before.listen_overflows
    looked_at.close()


def test_the_interfaces_counters_are_added_without_loopback():
    devices = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  999 9 9 9 0 0 0 0 999 9 9 9 0 0 0 0
  eth0: 100 10 0 1 0 0 0 0 200 20 0 2 0 0 0 0
eth1:5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0
"""
    protocols = b"Ip: Forwarding\nIp: 1\nTcp: OutSegs RetransSegs\nTcp: 50 3\n"
    protocols += b"TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 7\nIpExt: InOctets\nIpExt: 1\n"
    queues = b"0a000000 0000000b 00000001 00000000\n00000001 00000002 00000000 00000000\n"
    found = kernel.network_of(1, devices, protocols, queues)
    assert (found.received_bytes, found.received_packets, found.received_dropped) == (105, 11, 1)
    assert (found.sent_bytes, found.sent_packets, found.sent_dropped) == (207, 21, 2)
    assert (found.tcp_segments_sent, found.tcp_segments_sent_again, found.listen_overflows) == (50, 3, 7)
    assert found.backlog_dropped == 13
    assert kernel.network_of(1, b"", b"", b"") is None
    nothing = kernel.network_of(1, devices, b"", b"")
    assert (nothing.tcp_segments_sent, nothing.backlog_dropped) == (None, None)


STAT = b"""cpu  100 0 100 800 0 0 0 40
cpu0 60 0 60 70 0 0 0 10
cpu1 30 0 30 130 0 0 0 20
cpu2 10 0 10 600 0 0 0 10
intr 5 6 7
"""


def test_the_cpus_of_a_trial_are_added_up_from_their_lines():
    found = kernel.cpu_of_some(STAT, frozenset({0, 1}))
    assert (found.user, found.system, found.idle, found.steal) == (0.9, 0.9, 2.0, 0.3)


@pytest.mark.parametrize("cpus", [{0, 1, 2}, set(), {0, 7}])
def test_all_cpus_no_cpu_and_a_cpu_without_a_line_have_no_sum(cpus):
    assert kernel.cpu_of_some(STAT, frozenset(cpus)) is None

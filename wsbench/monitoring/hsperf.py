"""Reads a JVM's performance counters from outside. HotSpot keeps them in a mapped file, `/tmp/hsperfdata_USER/PID`.

Nothing attaches to the JVM, and a reading costs it nothing: it is one `pread`. The offsets of the counters are found once. The
layout is that of HotSpot's `PerfDataPrologue` and `PerfDataEntry` (perfMemory.hpp), version 2. Missing values are None.

G1 updates the used bytes between collections, as its regions fill. Serial and Parallel do so only while HotSpot has a sampling
thread, which JDK 17 has and JDK 25 does not. Without it, and with Z, the counter changes only at collections and is 0 until the
first one. It is then not a current value, so it is not taken. Both JDKs were observed with a program that allocates steadily. G1
reports 0 until its first region is full; that is not taken either. G1 reports 32 committed bytes too many.

The server can write to the file, so values that no JVM would write are discarded.
"""

from __future__ import annotations

import re
import struct
import time
from pathlib import Path

from wsbench.monitoring.kernel import Standing
from wsbench.records.samples import HeapSample

MAGIC = b"\xca\xfe\xc0\xc0"
SAMPLED = "sun.os.hrt.ticks"  # a counter that exists only with the sampling thread
POLICY = "sun.gc.policy.name"
ALWAYS_LIVE, LIVE_WHERE_SAMPLED = {"GarbageFirst"}, {"Copy:MSC", "ParScav:MSC"}
COUNTER_BYTES = 8
#: More than any machine has, in bytes.
LARGEST_HEAP = 1 << 50
SPACE = re.compile(r"sun\.gc\.generation\.\d+\.space\.\d+\.(used|capacity)")


class Heap:
    """Repeated samples of one JVM's heap."""

    def __init__(self, file: Path):
        self._file = Standing(file)
        self._places: dict[str, int] = {}
        self._is_live = False
        self._order = "little"

    def sample(self) -> HeapSample | None:
        """Sums over the heap's spaces. None until the JVM has created them, and after it has ended."""
        t_ns, text = time.monotonic_ns(), self._file.read()
        if not text:
            return None
        if not self._places:
            self._order = "little" if text[4:5] == b"\x01" else "big"
            found = entries(text)
            self._places = {name: place for name, (place, _) in found.items() if SPACE.fullmatch(name)}
            self._is_live = is_live(text, found)
        if not self._places:
            return None
        sums = {"used": 0, "capacity": 0}
        for name, place in self._places.items():
            counter = text[place : place + COUNTER_BYTES]
            if len(counter) < COUNTER_BYTES:
                return None
            sums[name.rpartition(".")[2]] += int.from_bytes(counter, self._order, signed=True)
        if not all(0 <= one <= LARGEST_HEAP for one in sums.values()):
            return None
        used_bytes = (sums["used"] or None) if self._is_live else None
        return HeapSample(t_ns=t_ns, of="heap", used_bytes=used_bytes, committed_bytes=sums["capacity"])

    def close(self) -> None:
        self._file.close()


def heap_of(pid: int) -> Heap | None:
    """The heap of a JVM with counters (-XX:+UsePerfData, the default). None for any other process."""
    for file in Path("/tmp").glob(f"hsperfdata_*/{pid}"):  # HotSpot ignores TMPDIR
        return Heap(file)
    return None


def is_live(text: bytes, found: dict[str, tuple[int, int]]) -> bool:
    """Whether the used bytes are also updated between collections."""
    place, length = found.get(POLICY, (0, 0))
    policy = text[place : place + length].split(b"\0")[0].decode(errors="replace")
    return policy in ALWAYS_LIVE or (policy in LIVE_WHERE_SAMPLED and SAMPLED in found)


def entries(text: bytes) -> dict[str, tuple[int, int]]:
    """Offset and text length in bytes of each counter, by name. Empty if the file is invalid or incomplete."""
    if text[:4] != MAGIC or len(text) < 32 or text[5] != 2 or not text[7]:
        return {}
    header = struct.Struct(("<" if text[4] == 1 else ">") + "iiiBBBBi")
    entry, count = struct.unpack_from(header.format[0] + "ii", text, 24)
    found = {}
    for _ in range(count):
        if entry < 0 or entry + header.size > len(text):
            return {}
        length, name_at, vector, _, _, _, _, data_at = header.unpack_from(text, entry)
        name, ended, _ = text[entry + max(0, name_at) : entry + max(0, length)].partition(b"\0")
        if length < header.size or not ended or vector < 0 or data_at < 0:
            return {}
        found[name.decode(errors="replace")] = entry + data_at, vector
        entry += length
    return found

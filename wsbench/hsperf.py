"""A JVM's own performance counters, read from outside: HotSpot keeps them in a file, `/tmp/hsperfdata_USER/PID`, that it maps.

Nothing is attached to and the JVM does nothing for a reading: it is one `pread`. The places of the counters are found once.
The layout is that of HotSpot's `PerfDataPrologue` and `PerfDataEntry` (perfMemory.hpp), version 2. What is not told is None.
"""

from __future__ import annotations

import re
import struct
import time
from pathlib import Path

from wsbench.kernel import Standing
from wsbench.samples import HeapSample

MAGIC = b"\xca\xfe\xc0\xc0"
LONG = ord("J")
SPACE = re.compile(r"sun\.gc\.generation\.\d+\.space\.\d+\.(used|capacity)")


class Heap:
    """The heap of one JVM, looked at again and again."""

    def __init__(self, file: Path):
        self._file = Standing(file)
        self._places: dict[str, int] = {}
        self._order = "<"

    def sample(self) -> HeapSample | None:
        """Sums over the heap's spaces; None until the JVM has made them, and once it is gone."""
        t_ns, text = time.monotonic_ns(), self._file.read()
        if not text:
            return None
        if not self._places:
            self._order = "<" if text[4:5] == b"\x01" else ">"
            self._places = places(text)
        if not self._places:
            return None
        sums = {"used": 0, "capacity": 0}
        for name, place in self._places.items():
            sums[name.rpartition(".")[2]] += struct.unpack_from(self._order + "q", text, place)[0]
        return HeapSample(t_ns=t_ns, of="heap", used_bytes=sums["used"], committed_bytes=sums["capacity"])

    def close(self) -> None:
        self._file.close()


def heap_of(pid: int) -> Heap | None:
    """The heap of a process that is a JVM with counters (-XX:+UsePerfData, which is the default); None for any other."""
    for file in Path("/tmp").glob(f"hsperfdata_*/{pid}"):  # the JVM's choice, whatever TMPDIR is
        return Heap(file)
    return None


def places(text: bytes) -> dict[str, int]:
    """Where the sizes of the heap's spaces stand in the file, by name; nothing where it is no such file, or not yet whole."""
    if text[:4] != MAGIC or len(text) < 32 or text[5] != 2 or not text[7]:
        return {}
    order = "<" if text[4] == 1 else ">"
    entry, entries = struct.unpack_from(order + "ii", text, 24)
    found = {}
    for _ in range(entries):
        length, name_at, vector, kind, _, _, _, data_at = struct.unpack_from(order + "iiiBBBBi", text, entry)
        name = text[entry + name_at : text.index(b"\0", entry + name_at)].decode()
        if kind == LONG and vector == 0 and SPACE.fullmatch(name):
            found[name] = entry + data_at
        entry += length
    return found

"""Instants of another host's clock in what it wrote, moved into ours. Bytes and an offset in, bytes out. Pure."""

from __future__ import annotations

import re

#: The keys of a line of JSON that are instants: of the engine's events, of samples, of what Node.js tells (protocol, §2 and §6).
#: What has more digits is no instant, and stays.
ONE = re.compile(rb'"(t_ns|entered_ns|first_ns|last_ns|began_ns)":(\d{1,18})(?!\d)')
SEVERAL = re.compile(rb'"at_ns":\[((?:\d{1,18},)*\d{1,18})\]')
#: What a JVM's log begins its lines with.
JVM = re.compile(rb"^\[(\d{1,18})ns\]", re.MULTILINE)


def of_lines(lines: bytes, offset_ns: int) -> bytes:
    """Lines of JSON: events.jsonl, resources.jsonl, runtime.jsonl."""

    def several(found: re.Match) -> bytes:
        return b'"at_ns":[%b]' % b",".join(b"%d" % (int(one) - offset_ns) for one in found[1].split(b","))

    moved = ONE.sub(lambda found: b'"%b":%d' % (found[1], int(found[2]) - offset_ns), lines)
    return SEVERAL.sub(several, moved)


def of_jvm_log(text: bytes, offset_ns: int) -> bytes:
    return JVM.sub(lambda found: b"[%dns]" % (int(found[1]) - offset_ns), text)


def unmoved(content: bytes, offset_ns: int) -> bytes:
    return content


#: What the server and its runtime leave in their folder. A Go server's trace counts from the program's start.
LOGS = {"server.log": unmoved, "gc.log": of_jvm_log, "runtime.jsonl": of_lines}

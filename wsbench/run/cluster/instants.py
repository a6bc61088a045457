"""Converts instants in another host's files to our clock. Bytes and an offset in, bytes out. Pure functions."""

from __future__ import annotations

import re

#: JSON keys of instants: of the engine's events, of samples, of Node.js logs (protocol, §2 and §6).
#: A number with more digits is not an instant and stays unchanged.
ONE = re.compile(rb'"(t_ns|entered_ns|first_ns|last_ns|began_ns)":(\d{1,18})(?!\d)')
SEVERAL = re.compile(rb'"at_ns":\[((?:\d{1,18},)*\d{1,18})\]')
#: The start of each line of a JVM log.
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


#: Files of the server and its runtime. A Go server's trace counts from the program's start.
LOGS = {"server.log": unmoved, "gc.log": of_jvm_log, "runtime.jsonl": of_lines}

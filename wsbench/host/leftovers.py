"""Finds and kills processes that a server left behind. Each carries its leash's mark in its environment, whatever its parents.

A leash kills all of them itself. Processes remain only if the leash was killed with SIGKILL. Then the wsbench that started the
leash kills them or, if that has ended too, the next wsbench does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

#: Environment variable of every server: the pid and start time of the process that started it, and a number.
NAME = "WSBENCH_LEASH"
PROC = Path("/proc")
GONE_S = 5.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Marked:
    pid: int
    mark: str
    command: str


def mark() -> str:
    """A mark that is unique to one leash."""
    return f"{os.getpid()}.{_began(os.getpid())}.{next(_numbers)}"


def marked() -> list[Marked]:
    """Every marked process of this user: servers that still run and what they left behind."""
    own = _namespace(os.getpid())
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (has := _mark_of(entry)) is not None:
            pid = int(entry.name)
            # Another pid namespace (a container) has its own pids, so its marks mean nothing here.
            if _namespace(pid) == own:
                found.append(Marked(pid, has, _command_of(entry)))
    return found


def orphans() -> list[Marked]:
    """Marked processes whose wsbench has ended. None with the mark that this process was started with: this wsbench itself, and the
    shell that it was started from."""
    inherited = _mark_of(PROC / str(os.getpid()))
    return [one for one in marked() if one.mark != inherited and not _lives(one.mark)]


def end(marks: set[str]) -> None:
    """Kills all processes with one of these marks, including new ones, and waits up to GONE_S until none is left."""
    until = time.monotonic() + GONE_S
    while (left := [one for one in marked() if one.mark in marks]) and time.monotonic() < until:
        for one in left:
            with contextlib.suppress(OSError):
                os.kill(one.pid, signal.SIGKILL)
        time.sleep(0.01)


def _lives(has: str) -> bool:
    """Whether the process that made this mark still runs, and not another one that reuses its pid."""
    pid, began, _ = has.split(".")
    return _began(int(pid)) == int(began)


def _mark_of(entry: Path) -> str | None:
    """None if the process has no mark, has ended, or belongs to another user."""
    with contextlib.suppress(OSError):
        if entry.stat().st_uid != os.getuid():
            return None
        for word in (entry / "environ").read_bytes().split(b"\0"):
            name, _, value = word.partition(b"=")
            parts = value.decode(errors="replace").split(".")
            if name == NAME.encode() and len(parts) == 3 and all(part.isdecimal() for part in parts):
                return ".".join(parts)
    return None


def _command_of(entry: Path) -> str:
    with contextlib.suppress(OSError):
        return " ".join((entry / "cmdline").read_bytes().decode(errors="replace").split("\0"))[:200].strip()
    return ""


def _began(pid: int) -> int | None:
    """Start time of a process, in ticks since boot (proc(5), stat, field 22). None if there is no such process."""
    with contextlib.suppress(OSError, IndexError):
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    return None


def _namespace(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "ns" / "pid").stat().st_ino
    return None

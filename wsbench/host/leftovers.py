"""Processes that a server left behind: each carries the mark of the leash that it was started on, in its environment, wherever its
parents went.

A leash ends all of them itself. Only where it is killed, by -9, is somebody left: then the wsbench that started it ends them, and
where that is gone too, the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

#: Of a variable in the environment of every server: the process that started it, when that began, and a number.
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
    """A mark that no other leash has."""
    return f"{os.getpid()}.{_began(os.getpid())}.{next(_numbers)}"


def marked() -> list[Marked]:
    """Every process of this user's that a server left, or still has."""
    own = _namespace(os.getpid())
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (has := _mark_of(entry)) is not None:
            pid = int(entry.name)
            # What runs in a container of its own counts its processes anew: its marks mean nothing here.
            if _namespace(pid) == own:
                found.append(Marked(pid, has, _command_of(entry)))
    return found


def orphans() -> list[Marked]:
    """Those whose wsbench has ended."""
    return [one for one in marked() if not _lives(one.mark)]


def end(marks: set[str]) -> None:
    """Kills all that have one of these, and what those start meanwhile; waits until they are gone."""
    until = time.monotonic() + GONE_S
    while (left := [one for one in marked() if one.mark in marks]) and time.monotonic() < until:
        for one in left:
            with contextlib.suppress(OSError):
                os.kill(one.pid, signal.SIGKILL)
        time.sleep(0.01)


def _lives(has: str) -> bool:
    """Whether the process that made this mark is still there, and not another of its number."""
    pid, began, _ = has.split(".")
    return _began(int(pid)) == int(began)


def _mark_of(entry: Path) -> str | None:
    """None also where it belongs to somebody else, or has ended."""
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
    """When a process began, in ticks since the machine did; None where there is none (proc(5), stat, field 22)."""
    with contextlib.suppress(OSError, IndexError):
        return int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19])
    return None


def _namespace(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "ns" / "pid").stat().st_ino
    return None

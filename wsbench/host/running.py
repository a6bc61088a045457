"""A process that runs already, such as a user's own server: whether it exists, its CPUs, its ports, and how to part it from the
engine. Nothing is started or stopped here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from wsbench.host.machine import Placement
from wsbench.records.errors import UserError

#: Programs that listen for a server that is elsewhere.
PASSES_ON = {"docker-proxy", "rootlessport", "slirp4netns", "pasta", "ssh", "sshd", "kubectl"}


def cpus_of(pids: Iterable[int]) -> set[int]:
    """The CPUs that these processes may use. UserError if one does not exist."""
    found: set[int] = set()
    for pid in pids:
        try:
            found |= os.sched_getaffinity(pid)
        except OSError as error:
            raise UserError(f"process {pid}: {error.strerror}; name a process that runs on this machine") from error
    return found


def is_alive(pid: int) -> bool:
    """Whether the process exists and has not ended; one that awaits its parent has ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def ports(pid: int) -> list[int]:
    """The TCP ports at which the process or its children listen. Empty if their sockets may not be read."""
    try:
        trees = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        found = [socket for one in trees for socket in one.net_connections(kind="tcp")]
    except psutil.Error:
        return []
    return sorted({one.laddr.port for one in found if one.status == psutil.CONN_LISTEN})


def listens(pids: Iterable[int], port: int) -> bool | None:
    """Whether a process of these trees listens at the port. None if their sockets may not be read."""
    try:
        trees = [one for pid in pids for one in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))]
        found = [socket for one in trees for socket in one.net_connections(kind="tcp")]
    except psutil.Error:
        return None
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in found)


def listens_at(pid: int, host: str, port: int) -> bool:
    """Whether the process itself accepts connections to this address of this network namespace. False if its sockets may not be
    read."""
    try:
        if Path(f"/proc/{pid}/ns/net").stat().st_ino != Path("/proc/self/ns/net").stat().st_ino:
            return False
        found = psutil.Process(pid).net_connections(kind="tcp")
    except (OSError, psutil.Error):
        return False
    every = {host, "0.0.0.0", "::"}
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.laddr.ip in every for one in found)


def serving(host: str, port: int) -> list[int]:
    """The processes of this machine that accept connections to this address, without their children. None of them is this process
    or has started it. Empty if their sockets may not be read, or if a program listens there that only passes connections on."""
    every = {host, "0.0.0.0", "::"}
    try:
        found = {
            one.pid
            for one in psutil.net_connections(kind="tcp")
            if one.pid and one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.laddr.ip in every
        }
        ours = {os.getpid(), *(one.pid for one in psutil.Process().parents())}
        trees = {pid: [psutil.Process(pid), *psutil.Process(pid).parents()] for pid in found}
    except psutil.Error:
        return []
    if ours & found or any(one.name() in PASSES_ON for tree in trees.values() for one in tree[:1]):
        return []
    return sorted(pid for pid, tree in trees.items() if not found & {one.pid for one in tree[1:]})


def name(pid: int) -> str:
    """What the process is called; `process` if it has ended."""
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "process"


def parted(usual: Placement, chosen: list[int], theirs: set[int]) -> Placement | None:
    """CPUs for a server that runs already and for the engine, which share none. None if there are too few.

    `usual` is the placement of a trial, `chosen` the engine's CPUs if the user named them, `theirs` the CPUs that the server may
    use now. A server that keeps to some CPUs already stays there.
    """
    every = set(usual.server) | set(usual.engine)
    engine = set(chosen) or (every - theirs if theirs and theirs < every else set(usual.engine))
    server = theirs if theirs and not theirs & engine else every - engine
    return Placement(sorted(server), sorted(engine)) if server and engine else None

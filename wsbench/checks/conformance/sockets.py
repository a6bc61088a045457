"""Sockets of the server's process tree, seen from outside: listening addresses and release of closed connections."""

import time
from contextlib import suppress
from pathlib import Path

import psutil

from wsbench.checks.conformance.push import leave
from wsbench.checks.conformance.registry import WEBSOCKET, checks
from wsbench.checks.peer import Server, Wrong, expect

LEAVING = 60
RELEASE_S = 5.0


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        raise Wrong("its process has ended") from None


def _sockets(process: psutil.Process) -> list:
    """None of a process that has ended meanwhile."""
    try:
        return process.net_connections(kind="inet")
    except psutil.NoSuchProcess:
        return []
    except psutil.AccessDenied:
        raise Wrong(f"the sockets of its process {process.pid} may not be read by this user") from None


@checks(
    *("contract: listens on HOST:PORT", "doc", "echo", "ping", "push"),
    transport=None,
    sees_process=True,
    when=lambda use: use.strict,
)
def listens_nowhere_else(server: Server) -> None:
    """No process of the server accepts connections or receives datagrams at an address other than its HOST and PORT."""
    own = {(server.host, server.port), (f"::ffff:{server.host}", server.port)}
    found = set()
    for process in _tree(server.pid):
        for socket in _sockets(process):
            if socket.status == psutil.CONN_LISTEN or (socket.status == psutil.CONN_NONE and not socket.raddr):
                found.add((socket.laddr.ip, socket.laddr.port))
    expect(bool(found & own), "its process tree does not listen on its port")
    others = ", ".join(f"{host}:{port}" for host, port in sorted(found - own))
    expect(not others, f"also listens on {others}")


def _socket_count(server: Server) -> int:
    """The number of sockets open in the server, whether or not their connection is alive."""
    count = 0
    for process in _tree(server.pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            for file in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(OSError):
                    count += str(file.readlink()).startswith("socket:")
    return count


@checks("contract", *WEBSOCKET, required=False, patience=2, sees_process=True)
def ended_connections_are_released(server: Server) -> None:
    """Sixty connections end by a Close frame, a plain TCP close or a reset. Within 5 s the server has closed its sockets."""
    before = _socket_count(server)
    members = [server.websocket(server.any_scenario) for _ in range(LEAVING)]
    for number, member in enumerate(members):
        leave(member, number % 3)
    until = time.monotonic() + RELEASE_S
    while (left := _socket_count(server) - before) > 0 and time.monotonic() < until:
        time.sleep(0.05)
    expect(left <= 0, f"{left} of {LEAVING} are still open {RELEASE_S:g} s after they ended")

"""The server's side of a trial, on the host that serves: starts its processes, waits until they are ready, checks and stops them.

Takes a variant and an order and returns plain data, so that it also works on a remote host. It knows no plan and no engine.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import socket
import time
from pathlib import Path

from wsbench.host import http_deadline, machine
from wsbench.host.process import Server
from wsbench.monitoring.runtime_logs import probes
from wsbench.records.errors import TrialFailed
from wsbench.records.frozen import Frozen
from wsbench.servers import runtime
from wsbench.servers.catalogue import Variant

HOST = "127.0.0.1"
LOG = "server.log"
READY_S = 60.0
#: Time limit of one readiness check.
ANSWER_S = 2.0
#: Files that a server may open in addition to its connections; a JVM opens about two hundred.
SERVER_FILES = 500
#: A trial that leaves the machine less available memory (bytes) is ended, before the kernel kills a process to free memory.
MEMORY_FLOOR = 768 << 20
#: Limit for a server's output in bytes. One hour of a collector's trace is a few MB.
LARGEST_LOG = 1 << 30


class Order(Frozen):
    """How to run a server. `port` is the requested port; otherwise the search for a free one starts at index `number`."""

    address: str = HOST
    port: int | None
    number: int
    cpus: list[int]
    processes: int = 1
    probe: str | None = None


class Ready(Frozen):
    """A server that is ready. `env` is its environment without PATH, which depends on the machine; `executable` records the program
    found instead. `pollers` are the event interfaces of its first process."""

    addresses: list[str]
    ready_s: float
    started_ns: int
    env: dict[str, str]
    executable: str | None
    pollers: list[str]


class Serving:
    """A ready server, from entry to exit of the context. It is always stopped. Its output and its probe's go to `folder`."""

    def __init__(self, variant: Variant, order: Order, folder: Path):
        self._variant, self._order, self._folder = variant, order, folder
        self._stack = contextlib.ExitStack()
        self._servers: list[Server] = []

    def __enter__(self) -> Serving:
        ports, ready_s = [], 0.0
        try:
            for place in range(self._order.processes):
                port = None if self._order.port is None else self._order.port + place
                one = self._order.model_copy(update={"port": port, "number": self._order.number + place})
                found = self._stack.enter_context(started(self._variant, one, self._folder / LOG))
                self._servers.append(found[0])
                ports.append(found[1])
                ready_s += found[2]
        except BaseException:
            self._stack.close()
            raise
        first = self._servers[0]
        self.ready = Ready(
            addresses=[_shown(self._order.address, port) for port in ports],
            ready_s=ready_s,
            started_ns=first.started_ns,
            env={name: value for name, value in first.env.items() if name != "PATH"},
            executable=runtime.executable(first.pid),
            pollers=runtime.pollers(first.pid),
        )
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self._servers]

    def look(self) -> None:
        """TrialFailed if this host is short of memory or the server's log is too large."""
        require_memory()
        require_small(self._folder / LOG)

    def ended(self) -> bool:
        """Whether a server process has ended."""
        return any(server.exit_code is not None for server in self._servers)

    def stop(self) -> str:
        """Stops the server and describes how its processes ended."""
        return "; ".join(dict.fromkeys(server.stop() for server in self._servers))


@contextlib.contextmanager
def started(variant: Variant, order: Order, log: Path):
    """One ready server process. Yields the process, its port and the seconds until it was ready."""
    port = machine.free_port(order.address, order.port, order.number)
    env = {
        **runtime.environment(variant),
        "HOST": order.address,
        "PORT": str(port),
        "THREADS": str(len(order.cpus)),
    }
    env = probes.environment(order.probe, env, log.parent)
    clock = time.monotonic()
    with Server(variant.table.run, variant.folder, env, order.cpus, log) as server:
        await_ready(server, order.address, port, variant.transport)
        yield server, port, time.monotonic() - clock


def await_ready(server: Server, host: str, port: int, transport: str) -> None:
    """Waits for an answer, never for a log line: a TCP connection for plain TCP, otherwise status 101 for an upgrade of /ping."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if server.exit_code is not None:
            raise TrialFailed("the server ended before it was ready")
        if _answers(host, port, transport):
            return
        time.sleep(0.02)
    raise TrialFailed(f"the server was not ready within {READY_S:g} s")


def _answers(host: str, port: int, transport: str) -> bool:
    try:
        if transport == "tcp":
            with socket.create_connection((host, port), 1):
                return True
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        with http_deadline.within(connection, ANSWER_S):
            upgrade = {
                "Upgrade": "websocket",
                "Connection": "Upgrade",
                "Sec-WebSocket-Key": "d3NiZW5jaCBpcyByZWFkeQ==",
                "Sec-WebSocket-Version": "13",
            }
            connection.request("GET", "/ping", headers=upgrade)
            return connection.getresponse().status == 101
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # no file descriptors are left here; the server is not at fault
        return False
    except http.client.HTTPException:
        return False


def _shown(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def processes_for(connections: int, limit: int | None) -> int:
    """Number of server processes for these connections, with `limit` open files per process (None: unlimited)."""
    return 1 if limit is None else -(-connections // max(1, limit - SERVER_FILES))


def require_small(log: Path) -> None:
    if log.exists() and log.stat().st_size > LARGEST_LOG:
        raise TrialFailed(f"the server's log exceeds {LARGEST_LOG >> 20:,} MiB")


def require_memory() -> None:
    left = machine.memory_available()
    if left is not None and left < MEMORY_FLOOR:
        raise TrialFailed(
            f"the machine ran out of memory: {left >> 20} MiB left, the trial ends below {MEMORY_FLOOR >> 20} MiB; "
            "see `wsbench doctor --connections N`"
        )

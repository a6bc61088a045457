"""The server's side of a trial, on the host that serves: starts its processes, waits until they are ready, checks and stops them
(`Serving`), or finds a server that runs already and leaves it running (`Attached`).

Takes a variant and an order and returns plain data, so that it also works on a remote host. It knows no plan and no engine.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import ipaddress
import os
import re
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from wsbench.host import http_deadline, leftovers, machine, running
from wsbench.host.process import Pinned, Server
from wsbench.monitoring.runtime_logs import probes
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.frozen import Frozen
from wsbench.records.rundir import AWAY
from wsbench.servers import runtime, speaking
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Address, Offer, Running, address

HOST = "127.0.0.1"
LOG = "server.log"
ENDED = "the server ended before it was ready"
READY_S = 60.0
#: A server that refuses the request for so long, by a status such as 404, will not be ready.
UNLIKELY_S = 2.0
#: From then on, a server that listens at other ports only is not waited for.
ELSEWHERE_S = 5.0
#: What names an error in a program's output.
ERROR = re.compile(r"error\b|exception\b|panic|fatal", re.IGNORECASE)
#: Processes that run at the same time look for ports so far apart: between the look and the server's bind another could take it.
APART = 97
#: Time limit of one readiness check.
ANSWER_S = 2.0
#: Files that a server may open in addition to its connections; a JVM opens about two hundred.
SERVER_FILES = 500
#: A trial that leaves the machine less available memory (bytes) is ended, before the kernel kills a process to free memory.
MEMORY_FLOOR = 768 << 20
#: How much of a log is read for its last lines.
TAIL_BYTES = 65_536
#: The headers of a handshake.
UPGRADE = (
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", "d3NiZW5jaCBpcyByZWFkeQ=="),
    ("Sec-WebSocket-Version", "13"),
)
Headers = Sequence[tuple[str, str]]
#: A certificate for loopback addresses and its key, which is public.
TLS = Path(__file__).parent / "tls"
#: What switches on what a server offers, in its environment.
SWITCHES: dict[Offer, dict[str, str]] = {
    "tls": {
        "TLS_CERT": str(TLS / "certificate.pem"),
        "TLS_KEY": str(TLS / "key.pem"),
        "TLS_KEYSTORE": str(TLS / "keystore.p12"),
    },
    "deflate": {"DEFLATE": "on"},
}
#: Limit for a server's output in bytes. One hour of a collector's trace is a few MB.
LARGEST_LOG = 1 << 30


class Order(Frozen):
    """How to run a server. `port` is the requested port; otherwise `number` says where the search for a free one starts.

    `asks`: which of its offers are switched on. `share_heap`: the processes share the heap equally; otherwise each has all of it.
    """

    address: str = HOST
    port: int | None
    number: int
    cpus: list[int]
    processes: int = 1
    share_heap: bool = False
    probe: str | None = None
    asks: list[Offer] = []


class Ready(Frozen):
    """A server that is ready. `host` is the Host header of its requests, `cpus` the CPUs that it may use; empty if unknown.

    `env` is its environment without PATH, which depends on the machine; `executable` records the program found instead. `pollers`
    are the event interfaces of its first process. A server that ran already has no times; without its process the rest is unknown.
    """

    addresses: list[str]
    host: str
    cpus: list[int]
    ready_s: float | None
    started_ns: int | None
    env: dict[str, str]
    executable: str | None
    pollers: list[str] | None


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
        addresses = [shown(self._order.address, port) for port in ports]
        self.ready = Ready(
            addresses=addresses,
            host=addresses[0],
            cpus=self._order.cpus,
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

    def ended(self) -> str | None:
        """What ended, in words, if a server process has ended."""
        return "the server ended before it was stopped" if any(one.exit_code is not None for one in self._servers) else None

    def stop(self) -> str:
        """Stops the server and describes how its processes ended."""
        return "; ".join(dict.fromkeys(server.stop() for server in self._servers))


class Attached:
    """A server that runs already, from entry to exit of the context. It is neither started nor stopped. If its process is known, it
    is kept on `cpus` for that time (`process.Pinned`), unless its manifest says otherwise. TrialFailed if it does not answer."""

    def __init__(self, variant: Variant, cpus: list[int]):
        assert isinstance(variant.table, Running)
        self._variant, self._cpus = variant, cpus
        self.pids = [] if variant.table.pid is None else [variant.table.pid]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Attached:
        at = address(self._variant.table.url)
        try:
            host = resolved(at)
            require_answer(self._variant, host, at)
            now = running.cpus_of(self.pids)
            if self.pids and self._variant.table.pin and ipaddress.ip_address(host).is_loopback and now - set(self._cpus):
                self._stack.enter_context(Pinned(self.pids, self._cpus))
                now = set(self._cpus)
        except (UserError, TrialFailed) as error:
            raise TrialFailed(f"{AWAY}: {error}") from error
        self.ready = Ready(
            addresses=[shown(host, at.port)],
            host=at.name,
            cpus=sorted(now),
            ready_s=None,
            started_ns=None,
            env={},
            executable=runtime.executable(self.pids[0]) if self.pids else None,
            pollers=runtime.pollers(self.pids[0]) if self.pids else None,
        )
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def look(self) -> None:
        """TrialFailed if this host is short of memory."""
        require_memory()

    def ended(self) -> str | None:
        """What ended, in words, if its process is known and has ended."""
        gone = [pid for pid in self.pids if not running.is_alive(pid)]
        return f"the server ended: there is no process {gone[0]} any more" if gone else None

    def stop(self) -> str:
        """Leaves the server as it is."""
        return "was not stopped: it ran already"


def resolved(at: Address) -> str:
    """The IP address of a running server. TrialFailed if its name has none."""
    try:
        return socket.getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)[0][4][0]
    except (OSError, UnicodeError) as error:
        raise TrialFailed(f"{at.name}: {error}") from error


def require_answer(variant: Variant, host: str, at: Address) -> None:
    """TrialFailed if a server that runs already does not answer as a ready one does."""
    answer = asked(host, at.port, question(variant), name=at.name)
    if answer is not None:
        remedy = "correct the path, or let the server admit this host" if answer.refused else "is the server running?"
        raise TrialFailed(f"{variant.table.url} {answer.words}; {remedy}")


@contextlib.contextmanager
def started(variant: Variant, order: Order, log: Path):
    """One ready server process. Yields the process, its port and the seconds until it was ready."""
    if order.share_heap:
        variant = replace(variant, settings=variant.settings.shared_by(order.processes))
    with machine.held_port(order.address, order.port, APART * os.getpid() + order.number) as port:
        env = {
            **runtime.environment(variant),
            "HOST": order.address,
            "PORT": str(port),
            "THREADS": str(len(order.cpus)),
        }
        for one in order.asks:
            env |= SWITCHES[one]
        env = probes.environment(order.probe, env, log.parent)
        clock = time.monotonic()
        with Server(variant.table.run, variant.folder, env, order.cpus, log) as server:
            await_ready(server, order.address, port, question(variant), sealed="tls" in order.asks)
            ready_s = time.monotonic() - clock
            require_alone(server, order.address, port)
            yield server, port, ready_s


@dataclass(frozen=True)
class Question:
    """A request that only a ready server answers with this status. `target` None: it only has to accept a TCP connection."""

    target: str | None
    status: int = 101
    headers: Headers = ()


def question(variant: Variant) -> Question:
    """A handshake at the first WebSocket path that the variant serves, or its smallest document."""
    if variant.transport == "tcp":
        return Question(None)
    for role in variant.roles:
        return Question(speaking.path_of(variant, role), headers=speaking.handshake(variant, role))
    served = [one for one in ("ping", "echo", "push") if one in variant.scenarios]
    return Question(variant.paths[served[0]]) if served else Question(document(variant.paths, 1), 200)


def document(paths: Mapping[str, str], size: int) -> str:
    """The request target of a document of this size."""
    path = paths["doc"]
    return f"{path}{'&' if '?' in path else '?'}size={size}"


def await_ready(
    server: Server,
    host: str,
    port: int,
    question: Question,
    sealed: bool = False,
    name: str | None = None,
    headers: Headers = (),
) -> None:
    """Waits for an answer, never for a log line. TrialFailed if the server ends, does not answer within READY_S, is ready for this
    question without the TLS that it should have, or for UNLIKELY_S refuses the request or listens only elsewhere."""
    began = time.monotonic()
    until, answer, unlikely, look_at = began + READY_S, None, None, began + ELSEWHERE_S
    while (now := time.monotonic()) < until:
        if server.exit_code is not None:
            raise TrialFailed(f"{ENDED}, with {server.exit_words}")
        if (answer := asked(host, port, question, name, headers, sealed)) is None:
            return
        if sealed and asked(host, port, question) is None:
            raise TrialFailed("the server was not ready: it answers without TLS")
        if not answer.refused:
            unlikely = None
        elif unlikely is None:
            unlikely = now
        elif now - unlikely > UNLIKELY_S:
            raise TrialFailed(f"the server was not ready: it {answer.words}; is the path right?")
        if now > look_at:  # seldom: it takes CPU time from a server that starts
            look_at = now + ELSEWHERE_S
            if (found := running.ports(server.pid)) and port not in found:
                raise TrialFailed(f"the server was not ready: it listens at port {found[0]} and not at $PORT, {port}")
        time.sleep(0.02)
    raise TrialFailed(f"the server was not ready within {READY_S:g} s: it {answer.words}")


def require_alone(server: Server, host: str, port: int) -> None:
    """TrialFailed if a server that another wsbench started listens at the port too: it may answer in place of this one."""
    for one in leftovers.marked():
        if one.mark != server.mark and running.listens_at(one.pid, host, port):
            raise TrialFailed(f"port {port} is shared: process {one.pid} of another trial listens there, {one.command}")


@dataclass(frozen=True)
class Answer:
    """The answer of a server that is not ready, in words. `refused`: it is up, but refuses this request."""

    words: str
    refused: bool = False


def asked(
    host: str, port: int, question: Question, name: str | None = None, headers: Headers = (), sealed: bool = False
) -> Answer | None:
    """Asks a server whether it is ready. None if it is, otherwise its answer. `name` replaces the Host header; `sealed`: by TLS."""
    target, status = question.target, question.status
    try:
        if target is None:
            with socket.create_connection((host, port), 1):
                return None
        if sealed:
            connection = http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=_unverified())
        else:
            connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        with http_deadline.within(connection, ANSWER_S):
            connection.putrequest("GET", target, skip_host=bool(name))
            upgrade = UPGRADE if status == 101 else ()
            for key, value in [*([("Host", name)] if name else []), *upgrade, *question.headers, *headers]:
                connection.putheader(key, value)
            connection.endheaders()
            found = connection.getresponse().status
            return None if found == status else Answer(f"answers {target} with status {found}", refused=400 <= found < 500)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # no file descriptors are left here; the server is not at fault
        return Answer(f"does not answer: {error.strerror or error}")
    except http.client.HTTPException as error:
        return Answer(f"does not answer in HTTP: {error or type(error).__name__}")


@cache
def _unverified() -> ssl.SSLContext:
    """A client that asks for no proof: wsbench has started the server itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def shown(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def processes_for(connections: int, limit: int | None) -> int:
    """Number of server processes for these connections, with `limit` open files per process (None: unlimited)."""
    return 1 if limit is None else -(-connections // max(1, limit - SERVER_FILES))


def last_lines(log: Path) -> list[str]:
    """The last lines of a server's output, each cut at 500 characters; none without a file."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return [line[:500] for line in lines]


def telling(lines: list[str]) -> list[str]:
    """The line that says why a program ended: the last that names an error, else the last; none if it wrote nothing."""
    return ([line for line in lines if ERROR.search(line)] or lines)[-1:]


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

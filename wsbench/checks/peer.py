"""A WebSocket and HTTP client that shares no code with the engine.

It has its own frames (RFC 6455), its own HTTP and plain sockets, so it cannot repeat an engine bug. Every wait has a
deadline, and buffered server bytes are limited. An error of the server raises `Wrong` with a message; the expected
behaviour is defined in `conformance`.
"""

import base64
import os
import re
import select
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from wsbench.checks.use import Use, whole
from wsbench.servers import serving
from wsbench.servers.manifest import PATHS

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
WEBSOCKET_SCENARIOS = {"echo", "ping", "push"}
#: Silence after which a server that should end a connection gets a ping.
PAUSE_S = 0.3
#: Limits of a response head, and of a frame, message or document: the largest that is requested has 16 MiB.
LARGEST_HEAD, LARGEST = 64 << 10, 17 << 20
#: Limit of unread bytes; a burst comes back while it is sent.
LARGEST_BUFFER = 4 * LARGEST
STATUS, LENGTH, CHUNK = (re.compile(form, re.ASCII) for form in (r"\d{3}(?!\d)", r"\d{1,15}", r"[0-9A-Fa-f]{1,15}(?=[ \t]*(;|$))"))


class Wrong(Exception):
    """The server misbehaved; the message says how."""


class Ended(Wrong):
    """The server closed the connection although more bytes were expected."""


def expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Wrong(otherwise)


class Connection:
    """A socket with a deadline. It receives while it sends, so a server that answers early cannot cause a deadlock."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self.socket = connected
        self.deadline = deadline
        self.buffer = bytearray()
        connected.setblocking(False)

    def wait(self, write: bool = False) -> bool:
        """Waits until the socket is readable or, with `write`, writable; true if writable. TimeoutError at the deadline,
        even if data is available."""
        left = self.deadline - time.monotonic()
        ready = self._poll(left, select.POLLIN | (select.POLLOUT if write else 0))
        if not ready or left <= 0:
            raise TimeoutError
        return bool(ready & select.POLLOUT)

    def is_quiet(self, seconds: float) -> bool:
        """True if no more bytes arrived, and neither bytes nor the end of the stream arrive within this time."""
        left = min(seconds, self.deadline - time.monotonic())
        return not self.buffer and not self._poll(left, select.POLLIN)

    def _poll(self, seconds: float, events: int) -> int:
        poll = select.poll()
        poll.register(self.socket, events)
        return sum(found for _, found in poll.poll(max(seconds, 0) * 1000))

    def send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            if self.wait(write=True):
                rest = rest[self.socket.send(rest) :]
            self.take_in()

    def take_in(self) -> bool:
        """Reads the available bytes; false at the end of the stream."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return True
        self.buffer += data
        expect(
            len(self.buffer) <= LARGEST_BUFFER,
            f"the server sent more than {LARGEST_BUFFER >> 20} MiB of unrequested bytes",
        )
        return bool(data)

    def read(self, count: int) -> bytes:
        expect(0 <= count <= LARGEST, f"the server announced {count} bytes")
        while len(self.buffer) < count:
            self.wait()
            if not self.take_in():
                raise Ended(f"the server closed the connection after {len(self.buffer)} of {count} bytes")
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    def read_line(self) -> str:
        while (end := self.buffer.find(b"\r\n", 0, LARGEST_HEAD)) < 0:
            expect(len(self.buffer) < LARGEST_HEAD, f"a line of more than {LARGEST_HEAD >> 10} KiB in a head")
            self.wait()
            if not self.take_in():
                raise Ended("the server closed the connection within a head")
        return self.read(end + 2)[:-2].decode("latin-1")

    def read_to_end(self) -> bytes:
        """Reads up to the server's FIN. A reset raises ConnectionError."""
        self.wait()
        while self.take_in():
            self.wait()
        data = bytes(self.buffer)
        self.buffer.clear()
        return data

    def read_head(self) -> tuple[int, dict[str, str]]:
        """Status and headers (names in lower case) of an HTTP reply."""
        version, _, status = self.read_line().partition(" ")
        known = version in ("HTTP/1.1", "HTTP/1.0") and STATUS.match(status)
        expect(bool(known), f"no HTTP status line: {version[:100]} {status[:100]}")
        headers, read = {}, 0
        while line := self.read_line():
            read += len(line)
            expect(read <= LARGEST_HEAD, f"a head of more than {LARGEST_HEAD >> 10} KiB")
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(status[:3]), headers


class WebSocket(Connection):
    def frame(self, opcode: int, payload: bytes, fin: bool = True, reserved: int = 0) -> bytes:
        """A masked frame, as a client must send it (section 5.2). `reserved`: the three reserved bits as a number."""
        first = (0x80 if fin else 0) | reserved << 4 | opcode
        if len(payload) < 126:
            header = struct.pack("!BB", first, 0x80 | len(payload))
        elif len(payload) < 1 << 16:
            header = struct.pack("!BBH", first, 0x80 | 126, len(payload))
        else:
            header = struct.pack("!BBQ", first, 0x80 | 127, len(payload))
        mask = os.urandom(4)
        # One XOR of two big integers: a loop over 16 MiB would take seconds.
        keys = (mask * (len(payload) // 4 + 1))[: len(payload)]
        masked = int.from_bytes(payload, "big") ^ int.from_bytes(keys, "big")
        return header + mask + masked.to_bytes(len(payload), "big")

    def send_frame(self, opcode: int, payload: bytes) -> None:
        self.send(self.frame(opcode, payload))

    def receive_frame(self) -> tuple[bool, int, bytes]:
        first, second = self.read(2)
        expect(not first & 0x70, "a frame has reserved bits set")
        expect(not second & 0x80, "a frame from the server is masked")
        length = second
        if second == 126:
            (length,) = struct.unpack("!H", self.read(2))
        elif second == 127:
            (length,) = struct.unpack("!Q", self.read(8))
        return bool(first & 0x80), first & 0x0F, self.read(length)

    def receive(self) -> tuple[int, bytes]:
        """The next message, assembled; answers pings in between."""
        kind, message = 0, b""
        while True:
            fin, opcode, payload = self.receive_frame()
            if opcode == PING:
                self.send_frame(PONG, payload)
            elif opcode != PONG:
                expect(opcode in (0, TEXT, BINARY), f"a frame with opcode {opcode} came instead of a message")
                expect((opcode == 0) == (kind != 0), "the fragments of a message are in disorder")
                kind, message = kind or opcode, message + payload
                expect(len(message) <= LARGEST, f"a message of more than {LARGEST >> 20} MiB")
                if fin:
                    return kind, message

    def expect_failure(self, code: int) -> None:
        """Expects the connection to fail (section 7.1.7): a Close frame, or just the end of the connection. Fragments may come
        first: a server may echo a message as it arrives. A silent server gets a ping, to see whether it carries on."""
        try:
            fin, opcode, payload = False, TEXT, b""
            while not fin and opcode in (CONTINUATION, TEXT, BINARY):
                if self.is_quiet(PAUSE_S):
                    self.send_frame(PING, b"still there?")
                fin, opcode, payload = self.receive_frame()
        except (Ended, ConnectionError):
            return
        expect(opcode != PONG, "the server carries on")
        expect(opcode == CLOSE, f"a frame with opcode {opcode} came as an answer")
        said = _code(payload)
        expect(said in (code, None), f"Close came with {said} instead of {code}")

    def expect_close(self, *codes: int) -> None:
        """Expects a Close frame, with one of these codes or with none."""
        _, opcode, payload = self.receive_frame()
        expect(opcode == CLOSE, f"opcode {opcode} came instead of Close")
        said = _code(payload)
        expect(said is None or said in codes, f"Close came back with {said}")

    def expect_echo(self, opcode: int, payload: bytes) -> None:
        self.send_frame(opcode, payload)
        self.expect_message(opcode, payload)

    def expect_message(self, opcode: int, payload: bytes) -> None:
        kind, message = self.receive()
        expect(kind == opcode, f"opcode {opcode} came back as {kind}")
        expect(len(message) == len(payload), f"{len(payload)} bytes came back as {len(message)}")
        expect(message == payload, f"{len(payload)} bytes came back altered")


def _code(payload: bytes) -> int | None:
    """The status code of a Close frame, or None if it has none."""
    expect(len(payload) != 1, "Close came with a body of one byte")
    return struct.unpack("!H", payload[:2])[0] if len(payload) > 1 else None


@dataclass(frozen=True)
class Server:
    """A server under test, and the connections of one check: `sockets` closes all of them.

    `pid` is the first process of its tree; None if unknown. `idle_s` is the idle time of a deep check. `use` is what the checks
    may ask of it, `paths` the path of each scenario, `name` its Host header if it is not its address.
    """

    host: str
    port: int
    scenarios: frozenset[str]
    transport: str
    deadline: float
    sockets: ExitStack
    pid: int | None = None
    idle_s: float = 0.0
    use: Use = field(default_factory=whole)
    paths: Mapping[str, str] = field(default_factory=lambda: PATHS)
    name: str | None = None

    @property
    def any_scenario(self) -> str:
        """One of its WebSocket scenarios."""
        return min(WEBSOCKET_SCENARIOS & self.scenarios)

    def crowd(self, most: int) -> int:
        """As many connections as the load has, but at most this many; several in any case."""
        return max(3, min(most, self.use.connections))

    def connect(self, receive_buffer: int | None = None) -> socket.socket:
        """A connected socket. A small receive buffer fills up soon."""
        made = self.sockets.enter_context(socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET))
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.settimeout(max(self.deadline - time.monotonic(), 0.001))
        made.connect((self.host, self.port))
        return made

    def connection(self) -> Connection:
        return Connection(self.connect(), self.deadline)

    def request(self, target: str, *headers: str, method: str = "GET") -> bytes:
        name = self.name or serving.shown(self.host, self.port)
        return "\r\n".join([f"{method} {target} HTTP/1.1", f"Host: {name}", *headers, "", ""]).encode()

    def handshake(
        self,
        scenario: str,
        key: str | None,
        *,
        method: str = "GET",
        upgrade: str | None = "websocket",
        connection: str = "Upgrade",
        version: str = "13",
        receive_buffer: int | None = None,
    ) -> tuple[WebSocket, int, dict[str, str]]:
        """An upgrade request, correct or with one part altered or (None) left out."""
        websocket = WebSocket(self.connect(receive_buffer), self.deadline)
        headers = [f"Connection: {connection}", f"Sec-WebSocket-Version: {version}"]
        headers += [] if upgrade is None else [f"Upgrade: {upgrade}"]
        headers += [] if key is None else [f"Sec-WebSocket-Key: {key}"]
        websocket.send(self.request(self.paths[scenario], *headers, method=method))
        return websocket, *websocket.read_head()

    def websocket(self, scenario: str, receive_buffer: int | None = None) -> WebSocket:
        websocket, status, _ = self.handshake(scenario, new_key(), receive_buffer=receive_buffer)
        expect(status == 101, f"{self.paths[scenario]} answered the handshake with status {status}")
        return websocket

    def document(self, connection: Connection, size: int, persistent: bool) -> dict[str, str]:
        """Requests a document and reads the whole reply, including its end. Returns the reply's headers."""
        connection.send(self.request(serving.document(self.paths, size), *([] if persistent else ["Connection: close"])))
        status, headers = connection.read_head()
        expect(status == 200, f"status {status} for {size} bytes")
        kind = headers.get("content-type", "")
        if size:  # an empty reply needs no type: RFC 9110 section 8.3
            expect(kind.startswith("text/html"), f"Content-Type is {kind or 'missing'}")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = _read_chunks(connection)
        elif "content-length" in headers:
            length = headers["content-length"]
            expect(bool(LENGTH.fullmatch(length)), f"Content-Length is {length[:100]}")
            body = connection.read(int(length))
        else:
            expect(not persistent, "the reply has no length, on a connection that should stay open")
            body = connection.read_to_end()
        expect(len(body) == size, f"{len(body)} bytes instead of {size}")
        return headers


def _read_chunks(connection: Connection) -> bytes:
    body = b""
    while size := _chunk_size(connection.read_line()):
        body += connection.read(size)
        expect(len(body) <= LARGEST, f"a document of more than {LARGEST >> 20} MiB")
        expect(connection.read(2) == b"\r\n", "a chunk does not end where its size says")
    while connection.read_line():
        pass
    return body


def _chunk_size(line: str) -> int:
    found = CHUNK.match(line)
    expect(found is not None, f"a chunk's size is {line[:100]!r}")
    return int(found[0], 16)


def new_key() -> str:
    return base64.b64encode(os.urandom(16)).decode()

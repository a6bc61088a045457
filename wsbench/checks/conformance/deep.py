"""Checks that take minutes or thousands of files. They run on request: `wsbench check --deep`."""

import base64
import os
import selectors
import socket
import time

from wsbench.checks.conformance.registry import WEBSOCKET, checks
from wsbench.checks.peer import BINARY, CLOSE, PING, PONG, TEXT, WEBSOCKET_SCENARIOS, Server, WebSocket, Wrong, expect
from wsbench.checks.use import CONTRACT_BYTES

MEMBERS = 15_000
#: Open files: the members' sockets and a margin.
FILES = MEMBERS + 200
BROADCAST_S = 60.0


@checks("contract: idle connections", *WEBSOCKET, deep=True)
def idle_connections_live(server: Server) -> None:
    """One connection per endpoint stays idle for 90 s (or the time requested) and then still works. During that time the
    client only answers the server's pings."""
    held = {path: server.websocket(path) for path in sorted(WEBSOCKET_SCENARIOS & server.scenarios)}
    until = time.monotonic() + server.idle_s
    while time.monotonic() < until:
        for path, websocket in held.items():
            if not websocket.is_quiet(min(1.0, max(until - time.monotonic(), 0)) / len(held)):
                _answer_ping(path, websocket, server.idle_s - (until - time.monotonic()))
    for path, websocket in held.items():
        _expect_life(path, websocket)


def _answer_ping(path: str, websocket: WebSocket, after_s: float) -> None:
    try:
        _, opcode, payload = websocket.receive_frame()
    except (Wrong, ConnectionError):
        raise Wrong(f"/{path} was closed after {after_s:.0f} s without a message") from None
    expect(opcode != CLOSE, f"/{path}: Close came after {after_s:.0f} s without a message")
    expect(opcode == PING, f"/{path}: unexpected frame with opcode {opcode}")
    websocket.send_frame(PONG, payload)


def _expect_life(path: str, websocket: WebSocket) -> None:
    if path == "echo":
        websocket.expect_echo(TEXT, b"still here")
    elif path == "ping":
        websocket.send_frame(TEXT, b"Ping")
        websocket.expect_message(TEXT, b"Pong")
    else:
        websocket.send_frame(TEXT, b"broadcast awake")
        _, message = websocket.receive()
        expect(message.endswith(b" awake"), f"/push answered {message[:40]!r}")


@checks("contract: idle connections", "ping", transport="tcp", deep=True)
def idle_tcp_connections_live(server: Server) -> None:
    """A TCP connection that was idle for the same time still gets its Pong."""
    connection = server.connection()
    expect(connection.is_quiet(server.idle_s), "unexpected bytes, or the connection ended")
    connection.send(b"Ping")
    expect(connection.read(4) == b"Pong", "no Pong came")


@checks("contract: /echo", "echo", deep=True, patience=8, when=lambda use: use.largest >= CONTRACT_BYTES)
def echo_returns_16_mib_again_and_again(server: Server) -> None:
    """The largest message five times on one connection, binary and text alternately."""
    websocket = server.websocket("echo")
    for number in range(5):
        text = number % 2
        websocket.expect_echo(TEXT if text else BINARY, b"t" * (16 << 20) if text else os.urandom(16 << 20))


@checks("contract: /push", "push", required=False, deep=True, patience=40)
def push_reaches_fifteen_thousand(server: Server) -> None:
    """Two broadcasts reach each of 15,000 members once, each within a minute, while one more member never reads.
    Advisory: the number of members that fit depends on the library's memory and the heap size of the catalogue row."""
    server.websocket("push", receive_buffer=4096)
    request = server.request(
        server.paths["push"],
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}",
    )
    sender = server.websocket("push")
    crowd = Crowd([_member(server, request, number) for number in range(MEMBERS)])
    for token in (b"alpha", b"omega"):
        sender.send_frame(TEXT, b"broadcast " + token)
        missing = crowd.await_token(token, time.monotonic() + BROADCAST_S)
        expect(not missing, f"{token.decode()} reached {MEMBERS - missing} of {MEMBERS} within {BROADCAST_S:g} s")
    time.sleep(0.5)
    wrong = crowd.count_other_than(b"alpha", b"omega")
    expect(wrong == 0, f"{wrong} of {MEMBERS} members did not get each broadcast exactly once")


def _member(server: Server, request: bytes, number: int) -> socket.socket:
    """A socket with its upgrade complete. Bytes after the response head stay unread."""
    try:
        member = server.connect()
        member.sendall(request)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = member.recv(4096, socket.MSG_PEEK)
            expect(bool(byte), f"connection {number + 1} was closed in its handshake")
            end = byte.find(b"\r\n\r\n")
            head += member.recv(len(byte) if end < 0 else end + 4)
    except OSError as error:
        raise Wrong(f"connection {number + 1} of {MEMBERS}: {error}") from None
    expect(b" 101 " in head[:14], f"connection {number + 1} of {MEMBERS}: {head[:40]!r}")
    member.setblocking(False)
    return member


class Crowd:
    """Many sockets and the bytes each has received."""

    def __init__(self, members: list[socket.socket]) -> None:
        self._received = {member: bytearray() for member in members}
        self._selector = selectors.DefaultSelector()
        for member in members:
            self._selector.register(member, selectors.EVENT_READ)

    def await_token(self, token: bytes, until: float) -> int:
        """The number of sockets that have not received the token by `until` (monotonic seconds). Closed ones are not waited for."""
        missing = set(self._received)
        while any(member in self._selector.get_map() for member in missing) and time.monotonic() < until:
            for key, _ in self._selector.select(0.5):
                try:
                    data = key.fileobj.recv(4096)
                except OSError:
                    data = b""
                if not data:
                    self._selector.unregister(key.fileobj)
                self._received[key.fileobj] += data
                if token in self._received[key.fileobj]:
                    missing.discard(key.fileobj)
        return len(missing)

    def count_other_than(self, *tokens: bytes) -> int:
        """The number of sockets that did not receive each of these tokens exactly once."""
        return sum(any(received.count(token) != 1 for token in tokens) for received in self._received.values())

"""Does a server keep its contract? Asked before it is measured, by a second pair of eyes.

In: an address and what the server says it serves. Out: one `Check` for each thing that was tried. Nothing here comes
from the engine: `peer` speaks to the server.

A new check is one decorated function: its docstring says what is right, it returns when all is well and raises
`Wrong` when not.
"""

import base64
import hashlib
import os
import select
import struct
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass

from wsbench.peer import BINARY, CLOSE, PING, PONG, TEXT, Server, WebSocket, Wrong, expect, new_key

DOCUMENT_BYTES = (1, 512, 5 * 1024, 100 * 1024)
CLOCK_SLACK_US = 60_000_000
_WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass(frozen=True)
class Check:
    """What came of one check. An advisory one (`required` false) may fail: that is shown, no more."""

    name: str
    section: str
    required: bool
    scenarios: tuple[str, ...]
    passed: bool
    detail: str


def check(
    host: str, port: int, scenarios: Collection[str], transport: str, *, patience_s: float = 5.0, total_s: float = 60.0
) -> list[Check]:
    """Try everything that concerns these scenarios and this transport, each on connections of its own.

    One check waits `patience_s` at most (a large message has four times that), all of them together `total_s`.
    """
    end = time.monotonic() + total_s
    results = []
    for spec in _SPECS:
        if not set(spec.scenarios) & set(scenarios) or spec.transport not in (None, transport):
            continue
        deadline = min(end, time.monotonic() + patience_s * spec.patience)
        with ExitStack() as sockets:
            passed, detail = _carry_out(spec, Server(host, port, frozenset(scenarios), transport, deadline, sockets))
        results.append(Check(spec.name, spec.section, spec.required, spec.scenarios, passed, detail))
    return results


def _carry_out(spec: "_Spec", server: Server) -> tuple[bool, str]:
    try:
        spec.function(server)
    except Wrong as wrong:
        return False, str(wrong)
    except TimeoutError:
        return False, "no complete answer in time"
    except OSError as error:
        return False, f"connection lost: {error.strerror or error}"
    return True, ""


@dataclass(frozen=True)
class _Spec:
    function: Callable[[Server], None]
    name: str
    section: str
    required: bool
    scenarios: tuple[str, ...]
    transport: str | None
    patience: float


_SPECS: list[_Spec] = []


def _checks(
    section: str, *scenarios: str, required: bool = True, transport: str | None = "websocket", patience: float = 1
) -> Callable[[Callable[[Server], None]], Callable[[Server], None]]:
    """Put a function on the list. `transport` None: it concerns servers of either kind."""

    def register(function: Callable[[Server], None]) -> Callable[[Server], None]:
        _SPECS.append(_Spec(function, function.__name__, section, required, scenarios, transport, patience))
        return function

    return register


# The handshake


@_checks("RFC 6455 §4.2.2", "echo", "ping", "push")
def handshake_is_accepted(server: Server) -> None:
    """Every endpoint answers 101 with the right accept value, and agrees to nothing that was not offered."""
    for path in sorted({"echo", "ping", "push"} & server.scenarios):
        key = new_key()
        _, status, headers = server.handshake(f"/{path}", key)
        expect(status == 101, f"/{path}: status {status}")
        accept = base64.b64encode(hashlib.sha1((key + _WEBSOCKET_GUID).encode()).digest()).decode()
        expect(headers.get("sec-websocket-accept") == accept, f"/{path}: wrong Sec-WebSocket-Accept")
        expect(headers.get("upgrade", "").lower() == "websocket", f"/{path}: no Upgrade: websocket")
        expect("upgrade" in headers.get("connection", "").lower(), f"/{path}: no Connection: Upgrade")
        for unasked in ("sec-websocket-extensions", "sec-websocket-protocol"):
            expect(unasked not in headers, f"/{path}: {unasked} was not offered")


# echo


@_checks("RFC 6455 §5.6", "echo")
def echo_returns_text(server: Server) -> None:
    """A text with characters of one to four bytes comes back as text."""
    server.websocket("/echo").expect_echo(TEXT, "Grüße, 世界 🙂".encode())


@_checks("RFC 6455 §5.6", "echo")
def echo_returns_binary(server: Server) -> None:
    """All 256 byte values come back as binary."""
    server.websocket("/echo").expect_echo(BINARY, bytes(range(256)))


@_checks("RFC 6455 §5.2", "echo")
def echo_returns_empty(server: Server) -> None:
    """A message may have no payload; the connection goes on after it."""
    websocket = server.websocket("/echo")
    websocket.expect_echo(BINARY, b"")
    websocket.expect_echo(BINARY, b"after")


@_checks("RFC 6455 §5.2", "echo")
def echo_keeps_lengths(server: Server) -> None:
    """Lengths on both sides of the limits where the header's form changes."""
    websocket = server.websocket("/echo")
    for length in (125, 126, 65_535, 65_536):
        websocket.expect_echo(BINARY, os.urandom(length))


@_checks("contract: /echo", "echo", patience=4)
def echo_returns_1_mib(server: Server) -> None:
    """A message of 1 MiB."""
    server.websocket("/echo").expect_echo(BINARY, os.urandom(1 << 20))


@_checks("contract: /echo", "echo", patience=4)
def echo_returns_16_mib(server: Server) -> None:
    """The largest message of the contract."""
    server.websocket("/echo").expect_echo(BINARY, os.urandom(16 << 20))


@_checks("contract: /echo", "echo")
def echo_answers_a_burst_in_order(server: Server) -> None:
    """Twenty messages that arrive together come back one by one, in order."""
    websocket = server.websocket("/echo")
    messages = [b"%d " % number * (number * 37 + 1) for number in range(20)]
    websocket.send(b"".join(websocket.frame(BINARY, message) for message in messages))
    for message in messages:
        websocket.expect_message(BINARY, message)


@_checks("RFC 6455 §5.4", "echo", required=False)
def echo_returns_fragmented(server: Server) -> None:
    """A message in three fragments comes back as one message. Advisory: the engine never fragments."""
    websocket = server.websocket("/echo")
    for number, part in enumerate((b"one ", b"two ", b"three")):
        websocket.send(websocket.frame(BINARY if number == 0 else 0, part, fin=number == 2))
    websocket.expect_message(BINARY, b"one two three")


# Control frames


def _expect_pong(server: Server, payload: bytes) -> None:
    websocket = server.websocket(_any_path(server))
    websocket.send_frame(PING, payload)
    _, opcode, answer = websocket.receive_frame()
    expect(opcode == PONG, f"opcode {opcode} came instead of a pong")
    expect(answer == payload, f"the pong carries {answer[:40]!r} instead of {payload!r}")


def _any_path(server: Server) -> str:
    """Any of the server's WebSocket endpoints."""
    return "/" + min({"echo", "ping", "push"} & server.scenarios)


@_checks("RFC 6455 §5.5.2", "echo", "ping", "push")
def ping_frame_gets_a_pong(server: Server) -> None:
    """A ping frame is answered by a pong with the same payload."""
    _expect_pong(server, b"are you there?")


@_checks("RFC 6455 §5.5.2", "echo", "ping", "push", required=False)
def ping_frame_may_be_binary(server: Server) -> None:
    """The payload of a ping need not be text. Advisory: the engine's control frames are empty or ASCII."""
    _expect_pong(server, bytes([0xFF, 0x00, 0xC3, 0x28]))


@_checks("RFC 6455 §5.5.1", "echo", "ping", "push", required=False)
def close_frame_is_answered(server: Server) -> None:
    """A Close frame is answered by a Close frame. Advisory: libraries differ, and no measured message depends on it."""
    websocket = server.websocket(_any_path(server))
    websocket.send_frame(CLOSE, struct.pack("!H", 1000))
    _, opcode, payload = websocket.receive_frame()
    expect(opcode == CLOSE, f"opcode {opcode} came instead of Close")
    expect(payload[:2] in (b"", struct.pack("!H", 1000)), f"Close came back with code {payload[:2].hex()}")


@_checks("RFC 6455 §7.1.1", "echo", "ping", "push", required=False, patience=0.4)
def close_frame_ends_the_connection(server: Server) -> None:
    """After the Close frames it is the server that closes the TCP connection. Advisory, as above."""
    websocket = server.websocket(_any_path(server))
    websocket.send_frame(CLOSE, struct.pack("!H", 1000))
    websocket.read_to_end()


# ping


@_checks("contract: /ping", "ping")
def ping_is_answered(server: Server) -> None:
    """Text `Pong` for text `Ping`, again and again on one connection."""
    websocket = server.websocket("/ping")
    for _ in range(3):
        websocket.send_frame(TEXT, b"Ping")
        websocket.expect_message(TEXT, b"Pong")


@_checks("contract: ping over tcp", "ping", transport="tcp")
def ping_is_answered_over_tcp(server: Server) -> None:
    """The 4 bytes `Pong` for the 4 bytes `Ping`: one, one again, then two at once, the second in two pieces."""
    connection = server.connection()
    for pieces, count in (([b"Ping"], 1), ([b"Ping"], 1), ([b"PingPi", b"ng"], 2)):
        for piece in pieces:
            connection.send(piece)
        answer = connection.read(4 * count)
        expect(answer == b"Pong" * count, f"{count} Ping were answered by {answer!r}")


# push


def _expect_broadcast(sender: WebSocket, members: list[WebSocket], token: str) -> None:
    sender.send_frame(TEXT, f"broadcast {token}".encode())
    for number, member in enumerate(members, start=1):
        kind, message = member.receive()
        expect(kind == TEXT, f"member {number} got opcode {kind} instead of a text")
        micros, _, received = message.decode().partition(" ")
        expect(received == token, f"member {number} of {len(members)} got {message[:60]!r} instead of MICROS {token}")
        off = abs(int(micros) - time.time_ns() // 1000) if micros.isdigit() else None
        expect(off is not None and off < CLOCK_SLACK_US, f"MICROS is no time of now in µs: {micros[:30]}")


@_checks("contract: /push", "push")
def push_reaches_every_member_once(server: Server) -> None:
    """Each of three members, the sender too, gets a broadcast once, with the time of now; and another's as well."""
    members = [server.websocket("/push") for _ in range(3)]
    _expect_broadcast(members[0], members, "first")
    _expect_broadcast(members[2], members, "second")
    quiet, _, _ = select.select([member.socket for member in members], [], [], 0.05)
    expect(not quiet and not any(member.buffer for member in members), "more came than was broadcast")


@_checks("contract: /push", "push")
def push_survives_members_that_leave(server: Server) -> None:
    """Members that close, or just go away, do not keep a broadcast from the others."""
    members = [server.websocket("/push") for _ in range(4)]
    members[2].socket.close()
    members[3].send_frame(CLOSE, struct.pack("!H", 1000))
    _expect_broadcast(members[0], members[:2], "to the first two")
    _expect_broadcast(members[1], members[:2], "again")


# doc


@_checks("contract: /doc", "doc", transport=None)
def doc_is_exact_and_persistent(server: Server) -> None:
    """Exactly as many bytes as were asked for, three times on one connection, for every size."""
    for size in DOCUMENT_BYTES:
        connection = server.connection()
        for _ in range(3):
            server.document(connection, size, persistent=True)


@_checks("contract: /doc", "doc", transport=None)
def doc_closes_when_asked(server: Server) -> None:
    """With `Connection: close` the document is complete and the server closes behind it."""
    for size in DOCUMENT_BYTES:
        connection = server.connection()
        server.document(connection, size, persistent=False)
        expect(connection.read_to_end() == b"", "bytes follow the document")


@_checks("contract: /doc", "doc", transport=None, required=False)
def doc_may_be_empty(server: Server) -> None:
    """A document of 0 bytes. Advisory: no experiment asks for one."""
    connection = server.connection()
    for _ in range(2):
        server.document(connection, 0, persistent=True)


# Stays last: everything above has happened to the server by now.


@_checks("contract", "doc", "echo", "ping", "push", transport=None)
def still_serves(server: Server) -> None:
    """After all of this the server answers as if nothing had happened."""
    if "doc" in server.scenarios:
        doc_is_exact_and_persistent(server)
    if server.transport == "tcp":
        ping_is_answered_over_tcp(server)
    elif "echo" in server.scenarios:
        echo_returns_binary(server)
    elif {"ping", "push"} & server.scenarios:
        ping_frame_gets_a_pong(server)

"""Messages as the engine sends them (RFC 6455 sections 5.2 and 5.6): types, lengths, bursts. A check sends only types and lengths
that the load uses."""

import os

from wsbench.checks.conformance.registry import checks
from wsbench.checks.peer import BINARY, TEXT, Server
from wsbench.checks.use import CONTRACT_BYTES, Use

BURST = 100
CROWD = 50


def _any(use: Use) -> bool:
    return use.sends("text", "binary")


def _types(server: Server) -> list[int]:
    return [opcode for opcode, name in ((BINARY, "binary"), (TEXT, "text")) if server.use.sends(name)]


def _type(server: Server, preferred: int) -> int:
    return preferred if preferred in _types(server) else _types(server)[0]


@checks("RFC 6455 §5.6", "echo", when=lambda use: use.sends("text"))
def echo_returns_text(server: Server) -> None:
    """A text with characters of one to four bytes comes back as text."""
    server.websocket("echo").expect_echo(TEXT, "Grüße, 世界 🙂".encode())


@checks("RFC 6455 §5.6", "echo", when=lambda use: use.sends("binary"))
def echo_returns_binary(server: Server) -> None:
    """All 256 byte values come back, in messages no longer than the load's."""
    values, length = bytes(range(256)), max(1, min(256, server.use.largest))
    websocket = server.websocket("echo")
    for begin in range(0, 256, length):
        websocket.expect_echo(BINARY, values[begin : begin + length])


@checks("RFC 6455 §5.2", "echo", when=lambda use: _any(use) and 0 in use.sizes)
def echo_returns_empty(server: Server) -> None:
    """A message of either type may be empty; the connection still works after it."""
    websocket = server.websocket("echo")
    for opcode in _types(server):
        websocket.expect_echo(opcode, b"")
    websocket.expect_echo(_type(server, BINARY), b"after")


@checks("RFC 6455 §5.2", "echo", when=_any)
def echo_keeps_lengths(server: Server) -> None:
    """Lengths on both sides of the limits at which the frame header changes its form."""
    websocket = server.websocket("echo")
    for length in (125, 126, 65_535, 65_536):
        if length <= server.use.largest:
            for opcode in _types(server):
                websocket.expect_echo(opcode, b"t" * length if opcode == TEXT else os.urandom(length))


@checks("contract: /echo", "echo", patience=4, when=lambda use: _any(use) and use.largest >= 1 << 20)
def echo_returns_1_mib(server: Server) -> None:
    """A message of 1 MiB of either type."""
    websocket = server.websocket("echo")
    for opcode in _types(server):
        websocket.expect_echo(opcode, "é".encode() * (1 << 19) if opcode == TEXT else os.urandom(1 << 20))


@checks("contract: /echo", "echo", patience=4, when=lambda use: _any(use) and use.largest >= CONTRACT_BYTES)
def echo_returns_16_mib(server: Server) -> None:
    """A message of 16 MiB, the largest in the contract."""
    opcode = _type(server, BINARY)
    server.websocket("echo").expect_echo(opcode, b"t" * CONTRACT_BYTES if opcode == TEXT else os.urandom(CONTRACT_BYTES))


@checks("contract: /echo", "echo", when=lambda use: _any(use) and use.bursts)
def echo_answers_a_burst_in_order(server: Server) -> None:
    """A hundred messages that arrive together come back one by one, in order."""
    websocket, opcode = server.websocket("echo"), _type(server, BINARY)
    longest = max(3, server.use.largest)
    messages = [(b"%d " % number * (number * 37 % 1009 + 1))[:longest] for number in range(BURST)]
    websocket.send(b"".join(websocket.frame(opcode, message) for message in messages))
    for message in messages:
        websocket.expect_message(opcode, message)


@checks("contract: /echo", "echo", when=_any)
def echo_takes_a_frame_in_pieces(server: Server) -> None:
    """A message may arrive byte by byte, and a TCP segment may hold two messages and part of a third."""
    websocket, opcode = server.websocket("echo"), _type(server, TEXT)
    for byte in websocket.frame(opcode, b"byte by byte"):
        websocket.send(bytes([byte]))
    websocket.expect_message(opcode, b"byte by byte")
    frames = b"".join(websocket.frame(opcode, word) for word in (b"one", b"two", b"three"))
    websocket.send(frames[:-4])
    websocket.expect_message(opcode, b"one")
    websocket.expect_message(opcode, b"two")
    websocket.send(frames[-4:])
    websocket.expect_message(opcode, b"three")


@checks("contract: /echo", "echo", when=lambda use: _any(use) and use.connections > 1)
def echo_keeps_connections_apart(server: Server) -> None:
    """Fifty connections, or as many as the load has, send at once; each gets its own message back."""
    opcode = _type(server, TEXT)
    crowd = [server.websocket("echo") for _ in range(server.crowd(CROWD))]
    for number, websocket in enumerate(crowd):
        websocket.send_frame(opcode, b"%d" % number)
    for number, websocket in enumerate(crowd):
        websocket.expect_message(opcode, b"%d" % number)

"""Messages as the engine sends them (RFC 6455 sections 5.2 and 5.6): types, lengths, bursts."""

import os

from wsbench.checks.conformance.registry import checks
from wsbench.checks.peer import BINARY, TEXT, Server

BURST = 100
CROWD = 50


@checks("RFC 6455 §5.6", "echo")
def echo_returns_text(server: Server) -> None:
    """A text with characters of one to four bytes comes back as text."""
    server.websocket("/echo").expect_echo(TEXT, "Grüße, 世界 🙂".encode())


@checks("RFC 6455 §5.6", "echo")
def echo_returns_binary(server: Server) -> None:
    """All 256 byte values come back in a binary message."""
    server.websocket("/echo").expect_echo(BINARY, bytes(range(256)))


@checks("RFC 6455 §5.2", "echo")
def echo_returns_empty(server: Server) -> None:
    """A message of either type may be empty; the connection still works after it."""
    websocket = server.websocket("/echo")
    websocket.expect_echo(BINARY, b"")
    websocket.expect_echo(TEXT, b"")
    websocket.expect_echo(BINARY, b"after")


@checks("RFC 6455 §5.2", "echo")
def echo_keeps_lengths(server: Server) -> None:
    """Lengths on both sides of the limits at which the frame header changes its form."""
    websocket = server.websocket("/echo")
    for length in (125, 126, 65_535, 65_536):
        websocket.expect_echo(BINARY, os.urandom(length))
        websocket.expect_echo(TEXT, b"t" * length)


@checks("contract: /echo", "echo", patience=4)
def echo_returns_1_mib(server: Server) -> None:
    """A message of 1 MiB of either type."""
    websocket = server.websocket("/echo")
    websocket.expect_echo(BINARY, os.urandom(1 << 20))
    websocket.expect_echo(TEXT, "é".encode() * (1 << 19))


@checks("contract: /echo", "echo", patience=4)
def echo_returns_16_mib(server: Server) -> None:
    """A binary message of 16 MiB, the largest in the contract."""
    server.websocket("/echo").expect_echo(BINARY, os.urandom(16 << 20))


@checks("contract: /echo", "echo")
def echo_answers_a_burst_in_order(server: Server) -> None:
    """A hundred messages that arrive together come back one by one, in order."""
    websocket = server.websocket("/echo")
    messages = [b"%d " % number * (number * 37 % 1009 + 1) for number in range(BURST)]
    websocket.send(b"".join(websocket.frame(BINARY, message) for message in messages))
    for message in messages:
        websocket.expect_message(BINARY, message)


@checks("contract: /echo", "echo")
def echo_takes_a_frame_in_pieces(server: Server) -> None:
    """A message may arrive byte by byte, and a TCP segment may hold two messages and part of a third."""
    websocket = server.websocket("/echo")
    for byte in websocket.frame(TEXT, b"byte by byte"):
        websocket.send(bytes([byte]))
    websocket.expect_message(TEXT, b"byte by byte")
    frames = b"".join(websocket.frame(TEXT, word) for word in (b"one", b"two", b"three"))
    websocket.send(frames[:-4])
    websocket.expect_message(TEXT, b"one")
    websocket.expect_message(TEXT, b"two")
    websocket.send(frames[-4:])
    websocket.expect_message(TEXT, b"three")


@checks("contract: /echo", "echo")
def echo_keeps_connections_apart(server: Server) -> None:
    """Fifty connections send at once; each gets its own message back."""
    crowd = [server.websocket("/echo") for _ in range(CROWD)]
    for number, websocket in enumerate(crowd):
        websocket.send_frame(TEXT, b"%d" % number)
    for number, websocket in enumerate(crowd):
        websocket.expect_message(TEXT, b"%d" % number)

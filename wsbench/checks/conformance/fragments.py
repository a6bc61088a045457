"""Fragmented messages (RFC 6455 section 5.4). Advisory: the engine sends fragments only where an experiment asks for them."""

from wsbench.checks.conformance.registry import checks
from wsbench.checks.peer import BINARY, CONTINUATION, PING, PONG, TEXT, Server, WebSocket, expect


def _send_in_parts(websocket: WebSocket, opcode: int, *parts: bytes) -> None:
    for number, part in enumerate(parts, start=1):
        websocket.send(websocket.frame(opcode if number == 1 else CONTINUATION, part, fin=number == len(parts)))


@checks("RFC 6455 §5.4", "echo", required=False)
def fragments_are_assembled(server: Server) -> None:
    """A message in three fragments comes back as one message of the same type."""
    websocket = server.websocket("echo")
    for opcode in (BINARY, TEXT):
        _send_in_parts(websocket, opcode, b"one ", b"two ", b"three")
        websocket.expect_message(opcode, b"one two three")


@checks("RFC 6455 §5.4", "echo", required=False)
def fragments_may_be_many(server: Server) -> None:
    """A hundred fragments that arrive together are one message."""
    websocket = server.websocket("echo")
    _send_in_parts(websocket, BINARY, *[b"part"] * 100)
    websocket.expect_message(BINARY, b"part" * 100)


@checks("RFC 6455 §5.4", "echo", required=False)
def fragments_may_be_empty(server: Server) -> None:
    """Fragments may be empty: the first, the last, and any in between."""
    websocket = server.websocket("echo")
    _send_in_parts(websocket, TEXT, b"", b"some", b"", b"thing", b"")
    websocket.expect_message(TEXT, b"something")
    _send_in_parts(websocket, TEXT, b"", b"", b"")
    websocket.expect_message(TEXT, b"")


@checks("RFC 6455 §5.4", "echo", required=False)
def fragments_may_split_a_character(server: Server) -> None:
    """A text message must be UTF-8 as a whole, not fragment by fragment."""
    websocket = server.websocket("echo")
    whole = "κόσμε 🙂".encode()
    _send_in_parts(websocket, TEXT, *[whole[index : index + 1] for index in range(len(whole))])
    websocket.expect_message(TEXT, whole)


@checks("RFC 6455 §5.5", "echo", required=False)
def ping_frame_between_fragments_gets_a_pong(server: Server) -> None:
    """A ping inside a fragmented message gets its pong before the message ends, and the message comes back whole."""
    websocket = server.websocket("echo")
    websocket.send(websocket.frame(TEXT, b"one ", fin=False))
    websocket.send_frame(PING, b"in between")
    fin, opcode, begun = websocket.receive_frame()
    if opcode == TEXT and not fin:  # a server may echo a message while it arrives
        _, opcode, payload = websocket.receive_frame()
    else:
        payload, begun = begun, b""
    expect((opcode, payload) == (PONG, b"in between"), f"opcode {opcode} came instead of the pong")
    websocket.send(websocket.frame(CONTINUATION, b"two"))
    while not fin or opcode == PONG:
        fin, opcode, payload = websocket.receive_frame()
        begun += payload
    expect(begun == b"one two", f"{begun[:40]!r} came back")

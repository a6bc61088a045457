"""Protocol violations: after each of these a server must fail the connection (RFC 6455 section 7.1.7). All advisory.

The server may send a Close frame or just close the connection. If it sends a code, the code must be the right one.
"""

from wsbench.checks.conformance.registry import WEBSOCKET, checks
from wsbench.checks.peer import CONTINUATION, PING, TEXT, Server

PROTOCOL_ERROR, INVALID_PAYLOAD = 1002, 1007
#: Not UTF-8: an invalid byte, an overlong encoding, half a surrogate pair, a value beyond U+10FFFF, a truncated character.
NOT_UTF8 = (b"\xff", b"a\xc0\xafb", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")


def _expect_failure(server: Server, code: int, *frames: tuple) -> None:
    """Sends the frames, each (opcode, payload, fin, reserved bits) with the last two optional; the server must refuse them."""
    websocket = server.websocket(server.any_scenario)
    websocket.send(b"".join(websocket.frame(*frame) for frame in frames))
    websocket.expect_failure(code)


@checks("RFC 6455 §5.1", *WEBSOCKET, required=False)
def unmasked_frame_is_refused(server: Server) -> None:
    """A client must mask every frame; an unmasked frame ends the connection."""
    websocket = server.websocket(server.any_scenario)
    websocket.send(bytes([0x80 | TEXT, 4]) + b"Ping")
    websocket.expect_failure(PROTOCOL_ERROR)


@checks("RFC 6455 §5.2", *WEBSOCKET, required=False)
def reserved_bits_are_refused(server: Server) -> None:
    """RSV1, RSV2 and RSV3 must be 0: no extension was negotiated that defines them."""
    for bits in (4, 2, 1):
        _expect_failure(server, PROTOCOL_ERROR, (TEXT, b"Ping", True, bits))


@checks("RFC 6455 §5.2", *WEBSOCKET, required=False)
def reserved_opcodes_are_refused(server: Server) -> None:
    """Opcodes 3 to 7 and 11 to 15 are reserved."""
    for opcode in (3, 7, 11, 15):
        _expect_failure(server, PROTOCOL_ERROR, (opcode, b"Ping"))


@checks("RFC 6455 §5.5", *WEBSOCKET, required=False)
def large_control_frame_is_refused(server: Server) -> None:
    """A control frame has at most 125 bytes of payload."""
    _expect_failure(server, PROTOCOL_ERROR, (PING, b"p" * 126))


@checks("RFC 6455 §5.5", *WEBSOCKET, required=False)
def fragmented_control_frame_is_refused(server: Server) -> None:
    """A control frame must not be fragmented."""
    _expect_failure(server, PROTOCOL_ERROR, (PING, b"one", False), (CONTINUATION, b"two"))


@checks("RFC 6455 §5.4", *WEBSOCKET, required=False)
def continuation_without_start_is_refused(server: Server) -> None:
    """A continuation frame needs a message to continue."""
    _expect_failure(server, PROTOCOL_ERROR, (CONTINUATION, b"Ping"))


@checks("RFC 6455 §5.4", *WEBSOCKET, required=False)
def message_inside_a_message_is_refused(server: Server) -> None:
    """Fragments of two messages must not be interleaved."""
    _expect_failure(server, PROTOCOL_ERROR, (TEXT, b"one", False), (TEXT, b"two"))


@checks("RFC 6455 §8.1", *WEBSOCKET, required=False)
def invalid_utf8_is_refused(server: Server) -> None:
    """A text message that is not UTF-8 ends the connection with 1007."""
    for text in NOT_UTF8:
        _expect_failure(server, INVALID_PAYLOAD, (TEXT, text))


@checks("RFC 6455 §8.1", *WEBSOCKET, required=False)
def invalid_utf8_over_fragments_is_refused(server: Server) -> None:
    """A text message whose fragments together are not UTF-8 ends the connection with 1007."""
    _expect_failure(server, INVALID_PAYLOAD, (TEXT, b"\xe2\x82", False), (CONTINUATION, b"a"))

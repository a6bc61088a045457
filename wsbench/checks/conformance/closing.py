"""The closing handshake (RFC 6455 sections 5.5.1 and 7). Advisory: libraries differ, and no measured message depends on it."""

import struct

from wsbench.checks.conformance.registry import WEBSOCKET, checks
from wsbench.checks.conformance.violations import INVALID_PAYLOAD, PROTOCOL_ERROR
from wsbench.checks.peer import CLOSE, TEXT, Ended, Server, expect

NORMAL = 1000


def _body(code: int, reason: bytes = b"") -> bytes:
    return struct.pack("!H", code) + reason


@checks("RFC 6455 §5.5.1", *WEBSOCKET, required=False)
def close_frame_is_answered(server: Server) -> None:
    """A Close frame is answered by a Close frame, with the same code or without one."""
    websocket = server.websocket(server.any_scenario)
    websocket.send_frame(CLOSE, _body(NORMAL))
    websocket.expect_close(NORMAL)


@checks("RFC 6455 §5.5.1", *WEBSOCKET, required=False)
def close_frame_may_be_empty(server: Server) -> None:
    """A Close frame may have no body."""
    websocket = server.websocket(server.any_scenario)
    websocket.send_frame(CLOSE, b"")
    # 1005 means "no code" in APIs and never appears on the wire.
    websocket.expect_close(NORMAL)


@checks("RFC 6455 §7.4.2", *WEBSOCKET, required=False)
def close_codes_of_applications_are_taken(server: Server) -> None:
    """Codes 3000 to 4999 are for libraries and applications; a reason may follow the code."""
    for code in (3000, 4999):
        websocket = server.websocket(server.any_scenario)
        websocket.send_frame(CLOSE, _body(code, "Auf Wiedersehen, världen".encode()))
        websocket.expect_close(code, NORMAL)


@checks("RFC 6455 §7.4", *WEBSOCKET, required=False)
def close_codes_that_do_not_exist_are_refused(server: Server) -> None:
    """Codes 0 and 999 do not exist; 1005 and 1006 must not be sent. The server answers with 1002."""
    for code in (0, 999, 1005, 1006):
        websocket = server.websocket(server.any_scenario)
        websocket.send_frame(CLOSE, _body(code))
        websocket.expect_failure(PROTOCOL_ERROR)


@checks("RFC 6455 §5.5.1", *WEBSOCKET, required=False)
def close_frame_of_one_byte_is_refused(server: Server) -> None:
    """A body of one byte is not a code."""
    websocket = server.websocket(server.any_scenario)
    websocket.send_frame(CLOSE, b"\x03")
    websocket.expect_failure(PROTOCOL_ERROR)


@checks("RFC 6455 §5.5.1", *WEBSOCKET, required=False)
def close_reason_that_is_not_utf8_is_refused(server: Server) -> None:
    """The reason must be UTF-8."""
    websocket = server.websocket(server.any_scenario)
    websocket.send_frame(CLOSE, _body(NORMAL, b"\xff\xfe"))
    websocket.expect_failure(INVALID_PAYLOAD)


@checks("RFC 6455 §5.5.1", "echo", required=False)
def nothing_follows_the_close_frame(server: Server) -> None:
    """Frames after a Close frame get no answer, and the server sends nothing after its own Close frame."""
    websocket = server.websocket("echo")
    websocket.send(websocket.frame(CLOSE, _body(NORMAL)) + websocket.frame(TEXT, b"too late"))
    websocket.expect_close(NORMAL)
    try:
        _, opcode, _ = websocket.receive_frame()
    except (Ended, ConnectionError):
        return
    expect(False, f"a frame with opcode {opcode} follows the Close frame")


@checks("RFC 6455 §7.1.1", *WEBSOCKET, required=False, patience=0.4)
def close_frame_ends_the_connection(server: Server) -> None:
    """After the Close frames the server closes the TCP connection, at once and without a reset."""
    websocket = server.websocket(server.any_scenario)
    websocket.send_frame(CLOSE, _body(NORMAL))
    websocket.read_to_end()

"""Ping and pong frames (RFC 6455 section 5.5)."""

from wsbench.checks.conformance.registry import WEBSOCKET, checks
from wsbench.checks.peer import PING, PONG, Server, expect


def expect_pong(server: Server, payload: bytes) -> None:
    websocket = server.websocket(server.any_scenario)
    websocket.send_frame(PING, payload)
    _, opcode, answer = websocket.receive_frame()
    expect(opcode == PONG, f"opcode {opcode} came instead of a pong")
    expect(answer == payload, f"the pong carries {answer[:40]!r} instead of {payload[:40]!r}")


@checks("RFC 6455 §5.5.2", *WEBSOCKET)
def ping_frame_gets_a_pong(server: Server) -> None:
    """A ping frame is answered by a pong with the same payload."""
    expect_pong(server, b"are you there?")


@checks("RFC 6455 §5.5.2", *WEBSOCKET)
def ping_frame_may_be_empty(server: Server) -> None:
    """A ping without payload gets a pong without payload."""
    expect_pong(server, b"")


@checks("RFC 6455 §5.5", *WEBSOCKET, required=False)
def ping_frame_may_have_125_bytes(server: Server) -> None:
    """125 bytes is the largest payload of a control frame. Advisory: the engine's control frames are short."""
    expect_pong(server, b"p" * 125)


@checks("RFC 6455 §5.5.2", *WEBSOCKET, required=False)
def ping_frame_may_be_binary(server: Server) -> None:
    """The payload of a ping need not be text. Advisory: the engine's control frames are empty or ASCII."""
    expect_pong(server, bytes([0xFF, 0x00, 0xC3, 0x28]))


@checks("RFC 6455 §5.5.3", *WEBSOCKET)
def pong_unasked_is_ignored(server: Server) -> None:
    """An unsolicited pong is not an error and gets no answer. The ping after it does."""
    websocket = server.websocket(server.any_scenario)
    websocket.send_frame(PONG, b"unasked")
    websocket.send_frame(PING, b"and now?")
    _, opcode, answer = websocket.receive_frame()
    expect((opcode, answer) == (PONG, b"and now?"), f"opcode {opcode} with {answer[:40]!r} came instead of the pong")

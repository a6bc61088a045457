"""The scenario ping: `Pong` in reply to `Ping`, over WebSocket or plain TCP."""

from wsbench.checks.conformance.registry import checks
from wsbench.checks.peer import TEXT, Server, expect


@checks("contract: /ping", "ping")
def ping_is_answered(server: Server) -> None:
    """Text `Ping` is answered by text `Pong`, repeatedly on one connection."""
    websocket = server.websocket("ping")
    for _ in range(3):
        websocket.send_frame(TEXT, b"Ping")
        websocket.expect_message(TEXT, b"Pong")


@checks("contract: ping over tcp", "ping", transport="tcp")
def ping_is_answered_over_tcp(server: Server) -> None:
    """The 4 bytes `Ping` are answered by the 4 bytes `Pong`: once, again, then two at once, the second in two pieces."""
    connection = server.connection()
    for pieces, count in (([b"Ping"], 1), ([b"Ping"], 1), ([b"PingPi", b"ng"], 2)):
        for piece in pieces:
            connection.send(piece)
        answer = connection.read(4 * count)
        expect(answer == b"Pong" * count, f"{count} Ping were answered by {answer!r}")


@checks("contract: ping over tcp", "ping", transport="tcp", when=lambda use: use.connections > 1)
def ping_keeps_connections_apart(server: Server) -> None:
    """Each of fifty open connections, or as many as the load has, gets its own answer."""
    crowd = [server.connection() for _ in range(server.crowd(50))]
    for connection in crowd:
        connection.send(b"Ping")
    for connection in crowd:
        answer = connection.read(4)
        expect(answer == b"Pong", f"Ping was answered by {answer!r}")

"""The scenario doc: HTTP/1.1 documents of exact length, on persistent (RFC 9112 section 9.3) and closing connections (9.6)."""

from wsbench.checks.conformance.registry import checks
from wsbench.checks.peer import PAUSE_S, Ended, Server, Wrong, expect
from wsbench.servers.serving import document

SIZES = (0, 1, 1024, 5 * 1024, 100 * 1024, 1024 * 1024)
MANY = 300


def _sizes(server: Server) -> list[int]:
    return [size for size in SIZES if size <= server.use.largest]


@checks("RFC 9112 §9.3", "doc", transport=None, when=lambda use: use.persistent)
def doc_is_exact_and_persistent(server: Server) -> None:
    """The reply has exactly the requested number of bytes, for every size, three times on one connection."""
    for size in _sizes(server):
        connection = server.connection()
        for _ in range(3):
            server.document(connection, size, persistent=True)
            expect(not connection.buffer, f"bytes follow the document of {size} bytes")


@checks("RFC 9112 §9.2", "doc", transport=None, when=lambda use: use.persistent)
def doc_waits_for_a_request(server: Server) -> None:
    """No byte comes before a request or after its reply: a client could not distinguish it from a reply."""
    connection = server.connection()
    expect(connection.is_quiet(PAUSE_S), "the server sends before a request")
    server.document(connection, min(100, server.use.largest), persistent=True)
    expect(connection.is_quiet(PAUSE_S), "the server sends more after a document, or ends the connection")


@checks("RFC 9112 §9.6", "doc", transport=None, when=lambda use: use.closing)
def doc_closes_when_asked(server: Server) -> None:
    """With `Connection: close` the document is complete and the server then closes the connection."""
    for size in _sizes(server):
        connection = server.connection()
        server.document(connection, size, persistent=False)
        expect(connection.read_to_end() == b"", "bytes follow the document")


@checks("RFC 9112 §9.3", "doc", transport=None, required=False)
def doc_keeps_a_connection(server: Server) -> None:
    """Three hundred documents on one connection. Advisory: some libraries close after a fixed number."""
    connection = server.connection()
    for number in range(MANY):
        headers = server.document(connection, 100, persistent=True)
        expect(headers.get("connection", "").lower() != "close", f"closes after {number + 1} documents, as announced")


@checks("RFC 9112 §9.6", "doc", transport=None, when=lambda use: use.persistent)
def doc_never_breaks_off(server: Server) -> None:
    """A server that closes a connection after a number of requests announces it in the last reply."""
    connection = server.connection()
    for number in range(MANY):
        try:
            headers = server.document(connection, min(100, server.use.largest), persistent=True)
        except (Ended, ConnectionError):
            raise Wrong(f"closed after {number} documents without announcing it") from None
        if headers.get("connection", "").lower() == "close":
            break


@checks("RFC 9112 §9.6", "doc", transport=None, required=False)
def doc_announces_the_close(server: Server) -> None:
    """The reply to a request with `Connection: close` has the header `Connection: close`."""
    connection = server.connection()
    connection.send(server.request(document(server.paths, 1), "Connection: close"))
    _, headers = connection.read_head()
    said = headers.get("connection", "")
    expect(said.lower() == "close", f"Connection is {said or 'missing'}")

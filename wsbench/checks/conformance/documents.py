"""The scenario doc: HTTP/1.1 documents of exact length, on connections that stay (RFC 9112 section 9.3) or end (9.6)."""

from wsbench.checks.conformance.registry import checks
from wsbench.checks.peer import PAUSE_S, Ended, Server, Wrong, expect

SIZES = (0, 1, 1024, 5 * 1024, 100 * 1024, 1024 * 1024)
MANY = 300


@checks("RFC 9112 §9.3", "doc", transport=None)
def doc_is_exact_and_persistent(server: Server) -> None:
    """Exactly as many bytes as were asked for, three times on one connection, for every size."""
    for size in SIZES:
        connection = server.connection()
        for _ in range(3):
            server.document(connection, size, persistent=True)
            expect(not connection.buffer, f"bytes follow the document of {size} bytes")


@checks("RFC 9112 §9.2", "doc", transport=None)
def doc_waits_for_a_request(server: Server) -> None:
    """No byte comes before a request, and none behind its answer: a load could not tell it from an answer."""
    connection = server.connection()
    expect(connection.is_quiet(PAUSE_S), "the server speaks before it is asked")
    server.document(connection, 100, persistent=True)
    expect(connection.is_quiet(PAUSE_S), "the server speaks on, or ends, behind a document")


@checks("RFC 9112 §9.6", "doc", transport=None)
def doc_closes_when_asked(server: Server) -> None:
    """With `Connection: close` the document is complete and the server closes behind it."""
    for size in SIZES:
        connection = server.connection()
        server.document(connection, size, persistent=False)
        expect(connection.read_to_end() == b"", "bytes follow the document")


@checks("RFC 9112 §9.3", "doc", transport=None, required=False)
def doc_keeps_a_connection(server: Server) -> None:
    """Three hundred documents on one connection. Advisory: some libraries end it after a number of their own."""
    connection = server.connection()
    for number in range(MANY):
        headers = server.document(connection, 100, persistent=True)
        expect(headers.get("connection", "").lower() != "close", f"it ends after {number + 1} documents, as announced")


@checks("RFC 9112 §9.6", "doc", transport=None)
def doc_never_breaks_off(server: Server) -> None:
    """Where a server ends a connection after a number of requests, the last reply says so: then nobody sends another."""
    connection = server.connection()
    for number in range(MANY):
        try:
            headers = server.document(connection, 100, persistent=True)
        except (Ended, ConnectionError):
            raise Wrong(f"it ended after {number} documents, unannounced") from None
        if headers.get("connection", "").lower() == "close":
            break


@checks("RFC 9112 §9.6", "doc", transport=None, required=False)
def doc_announces_the_close(server: Server) -> None:
    """Who was asked to close says `Connection: close` in the reply."""
    connection = server.connection()
    connection.send(server.request("/doc?size=1", "Connection: close"))
    _, headers = connection.read_head()
    said = headers.get("connection", "")
    expect(said.lower() == "close", f"Connection is {said or 'missing'}")

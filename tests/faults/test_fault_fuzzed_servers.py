"""Whatever asks a server something before a load, given answers that nobody would send, and answers without end."""

import contextlib
import socket
import threading
import time
from contextlib import ExitStack

import pytest
from alterations import row, spoilt
from hypothesis import given
from hypothesis import strategies as st

from wsbench.checks import peer
from wsbench.checks.conformance import registry

pytestmark = pytest.mark.nightly

HEAD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
DOCUMENT = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n"
FRAMES = b"\x81\x05hello\x89\x00\x01\x02he\x80\x03llo\x88\x02\x03\xe8"
SAID = [HEAD + FRAMES, DOCUMENT * 2, CHUNKS, FRAMES, HEAD + b"\x82\x7f" + bytes(8)]


@contextlib.contextmanager
def saying(content: bytes):
    """A server that says this to everybody, and ends."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    with client, contextlib.suppress(OSError):
                        client.settimeout(2)
                        client.recv(1 << 16)
                        client.sendall(content)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


@row("a server's answers before a load")
@given(data=st.data())
def test_answers(data):
    spec = data.draw(st.sampled_from([spec for spec in registry.SPECS if not spec.deep and not spec.sees_process]))
    content = data.draw(st.sampled_from(SAID).flatmap(spoilt))
    with saying(content) as port, ExitStack() as sockets:
        kinds = spec.scenarios or {"echo"}
        server = peer.Server("127.0.0.1", port, frozenset(kinds), spec.transport or "websocket", time.monotonic() + 1, sockets)
        began = time.monotonic()
        _, detail = registry._carry_out(spec, server)
        assert isinstance(detail, str)
        assert time.monotonic() - began < 10


@row("a server that never stops sending")
@pytest.mark.parametrize("endless", [b"x" * 4096, b"X: y\r\n" * 999, b"\x01\x00" * 4096, b"\x89\x00" * 4096, b"1\r\nx\r\n" * 999])
@pytest.mark.parametrize("head", [b"", HEAD, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"])
def test_a_server_without_end(head, endless):
    with saying(head + endless * (100_000_000 // len(endless))) as port:
        for spec in registry.SPECS:
            if spec.deep or spec.sees_process or spec.name not in ("echo_returns_text", "doc_is_exact_and_persistent"):
                continue
            with ExitStack() as sockets:
                server = peer.Server("127.0.0.1", port, frozenset(spec.scenarios), "websocket", time.monotonic() + 3, sockets)
                began = time.monotonic()
                passed, detail = registry._carry_out(spec, server)
                assert not passed
                assert detail
                assert time.monotonic() - began < 8

"""The checker checked: a small right server passes everything, and each fault fails just what it should.

The server is written from RFC 6455 a second time, on purpose: a misreading that both shared would hide behind itself.
"""

import base64
import hashlib
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from wsbench import conformance

EVERYTHING = ("doc", "echo", "ping", "push")
SMALL = ("doc", "ping", "push")  # without the messages of 16 MiB, which take most of the time
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
LARGE = {"echo_keeps_lengths", "echo_returns_1_mib", "echo_returns_16_mib"}
ECHOES = LARGE | {
    "echo_returns_text",
    "echo_returns_binary",
    "echo_returns_empty",
    "echo_answers_a_burst_in_order",
    "echo_returns_fragmented",
    "still_serves",
}
PINGS = {"ping_frame_gets_a_pong", "ping_frame_may_be_binary"}
CLOSES = {"close_frame_is_answered", "close_frame_ends_the_connection"}
DOCUMENTS = {"doc_is_exact_and_persistent", "doc_closes_when_asked", "doc_may_be_empty", "still_serves"}
PUSHES = {"push_reaches_every_member_once", "push_survives_members_that_leave"}


class Gone(Exception):
    pass


class Handler(socketserver.StreamRequestHandler):
    """One connection of the server under test; `faults` says what it does wrong."""

    faults: frozenset[str]
    members: list["Handler"]
    lock: threading.Lock
    disable_nagle_algorithm = True
    wbufsize = 0

    def handle(self) -> None:
        try:
            if "tcp" in self.faults:
                self.tcp()
            else:
                while self.request_is_answered():
                    pass
        except (Gone, OSError, ValueError):
            pass
        finally:
            with self.lock:
                if self in self.members and "keeps those who left" not in self.faults:
                    self.members.remove(self)

    def exactly(self, count: int) -> bytes:
        data = self.rfile.read(count)
        if len(data) < count:
            raise Gone
        return data

    def tcp(self) -> None:
        while self.exactly(4) == b"Ping":
            self.wfile.write(b"Pung" if "wrong answer" in self.faults else b"Pong")

    def request_is_answered(self) -> bool:
        line = self.rfile.readline().decode().split()
        if not line:
            return False
        headers = {}
        while (header := self.rfile.readline().decode().strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        if "says nothing" in self.faults:
            time.sleep(3)
        target = urlsplit(line[1])
        if target.path == "/doc":
            return self.document(int(parse_qs(target.query)["size"][0]), headers.get("connection") != "close")
        self.websocket(target.path, headers["sec-websocket-key"].encode())
        return False

    def document(self, size: int, persistent: bool) -> bool:
        body = b"x" * (size - 1 if "short document" in self.faults and size > 512 else size)
        if "chunked" in self.faults:
            half = len(body) // 2
            pieces = [piece for piece in (body[:half], body[half:]) if piece]
            length = "Transfer-Encoding: chunked"
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        else:
            length = f"Content-Length: {len(body)}"
        kind = "text/plain" if "plain text" in self.faults else "text/html"
        self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{length}\r\n\r\n".encode() + body)
        return (persistent or "stays open" in self.faults) and "closes always" not in self.faults

    def websocket(self, path: str, key: bytes) -> None:
        if path == "/push":
            with self.lock:
                self.members.append(self)
        accept = base64.b64encode(hashlib.sha1(key + GUID[:: -1 if "wrong accept" in self.faults else 1]).digest())
        extra = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if "compresses unasked" in self.faults else b""
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.wfile.write(head + extra + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        kind, message, echoed = 0, b"", 0
        while True:
            fin, opcode, payload = self.receive()
            if opcode == 8:
                if "no close" not in self.faults:
                    self.send(8, payload)
                if "stays open" in self.faults:
                    time.sleep(3)
                return
            if opcode == 9:
                if "no pong" not in self.faults:
                    self.send(
                        10, payload.decode(errors="replace").encode() if "pong is text" in self.faults else payload
                    )
                continue
            kind, message = kind or opcode, message + payload
            if "forgets fragments" in self.faults:
                fin = True
            if fin:
                echoed += 1
                self.answer(path, kind, message, echoed)
                kind, message = 0, b""

    def receive(self) -> tuple[bool, int, bytes]:
        first, second = self.exactly(2)
        assert second & 0x80, "a client masks its frames"
        length = second & 0x7F
        if length > 125:
            length = int.from_bytes(self.exactly(2 if length == 126 else 8), "big")
        mask, masked = self.exactly(4), self.exactly(length)
        keys = (mask * (length // 4 + 1))[:length]
        return first > 127, first & 15, (int.from_bytes(masked) ^ int.from_bytes(keys)).to_bytes(length)

    def send(self, opcode: int, payload: bytes) -> None:
        length = len(payload)
        masked = 0x80 if "masks" in self.faults and opcode < 8 else 0
        header = bytes([0x80 | opcode])
        if length < 126:
            header += bytes([masked | length])
        elif length < 65536:
            header += bytes([masked | 126]) + length.to_bytes(2)
        else:
            header += bytes([masked | 127]) + length.to_bytes(8)
        self.wfile.write(header + (b"\0\0\0\0" if masked else b"") + payload)

    def answer(self, path: str, kind: int, message: bytes, number: int) -> None:
        if path == "/echo":
            self.echo(kind, message, number)
        elif path == "/ping" and message == b"Ping":
            self.send(1, b"pong" if "wrong answer" in self.faults else b"Pong")
        elif path == "/push" and message.startswith(b"broadcast "):
            with self.lock:
                self.broadcast(message.removeprefix(b"broadcast "))

    def echo(self, kind: int, message: bytes, number: int) -> None:
        if "text becomes binary" in self.faults:
            kind = 2
        if "loses the last byte" in self.faults and len(message) >= 65536:
            message = message[:-1]
        if "alters bytes" in self.faults and kind == 2 and len(message) == 256:
            message = message[::-1]
        if "swaps" in self.faults and number == 7:
            self.send(kind, b"out of order")
        if not (message == b"" and "ignores empty" in self.faults):
            self.send(kind, message)

    def broadcast(self, token: bytes) -> None:
        for member in list(self.members):
            micros = time.time_ns() // (1_000_000 if "milliseconds" in self.faults else 1000)
            text = str(micros).encode() + b" " + token
            if member is self and "not to the sender" in self.faults:
                continue
            for _ in range(2 if "sends twice" in self.faults else 1):
                if "keeps those who left" in self.faults:
                    member.send(1, text)
                    continue
                with suppress(OSError, ValueError):
                    member.send(1, text)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64


@contextmanager
def serving(*faults: str) -> Iterator[int]:
    """A server with these faults; its port."""
    own: ClassVar = {"faults": frozenset(faults), "members": [], "lock": threading.RLock()}
    with Server(("127.0.0.1", 0), type("Faulty", (Handler,), own)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def failed(*faults: str, scenarios: tuple[str, ...] = EVERYTHING, transport: str = "websocket") -> set[str]:
    with serving(*faults) as port:
        results = conformance.check("127.0.0.1", port, scenarios, transport, patience_s=1.0)
    return {result.name for result in results if not result.passed}


def test_a_right_server_passes_every_check() -> None:
    with serving() as port:
        results = conformance.check("127.0.0.1", port, EVERYTHING, "websocket")
    assert [result for result in results if not result.passed] == []
    assert {result.name for result in results} >= ECHOES | PINGS | CLOSES | DOCUMENTS | PUSHES


def test_a_chunked_document_is_a_document() -> None:
    assert failed("chunked", scenarios=("doc",)) == set()


@pytest.mark.parametrize(
    ("fault", "scenarios", "fails"),
    [
        ("wrong accept", SMALL, {"handshake_is_accepted"}),
        ("compresses unasked", SMALL, {"handshake_is_accepted"}),
        ("text becomes binary", EVERYTHING, {"echo_returns_text"}),
        ("alters bytes", EVERYTHING, {"echo_returns_binary", "still_serves"}),
        ("ignores empty", ("echo",), {"echo_returns_empty"}),
        ("loses the last byte", EVERYTHING, LARGE),
        ("swaps", EVERYTHING, {"echo_answers_a_burst_in_order"}),
        ("forgets fragments", EVERYTHING, {"echo_returns_fragmented"}),
        ("masks", ("echo",), ECHOES),
        ("no pong", ("ping", "push"), PINGS | {"still_serves"}),
        ("pong is text", SMALL, {"ping_frame_may_be_binary"}),
        ("no close", SMALL, {"close_frame_is_answered"}),
        ("stays open", SMALL, {"close_frame_ends_the_connection", "doc_closes_when_asked"}),
        ("wrong answer", SMALL, {"ping_is_answered"}),
        ("sends twice", SMALL, PUSHES),
        ("not to the sender", ("push",), PUSHES),
        ("milliseconds", SMALL, PUSHES),
        ("keeps those who left", ("doc", "push"), PUSHES),
        ("short document", SMALL, {"doc_is_exact_and_persistent", "doc_closes_when_asked", "still_serves"}),
        ("plain text", SMALL, DOCUMENTS),
        ("closes always", SMALL, {"doc_is_exact_and_persistent", "doc_may_be_empty", "still_serves"}),
    ],
)
def test_a_fault_fails_its_checks_and_no_other(fault: str, scenarios: tuple[str, ...], fails: set[str]) -> None:
    assert failed(fault, scenarios=scenarios) == fails


def test_ping_over_tcp_is_checked_without_websocket() -> None:
    with serving("tcp") as port:
        results = conformance.check("127.0.0.1", port, ["ping"], "tcp")
    assert {result.name: result.passed for result in results} == {
        "ping_is_answered_over_tcp": True,
        "still_serves": True,
    }
    wrong = failed("tcp", "wrong answer", scenarios=("ping",), transport="tcp")
    assert wrong == {"ping_is_answered_over_tcp", "still_serves"}


def test_only_what_is_served_is_checked() -> None:
    with serving() as port:
        results = conformance.check("127.0.0.1", port, ["doc"], "websocket")
    assert {result.name for result in results} == DOCUMENTS


def test_a_server_that_says_nothing_fails_everything_in_bounded_time() -> None:
    with serving("says nothing") as port:
        start = time.monotonic()
        results = conformance.check("127.0.0.1", port, EVERYTHING, "websocket", patience_s=0.1, total_s=0.5)
        took = time.monotonic() - start
    assert not any(result.passed for result in results)
    assert all(result.detail == "no complete answer in time" for result in results)
    assert took < 2


def test_nobody_listening_is_a_failed_check_and_no_exception() -> None:
    with serving() as port:
        pass
    results = conformance.check("127.0.0.1", port, ["doc"], "websocket", patience_s=0.2)
    assert {result.passed for result in results} == {False}
    assert "refused" in results[0].detail

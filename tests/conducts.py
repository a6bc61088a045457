"""Servers that do one thing to each connection, right or wrong: what they do is a function of a `Peer`."""

import base64
import contextlib
import hashlib
import re
import socket
import struct
import threading
from collections.abc import Callable

import pytest

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE = 0x1, 0x2, 0x8


class Peer:
    """One connection of a server that may do anything."""

    def __init__(self, connection: socket.socket):
        self.connection, self.stream = connection, connection.makefile("rb")

    def key(self) -> bytes:
        """The key of the handshake. EOFError if the client sends none."""
        lines = b""
        while not lines.endswith(b"\r\n\r\n"):
            line = self.stream.readline()
            if not line:
                raise EOFError
            lines += line
        found = re.search(rb"(?i)^sec-websocket-key: *(\S+)", lines, re.M)
        if found is None:
            raise EOFError
        return found[1]

    def accept(self) -> None:
        answer = base64.b64encode(hashlib.sha1(self.key() + GUID).digest())
        self.say(b"101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Accept: " + answer)

    def say(self, *lines: bytes) -> None:
        self.connection.sendall(b"\r\n".join([b"HTTP/1.1 " + lines[0], *lines[1:], b"", b""]))

    def message(self) -> bytes:
        """The next message of the client. EOFError at its Close frame and at the end of the stream."""
        head = self.stream.read(2)
        if len(head) < 2 or head[0] & 15 == CLOSE:
            raise EOFError
        size = head[1] & 127
        size = struct.unpack("!H", self.stream.read(2))[0] if size == 126 else size
        mask, masked = self.stream.read(4), self.stream.read(size)
        return bytes(byte ^ mask[place % 4] for place, byte in enumerate(masked))

    def send(self, content: bytes, opcode: int = TEXT, masked: bool = False) -> None:
        """A frame; a server may mask none."""
        size = bytes([len(content)]) if len(content) < 126 else b"\x7e" + struct.pack("!H", len(content))
        bit = 0x80 if masked else 0
        self.connection.sendall(bytes([0x80 | opcode, bit | size[0]]) + size[1:] + (bytes(4) if masked else b"") + content)


def refuses(peer: Peer) -> None:
    peer.key()
    peer.say(b"401 Unauthorized", b"Content-Length: 0")


def refuses_with_words(peer: Peer) -> None:
    peer.key()
    peer.say(b"429 Slow Down", b"Retry-After: 7", b"Content-Length: 12\r\n\r\nquota is 2/s")


def refuses_with_a_page(peer: Peer) -> None:
    peer.key()
    peer.say(b"403", b"Content-Length: 12\r\n\r\n<html></html>")


def redirects(peer: Peer) -> None:
    peer.key()
    peer.say(b"308 Permanent Redirect", b"Location: /new/ws", b"Content-Length: 0")


def has_another_key(peer: Peer) -> None:
    peer.key()
    peer.say(b"101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Accept: AAAA")


def leaves(peer: Peer) -> None:
    peer.accept()


def closes(peer: Peer) -> None:
    peer.accept()
    peer.message()
    peer.send(struct.pack("!H", 4000), CLOSE)


def closes_with_words(peer: Peer) -> None:
    peer.accept()
    peer.message()
    peer.send(struct.pack("!H", 4003) + b"quota used", CLOSE)


def goes_away(peer: Peer) -> None:
    peer.accept()
    for _ in range(4):
        peer.send(peer.message())
    peer.send(struct.pack("!H", 1001), CLOSE)


def masks(peer: Peer) -> None:
    peer.accept()
    while True:
        peer.send(peer.message(), masked=True)


def listens(peer: Peer) -> None:
    peer.accept()
    while True:
        peer.message()


def says_twice(peer: Peer) -> None:
    peer.accept()
    while True:
        peer.send(2 * peer.message())


def answers_each_third(peer: Peer) -> None:
    peer.accept()
    while True:
        peer.message(), peer.message()
        peer.send(peer.message())


def echoes(peer: Peer) -> None:
    peer.accept()
    while True:
        peer.send(peer.message())


def feeds(peer: Peer) -> None:
    peer.accept()
    ended = threading.Event()

    def until_closed() -> None:
        with contextlib.suppress(OSError, EOFError):
            peer.message()
        ended.set()

    threading.Thread(target=until_closed, daemon=True).start()
    while not ended.wait(0.02):
        peer.send(b'{"type":"tick"}')


@pytest.fixture
def serve():
    """Starts a server that treats every connection so, and gives its port."""
    with contextlib.ExitStack() as stack:

        def started(conduct: Callable[[Peer], None]) -> int:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            threading.Thread(target=accept, args=(listening, conduct), daemon=True).start()
            return listening.getsockname()[1]

        yield started


def accept(listening: socket.socket, conduct: Callable[[Peer], None]) -> None:
    while True:
        try:
            connection = listening.accept()[0]
        except OSError:
            return
        threading.Thread(target=treat, args=(connection, conduct), daemon=True).start()


def treat(connection: socket.socket, conduct: Callable[[Peer], None]) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError, EOFError):
        conduct(Peer(connection))
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)

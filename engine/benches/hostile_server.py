"""A hostile server: `hostile_server.py DEED`, with HOST and PORT in the environment. Every connection gets the deed."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import random
import socket
import socketserver
import struct
import sys
import time
import zlib
from collections.abc import Callable
from functools import cache

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BLOCK = 1 << 16
GIBIBYTE = 1 << 30


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    wbufsize = 0

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            DEEDS[sys.argv[1]](self)

    def upgrade(self, more: bytes = b"") -> None:
        """A correct upgrade, with `more` lines."""
        key = b""
        while (line := self.rfile.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            key = value.strip() if name.lower() == b"sec-websocket-key" else key
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        self.say(HEAD + b"Sec-WebSocket-Accept: " + accept + b"\r\n" + more + b"\r\n")

    def say(self, data: bytes) -> None:
        self.connection.sendall(data)

    def flood(self, data: bytes) -> None:
        """Sends for as long as the client accepts it."""
        while True:
            self.say(data)

    def listen(self) -> None:
        while self.connection.recv(BLOCK):
            pass


HEAD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
DEFLATE = b"Sec-WebSocket-Extensions: permessage-deflate\r\n"


def frame(first: int, payload: bytes) -> bytes:
    length = len(payload)
    if length < 126:
        return bytes([first, length]) + payload
    if length < 65_536:
        return struct.pack("!BBH", first, 126, length) + payload
    return struct.pack("!BBQ", first, 127, length) + payload


def pings(peer: Handler) -> None:
    peer.upgrade()
    peer.flood(frame(0x89, b"") * (BLOCK // 2))


def final_blocks(peer: Handler) -> None:
    peer.upgrade(DEFLATE)
    peer.say(frame(0x41, b"\x03\x00"))
    peer.flood(frame(0x00, b"\x03\x00" * (BLOCK // 2)))


def deflate_bomb(peer: Handler) -> None:
    peer.upgrade(DEFLATE)
    peer.say(bomb())
    peer.listen()


@cache
def bomb() -> bytes:
    press = zlib.compressobj(9, zlib.DEFLATED, -15)
    small = b"".join(press.compress(bytes(1 << 20)) for _ in range(GIBIBYTE >> 20)) + press.flush(zlib.Z_SYNC_FLUSH)
    return frame(0xC1, small[:-4])


def huge_length(peer: Handler) -> None:
    peer.upgrade()
    peer.say(struct.pack("!BBQ", 0x81, 127, 1 << 63))
    peer.listen()


def fragments(peer: Handler) -> None:
    peer.upgrade()
    peer.say(frame(0x01, b""))
    peer.flood(frame(0x00, b"") * (BLOCK // 2))


def head_without_end(peer: Handler) -> None:
    peer.say(HEAD)
    peer.flood(b"X-More: and more\r\n" * 4096)


def head_by_drops(peer: Handler) -> None:
    for at in range(len(HEAD)):
        peer.say(HEAD[at : at + 1])
        time.sleep(0.1)


def long_close(peer: Handler) -> None:
    peer.upgrade()
    peer.say(frame(0x88, struct.pack("!H", 1000) + b"because " * 100))
    peer.listen()


def reset(peer: Handler) -> None:
    """In the middle of the first reply, or before it."""
    peer.upgrade()
    if random.random() < 0.8:
        peer.connection.recv(BLOCK)
    peer.say(frame(0x81, b"x" * 16)[: random.randrange(18)])
    peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.rfile.close()
    os.close(peer.connection.detach())


def answers_ahead(peer: Handler) -> None:
    peer.upgrade()
    peer.flood(b"".join(frame(0x81, b"%08x%08x" % (number, 0)) for number in range(1, 3000)))


def tls_rubbish(peer: Handler) -> None:
    """The header of a TLS record, followed by bytes that are not one."""
    peer.connection.recv(BLOCK)
    peer.flood(b"\x16\x03\x03\x40\x00" + random.randbytes(0x4000))


def silence(peer: Handler) -> None:
    peer.listen()


DEEDS: dict[str, Callable[[Handler], None]] = {
    "pings": pings,
    "final-blocks": final_blocks,
    "deflate-bomb": deflate_bomb,
    "huge-length": huge_length,
    "fragments": fragments,
    "head-without-end": head_without_end,
    "head-by-drops": head_by_drops,
    "long-close": long_close,
    "reset": reset,
    "answers-ahead": answers_ahead,
    "tls-rubbish": tls_rubbish,
    "silence": silence,
}


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def main() -> None:
    # So that an honest server on the same CPU does not wait for it.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if sys.argv[1] == "deflate-bomb":
        bomb()
    with Server((os.environ["HOST"], int(os.environ["PORT"])), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()

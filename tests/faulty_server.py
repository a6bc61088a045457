"""A small server that keeps the contract and RFC 6455 to the letter, and can be told not to, in one way or another.

Written from the RFC a second time, on purpose: a misreading that it shared with the checker would hide behind itself. Each fault
is a few words, looked for where the right thing would be done; `FAULTS` in test_conformance.py names them all.
"""

import base64
import hashlib
import os
import platform
import queue
import signal
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
OPCODES = {CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG}


class Gone(Exception):
    """The client has ended the connection, or the server ends it without a word."""


class Failed(Exception):
    """The client broke the RFC: the connection fails with this code."""

    def __init__(self, code: int) -> None:
        self.code = code


class Handler(socketserver.StreamRequestHandler):
    """One connection; `faults` says what is done wrong, `shared` is what all connections of a server know."""

    faults: frozenset[str]
    shared: dict
    disable_nagle_algorithm = True
    wbufsize = 0

    def has(self, fault: str) -> bool:
        return fault in self.faults

    def handle(self) -> None:
        self.documents, self.outbox = 0, queue.SimpleQueue()
        self.writer = threading.Thread(target=self.write_all, daemon=True)
        self.writer.start()
        try:
            if self.has("speaks first"):
                self.outbox.put(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\n" + b"x" * 100)
            if self.has("tcp"):
                self.tcp()
            else:
                while self.request_is_answered():
                    pass
        except (Gone, OSError, ValueError):
            pass
        finally:
            with self.shared["lock"]:
                if self in self.shared["members"] and not self.has("keeps those who left"):
                    self.shared["members"].remove(self)
            self.outbox.put(None)
            self.writer.join(1.0)
            if self.has("leaks"):
                self.shared["leaked"].append(self.connection.dup())

    def write_all(self) -> None:
        """Whoever does not read holds up this thread and nobody else."""
        with suppress(OSError):
            while (data := self.outbox.get()) is not None:
                self.connection.sendall(data)

    def exactly(self, count: int) -> bytes:
        data = self.rfile.read(count)
        if len(data) < count:
            raise Gone
        return data

    def tcp(self) -> None:
        while self.exactly(4) == b"Ping":
            if self.has("answers only one at a time"):
                with self.shared["lock"]:
                    self.shared["pings"] = self.shared.get("pings", 0) + 1
                    if self.shared["pings"] > 20:
                        raise Gone
            self.outbox.put(b"Pung" if self.has("wrong answer") else b"Pong")

    def request_is_answered(self) -> bool:
        line = self.rfile.readline().decode().split()
        if not line:
            return False
        headers = {}
        while (header := self.rfile.readline().decode().strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        if self.has("says nothing") or "broken" in self.shared:
            time.sleep(3)
        target = urlsplit(line[1])
        if target.path == "/doc":
            return self.document(int(parse_qs(target.query)["size"][0]), headers.get("connection") != "close")
        if (refusal := self.refusal(line[0], headers)) is not None:
            self.outbox.put(refusal + b"\r\nContent-Length: 0\r\n\r\n")
            return True
        self.websocket(target.path, headers.get("sec-websocket-key", "").encode())
        return False

    def refusal(self, method: str, headers: dict[str, str]) -> bytes | None:
        upgrade, connection = headers.get("upgrade", ""), headers.get("connection", "")
        if not self.has("sensitive to case"):
            upgrade, connection = upgrade.lower(), connection.lower()
        if (upgrade != "websocket" or "upgrade" not in connection.lower()) and not self.has("upgrades unasked"):
            return b"HTTP/1.1 400 Bad Request"
        if method != "GET" and not self.has("any method"):
            return b"HTTP/1.1 405 Method Not Allowed"
        if headers.get("sec-websocket-version") != "13" and not self.has("any version"):
            named = b"" if self.has("does not name its version") else b"\r\nSec-WebSocket-Version: 13"
            return b"HTTP/1.1 426 Upgrade Required" + named
        key = base64.b64decode(headers.get("sec-websocket-key", ""))
        if len(key) != 16 and not self.has("any key"):
            return b"HTTP/1.1 400 Bad Request"
        return None

    def document(self, size: int, persistent: bool) -> bool:
        body = b"x" * (size - 1 if self.has("short document") and size > 512 else size)
        if self.has("chunked"):
            half = len(body) // 2
            pieces = [piece for piece in (body[:half], body[half:]) if piece]
            length = "Transfer-Encoding: chunked"
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        else:
            length = f"Content-Length: {len(body)}"
        self.documents += 1
        tired = self.documents == 100 and bool({"tires of documents", "tires without a word"} & self.faults)
        ends = tired or not persistent or self.has("closes always")
        wordless = self.has("tires without a word") if tired else self.has("closes without a word")
        announced = ends and not wordless and not (persistent and self.has("closes always"))
        last = "\r\nConnection: close" if announced else ""
        kind = "text/plain" if self.has("plain text") else "text/html"
        self.outbox.put(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{length}{last}\r\n\r\n".encode() + body)
        return not ends or self.has("stays open")

    def websocket(self, path: str, key: bytes) -> None:
        accept = base64.b64encode(hashlib.sha1(key + GUID[:: -1 if self.has("wrong accept") else 1]).digest())
        extra = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if self.has("compresses unasked") else b""
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        # A member is one before it can know: what is broadcast from now on stands behind the 101 in its outbox.
        with self.shared["lock"]:
            self.outbox.put(head + extra + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
            if path == "/push":
                self.shared["members"].append(self)
        try:
            self.converse(path)
        except Failed as failed:
            if self.has("dies of bad text") and failed.code == 1007:
                self.shared["broken"] = True
            self.send(CLOSE, struct.pack("!H", 1011 if self.has("wrong code") else failed.code))

    def converse(self, path: str) -> None:
        """Until a Close frame comes, or the end."""
        kind, parts, late = None, [], []
        if self.has("tires of idling") and path == "/ping":  # where no other check waits
            self.connection.settimeout(0.4)
        while True:
            fin, opcode, payload = self.receive(within=kind is not None)
            if opcode == CLOSE:
                return self.close(payload)
            if opcode == PING:
                late.append(payload)
            elif opcode == PONG:
                if self.has("minds pongs"):
                    raise Gone
            else:
                self.require(kind is None or opcode == CONTINUATION, 1002, "messages inside messages")
                kind = opcode if kind is None else kind
                parts.append(payload)
                self.look_at_part(kind, parts)
                if fin or self.has("forgets fragments"):
                    message = b"".join(parts)
                    if kind == TEXT:
                        self.require_utf8(message)
                    self.answer(path, kind, message)
                    kind, parts = None, []
            while late and not (self.has("late pong") and kind is not None):
                self.pong(late.pop(0))

    def look_at_part(self, kind: int, parts: list[bytes]) -> None:
        """The right server cares for the whole only."""
        if self.has("no empty fragments") and len(parts) > 1 and b"" in parts:
            raise Gone
        if self.has("fifty fragments at most") and len(parts) > 50:
            raise Gone
        if self.has("UTF-8 by fragment") and kind == TEXT:
            self.require_utf8(parts[-1])

    def require(self, condition: bool, code: int, unless_it_takes: str) -> None:
        if not condition and not self.has(f"takes {unless_it_takes}"):
            raise Failed(code)

    def require_utf8(self, text: bytes, unless_it_takes: str = "any text") -> None:
        try:
            text.decode()
        except UnicodeDecodeError:
            self.require(False, 1007, unless_it_takes)

    def receive(self, within: bool) -> tuple[bool, int, bytes]:
        if self.has("needs whole heads") and len(self.rfile.peek(2)) == 1:
            raise Gone
        first, second = self.exactly(2)
        fin, opcode, length = first > 127, first & 15, second & 127
        self.require(second & 0x80, 1002, "unmasked frames")
        self.require(not first & 0x70, 1002, "reserved bits")
        self.require(opcode in OPCODES, 1002, "reserved opcodes")
        self.require(opcode < 8 or length <= 125, 1002, "large control frames")
        self.require(opcode < 8 or fin, 1002, "fragmented control frames")
        self.require(opcode != CONTINUATION or within, 1002, "stray continuations")
        if length > 125:
            length = int.from_bytes(self.exactly(2 if length == 126 else 8), "big")
        mask = self.exactly(4) if second & 0x80 else b"\0\0\0\0"
        masked = self.exactly(length)
        keys = (mask * (length // 4 + 1))[:length]
        return fin, opcode, (int.from_bytes(masked) ^ int.from_bytes(keys)).to_bytes(length)

    def send(self, opcode: int, payload: bytes) -> None:
        length = len(payload)
        masked = 0x80 if self.has("masks") and opcode < 8 else 0
        header = bytes([0x80 | opcode])
        if length < 126:
            header += bytes([masked | length])
        elif length < 65536:
            header += bytes([masked | 126]) + length.to_bytes(2)
        else:
            header += bytes([masked | 127]) + length.to_bytes(8)
        self.outbox.put(header + (b"\0\0\0\0" if masked else b"") + payload)

    def pong(self, payload: bytes) -> None:
        if self.has("no pong") or (self.has("no empty pong") and not payload):
            return
        if self.has("pong of 100 bytes"):
            payload = payload[:100]
        self.send(PONG, payload.decode(errors="replace").encode() if self.has("pong is text") else payload)

    def close(self, body: bytes) -> None:
        code = int.from_bytes(body[:2]) if len(body) > 1 else None
        self.require(len(body) != 1, 1002, "half a code")
        exists = code is None or code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011) or 3000 <= code < 5000
        self.require(exists, 1002, "any code")
        self.require_utf8(body[2:], "any reason")
        if self.has("only normal closes") and code is not None and code != 1000:
            raise Failed(1002)
        if self.has("needs a code") and code is None:
            raise Failed(1002)
        if not self.has("no close"):
            self.send(CLOSE, body[:2])
        if self.has("talks after the end"):
            self.send(TEXT, b"one more thing")
        if self.has("stays open"):
            time.sleep(3)

    def answer(self, path: str, kind: int, message: bytes) -> None:
        if path == "/echo":
            self.echo(kind, message)
        elif path == "/ping" and message == b"Ping":
            self.send(TEXT, b"pong" if self.has("wrong answer") else b"Pong")
        elif path == "/push" and (message.startswith(b"broadcast ") or self.has("broadcasts everything")):
            self.broadcast(message.removeprefix(b"broadcast "))

    def echo(self, kind: int, message: bytes) -> None:
        if self.has("text becomes binary"):
            kind = BINARY
        if self.has("loses the last byte") and len(message) >= 65536:
            message = message[:-1]
        if self.has("alters bytes") and kind == BINARY and len(message) == 256:
            message = message[::-1]
        if self.has("swaps") and message.startswith(b"7 "):
            self.send(kind, b"out of order")
        if self.has("mixes connections") and message.isdigit():
            message, self.shared["last"] = self.shared.get("last", b"nothing"), message
        if not (message == b"" and self.has("ignores empty")):
            self.send(kind, message)

    def broadcast(self, token: bytes) -> None:
        with self.shared["lock"]:
            self.shared["broadcasts"] = self.shared.get("broadcasts", 0) + 1
            # Eight come before the checks that must fail, and one of them sees only ten.
            if self.has("loses some") and self.shared["broadcasts"] % 9 == 0:
                return
            members = list(self.shared["members"])
            if self.has("reaches forty"):
                members = [member for member in members if member.is_there()][:40]
            for member in members:
                if member is self and self.has("not to the sender"):
                    continue
                for _ in range(2 if self.has("sends twice") else 1):
                    member.push(token)

    def is_there(self) -> bool:
        """Not if its client has left, which its thread may not have noticed yet."""
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) not in (b"", b"\x88")
        except OSError as error:
            return isinstance(error, BlockingIOError)

    def push(self, token: bytes) -> None:
        micros = time.time_ns() // (1_000_000 if self.has("milliseconds") else 1000)
        if self.has("whole milliseconds"):
            micros -= micros % 1000
        self.send(TEXT, str(micros).encode() + b" " + token)
        if self.has("keeps those who left"):
            self.connection.getpeername()  # an error, once it is closed
        if self.has("waits for slow ones"):
            while not self.outbox.empty() and self.writer.is_alive():
                time.sleep(0.001)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


@contextmanager
def serving(*faults: str, port: int = 0) -> Iterator[int]:
    """A server with these faults; its port."""
    shared = {"members": [], "leaked": [], "lock": threading.RLock()}
    own: ClassVar = {"faults": frozenset(faults), "shared": shared}
    address = "0.0.0.0" if "listens everywhere" in faults else "127.0.0.1"
    with Server((address, port), type("Faulty", (Handler,), own)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
            for leaked in shared["leaked"]:
                leaked.close()


def main() -> None:
    """The same as a process, for the gate as a whole: the arguments are faults."""
    if sys.argv[1:] == ["--version"]:
        print(f"faulty 1.0, python {platform.python_version()}")
        return
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with serving(*sys.argv[1:], port=int(os.environ["PORT"])):
        signal.pause()


if __name__ == "__main__":
    main()

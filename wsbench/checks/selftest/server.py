"""A WebSocket echo server with configurable faults and a log of its actions, which `selftest` compares with the engine.

Run as `python -I -S server.py CONDUCT LOG`, with HOST and PORT in the environment; CONDUCT is JSON. It imports only the
standard library and shares no code with the engine. It has one thread, so that a delay is exactly the configured one, and
writes its log at SIGTERM. Times are CLOCK_MONOTONIC. A delay ends just before `send`. It begins at the kernel's receive stamp
(socket(7), SO_TIMESTAMPNS), so the log includes this process's CPU waits; without a stamp it begins at the end of `recv`.
"""

import base64
import hashlib
import heapq
import json
import os
import random
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
SPIN_NS = 150_000  # a sleeping thread wakes up about 60 µs late
SO_TIMESTAMPNS = 35  # socket option and type of its control message; Python has no name for it
STAMP = struct.Struct("@ll")
CORRUPTED_BYTE = 40  # beyond the engine's stamp: it changes the content, not the number


class Stopped(Exception):
    pass


class Client:
    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.buffer = bytearray()
        self.path = ""
        self.held: tuple | None = None  # a reply held back until the next one
        self.peer = connected.getpeername()[0]
        self.replied_ns: int | None = None  # time of its last reply, until its next message arrives


class Echo:
    """`conduct`: `delay` {kind, …}, `late_us` (on the path /late), `freeze` {after_s, for_s}, `fault` {kind, every}, `seed`."""

    def __init__(self, conduct: dict) -> None:
        self.delay = conduct.get("delay", {"kind": "none"})
        self.late_ns = int(conduct.get("late_us", 0) * 1000)
        self.freeze = conduct.get("freeze")
        self.fault = conduct.get("fault", {"kind": "none", "every": 1})
        self.random = random.Random(conduct.get("seed", 1))
        self.clients: dict[int, Client] = {}
        self.waiting: list[tuple] = []
        self.first_ns: int | None = None
        self.log = {"received": 0, "stamped": 0, "replied": 0, "faults": 0, "frozen_ns": None, "delays_ns": {}}
        self.log |= {"arrivals_ns": {}, "turns_ns": []}

    def serve(self, listener: socket.socket) -> None:
        while True:
            self.stand_still()
            readable, _, _ = select.select([listener, *(one.socket for one in self.clients.values())], [], [], self.pause())
            for one in readable:
                if one is listener:
                    connected, _ = listener.accept()
                    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connected.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                    self.clients[connected.fileno()] = Client(connected)
                elif one.fileno() in self.clients:
                    self.read(self.clients[one.fileno()])
            self.send_due()

    def pause(self) -> float | None:
        """Timeout for `select`, in s: until the next reply is due, less the spin."""
        if not self.waiting:
            return 0.05
        return max(0.0, (self.waiting[0][0] - time.monotonic_ns() - SPIN_NS) / 1e9)

    def stand_still(self) -> None:
        """Freezes once, at the configured time after the first message. No message is read meanwhile."""
        if self.freeze is None or self.first_ns is None or self.log["frozen_ns"] is not None:
            return
        if time.monotonic_ns() - self.first_ns >= self.freeze["after_s"] * 1e9:
            began = time.monotonic_ns()
            time.sleep(self.freeze["for_s"])
            self.log["frozen_ns"] = time.monotonic_ns() - began

    def read(self, client: Client) -> None:
        try:
            data, notes, _, _ = client.socket.recvmsg(1 << 16, 64)
        except OSError:
            data, notes = b"", []
        now, unix_ns = time.monotonic_ns(), time.time_ns()
        came = now
        for level, kind, note in notes:
            if (level, kind, len(note)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, STAMP.size):
                seconds, nanoseconds = STAMP.unpack(note)
                came -= max(0, unix_ns - seconds * 1_000_000_000 - nanoseconds)
                self.log["stamped"] += 1
        if not data:
            return self.drop(client)
        client.buffer += data
        if not client.path:
            self.upgrade(client)
        while client.path and (frame := take_frame(client.buffer)) is not None:
            opcode, payload = frame
            if opcode == 8:
                client.socket.sendall(bytes([0x88, len(payload)]) + payload)
                return self.drop(client)
            self.message(client, opcode, payload, now, came)

    def upgrade(self, client: Client) -> None:
        head, found, rest = bytes(client.buffer).partition(b"\r\n\r\n")
        if not found:
            return
        client.buffer[:] = rest
        lines = head.split(b"\r\n")
        key = next(line.split(b":", 1)[1].strip() for line in lines if line.lower().startswith(b"sec-websocket-key:"))
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest())
        client.path = lines[0].split()[1].decode()
        client.socket.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            + accept
            + b"\r\n\r\n"
        )

    def message(self, client: Client, opcode: int, payload: bytes, now: int, came: int) -> None:
        self.first_ns = self.first_ns or now
        self.log["received"] += 1
        self.log["arrivals_ns"].setdefault(client.peer, []).append(came)
        if client.replied_ns is not None:
            self.log["turns_ns"].append(came - client.replied_ns)
            client.replied_ns = None
        kind = self.fault["kind"] if self.log["received"] % self.fault["every"] == 0 else "none"
        self.log["faults"] += kind != "none"
        if kind == "drop":
            return
        if kind == "corrupt":
            payload = payload[:CORRUPTED_BYTE] + bytes([payload[CORRUPTED_BYTE] ^ 1]) + payload[CORRUPTED_BYTE + 1 :]
        reply = (client, frame_of(opcode, payload), came)
        if kind == "reorder":
            client.held = reply
            return
        due = now + self.delay_ns()
        if client.path == "/late":
            due += self.late_ns
        if due == now:
            self.send(*reply)
        else:
            heapq.heappush(self.waiting, (due, self.log["received"], *reply))
        if kind == "duplicate":
            self.send(*reply)
        if client.held is not None:
            held, client.held = client.held, None
            self.send(*held)

    def delay_ns(self) -> int:
        kind = self.delay["kind"]
        if kind == "none":
            return 0
        if kind == "constant":
            return int(self.delay["ms"] * 1e6)
        if kind == "bimodal":
            return int(self.delay["slow_ms" if self.random.random() < self.delay["share"] else "fast_ms"] * 1e6)
        if kind == "lognormal":
            return int(self.delay["median_ms"] * self.random.lognormvariate(0, self.delay["sigma"]) * 1e6)
        return int(self.random.expovariate(1 / self.delay["mean_ms"]) * 1e6)

    def send_due(self) -> None:
        while self.waiting and self.waiting[0][0] - time.monotonic_ns() <= SPIN_NS:
            due, _, client, frame, came = heapq.heappop(self.waiting)
            while time.monotonic_ns() < due:
                pass
            self.send(client, frame, came)

    def send(self, client: Client, frame: bytes, came: int) -> None:
        taken = time.monotonic_ns() - came
        try:
            client.socket.sendall(frame)
        except OSError:
            return
        self.log["replied"] += 1
        client.replied_ns = came + taken
        self.log["delays_ns"].setdefault(client.path, []).append(taken)

    def drop(self, client: Client) -> None:
        self.clients.pop(client.socket.fileno(), None)
        client.socket.close()


def take_frame(buffer: bytearray) -> tuple[int, bytes] | None:
    """Removes one whole masked frame from the front of the buffer: opcode and payload. None if it is incomplete."""
    if len(buffer) < 6:
        return None
    length, start = buffer[1] & 0x7F, 2
    if length == 126:
        length, start = struct.unpack_from("!H", buffer, 2)[0], 4
    elif length == 127:
        length, start = struct.unpack_from("!Q", buffer, 2)[0], 10
    if len(buffer) < start + 4 + length:
        return None
    mask, masked = bytes(buffer[start : start + 4]), bytes(buffer[start + 4 : start + 4 + length])
    opcode = buffer[0] & 0x0F
    del buffer[: start + 4 + length]
    keys = (mask * (length // 4 + 1))[:length]
    return opcode, (int.from_bytes(masked, "big") ^ int.from_bytes(keys, "big")).to_bytes(length, "big")


def frame_of(opcode: int, payload: bytes) -> bytes:
    length = len(payload)
    if length < 126:
        return struct.pack("!BB", 0x80 | opcode, length) + payload
    if length < 1 << 16:
        return struct.pack("!BBH", 0x80 | opcode, 126, length) + payload
    return struct.pack("!BBQ", 0x80 | opcode, 127, length) + payload


def wait_ns() -> int | None:
    """Time this process was runnable but not running, in ns; None if the kernel does not report it."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return None


def steal_ns() -> int:
    """CPU time withheld by the hypervisor, all CPUs, in ns (resolution: clock ticks)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def stop(*_) -> None:
    raise Stopped


def main() -> None:
    conduct, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    signal.signal(signal.SIGTERM, stop)
    listener = socket.create_server((os.environ["HOST"], int(os.environ["PORT"])), backlog=256)
    echo, began, waited, stolen = Echo(conduct), time.monotonic_ns(), wait_ns(), steal_ns()
    try:
        echo.serve(listener)
    except Stopped:
        waits = None if waited is None else wait_ns() - waited
        times = {"wait_ns": waits, "steal_ns": steal_ns() - stolen, "wall_ns": time.monotonic_ns() - began}
        file.write_text(json.dumps({**echo.log, **times}))


if __name__ == "__main__":
    main()

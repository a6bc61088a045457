"""Servers that mean ill, as wsbench meets them: everything it reads from one is bounded, and one that cheats is told on."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from wsbench.host import http_deadline
from wsbench.records.errors import TrialFailed
from wsbench.servers import serving


@contextmanager
def serving_all(behave):
    """Every connection is handed to `behave`, in a thread of its own; yields the port."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:

        def one(client):
            with client, suppress(OSError):
                behave(client)

        def all_of_them():
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=[client], daemon=True).start()

        threading.Thread(target=all_of_them, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def endless_body(client):
    client.recv(1000)
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        client.sendall(bytes(1 << 20))


def endless_chunks(client):
    client.recv(1000)
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        client.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")


def endless_head(client):
    client.recv(1000)
    client.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        client.sendall(b"X: y\r\n" * 10_000)


def dripping(text: bytes):
    def drip(client):
        client.recv(1000)
        for byte in text * 1000:
            client.sendall(bytes([byte]))
            time.sleep(0.2)

    return drip


BODIES = {
    "body": endless_body,
    "chunks": endless_chunks,
    "head": endless_head,
    "dripping-head": dripping(b"HTTP/1.1 200 OK\r\nX: y\r\n"),
    "dripping-body": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nxxxxxxxxxxxxxxxxxxx"),
    "silent": lambda client: time.sleep(60),
}


@pytest.mark.system
@pytest.mark.fault("H1", "`load http://` of a document without end, or that drips", "exit 2, one line, within seconds")
@pytest.mark.parametrize(
    "behave",
    [pytest.param(behave, id=id, marks=pytest.mark.nightly if "dripping" in id else ()) for id, behave in BODIES.items()],
)
def test_a_document_without_end(wsbench, behave):
    began = time.monotonic()
    with serving_all(behave) as port:
        done = wsbench("load", f"http://127.0.0.1:{port}/", "-t", "1")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert time.monotonic() - began < 60


@pytest.mark.system
@pytest.mark.fault("C1", "a head that drips while a server is starting", "each look at it ends in time")
def test_a_server_that_drips_while_it_starts():
    with serving_all(dripping(b"HTTP/1.1 101 X\r\nX: y\r\n")) as port:
        began = time.monotonic()
        assert serving.asked("127.0.0.1", port, serving.Question("/ping")) is not None
        assert time.monotonic() - began < 30
        with pytest.raises(TimeoutError):
            asked_within(http.client.HTTPConnection("127.0.0.1", port, timeout=2), 1)


def asked_within(connection: http.client.HTTPConnection, seconds: float) -> None:
    with http_deadline.within(connection, seconds):
        connection.request("GET", "/")
        connection.getresponse()


class Running:
    """As much of a server as `await_ready` asks for."""

    exit_code = None
    pid = 0


@pytest.mark.nightly
@pytest.mark.fault("C1", "a server that never says that it is ready", "the trial fails at the limit")
def test_a_server_that_is_never_ready(monkeypatch):
    monkeypatch.setattr(serving, "READY_S", 3.0)
    with serving_all(dripping(b"HTTP/1.1 101 X\r\nX: y\r\n")) as port:
        began = time.monotonic()
        with pytest.raises(TrialFailed, match="was not ready within 3 s"):
            serving.await_ready(Running(), "127.0.0.1", port, serving.Question("/ping"))
        assert time.monotonic() - began < 60


@pytest.mark.system
@pytest.mark.fault("P3", "an accept header with marks that move the cursor or turn words around", "shown as what they are")
def test_marks_from_a_server(wsbench):
    def marked(client):
        client.recv(1000)
        client.sendall(
            b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: \xc2\x9b31m\xe2\x80\xaegnp\r\n\r\n"
        )

    with serving_all(marked) as port:
        done = wsbench("load", f"ws://127.0.0.1:{port}/", "-n", "10", "-c", "1")
    text = done.stdout + done.stderr
    assert "wrong key" in text
    assert not {"\u202e", "\x9b"} & {*text}


# ---- cheating ----------------------------------------------------------------------------------------------------------


def frame(payload: bytes) -> bytes:
    head = bytes([0x81, len(payload)]) if len(payload) < 126 else b"\x81\x7e" + len(payload).to_bytes(2)
    return head + payload


def document(length: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + b"x" * length


def upgraded(client) -> None:
    import base64
    import hashlib

    head = b""
    while b"\r\n\r\n" not in head:
        head += exactly(client, 1)
    key = next(line.split()[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    client.sendall(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")


def received(client) -> bytes:
    """One short frame's payload."""
    head = exactly(client, 2)
    length = head[1] & 127
    length = int.from_bytes(exactly(client, 2)) if length == 126 else length
    key = exactly(client, 4)
    payload = bytes(byte ^ key[at % 4] for at, byte in enumerate(exactly(client, length)))
    if head[0] & 15 == 8:
        client.sendall(b"\x88" + bytes([len(payload)]) + payload)
        raise ConnectionResetError
    return payload


def exactly(client, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (more := client.recv(count - len(found))):
            raise ConnectionResetError
        found += more
    return found


def cheating(mode: str, how: str):
    """A server that cheats in its answers; `honest` is the proof that the others are not suspected for something else."""
    others: list[bytes] = [b""]
    members: list[socket.socket] = []

    def behave(client):
        if mode != "http":
            upgraded(client)
        members.append(client)
        constant = {"echo": frame(b"x" * 64), "ping": frame(b"Pong"), "http": document(64), "push": frame(b"1 0000-0")}
        if how == "ahead":
            client.sendall(constant[mode] * 40)
        while True:
            if mode == "http":
                head = b""
                while b"\r\n\r\n" not in head:
                    head += exactly(client, 1)
                answer = document(64)
            else:
                payload = received(client)
                answer = frame(b"Pong") if mode == "ping" else frame(payload)
                if mode == "push":
                    answer = frame(b"1700000000000000 " + payload.removeprefix(b"broadcast "))
            if how == "constant":
                answer = constant[mode]
            elif how == "elsewhere":
                others.append(answer)
                answer = others.pop(0) or answer
            for member in members if mode == "push" else [client]:
                member.sendall(answer * (2 if how == "twice" else 1))

    return behave


#: What a constant answer, or one of the right length from elsewhere, would be by the contract too.
LAWFUL = {("ping", "constant"), ("ping", "elsewhere"), ("http", "constant"), ("http", "elsewhere")}
MODES = {
    "echo": ["ws://127.0.0.1:{}/echo", "--bytes", "64", "-n", "400", "-c", "2"],
    "ping": ["ws://127.0.0.1:{}/ping", "--ping", "-n", "400", "-c", "2"],
    "http": ["http://127.0.0.1:{}/doc", "--bytes", "64", "-n", "400", "-c", "2"],
    "push": ["ws://127.0.0.1:{}/push", "--push", "50", "-t", "2", "-c", "2"],
}


@pytest.mark.nightly
@pytest.mark.fault(
    "E4",
    "a server that answers ahead, twice, always the same, or from elsewhere",
    "INVALID or SUSPECT, and why",
    slow=True,
)
@pytest.mark.parametrize("how", ["ahead", "twice", "constant", "elsewhere", "honest"])
@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_cheats(wsbench, mode, how):
    with serving_all(cheating(mode, how)) as port:
        words = [word.format(port) for word in MODES[mode]]
        done = wsbench("load", *words, "--warmup", "0", "--json")
    found = json.loads(done.stdout)["verdict"]
    reasons = [reason for reason in found["reasons"] if any(word in reason for word in TOLD)]
    if how == "honest" or (mode, how) in LAWFUL:
        assert not reasons, found["reasons"]
    else:
        assert found["kind"] in ("INVALID", "SUSPECT")
        assert reasons, found["reasons"]


TOLD = ("no message had requested", "twice or late", "did not trigger", "were lost", "no message was answered")

"""A load that carried nothing ends with its own exit code and begins with the cause, whatever the server did."""

import base64
import contextlib
import errno
import hashlib
import json
import re
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from wsbench.cli import exits
from wsbench.host import machine
from wsbench.records.rundir import TrialFolder
from wsbench.servers import serving

pytestmark = pytest.mark.system

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE = 0x1, 0x8
FEED = """
about  = "a feed: the server sends, the client listens"
source = "https://example.org"
[fields]
type = { json = "type" }
[rules]
tick = { is = { type = "tick" }, push = true }
[[setup]]
name  = "first"
await = "tick"
"""


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


QUICK = ("-c", "4", "--warmup", "0")
FOR_A_SECOND, BY_COUNT = ("-t", "1"), ("-n", "400")
OPEN, CLOSED = ("--rate", "100", *FOR_A_SECOND), ("--depth", "4", *BY_COUNT)
WITHIN = r"all 4 connections (within [\d.]+ s|at once)"
NONE = "no connection was established"
USELESS = [
    (refuses, OPEN, "no connection was established: the server answers HTTP 401 Unauthorized"),
    (refuses, ("--idle", *FOR_A_SECOND), "no connection was established: the server answers HTTP 401 Unauthorized"),
    (refuses_with_words, OPEN, f"{NONE}: the server answers HTTP 429 Slow Down: quota is 2/s, Retry-After: 7"),
    (refuses_with_a_page, OPEN, f"{NONE}: the server answers HTTP 403 Forbidden"),
    (redirects, OPEN, f"{NONE}: the server answers HTTP 308 Permanent Redirect: Location: /new/ws"),
    (has_another_key, CLOSED, "no connection was established: the server's handshake has a wrong key: AAAA instead of .*"),
    (leaves, OPEN, f"the server closed {WITHIN}: without a Close frame"),
    (leaves, ("--idle", *FOR_A_SECOND), f"the server closed {WITHIN}: without a Close frame"),
    (closes, CLOSED, f"the server closed {WITHIN}: code 4000"),
    (closes_with_words, CLOSED, f"the server closed {WITHIN}: code 4003: quota used"),
    (goes_away, OPEN, f"the server closed {WITHIN}: code 1001"),
    (goes_away, CLOSED, f"the server closed {WITHIN}: code 1001"),
    (goes_away, ("--per-connection", "9", *BY_COUNT), f"the server closed {WITHIN}: code 1001"),
    (masks, CLOSED, rf"the server broke the protocol on {WITHIN}: masked_frame \(opcode 1\)"),
    (listens, OPEN, r"no message was answered: \d+ sent"),
    (says_twice, CLOSED, r"no message was answered: [\d,]+ sent; reply_length .*"),
    (answers_each_third, OPEN, r"more messages were lost than answered: \d+ of \d+; reply_missing .*"),
    (goes_away, ("--warmup", "1", *FOR_A_SECOND), f"the server closed {WITHIN}: code 1001"),
    (goes_away, ("--warmup", "1", *BY_COUNT), f"the server closed {WITHIN}: code 1001"),
    (listens, ("--warmup", "1", *FOR_A_SECOND), r"no message was answered: 4 sent before the window; timeout 4 \(.*\)"),
    (listens, ("--push", "20", *FOR_A_SECOND), r"no message was answered: [\d,]+ sent"),
]


@pytest.mark.parametrize(("conduct", "words", "cause"), USELESS)
def test_the_first_line_of_a_useless_load_is_its_cause(serve, wsbench, conduct, words, cause):
    done = wsbench("load", f"ws://127.0.0.1:{serve(conduct)}/", *QUICK, *words)
    said = [line for line in done.stdout.splitlines() if not line.startswith("phase ")]
    assert re.fullmatch(cause, said[0])
    assert done.returncode == exits.NOTHING_USABLE
    assert "INVALID" in said
    advice = "\n".join(said)
    for ruled_out in (
        "Lower the",
        "schedstat",
        "Give the engine",
        "Little's law",
        "Run the trial again",
        "trial's folder",
        "--pid",
    ):
        assert ruled_out not in advice


def test_a_server_that_was_silent_in_the_warm_up_does_not_seem_to_echo(serve, wsbench):
    silent, leaving = (wsbench("load", f"ws://127.0.0.1:{serve(one)}/", "-c", "2", *FOR_A_SECOND) for one in (listens, goes_away))
    assert "the server does not seem to echo" in silent.stdout
    assert "the server does not seem to echo" not in leaving.stdout


def test_programs_and_the_page_get_the_cause_too(serve, wsbench, tmp_path):
    done = wsbench("load", f"ws://127.0.0.1:{serve(refuses)}/", *QUICK, *FOR_A_SECOND, "--json", "--report", "load.html")
    found = json.loads(done.stdout)
    cause = "no connection was established: the server answers HTTP 401 Unauthorized"
    assert (done.returncode, found["cause"]) == (exits.NOTHING_USABLE, cause)
    assert found["verdict"]["usable"] is False
    assert [one["name"] for one in found["verdict"]["findings"]] == ["no_connection"]
    page = (tmp_path / "load.html").read_text(encoding="utf-8")
    assert f"N{cause[1:]}." in page
    assert "schedstat" not in page.partition("<nav")[0]


def test_a_service_that_only_sends_is_a_useful_load(serve, wsbench, tmp_path):
    (tmp_path / "feed.toml").write_text(FEED, encoding="utf-8")
    done = wsbench(
        "load", f"ws://127.0.0.1:{serve(feeds)}/", *QUICK, "--session", str(tmp_path / "feed.toml"), "--idle", *FOR_A_SECOND
    )
    assert done.returncode == exits.DONE, done.stdout
    assert any(re.fullmatch(r"[1-9]\d* messages received, [\d.]+ a second", line) for line in done.stdout.splitlines())


def test_connections_that_come_and_go_are_counted_as_such(serve, wsbench):
    done = wsbench("load", f"ws://127.0.0.1:{serve(echoes)}/", *QUICK, "--per-connection", "1", "-n", "40")
    assert re.search(r"/  4 connections at a time, \d+ in all$", done.stdout, re.M)


@pytest.mark.parametrize("option", ["-n", "--depth", "--per-connection", "-c"])
def test_a_number_beyond_every_counter_is_one_line(wsbench, option):
    done = wsbench("load", "ws://127.0.0.1:1/", option, str(2**63))
    assert done.returncode == exits.BAD_INPUT
    (line,) = done.stderr.splitlines()
    assert str(2**63 - 1) in line


def test_a_load_ends_before_the_machine_runs_out_of_memory(serve, wsbench, monkeypatch):
    monkeypatch.setattr(machine, "memory_available", lambda: 1 << 62)
    monkeypatch.setattr(serving, "MEMORY_FLOOR", 1 << 63)
    done = wsbench("load", f"ws://127.0.0.1:{serve(listens)}/", "-c", "2", "-t", "30")
    assert done.returncode == exits.FAULT
    assert done.stdout.startswith("failed: the machine ran out of memory")


def test_what_was_measured_is_shown_although_the_disk_is_full(serve, wsbench, monkeypatch):
    def full(folder, _):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder.path / "trial.json"))

    monkeypatch.setattr(TrialFolder, "end", full)
    done = wsbench("load", f"ws://127.0.0.1:{serve(echoes)}/", *QUICK, "-n", "16")
    assert done.returncode == exits.FAULT
    assert re.search(r"messages/s over .*: 16 sent = 16 answered", done.stdout)
    assert done.stderr.endswith("trial.json: No space left on device; free space on that disk\n")


def test_a_server_that_says_different_things_is_quoted_with_each(serve, wsbench):
    numbers = iter(range(100))

    def parts(peer: Peer) -> None:
        number = next(numbers)
        peer.accept()
        peer.message()
        code, reason = (4001, b"you") if number % 5 == 0 else (1013, b"come later")
        peer.send(struct.pack("!H", code) + reason, CLOSE)

    done = wsbench("load", f"ws://127.0.0.1:{serve(parts)}/", "-c", "5", "--warmup", "0", "--depth", "4", *BY_COUNT)
    said = "code 1013: come later; also 1 × code 4001: you"
    assert re.search(rf"^the server closed all 5 connections.*: {said}$", done.stdout, re.M)
    assert re.search(rf"^close_frame: \d+ \({said}\)$", done.stdout, re.M)

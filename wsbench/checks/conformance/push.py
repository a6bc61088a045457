"""The scenario push: a broadcast reaches every member once, whatever the other members do."""

import socket
import struct
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

from wsbench.checks.conformance.registry import checks
from wsbench.checks.peer import CLOSE, TEXT, Server, WebSocket, Wrong, expect

CROWD = 50
#: Allowed difference from the server's clock: same host, but languages read different clocks.
CLOCK_SLACK_US = 1_000_000
#: Fills the socket buffers of a member that does not read (Linux lets them grow to 4 MiB on the sender's side).
FLOOD, FLOOD_BYTES = 1400, 6 * 1024
#: Time limit for the other members to receive all of it.
FLOOD_S = 10.0
CHURN, CHURNERS = 100, 3


def _now_us() -> int:
    return time.time_ns() // 1000


def _receive_broadcast(member: WebSocket, who: str, token: str) -> int:
    """Checks one broadcast and returns its MICROS."""
    kind, message = member.receive()
    expect(kind == TEXT, f"{who} got opcode {kind} instead of a text")
    micros, _, received = message.decode().partition(" ")
    expect(received == token, f"{who} got {message[:60]!r} instead of MICROS {token[:40]}")
    expect(micros.isdigit(), f"MICROS is not a number: {micros[:30]}")
    return int(micros)


def _expect_broadcast(sender: WebSocket, members: list[WebSocket], token: str) -> list[int]:
    """Every member receives it. MICROS lies between the request and the arrival of the last copy, within the slack."""
    before = _now_us()
    sender.send_frame(TEXT, f"broadcast {token}".encode())
    stamps = [
        _receive_broadcast(member, f"member {number} of {len(members)}", token) for number, member in enumerate(members, start=1)
    ]
    after = _now_us()
    for stamp in stamps:
        in_time = before - CLOCK_SLACK_US <= stamp <= after + CLOCK_SLACK_US
        expect(in_time, f"MICROS is not the current time in µs: {stamp}")
    return stamps


def _expect_nothing_more(members: list[WebSocket]) -> None:
    time.sleep(0.05)
    expect(all(member.is_quiet(0) for member in members), "members received more than was broadcast")


@checks("contract: /push", "push")
def push_reaches_every_member_once(server: Server) -> None:
    """Each of three members, the sender included, gets a broadcast once with the current time, then one of another sender."""
    members = [server.websocket("push") for _ in range(3)]
    _expect_broadcast(members[0], members, "first")
    _expect_broadcast(members[2], members, "second")
    _expect_nothing_more(members)


@checks("contract: /push", "push")
def push_reaches_a_crowd(server: Server) -> None:
    """Fifty members, or as many as the load has, one of them new, get three broadcasts from three senders in order, once each."""
    members = [server.websocket("push") for _ in range(server.crowd(CROWD))]
    for sender, token in ((members[-1], "1"), (members[0], "2_" + "x" * 300), (members[len(members) // 2], "3")):
        _expect_broadcast(sender, members, token)
    _expect_nothing_more(members)


@checks("contract: /push", "push")
def push_keeps_other_texts_apart(server: Server) -> None:
    """A text that is not a broadcast request causes no broadcast. The token comes back unchanged."""
    members = [server.websocket("push") for _ in range(2)]
    members[0].send_frame(TEXT, b"hello")
    _expect_broadcast(members[1], members, "Aa0-_.~:/+=")
    _expect_nothing_more(members)


@checks("contract: /push", "push", required=False)
def push_stamps_are_in_microseconds(server: Server) -> None:
    """A clock of whole milliseconds is too coarse for `push_stamp`. Advisory: the engine uses its own clock for its times."""
    members = [server.websocket("push") for _ in range(5)]
    stamps = [stamp for number in range(10) for stamp in _expect_broadcast(members[0], members, str(number))]
    expect(any(stamp % 1000 for stamp in stamps), f"all of {len(stamps)} MICROS are whole milliseconds")


@checks("contract: /push", "push", when=lambda use: use.replaced)
def push_survives_members_that_leave(server: Server) -> None:
    """Members that close, disconnect without a Close frame, or reset do not keep a broadcast from the others."""
    members = [server.websocket("push") for _ in range(5)]
    members[2].socket.close()
    members[3].send_frame(CLOSE, struct.pack("!H", 1000))
    members[4].socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    members[4].socket.close()
    _expect_broadcast(members[0], members[:2], "to the first two")
    _expect_broadcast(members[1], members[:2], "again")


@checks("contract: /push", "push", required=False, patience=3)
def push_does_not_wait_for_one_that_does_not_read(server: Server) -> None:
    """While one member never reads, the others get 1400 broadcasts of 6 KiB, more than its buffers hold, within 10 s.
    Advisory: the experiments with slow readers measure libraries whose writes block."""
    server.websocket("push", receive_buffer=4096)
    members = [server.websocket("push") for _ in range(3)]
    began = time.monotonic()
    token = "x" * FLOOD_BYTES
    for number in range(FLOOD):
        try:
            _expect_broadcast(members[0], members, token)
        except TimeoutError:
            raise Wrong(f"from broadcast {number + 1} on, the others wait for a member that does not read") from None
        took = time.monotonic() - began
        expect(took < FLOOD_S, f"{number + 1} of {FLOOD} broadcasts in {took:.0f} s while one member does not read")


@checks("contract: /push", "push", patience=3, when=lambda use: use.replaced)
def push_keeps_its_members_while_others_come_and_go(server: Server) -> None:
    """Three clients join, request a broadcast, await it and leave, repeatedly. Three permanent members get each one once."""
    staying = [server.websocket("push") for _ in range(3)]
    problems: list[str] = []
    threads = [threading.Thread(target=_come_and_go, args=(server, name, problems)) for name in range(CHURNERS)]
    for thread in threads:
        thread.start()
    wanted = {f"{name}-{number}" for name in range(CHURNERS) for number in range(CHURN)}
    try:
        for member in staying:
            received = [member.receive()[1].decode().partition(" ")[2] for _ in wanted] if not problems else []
            expect(
                bool(problems) or set(received) == wanted,
                "a permanent member got one broadcast twice and missed another",
            )
    except TimeoutError:
        problems.append("a permanent member did not get every broadcast")
    finally:
        for thread in threads:
            thread.join()
    expect(not problems, "; ".join(problems[:2]))
    _expect_nothing_more(staying)


def _come_and_go(server: Server, name: int, problems: list[str]) -> None:
    """A client is a member as soon as it has its 101: it gets the broadcast it requests."""
    for number in range(CHURN):
        token = f"{name}-{number}"
        with ExitStack() as sockets:
            try:
                newcomer = replace(server, sockets=sockets).websocket("push")
                newcomer.send_frame(TEXT, f"broadcast {token}".encode())
                while not newcomer.receive()[1].endswith(f" {token}".encode()):
                    pass
                if number % 2:
                    newcomer.send_frame(CLOSE, struct.pack("!H", 1000))
            except (Wrong, OSError) as error:
                said = "no broadcast in time" if isinstance(error, TimeoutError) else str(error)
                problems.append(f"newcomer {token}: {said}")
                return


def leave(member: WebSocket, how: int) -> None:
    """Leaves by a Close frame (0), a reset (1), or a plain TCP close (any other)."""
    if how == 0:
        with suppress(OSError):
            member.send_frame(CLOSE, struct.pack("!H", 1000))
    elif how == 1:
        member.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    member.socket.close()

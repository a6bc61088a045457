"""The engine against a strict server that shares nothing with it: the `websockets` library, and Python's own TLS.

Each test is one plan carried out by the real engine. Nothing here asserts a speed.
"""

import contextlib
import itertools
import json
import socket
import ssl
import subprocess
import threading
import time

import pytest
import trustme
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.sync.server import serve

from wsbench import engine
from wsbench.engine_files import (
    Closed,
    Connect,
    Deflate,
    Echo,
    End,
    Limits,
    Messages,
    Open,
    Ping,
    Plan,
    Segment,
    Target,
    Tls,
    parse_event,
)

MIB = 1 << 20


@contextlib.contextmanager
def echo_server(echo=None, **options):
    """A `websockets` server on a free port; yields its address and the handshakes and exceptions it saw."""
    seen = {"requests": [], "messages": [], "closes": []}

    def handler(connection):
        seen["requests"].append(connection.request)
        for message in connection:
            seen["messages"].append((type(message), len(message)))
            connection.send(message) if echo is None else echo(connection, message)
        seen["closes"].append((connection.close_code, connection.close_reason))

    # No pings unless a test is about them: a busy machine must not look like a dead client.
    with serve(handler, "127.0.0.1", 0, **{"max_size": 4 * MIB, "ping_interval": None, **options}) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host, port = server.socket.getsockname()
        try:
            yield f"{host}:{port}", seen
        finally:
            server.shutdown()
            thread.join()


def plan(address: str, **changes) -> Plan:
    """Twenty text messages of a hundred bytes on two connections, unless changed."""
    standard = {
        "scenario": Echo(opcode="text", bytes=100),
        "transport": "websocket",
        "target": Target(address=address, host=address, path="/echo"),
        "loop": Closed(),
        "connections": 2,
        "connect": Connect(),
        "stages": None,
        "mask": "random",
        "tls": None,
        "deflate": None,
        "fragment_bytes": None,
        "subprotocols": [],
        "warmup": None,
        "measure": Messages(messages=20),
        "drain_s": 5.0,
        "limits": Limits(connect_s=20.0, reply_s=20.0, deadline_s=60.0),
        "threads": 1,
        "cpus": [],
        "busy_poll": False,
        "receive_stamps": None,
        "source_addresses": ["127.0.0.1"],
        "headers": [],
        "seed": 7,
        "shard": (0, 1),
    }
    return Plan(**{**standard, **changes})


@pytest.fixture
def carry_out(tmp_path):
    """Runs the engine with a plan; the `end` of what it wrote, every line of which must keep the contract."""
    numbers = itertools.count()

    def run(plan: Plan) -> End:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        file = folder / "plan.json"
        file.write_text(plan.model_dump_json())
        command = [engine.require_binary(), file, folder / "out"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        events = [parse_event(line) for line in (folder / "out" / "events.jsonl").read_text().splitlines()]
        assert isinstance(events[-1], End)
        return events[-1]

    return run


def all_answered(end: End, messages: int = 20) -> None:
    assert end.errors == {}
    assert (end.measured.sent, end.measured.answered) == (messages, messages)
    assert end.outcome == "completed"


def nothing_but(end: End, kind: str) -> None:
    assert set(end.errors) == {kind}, end.errors
    assert end.outcome == "no_connection"
    assert end.measured.sent == 0


# ---- plain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opcode", ["text", "binary"])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 125, 126, 65_535, 65_536, MIB])
def test_messages_of_every_length_class_come_back(carry_out, opcode, size):
    with echo_server(compression=None) as (address, seen):
        end = carry_out(plan(address, scenario=Echo(opcode=opcode, bytes=size)))
    all_answered(end)
    assert set(seen["messages"]) == {(str if opcode == "text" else bytes, size)}
    assert seen["closes"] == [(1000, "")] * 2


@pytest.mark.parametrize("fragment", [1, 7, 99, 100, 4096])
def test_fragments_are_put_together(carry_out, fragment):
    with echo_server(compression=None) as (address, _):
        all_answered(carry_out(plan(address, fragment_bytes=fragment, loop=Closed(depth=4))))


def test_fragmented_replies_are_read_and_counted(carry_out):
    def in_pieces(connection, message):
        connection.send(message[at : at + 7] for at in range(0, len(message), 7))

    with echo_server(in_pieces, compression=None) as (address, _):
        end = carry_out(plan(address, loop=Closed(depth=16), connections=1))
    all_answered(end)
    assert end.control.fragmented_replies == 20


def test_pings_of_the_server_are_answered_between_messages(carry_out):
    def with_ping(connection, message):
        answered = connection.ping()
        connection.send(message)
        pending.append(answered)

    pending = []
    with echo_server(with_ping, compression=None) as (address, _):
        end = carry_out(plan(address))
        assert all(answered.wait(5) for answered in pending[:-2])
    all_answered(end)
    assert end.control.pings_answered >= 18


# ---- permessage-deflate ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 100, 65_536, MIB])
@pytest.mark.parametrize("client", [True, False])
@pytest.mark.parametrize("server", [True, False])
def test_compressed_messages_come_back(carry_out, size, client, server):
    deflate = Deflate(client_context_takeover=client, server_context_takeover=server)
    with echo_server() as (address, seen):
        end = carry_out(plan(address, deflate=deflate, scenario=Echo(opcode="binary", bytes=size)))
        offers = [request.headers["Sec-WebSocket-Extensions"] for request in seen["requests"]]
    all_answered(end)
    assert all(("client_no_context_takeover" in offer) != client for offer in offers)
    assert all(("server_no_context_takeover" in offer) != server for offer in offers)


@pytest.mark.parametrize("level", range(10))
def test_every_level_is_deflate(carry_out, level):
    with echo_server() as (address, _):
        end = carry_out(plan(address, deflate=Deflate(level=level), scenario=Echo(opcode="text", bytes=50_000)))
    all_answered(end)


def test_a_context_makes_fewer_bytes(carry_out):
    sent = {}
    for takeover in [True, False]:
        with echo_server() as (address, _):
            deflate = Deflate(client_context_takeover=takeover, server_context_takeover=takeover)
            end = carry_out(plan(address, deflate=deflate, connections=1, scenario=Echo(opcode="text", bytes=2000)))
        all_answered(end)
        sent[takeover] = (end.measured.bytes_sent, end.measured.bytes_received)
    # The content is the same in every message, so that with a context all but the first are nearly nothing.
    assert all(with_context < without / 4 for with_context, without in zip(sent[True], sent[False], strict=True))


@pytest.mark.parametrize("bits", [9, 12, 15])
def test_a_server_may_choose_its_window_and_drop_both_contexts(carry_out, bits):
    factory = ServerPerMessageDeflateFactory(
        server_no_context_takeover=True, client_no_context_takeover=True, server_max_window_bits=bits
    )
    with echo_server(compression=None, extensions=[factory]) as (address, _):
        all_answered(carry_out(plan(address, deflate=Deflate(), scenario=Echo(opcode="text", bytes=100_000))))


def test_a_server_that_declines_fails_the_handshake(carry_out):
    with echo_server(compression=None) as (address, _):
        nothing_but(carry_out(plan(address, deflate=Deflate())), "handshake_invalid")


def test_content_from_a_file_is_compressed_as_it_is(carry_out, tmp_path):
    content = tmp_path / "content.json"
    content.write_text(json.dumps([{"name": f"größer {number}", "value": number} for number in range(500)]))
    size = content.stat().st_size
    with echo_server() as (address, _):
        end = carry_out(
            plan(address, deflate=Deflate(), scenario=Echo(opcode="text", bytes=size, content=str(content)))
        )
    all_answered(end)
    assert end.measured.bytes_sent < 20 * size / 4


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A context for a server at localhost, the file of the authority that signed it, and that of another."""
    folder = tmp_path_factory.mktemp("authority")
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    stranger.cert_pem.write_to_path(folder / "stranger.pem")
    return context, str(folder / "ca.pem"), str(folder / "stranger.pem")


def named(address: str, host: str = "localhost") -> Target:
    return Target(address=address, host=f"{host}:{address.rpartition(':')[2]}", path="/echo")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_server_that_its_authority_vouches_for_is_trusted(carry_out, authority, version, host):
    context, ca, _ = authority
    context.maximum_version = version
    with echo_server(ssl=context, compression=None) as (address, _):
        end = carry_out(plan(address, target=named(address, host), tls=Tls(ca=ca), loop=Closed(depth=4)))
    context.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    all_answered(end)


def test_a_server_that_nobody_vouches_for_is_refused_unless_the_plan_says_otherwise(carry_out, authority):
    context, ca, stranger = authority
    with echo_server(ssl=context, compression=None) as (address, _):
        nothing_but(carry_out(plan(address, target=named(address), tls=Tls(ca=stranger))), "tls_failed")
        nothing_but(carry_out(plan(address, target=named(address, "other.test"), tls=Tls(ca=ca))), "tls_failed")
        all_answered(carry_out(plan(address, target=named(address, "other.test"), tls=Tls(verify=False))))


def test_a_server_without_tls_is_tls_failed(carry_out):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            for _ in range(2):
                client, _ = listener.accept()
                with client:
                    client.recv(10_000)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        end = carry_out(plan(address, target=named(address), tls=Tls(verify=False)))
        thread.join()
    nothing_but(end, "tls_failed")


@pytest.mark.parametrize("size", [0, 1, 16_384, MIB])
def test_tls_deflate_and_fragments_together_sixteen_deep(carry_out, authority, size):
    context, ca, _ = authority
    with echo_server(ssl=context) as (address, _):
        end = carry_out(
            plan(
                address,
                target=named(address),
                tls=Tls(ca=ca),
                deflate=Deflate(),
                fragment_bytes=1000,
                loop=Closed(depth=16),
                scenario=Echo(opcode="text", bytes=size),
                measure=Messages(messages=32),
                threads=2,
            )
        )
    all_answered(end, 32)


def test_connections_are_exchanged_over_tls(carry_out, authority):
    context, ca, _ = authority
    with echo_server(ssl=context, compression=None) as (address, seen):
        loop = Closed(messages_per_connection=2)
        end = carry_out(plan(address, target=named(address), tls=Tls(ca=ca), loop=loop))
        assert 10 <= len(seen["requests"]) <= 12
    all_answered(end)


def test_an_open_loop_over_tls_sends_its_schedule(carry_out, authority):
    context, ca, _ = authority
    rate = [Segment(from_per_s=100, to_per_s=100, for_s=1)]
    with echo_server(ssl=context) as (address, _):
        end = carry_out(plan(address, target=named(address), tls=Tls(ca=ca), deflate=Deflate(), loop=Open(rate=rate)))
    all_answered(end)


def test_tls_begins_when_the_connection_is_made_late(carry_out, authority):
    """A full accept queue delays a connect beyond the first attempt to write to it."""
    context, ca, _ = authority
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        keep = []

        def serve_late():
            time.sleep(0.5)
            for _ in range(6):
                client, _ = listener.accept()
                threading.Thread(target=shake_hands, args=[client]).start()

        def shake_hands(client):
            with contextlib.suppress(OSError):
                keep.append(context.wrap_socket(client, server_side=True))

        thread = threading.Thread(target=serve_late, daemon=True)
        thread.start()
        limits = Limits(connect_s=8.0, reply_s=5.0, deadline_s=60.0)
        carry_out(plan(address, target=named(address), tls=Tls(ca=ca), connections=6, limits=limits))
        thread.join(1)
    # Nobody answers the upgrade; all that counts is that TLS was agreed upon, on every connection.
    assert len(keep) == 6


def test_tls_is_ended_with_a_goodbye(carry_out, authority):
    context, *_ = authority
    ends = []

    def serve_ping(listening):
        for _ in range(2):
            connection, _ = listening.accept()
            with context.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False) as tls:
                try:
                    while tls.recv(4):
                        tls.sendall(b"Pong")
                    ends.append("goodbye")
                except ssl.SSLEOFError:
                    ends.append("cut off")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve_ping, args=[listening], daemon=True).start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        ping = {"scenario": Ping(), "transport": "tcp", "connections": 1, "measure": Messages(messages=3)}
        for _ in range(2):
            all_answered(carry_out(plan(address, tls=Tls(verify=False), **ping)), 3)
    assert ends == ["goodbye"] * 2


def test_what_follows_the_end_of_tls_is_ignored(carry_out, authority):
    """A server that says goodbye in TLS and keeps talking must not hold the engine up."""
    context, ca, _ = authority
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def talk_on():
            for _ in range(2):
                client, _ = listener.accept()
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                tls = context.wrap_bio(incoming, outgoing, server_side=True)
                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        client.sendall(outgoing.read())
                        incoming.write(client.recv(10_000))
                with contextlib.suppress(ssl.SSLError):
                    tls.unwrap()
                client.sendall(outgoing.read())
                for _ in range(3):
                    time.sleep(0.2)
                    client.sendall(b"and another thing")
                client.close()

        thread = threading.Thread(target=talk_on)
        thread.start()
        limits = Limits(connect_s=3.0, reply_s=3.0, deadline_s=20.0)
        end = carry_out(plan(address, target=named(address), tls=Tls(ca=ca), limits=limits))
        thread.join()
    assert end.outcome == "no_connection"


# ---- subprotocols ------------------------------------------------------------------------------------------------------


def test_a_subprotocol_that_was_offered_is_chosen(carry_out):
    with echo_server(compression=None, subprotocols=["second", "first"]) as (address, seen):
        end = carry_out(plan(address, subprotocols=["first", "second"]))
        offers = [request.headers["Sec-WebSocket-Protocol"] for request in seen["requests"]]
    all_answered(end)
    assert offers == ["first, second"] * 2


def test_a_server_need_not_choose_a_subprotocol(carry_out):
    with echo_server(compression=None, select_subprotocol=lambda connection, offered: None) as (address, _):
        all_answered(carry_out(plan(address, subprotocols=["first"])))


@pytest.mark.parametrize("offered", [[], ["first"]])
def test_a_subprotocol_that_nobody_offered_fails_the_handshake(carry_out, offered):
    def foreign(connection, request, response):
        response.headers["Sec-WebSocket-Protocol"] = "foreign"

    with echo_server(compression=None, process_response=foreign) as (address, _):
        nothing_but(carry_out(plan(address, subprotocols=offered)), "handshake_invalid")

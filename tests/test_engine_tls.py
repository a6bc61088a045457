"""The engine over TLS, against Python's own: whom it trusts, and how TLS begins and ends. Nothing here asserts a speed."""

import contextlib
import socket
import ssl
import threading
import time

import pytest
import trustme
from strict_server import MIB, all_answered, echo_server, nothing_but, plan

from wsbench.records.engine_files import Closed, Deflate, Echo, Limits, Messages, Open, Ping, Segment, Target, Tls

pytestmark = pytest.mark.nightly


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

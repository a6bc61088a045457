"""The engine against a strict server that shares nothing with it: the `websockets` library.

Each test is one plan carried out by the real engine. Nothing here asserts a speed.
"""

import json

import pytest
from strict_server import MIB, all_answered, echo_server, nothing_but, plan
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory

from wsbench.records.engine_files import Closed, Deflate, Echo

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
        # With the whole window, in which a message of this size finds the one before.
        with echo_server(compression=None, extensions=[ServerPerMessageDeflateFactory()]) as (address, _):
            deflate = Deflate(client_context_takeover=takeover, server_context_takeover=takeover)
            end = carry_out(plan(address, deflate=deflate, connections=1, scenario=Echo(opcode="text", bytes=20_000)))
        all_answered(end)
        sent[takeover] = (end.measured.bytes_sent, end.measured.bytes_received)
    # Messages of this size share most of their content: with a context all but the first are nearly nothing.
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
        end = carry_out(plan(address, deflate=Deflate(), scenario=Echo(opcode="text", bytes=size, content=str(content))))
    all_answered(end)
    assert end.measured.bytes_sent < 20 * size / 4


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

"""Before a load one exchange is tried: a mistake is one line with what to type, and the server gets no load."""

import re

import pytest
from conducts import (
    BINARY,
    Peer,
    closes_with_words,
    echoes,
    feeds,
    has_another_key,
    leaves,
    listens,
    redirects,
    refuses,
    refuses_with_a_page,
    says_twice,
)

from wsbench.cli import exits
from wsbench.run import preflight

pytestmark = pytest.mark.system


def has_nothing_there(peer: Peer) -> None:
    peer.key()
    peer.say(b"404 Not Found", b"Content-Length: 0")


def is_a_page(peer: Peer) -> None:
    peer.key()
    peer.say(b"200 OK", b"Content-Length: 2\r\n\r\nhi")


def wants_an_upgrade(peer: Peer) -> None:
    peer.key()
    peer.say(b"426 Upgrade Required", b"Content-Length: 0")


def speaks_socket_io(peer: Peer) -> None:
    peer.accept()
    peer.send(b'0{"sid":"a","upgrades":[]}')
    peer.message()


def answers_in_json(peer: Peer) -> None:
    peer.accept()
    while True:
        peer.message()
        peer.send(b'{"error":"no such type"}')


def answers_in_binary(peer: Peer) -> None:
    peer.accept()
    while True:
        peer.send(peer.message(), BINARY)


def answers_at_length(peer: Peer) -> None:
    peer.accept()
    while True:
        peer.message()
        peer.send(b"on and on, " * 200)


def speaks_another_language(peer: Peer) -> None:
    peer.connection.sendall(b"220 mail.example.org ESMTP\r\n")
    peer.stream.readline()


NEVERTHELESS = "`--no-preflight` sends the load nevertheless."
NAME_IT = r"name its session with --session \(`wsbench list sessions`\)"
MISTAKES = [
    (has_nothing_there, "/nope", "the server answers HTTP 404 Not Found. Check the path of the URL."),
    (is_a_page, "/", "the server answers HTTP 200 OK: hi. Check the path: no WebSocket is there."),
    (wants_an_upgrade, "/", "the server answers HTTP 426 Upgrade Required. Use ws:// or wss://."),
    (refuses, "/", "the server answers HTTP 401 Unauthorized. Add what it asks for, such as -H 'Authorization: …'."),
    (refuses_with_a_page, "/", "the server answers HTTP 403 Forbidden. Add what it asks for, .*"),
    (redirects, "/", "the server answers HTTP 308 .*: Location: /new/ws. Load the address that it redirects to."),
    (has_another_key, "/", "the server's handshake has a wrong key: .* Check that the port speaks WebSocket."),
    (speaks_another_language, "/", "the server's handshake is invalid: .* Check that the port speaks WebSocket."),
    (leaves, "/", f"the server closed the connection( at once| within .*)?: without a Close frame. {NEVERTHELESS}"),
    (closes_with_words, "/", f"the server closed the connection( at once| within .*)?: code 4003: quota used. {NEVERTHELESS}"),
    (listens, "/chat", f"the server does not echo: it sends no answer to a message; {NAME_IT}. {NEVERTHELESS}"),
    (answers_in_binary, "/", f"the server answers a text message by a binary one: add --binary. {NEVERTHELESS}"),
    (
        answers_at_length,
        "/",
        f"the server does not echo: it sends `on and on, .*…` as the answer to a message; {NAME_IT}. {NEVERTHELESS}",
    ),
    (
        listens,
        "/graphql",
        "the server does not echo: .*; it seems to speak graphql-transport-ws: add --session graphql-transport-ws. .*",
    ),
    (says_twice, "/", f"the server does not echo: it sends `hellohello` as the answer to a message; {NAME_IT}. {NEVERTHELESS}"),
    (answers_in_json, "/", 'the server does not echo: it sends `{"error":"no such type"}` as the answer to a message; .*'),
    (speaks_socket_io, "/", r'the server speaks first, `0{"sid":"a",.*`; it seems to speak socket.io: add --session socket.io'),
    (feeds, "/", f'the server speaks first, `{{"type":"tick"}}`; {NAME_IT}'),
]


@pytest.mark.parametrize(("conduct", "path", "said"), MISTAKES)
def test_a_load_that_would_measure_nothing_is_one_line(serve, wsbench, tmp_path, conduct, path, said):
    url = f"ws://127.0.0.1:{serve(conduct)}{path}"
    done = wsbench("load", url, "-c", "4")
    assert done.returncode == exits.BAD_INPUT
    (line,) = done.stderr.splitlines()
    assert re.fullmatch(f"wsbench: {re.escape(url)}: {said}", line), line
    assert done.stdout == ""
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize("words", [(), ("--idle",), ("--rate", "50")])
def test_a_server_that_echoes_is_loaded(serve, wsbench, words):
    done = wsbench("load", f"ws://127.0.0.1:{serve(echoes)}/", "-c", "2", "-t", "200ms", "--warmup", "0", *words, "--json")
    assert done.returncode != exits.BAD_INPUT, done.stderr


def test_compression_that_a_server_does_not_have_is_said(serve, wsbench):
    done = wsbench("load", f"ws://127.0.0.1:{serve(echoes)}/", "--deflate")
    assert done.returncode == exits.BAD_INPUT
    assert done.stderr.endswith("the server declined permessage-deflate. Omit --deflate.\n")


def test_tls_that_is_not_there_is_said(serve, wsbench):
    done = wsbench("load", f"wss://127.0.0.1:{serve(speaks_another_language)}/")
    assert done.returncode == exits.BAD_INPUT
    assert re.search(r": TLS fails: .*\. Check that the port speaks TLS \(else ws://\); .*--insecure\.$", done.stderr.strip())


@pytest.mark.parametrize(
    ("path", "said", "name"),
    [
        ("/mqtt", "", "mqtt"),
        ("/", 'INFO {"server_id":"x"}', "nats"),
        ("/", "CONNECTED\nversion:1.2\n\n\0", "stomp"),
        ("/connection/websocket", "", "centrifugo"),
        ("/", "hello", None),
        ("/ws", "", None),
    ],
)
def test_a_session_is_recognised_by_its_path_and_by_its_first_words(path, said, name):
    assert preflight.recognised(path, said) == name

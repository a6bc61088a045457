"""A session from an HTTP Archive: what is guessed of recorded conversations, and that it can be carried out."""

from __future__ import annotations

import json

import pytest

from wsbench.records.errors import UserError
from wsbench.sessions import compiling, from_har, har, session_file


def archive(url: str, *messages: tuple[str, float, str], subprotocol: str | None = None) -> dict:
    """Messages are `>` or `<`, seconds, text."""
    headers = [] if subprotocol is None else [{"name": "Sec-WebSocket-Protocol", "value": subprotocol}]
    told = [{"type": "send" if way == ">" else "receive", "time": at, "opcode": 1, "data": text} for way, at, text in messages]
    entry = {"request": {"url": url, "headers": []}, "response": {"headers": headers}, "_webSocketMessages": told}
    return {"log": {"entries": [{"request": {"url": "https://x"}}, entry]}}


def compiled(tmp_path, recorded: dict):
    file = tmp_path / "recorded.toml"
    file.write_text(from_har.session_of(har.chosen(recorded, None)))
    return session_file.read(file), compiling.compiled(file, compiling.Choice(), 10)


GRAPHQL = archive(
    "ws://127.0.0.1:4000/graphql?a=1",
    (">", 0.0, '{"type":"connection_init"}'),
    ("<", 0.1, '{"type":"connection_ack"}'),
    (">", 0.2, '{"id":"6ba7b810-9dad","type":"subscribe","payload":{"query":"{ hello }"}}'),
    ("<", 0.3, '{"id":"6ba7b810-9dad","type":"next","payload":{"data":{"hello":"world"}}}'),
    ("<", 0.3, '{"id":"6ba7b810-9dad","type":"complete"}'),
    ("<", 5.0, '{"type":"ping"}'),
    (">", 5.0, '{"type":"pong"}'),
    (">", 6.2, '{"id":"7ca7b810-9dad","type":"subscribe","payload":{"query":"{ hello }"}}'),
    ("<", 6.3, '{"id":"7ca7b810-9dad","type":"next","payload":{"data":{"hello":"world"}}}'),
    ("<", 6.3, '{"id":"7ca7b810-9dad","type":"complete"}'),
    subprotocol="graphql-transport-ws",
)
SOCKET_IO = archive(
    "ws://127.0.0.1:3000/socket.io/?EIO=4&transport=websocket",
    ("<", 0.0, '0{"sid":"abc","pingInterval":25000}'),
    (">", 0.1, "40"),
    ("<", 0.2, '40{"sid":"def"}'),
    (">", 0.3, '420["say","hi"]'),
    ("<", 0.4, '430["ok"]'),
    ("<", 0.5, '42["news",1]'),
    (">", 0.6, '421["say","ho"]'),
    ("<", 0.7, '431["ok"]'),
    ("<", 25.0, "2"),
    (">", 25.0, "3"),
)
LOGIN = archive(
    "wss://example.org/chat",
    (">", 0.0, '{"login":"ann"}'),
    ("<", 0.1, '{"kind":"welcome","token":"f00dcafe1234"}'),
    (">", 0.2, '{"id":1,"token":"f00dcafe1234","say":"hi"}'),
    ("<", 0.3, '{"kind":"said","id":1}'),
    (">", 10.0, '{"alive":true}'),
    (">", 20.0, '{"alive":true}'),
    (">", 25.0, '{"id":2,"token":"f00dcafe1234","say":"ho"}'),
    ("<", 25.1, '{"kind":"said","id":2}'),
    (">", 30.0, '{"alive":true}'),
)


def test_graphql_is_recognised_by_its_ids(tmp_path):
    file, made = compiled(tmp_path, GRAPHQL)
    assert (file.path, file.subprotocols) == ("/graphql?a=1", ["graphql-transport-ws"])
    assert [(one.send, one.await_) for one in file.setup] == [('{"type":"connection_init"}', "connection-ack")]
    assert [(one.send, one.await_) for one in file.steps] == [
        ('{"id":"${sequence}","type":"subscribe","payload":{"query":"{ hello }"}}', "reply-complete")
    ]
    assert file.rules["part-next"].more
    assert [one.answer for one in file.rules.values() if one.answer] == ['{"type":"pong"}']
    assert made.setup == 1


def test_socket_io_is_recognised_by_its_digits(tmp_path):
    file, _ = compiled(tmp_path, SOCKET_IO)
    assert [one.send for one in file.setup] == [None, "40"]
    assert [one.send for one in file.steps] == ['42${sequence}["say","hi"]', '42${sequence}["say","ho"]']
    assert [one.answer for one in file.rules.values() if one.answer] == ["3"]


def test_captures_and_keep_alives_are_recognised(tmp_path):
    file, made = compiled(tmp_path, LOGIN)
    assert [one.send for one in file.steps] == [
        '{"id":${sequence},"token":"${captured:token-1}","say":"hi"}',
        '{"id":${sequence},"token":"${captured:token-1}","say":"ho"}',
    ]
    assert [(one.send, one.every_s) for one in file.keepalive] == [('{"alive":true}', 10.0)]
    assert file.rules["welcome"].capture == {"token-1": "token-1"}
    assert made.captured == 1


def test_the_connection_is_chosen_by_its_url():
    both = {"log": {"entries": [*GRAPHQL["log"]["entries"], *SOCKET_IO["log"]["entries"]]}}
    assert "EIO=4" in har.chosen(both, "socket.io")["request"]["url"]
    with pytest.raises(UserError, match=r"no WebSocket of this archive has 'chat' in its URL; found: ws://127\.0\.0\.1:4000"):
        har.chosen(both, "chat")


@pytest.mark.parametrize("wrong", [[], {}, {"log": {}}, {"log": {"entries": []}}, {"log": {"entries": [{"request": {}}]}}])
def test_what_has_no_messages_is_refused(wrong):
    with pytest.raises(UserError, match=r"no HTTP Archive|no entry has"):
        har.connections(wrong)


def test_binary_messages_are_refused():
    entry = {"_webSocketMessages": [{"type": "send", "time": 0, "opcode": 2, "data": "//8="}]}
    with pytest.raises(UserError, match="binary messages"):
        from_har.session_of(entry)


def test_the_command_prints_a_session(tmp_path, wsbench):
    (tmp_path / "page.har").write_text(json.dumps(GRAPHQL))
    done = wsbench("session", "from-har", "page.har")
    assert done.returncode == 0, done.stderr
    (tmp_path / "page.toml").write_text(done.stdout)
    assert wsbench("session", "check", "page.toml").returncode == 0
    done = wsbench("session", "from-har", "page.har", "--entry", "nothing")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)

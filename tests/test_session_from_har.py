"""A session from an HTTP Archive: what is guessed of recorded conversations, and that it can be carried out."""

from __future__ import annotations

import json
import random
from pathlib import Path

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
#: As Chromium records the chat of Socket.IO's tutorial, which polls first.
CHAT = archive(
    "ws://127.0.0.1:3000/socket.io/?EIO=4&transport=websocket&sid=BFIBVnkp",
    (">", 1.0, "2probe"),
    ("<", 1.0, "3probe"),
    (">", 1.1, "5"),
    (">", 2.0, '42["chat message","hello everyone"]'),
    ("<", 2.0, '42["chat message","hello everyone"]'),
    (">", 3.0, '42["chat message","ok"]'),
    ("<", 3.0, '42["chat message","ok"]'),
)
POLLS = "http://127.0.0.1:3000/socket.io/?EIO=4&transport=polling&t=xhr"
OPENED = '0{"sid":"BFIBVnkp","upgrades":["websocket"]}'


def polled(method: str, url: str, sent: str = "", received: str = "") -> dict:
    request = {"method": method, "url": url, "postData": {"text": sent}} if sent else {"method": method, "url": url}
    return {"request": request, "response": {"content": {"text": received}}}


#: As Chromium records a page with the client of graphql-ws: a subscription, and what its user types.
ROOM = archive(
    "ws://127.0.0.1:4000/graphql",
    (">", 0.0, '{"type":"connection_init"}'),
    ("<", 0.1, '{"type":"connection_ack"}'),
    (">", 0.2, '{"id":"5b13092d","type":"subscribe","payload":{"query":"subscription { room }","variables":{"room":"lobby"}}}'),
    (">", 1.0, '{"id":"9dcadd40","type":"subscribe","payload":{"query":"mutation { publish }","variables":{"text":"hello"}}}'),
    ("<", 1.1, '{"id":"5b13092d","type":"next","payload":{"data":{"room":"hello"}}}'),
    ("<", 1.1, '{"id":"9dcadd40","type":"next","payload":{"data":{"publish":true}}}'),
    ("<", 1.1, '{"id":"9dcadd40","type":"complete"}'),
    (">", 2.0, '{"id":"831a3a11","type":"subscribe","payload":{"query":"mutation { publish }","variables":{"text":"bye"}}}'),
    ("<", 2.1, '{"id":"5b13092d","type":"next","payload":{"data":{"room":"bye"}}}'),
    ("<", 2.1, '{"id":"831a3a11","type":"next","payload":{"data":{"publish":true}}}'),
    ("<", 2.1, '{"id":"831a3a11","type":"complete"}'),
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


def test_what_users_type_and_get_back_is_a_setting(tmp_path):
    file, made = compiled(tmp_path, CHAT)
    assert [(one.send, one.await_) for one in file.steps] == [('42["chat message","${text}"]', "own")]
    assert file.settings["text"].default == "${postmark}"
    # The recording is too short for a ping; without a pong the server would end the connection.
    assert [one.answer for one in file.rules.values() if one.answer] == ["3"]
    assert made.setup == 2


def test_a_room_s_name_is_not_what_a_user_typed(tmp_path):
    chat = [
        one
        for at, text in enumerate(("hi", "ho"))
        for one in ((">", at, f'{{"room":"the lobby","text":"{text}"}}'), ("<", at, f'{{"room":"the lobby","text":"{text}"}}'))
    ]
    file, _ = compiled(tmp_path, archive("ws://127.0.0.1/", *chat))
    assert [(one.send, one.await_) for one in file.steps] == [('{"room":"the lobby","text":"${text}"}', "own")]


def test_a_login_that_comes_back_is_not_typed(tmp_path):
    login = ((">", 0, '{"login":"ann"}'), ("<", 0.1, '{"kind":"welcome","user":"ann"}'))
    file, _ = compiled(tmp_path, archive("ws://127.0.0.1/", *login, *((way, at, text) for way, at, text in TYPED)))
    assert [one.send for one in file.setup] == ['{"login":"ann"}']
    assert [one.send for one in file.steps] == ['{"say":"${text}"}']


TYPED = [one for at in (1, 2) for one in ((">", at, f'{{"say":"line {at}"}}'), ("<", at, f'{{"kind":"said","what":"line {at}"}}'))]


def test_messages_that_come_back_are_not_ignored_although_the_setup_awaits_one(tmp_path):
    join = ((">", 0, '{"join":1}'), ("<", 0.1, '{"kind":"said","what":"welcome"}'))
    file, _ = compiled(tmp_path, archive("ws://127.0.0.1/", *join, *TYPED))
    assert [one.await_ for one in file.setup] == ["said"]
    assert file.rules["said"].push


def test_polls_before_the_websocket_come_first(tmp_path):
    recorded = json.loads(json.dumps(CHAT))
    recorded["log"]["entries"][:0] = [
        polled("GET", POLLS, received=OPENED),
        polled("POST", f"{POLLS}&sid=BFIBVnkp", '40{"token":"t"}', "ok"),
        polled("GET", f"{POLLS}&sid=BFIBVnkp", received='40{"sid":"x"}\x1e42["news","a"]'),
        polled("GET", f"{POLLS}&sid=another", received='42["not","ours"]'),
        polled("GET", f"{POLLS}&sid=BFIBVnkp", received="6"),
    ]
    file, _ = compiled(tmp_path, recorded)
    assert file.path == "/socket.io/?EIO=4&transport=websocket"
    assert [(one.send, one.await_) for one in file.setup] == [(None, "packet-0"), ('40{"token":"t"}', "packet-40")]


def test_an_upgrade_without_its_polls_begins_as_usual(tmp_path):
    file, _ = compiled(tmp_path, CHAT)
    assert [(one.send, one.await_) for one in file.setup] == [(None, "packet-0"), ("40", "packet-40")]


def test_texts_made_from_the_connection_s_name_are_different_for_every_message(tmp_path):
    recorded = archive(
        "ws://127.0.0.1/socket.io/?EIO=4&transport=websocket",
        ("<", 0, '0{"sid":"N7AawcVkOv"}'),
        (">", 0, "40"),
        ("<", 0, '40{"sid":"Kq8ZcVkOvD"}'),
        (">", 1, '420["say","hello","Kq8ZcVkOvD-0"]'),
        ("<", 1, '42["say","hello"]'),
        ("<", 1, "430[]"),
        (">", 2, '421["say","bye","Kq8ZcVkOvD-1"]'),
        ("<", 2, '42["say","bye"]'),
        ("<", 2, "431[]"),
    )
    file, _ = compiled(tmp_path, recorded)
    assert [one.send for one in file.steps] == ['42${sequence}["say","${text}","${user}-${sequence}"]']


def test_a_subscription_is_the_setup_and_brings_what_is_typed(tmp_path):
    file, _ = compiled(tmp_path, ROOM)
    assert [one.await_ for one in file.setup] == ["connection-ack", None]
    assert '"query":"subscription' in file.setup[1].send
    assert [one.await_ for one in file.steps] == ["reply-complete"]
    assert '"text":"${text}"' in file.steps[0].send
    assert next(iter(file.rules)) == "message"
    assert file.rules["message"].push


def test_a_kind_may_be_called_as_a_rule_of_wsbench(tmp_path):
    recorded = archive(
        "ws://127.0.0.1/",
        (">", 0, '{"join":1}'),
        ("<", 0, '{"kind":"pushed","by":"ann"}'),
        (">", 1, '{"id":1}'),
        ("<", 1, '{"id":1}'),
    )
    file, _ = compiled(tmp_path, recorded)
    assert list(file.rules) == ["pushed", "reply-other", "pushed-2"]


def test_the_connection_is_chosen_by_its_url():
    both = {"log": {"entries": [*GRAPHQL["log"]["entries"], *SOCKET_IO["log"]["entries"]]}}
    assert "EIO=4" in har.chosen(both, "socket.io").url
    with pytest.raises(UserError, match=r"no WebSocket of this archive has 'chat' in its URL; found: ws://127\.0\.0\.1:4000"):
        har.chosen(both, "chat")


@pytest.mark.parametrize("wrong", [[], {}, {"log": {}}, {"log": {"entries": []}}, {"log": {"entries": [{"request": {}}]}}])
def test_what_has_no_messages_is_refused(wrong):
    with pytest.raises(UserError, match=r"no HTTP Archive|no entry has"):
        har.connections(wrong)


def test_binary_messages_are_refused():
    recorded = archive("ws://127.0.0.1/", (">", 0, "//8="))
    recorded["log"]["entries"][1]["_webSocketMessages"][0]["opcode"] = 2
    with pytest.raises(UserError, match="binary messages"):
        from_har.session_of(har.chosen(recorded, None))


@pytest.mark.parametrize(
    "text",
    [
        "SEND\ndestination:/a\n\nhello\0",
        "x\n\n[[steps]]\nname = 'injected'\nsend = 'injected'\n",
        "'" * 3 + '\n"""\\',
        "\x7f\x85\u2028\r\n\ufeff\x1b[2J",
        "\ud800 is half a letter",
        "${not a place} $${ ${captured:nothing}",
        '{"type":"a.b","a.b":"c\\u0000","":{"[0]":"\\ud800"},"id":"\\u007f"}',
    ],
)
@pytest.mark.parametrize("at", ["unanswered", "first", "answered", "kept alive", "URL", "subprotocol"])
def test_text_of_a_message_stays_text(tmp_path, text, at):
    """Whatever a recording has, it becomes a string or a comment of the session, and the file can be read."""
    asked, answer = (">", 1.0, '{"id":1,"do":"x"}'), ("<", 1.1, '{"id":1,"done":"y"}')
    told = {
        "unanswered": [asked, answer, (">", 2.0, text), *((">", 3.0 + at, f"{text}{at}") for at in range(3))],
        "first": [("<", 0.0, text), asked, answer],
        "answered": [(">", 1.0, json.dumps({"id": 1, "do": text, "type": text})), ("<", 1.1, json.dumps({"id": 1, "type": text}))],
        "kept alive": [asked, answer, *((">", 10.0 * turn, text) for turn in range(4)), ("<", 9.0, text), (">", 9.0, "pong")],
    }
    url = f"ws://127.0.0.1/{text if at == 'URL' else ''}?{text if at == 'URL' else ''}"
    recorded = archive(url, *told.get(at, [asked, answer]), subprotocol=text if at == "subprotocol" else None)
    file, _ = compiled(tmp_path, recorded)
    assert "injected" not in [one.name for one in file.steps]


#: What stands where something else was expected.
JUNK = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "text",
    "\ud800\0\n'\"",
    [],
    [[]],
    {},
    {"a": 1},
    [None, "x"],
    "ws://[::1",
    "ws://h/?EIO=4&sid=1",
)


def altered(draw: random.Random, value: object, chance: float) -> object:
    """The archive with some parts replaced, left out or doubled."""
    if draw.random() < chance:
        return draw.choice(JUNK)
    if isinstance(value, dict):
        return {key: altered(draw, one, chance) for key, one in value.items() if draw.random() > chance}
    if isinstance(value, list):
        return [altered(draw, one, chance) for one in value for _ in range(draw.choice((0, 2)) if draw.random() < chance else 1)]
    if isinstance(value, str) and value and draw.random() < chance:
        place = draw.randrange(len(value))
        return value[:place] + draw.choice(("\n", '"', "'", "\0", "\ud800", "${", "]", "\x1e", "a" * 300)) + value[place + 1 :]
    return value


def test_an_altered_archive_is_one_line_or_a_session_that_can_be_read():
    polls = [polled("GET", POLLS, received=OPENED), polled("POST", f"{POLLS}&sid=BFIBVnkp", '40{"token":"t"}', "ok")]
    chat = {"log": {"entries": [*polls, *CHAT["log"]["entries"]]}}
    kinds = (GRAPHQL, SOCKET_IO, LOGIN, CHAT, ROOM, chat)
    draw, made, refused = random.Random(1), 0, []
    for number in range(400):
        raw = altered(draw, kinds[number % len(kinds)], draw.choice((0.01, 0.05, 0.2)))
        try:
            text = from_har.session_of(har.chosen(raw, None))
        except UserError as error:
            refused.append(str(error))
        else:
            compiling.compiled_text(text.encode().decode(), Path("session.toml"), compiling.Choice(), 10)
            made += 1
    assert min(made, len(refused)) > 50, (made, len(refused))
    assert not [line for line in refused if "\n" in line]
    # What differs from an archive is said, not that the result cannot be read.
    assert not [line for line in refused if "unknown" in line or "TOML" in line]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"log":' * 5_000, "9" * 5_000, "\ud800", "{", '{"log":{"entries":[' + "[" * 900])
def test_what_is_no_json_is_one_line(text):
    with pytest.raises(UserError, match=r"not JSON|no HTTP Archive"):
        har.connections(har.archive_of(text))


def test_messages_nested_deeply_are_text(tmp_path):
    compiled(tmp_path, archive("ws://h/", (">", 0, "[" * 100_000), ("<", 0, '{"a":' * 50_000)))


def test_the_command_prints_a_session(tmp_path, wsbench):
    (tmp_path / "page.har").write_text(json.dumps(GRAPHQL))
    done = wsbench("session", "from-har", "page.har")
    assert done.returncode == 0, done.stderr
    (tmp_path / "page.toml").write_text(done.stdout)
    assert wsbench("session", "check", "page.toml").returncode == 0
    done = wsbench("session", "from-har", "page.har", "--entry", "nothing")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)

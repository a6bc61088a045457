"""Session files: what they compile to, what is said of a wrong one, and a load of a real server by each kind of record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from conftest import PATIENCE_S

from wsbench.analysis import thresholds
from wsbench.cli import exits
from wsbench.host import machine
from wsbench.records.errors import UserError
from wsbench.records.session_table import Session
from wsbench.sessions import compiling, session_file

SMALL = """
about  = "calls"
source = "https://example.org"

[settings]
what = { about = "a word", default = "x" }

[fields]
id   = { json = "a.b[2].id" }
kind = { byte = 0, mask = 0xf0 }

[rules]
reply = { has = "id", is = { kind = 0x20 }, reply = "id", capture = { token = "id" } }
push  = { push = true }

[[setup]]
name  = "hello"
send  = "hello ${what} ${user}"

[[steps]]
name  = "call"
send  = ["${hex:30}", { sevens = ["${letters:5}", { two = "${captured:token}" }] }, "$${x} ${sequence}"]
await = "reply"
"""


def compiled(tmp_path, text=SMALL, **chosen) -> Session:
    file = tmp_path / "small.toml"
    file.write_text(text)
    return compiling.compiled(file, compiling.Choice(**chosen), 10)


def test_a_session_file_becomes_a_table(tmp_path):
    made = compiled(tmp_path, settings={"what": "a ${sequence}"}, room_size=3, publishers=1).model_dump()
    assert made["fields"] == [
        {"kind": "json", "path": ["a", "b", 2, "id"]},
        {"kind": "byte", "at": 0, "mask": 0xF0},
    ]
    assert made["rules"][0] == {
        "name": "reply",
        "when": [{"kind": "is", "field": 1, "text": "32"}, {"kind": "has", "field": 0}],
        "does": {"kind": "reply", "by": 0, "marked": False, "last": True},
        "captures": [(0, 0)],
    }
    assert made["templates"] == [
        [{"text": "hello "}, {"text": "a "}, {"number": "sequence"}, {"text": " "}, {"number": "user"}],
        [
            {"bytes": "30"},
            {"counted": {"by": "sevens", "pieces": [{"letters": 5}, {"counted": {"by": "two", "pieces": [{"captured": 0}]}}]}},
            {"text": "${"},
            {"text": "x} "},
            {"number": "sequence"},
        ],
    ]
    assert (made["setup"], made["steps"][0]["awaits"]) == (1, {"kind": "nothing"})
    assert made["rooms"] == {"count": 3, "publishers": 1, "own": True}
    assert Session.model_validate_json(json.dumps(made)) == Session.model_validate(made)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('has = "id"', 'has = "nr"', ":13: 'rules.reply': no field 'nr', allowed: id, kind"),
        ('reply = "id", capture', "capture", ":13: 'rules.reply': found nothing that it does, allowed: exactly one of reply, push"),
        ("${user}", "${usr}", ":17: 'setup.hello': unknown '${usr}', allowed: user, sequence, room"),
        ("${hex:30}", "${hex:3}", ":21: 'steps.call': found '${hex:3}', allowed: pairs of hexadecimal digits"),
        ("${letters:5}", "${column:name}", "needs --data FILE.csv"),
        ("captured:token", "captured:tok", "no captured value 'tok', allowed: token"),
        ('await = "reply"', 'await = "push"', ":21: 'steps.call': 'await' is push, allowed: own, or a rule that replies (reply)"),
        ('await = "reply"', "", "'await' is missing"),
        ("{ byte = 0,", "{ ", ":10: 'fields.kind': found no kind, allowed: exactly one of json, digits"),
        ('"a.b[2].id"', '"a.b[2.id"', "found json = 'a.b[2.id', allowed: keys and indices"),
        ('default = "x"', 'default = "${what}"', "its settings name each other in a circle"),
        ("[rules]", "[ruels]", "missing key 'rules'"),
        ("push = true", "push = false", "'rules.push.push'"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path, old, new, says):
    assert SMALL.count(old) == 1
    with pytest.raises(UserError) as refused:
        compiled(tmp_path, SMALL.replace(old, new))
    assert says in str(refused.value)


def test_every_fault_is_told_at_once(tmp_path):
    with pytest.raises(UserError) as refused:
        compiled(tmp_path, SMALL.replace('has = "id"', 'has = "nr"').replace("${user}", "${usr}"))
    assert len(refused.value.lines) == 2


def test_settings_and_data_are_checked(tmp_path):
    with pytest.raises(UserError, match="--set nothing: no such setting; allowed: what"):
        compiled(tmp_path, settings={"nothing": "1"})
    with pytest.raises(UserError, match="this session needs --set what=VALUE: a word"):
        compiled(tmp_path, SMALL.replace(', default = "x"', ""))
    data = tmp_path / "users.csv"
    data.write_text("name,token\nann,1\n")
    made = compiled(tmp_path, SMALL.replace("${letters:5}", "${column:token}"), data=data)
    assert made.data == str(data.resolve())
    assert made.templates[1][1].counted.pieces[0].column == 1
    data.write_text("name\n")
    with pytest.raises(UserError, match="names in its first line"):
        compiled(tmp_path, data=data)


@pytest.mark.parametrize("name", session_file.known())
def test_every_session_of_wsbench_compiles(name):
    file = session_file.read(session_file.path_of(name))
    settings = {key: "1" for key, setting in file.settings.items() if setting.default is None}
    made = compiling.compiled(session_file.path_of(name), compiling.Choice(settings, room_size=2), 10)
    assert made.steps[made.setup :], "it has steps"


def test_an_unknown_session_is_refused_by_name():
    with pytest.raises(UserError, match=r"no session 'soap' \(see `wsbench list sessions`"):
        session_file.path_of("soap")


#: An application that calls, subscribes and publishes over JSON lines, on the library `websockets`.
SERVER = """
import asyncio, json, os
from websockets.asyncio.server import broadcast, serve

rooms = {}

async def handle(connection):
    async for text in connection:
        call = json.loads(text)
        if call["method"] == "join":
            rooms.setdefault(call["params"][0], set()).add(connection)
        elif call["method"] == "publish":
            broadcast(rooms[call["params"][0]], json.dumps({"method": "news", "params": call["params"]}))
        if call["method"] == "fails":
            await connection.send(json.dumps({"id": call["id"], "error": {"code": -32601}}))
        else:
            await connection.send(json.dumps({"id": call["id"], "result": call["params"]}))

async def main():
    async with serve(handle, os.environ["HOST"], int(os.environ["PORT"])):
        await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""
ROOMS = """
about  = "rooms"
source = "https://example.org"

[fields]
id     = { json = "id" }
error  = { json = "error" }
method = { json = "method" }

[rules]
failed = { has = ["id", "error"], fail = "id" }
result = { has = "id", reply = "id" }
news   = { is = { method = "news" }, push = true }

[[setup]]
name  = "join"
send  = '{"id":${sequence},"method":"join","params":["room-${room}"]}'
await = "result"

[[steps]]
name  = "publish"
send  = '{"id":${sequence},"method":"publish","params":["room-${room}","${postmark}"]}'
await = "result"
"""


@pytest.fixture
def url(tmp_path) -> str:
    return f"ws://127.0.0.1:{machine.free_port('127.0.0.1', None, os.getpid())}"


@pytest.fixture
def load(tmp_path, url):
    """Loads the application with these options; returns the document."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "rooms.toml").write_text(ROOMS)

    def run(*options: str) -> dict:
        command = [sys.executable, "-m", "wsbench.cli", "load", url, "--no-preflight", "--start", f"{sys.executable} server.py"]
        done = subprocess.run(
            [*command, "-c", "6", "-n", "300", "--warmup", "0", "--json", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode in (0, 3, 4), done.stderr + done.stdout
        return json.loads(done.stdout)

    return run


@pytest.fixture
def running(tmp_path, url):
    """The URL at which the application runs until the test ends."""
    (tmp_path / "server.py").write_text(SERVER)
    host, _, port = url.removeprefix("ws://").rpartition(":")
    environment = {**os.environ, "HOST": host, "PORT": port}
    with subprocess.Popen([sys.executable, "server.py"], cwd=tmp_path, env=environment) as server:
        try:
            for _ in range(200):
                if machine.port_in_use(host, int(port)):
                    break
                time.sleep(0.05)
            yield url
        finally:
            server.kill()


@pytest.mark.system
def test_calls_of_a_real_server_are_matched(load):
    found = load("--session", "json-rpc", "--set", 'params=["${postmark}"]', "--depth", "3")
    assert found["ledger"]["answered"] == 300
    assert found["errors"] == {}
    assert found["session"]["steps_ns"]["call"]["count"] == 300


@pytest.mark.system
def test_a_call_that_fails_is_no_reply(load):
    found = load("--session", "json-rpc", "--set", "method=fails")
    assert (found["ledger"]["answered"], found["ledger"]["failed"]) == (0, 300)
    assert found["errors"] == {"reply_error": 300}


@pytest.mark.system
def test_copies_in_rooms_are_counted(load):
    found = load("--session", "rooms.toml", "--room-size", "3")
    counts = found["session"]["counts"]
    assert (counts["copies_expected"], counts["copies_received"], counts["copies_out_of_order"]) == (900, 900, 0)
    assert found["session"]["steps_ns"]["join"]["count"] == 6
    assert found["times_ns"]["push_last"]["count"] == 300


@pytest.mark.system
def test_a_session_is_tried_with_one_user(running, tmp_path, wsbench):
    done = wsbench("session", "try", "json-rpc", running, "-n", "2", "--set", "method=join", "--set", 'params=["a"]')
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split(maxsplit=4)[2:] for line in done.stdout.splitlines()]
    assert lines[:2] == [
        ["→", "call", '{"jsonrpc":"2.0","id":1,"method":"join","params":["a"]}'],
        ["←", "result", '{"id": 1, "result": ["a"]}'],
    ]
    assert done.stdout.splitlines()[4] == "2 sent, 2 answered, 0 failed"
    assert not list((tmp_path / "runs").iterdir())
    done = wsbench("session", "try", "json-rpc", running, "-n", "1", "--set", "method=fails")
    assert done.returncode == exits.NOTHING_USABLE
    assert "reply_error: 1" in done.stdout
    assert wsbench("session", "try", "json-rpc").returncode == 2


def test_a_session_is_checked(tmp_path, wsbench):
    (tmp_path / "wrong.toml").write_text(SMALL.replace('has = "id"', 'has = "nr"'))
    done = wsbench("session", "check", "wrong.toml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "wrong.toml:13: 'rules.reply'" in done.stderr
    done = wsbench("session", "check", "socket.io", "--json")
    assert json.loads(done.stdout)["setup"] == 2
    done = wsbench("session", "check", "socket.io")
    assert done.stdout == "socket.io is right: 2 steps of setup, 1 step, 9 rules\n"


def test_thresholds_name_steps(tmp_path):
    one = thresholds.parse("call-it.p99.9 > 5ms")
    assert (one.step["step"], one.step["of"], one.number) == ("call-it", "p99.9", 5000.0)
    assert thresholds.parse("p99.9 > 5ms").step is None
    with pytest.raises(UserError, match=r"call\.p99 is in µs; units allowed"):
        thresholds.parse("call.p99 > 5 MB")
    with pytest.raises(UserError, match="unknown metric"):
        thresholds.parse("call.p98 > 5")


@pytest.mark.system
def test_a_step_beyond_its_threshold_fails_the_load(load):
    found = load("--session", "json-rpc", "--fail-if", "call.p50 > 1us", "--fail-if", "join.max > 1s")
    # On a busy machine the first is undecided: its latency is INVALID.
    assert [one["breached"] or one["undecided"] for one in found["thresholds"]] == [True, True]
    assert found["thresholds"][1]["reason"] == "no step 'join'; its steps: call"

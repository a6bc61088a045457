"""Servers with a protocol of their own: the roles of a manifest, the gate by a session, and campaigns in these roles."""

import json
import os
import sys
from pathlib import Path

import pytest
from conftest import RAN, SERVERS
from test_catalogue import MINIMAL

from wsbench.engine import program
from wsbench.experiments.experiment import Load
from wsbench.host.installation import ROOT
from wsbench.records.engine_files import Seconds, Target
from wsbench.records.errors import UserError
from wsbench.records.rundir import RunFolder
from wsbench.records.session_table import PostmarkPiece
from wsbench.run import trial
from wsbench.servers import catalogue, serving, speaking
from wsbench.servers.speaking import Talk

SPEAKING = [
    pytest.param(variant, role, id=f"{variant.name}-{role}")
    for variant in catalogue.read(ROOT / "servers")
    for role in variant.roles
]
EXPERIMENT = """
question = "Which one is right?"
reading  = "The one that loses nothing."
servers  = ["chatty"]
scenario = "{scenario}"
loop     = "closed"
headline = "{headline}"

[load]
connections = 6
{load}

[timing]
measure_s = 1
rounds    = 1
again     = 0
"""


@pytest.fixture
def environment(environment) -> dict[str, str]:
    """With this Python, which has the library of the test server, in front of others."""
    return {**environment, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"}


def chatty(name: str) -> catalogue.Variant:
    return next(one for one in catalogue.read(SERVERS) if one.name == f"chatty@{name}")


@pytest.mark.parametrize(("variant", "role"), SPEAKING)
def test_every_role_of_the_catalogue_has_a_session(variant, role):
    rooms = 10 if role == "rooms" else None
    made = speaking.asked(variant, role, Talk(128, 100, rooms, publishers=rooms and 1))
    (step,) = made.scenario.steps[made.scenario.setup :]
    assert step.awaits.kind == ("own" if role == "rooms" else "rule")
    assert '"postmark"' in json.dumps([piece.model_dump() for piece in made.scenario.templates[step.sends]])
    assert (made.scenario.rooms is None) == (role == "rpc")


def test_the_content_of_a_message_is_as_long_as_the_load_says():
    made = speaking.asked(chatty("right"), "rpc", Talk(100, 6))
    pieces = made.scenario.templates[0]
    place = pieces.index(PostmarkPiece())
    assert pieces[place + 1].letters == 100 - 52
    with pytest.raises(UserError, match="found 51 bytes, allowed: 52 and more"):
        speaking.asked(chatty("right"), "rpc", Talk(51, 6))


def test_the_session_is_wsbenchs_or_one_in_the_servers_folder():
    variant = chatty("right")
    assert speaking.file_of(variant, "rooms") == SERVERS / "chatty/chat.toml"
    assert speaking.file_of(variant, "rpc") == ROOT / "sessions/json-rpc.toml"
    assert (speaking.path_of(variant, "rooms"), speaking.path_of(variant, "rpc")) == ("/chat", "/")
    assert serving.question(variant).target == "/"
    (mosquitto,) = catalogue.select(["mosquitto"], catalogue.read(ROOT / "servers"))
    assert serving.question(mosquitto).headers == [("Sec-WebSocket-Protocol", "mqtt")]


def test_a_server_without_scenarios_and_sessions_is_refused(tmp_path):
    (tmp_path / "thing").mkdir()
    text = MINIMAL.format(default="one", extra="").replace('scenarios = ["ping"]', "")
    (tmp_path / "thing/server.toml").write_text(text)
    with pytest.raises(UserError, match=r"it serves nothing: give 'scenarios' or 'sessions'"):
        catalogue.read(tmp_path)


@pytest.mark.system
def test_the_gate_names_what_a_server_does_wrong(checked):
    every = checked(*(f"chatty@{name}" for name in ("right", "loses", "mixes")))
    found = {key: check["detail"] for key, check in every.items() if not check["passed"]}
    assert found.pop(("chatty@loses", "rooms_session")).endswith("copies arrived in rooms of 3")
    assert found.pop(("chatty@mixes", "rooms_session")).startswith("unexpected_reply: ")
    assert found.pop(("chatty@mixes", "rpc_session")).startswith("unexpected_reply: ")
    assert found == {}


@pytest.mark.nightly
def test_the_gate_names_what_a_server_does_not_answer(checked):
    found = {key: check["detail"] for key, check in checked("chatty@silent").items() if not check["passed"]}
    assert set(found) == {("chatty@silent", "rooms_session"), ("chatty@silent", "rpc_session")}
    assert all(detail.startswith("timeout: ") for detail in found.values())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scenario", "headline", "load", "left_out"),
    [
        ("rpc", "messages_per_s", "", "fails rpc_session (session json-rpc): unexpected_reply"),
        ("rooms", "pushes_per_s", "room_size = 3\npublishers = 1", "fails rooms_session (session chat.toml): unexpected_reply"),
    ],
)
def test_a_campaign_loads_a_role_and_leaves_out_who_fails_its_gate(scenario, headline, load, left_out, tmp_path, wsbench):
    (tmp_path / "small.toml").write_text(EXPERIMENT.format(scenario=scenario, headline=headline, load=load))
    done = wsbench("run", "--no-report", "small.toml", "--servers", "chatty,chatty@mixes")
    assert done.returncode in RAN, done.stdout + done.stderr
    assert f"skipped chatty@mixes: {left_out}" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    run = RunFolder(folder)
    (trial,) = (trial for _, trial in run.finished())
    assert trial.outcome == "ok"
    row = next(one for one in run.servers if one.name == "chatty@right")
    assert row.roles[scenario].session == ("chat.toml" if scenario == "rooms" else "json-rpc")


@pytest.mark.parametrize(
    ("scenario", "load", "says"),
    [
        ("rooms", "", "scenario 'rooms' needs 'load.room_size'"),
        ("rpc", "room_size = 2", "no other has them"),
        ("rooms", "room_size = 7", "'load.room_size' is 7, allowed: from 'load.publishers' to 'load.connections'"),
        ("rpc", "payload_bytes = 20", "found 20 bytes, allowed: 52 and more"),
    ],
)
def test_a_load_that_a_role_cannot_have_is_refused(scenario, load, says, tmp_path, wsbench):
    (tmp_path / "small.toml").write_text(EXPERIMENT.format(scenario=scenario, headline="messages_per_s", load=load))
    done = wsbench("run", "--no-report", "small.toml")
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.system
def test_rooms_are_not_spread_over_server_processes(tmp_path, wsbench):
    text = EXPERIMENT.format(scenario="rooms", headline="pushes_per_s", load="room_size = 3")
    (tmp_path / "small.toml").write_text(text)
    done = wsbench("run", "--no-report", "small.toml", "--server-processes", "2")
    assert "rooms need a single server process, found 2" in done.stdout + done.stderr


@pytest.mark.parametrize(("publishers", "senders"), [(1, 10), (3, 30), (None, 100), (20, 100)])
def test_in_rooms_only_publishers_send(publishers, senders):
    scenario = speaking.asked(chatty("right"), "rooms", Talk(128, 100, 10, publishers)).scenario
    target = Target(address="127.0.0.1:1", replicas=[], host="127.0.0.1:1", path="/")
    plan = program.plan(scenario, "websocket", target, 100, None, Seconds(seconds=1), seed=1, cpus=[0])
    assert plan.senders == senders


def test_servers_are_listed_by_session(wsbench):
    done = wsbench("list", "servers", "--session", "chat.toml")
    assert "chatty@right" in done.stdout
    assert "text=${content}" in done.stdout
    assert wsbench("list", "servers", "--session", "soap").returncode == 2


def test_a_variant_may_have_a_role_of_its_own():
    (stomp, mqtt) = catalogue.select(["rabbitmq@*"], catalogue.read(ROOT / "servers"))
    assert (stomp.roles["rooms"].session, mqtt.roles["rooms"].session) == ("stomp", "mqtt")


@pytest.mark.parametrize(("kind", "path"), [("idle", "/echo"), ("echo", "/echo"), ("push", "/push"), ("doc", "/doc?size=1024")])
def test_a_server_of_the_contract_is_asked_at_the_path_of_the_scenario(kind, path):
    reference = next(one for one in catalogue.read(ROOT / "servers") if one.name == "reference@websocket")
    load = Load(connections=6, payload_bytes=1024)
    assert trial._asked(reference, kind, load).path == path

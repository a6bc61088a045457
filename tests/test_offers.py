"""What servers offer beyond plain WebSocket: TLS and compression, in manifests, in the gate, and in campaigns."""

import hashlib
import json
import os
import sys
import tomllib
import zlib
from pathlib import Path

import pytest
from conftest import RAN, SERVERS
from test_catalogue import MINIMAL

from wsbench.experiments import experiment
from wsbench.records.errors import UserError
from wsbench.records.rundir import RunFolder
from wsbench.run import capacity, content, preparing
from wsbench.servers import catalogue, serving

EXPERIMENT = """
question = "What do TLS and compression cost?"
reading  = "Compare the cells of one server."
servers  = ["wrapped", "wrapped@plain"]
scenario = "echo"
loop     = "closed"
headline = "messages_per_s"
arrangement = "{arrangement}"

[load]
connections   = 4
payload_bytes = 2048
content       = "json"

[sweep]
tls     = [false, true]
deflate = [false, true]

[timing]
warmup_s  = 0.5
measure_s = 0.5
rounds    = 1
again     = 0
"""


@pytest.fixture
def environment(environment) -> dict[str, str]:
    """With this Python, which has the library of the test server, in front of others."""
    return {**environment, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"}


def wrapped(name: str) -> catalogue.Variant:
    return next(one for one in catalogue.read(SERVERS) if one.name == f"wrapped@{name}")


def read(tmp_path: Path, text: str) -> experiment.Experiment:
    (tmp_path / "small.toml").write_text(text)
    return experiment.read(tmp_path / "small.toml")


@pytest.mark.nightly
@pytest.mark.parametrize("arrangement", ["trials", "slices"])
def test_a_campaign_loads_over_tls_and_compressed(arrangement, tmp_path, wsbench):
    (tmp_path / "small.toml").write_text(EXPERIMENT.format(arrangement=arrangement))
    done = wsbench("run", "--no-report", "--no-control", "small.toml")
    assert done.returncode in RAN, done.stdout + done.stderr
    assert "wrapped@plain is left out of 3 of 4 cells: it does not offer deflate" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    trials = [(folder, trial) for folder, trial in RunFolder(folder).finished()]
    assert len(trials) == 5
    received = {}
    for folder, trial in trials:
        assert trial.outcome == "ok", trial.reason
        plan, end = folder.plan, folder.events()[-1]
        asked = [name for name in ("tls", "deflate") if getattr(plan, name) is not None]
        assert asked == [name for name in ("tls", "deflate") if trial.cell[name]]
        assert ("TLS_CERT" in trial.server_env, "DEFLATE" in trial.server_env) == (trial.cell["tls"], trial.cell["deflate"])
        assert end.measured.answered == end.measured.sent > 0
        received[trial.name, *trial.cell.values()] = end.measured.bytes_received / end.measured.answered
    plain, long = received["wrapped@right", False, False], received["wrapped@right", True, False]
    assert 2048 < plain < 2100
    assert plain < long < 2200, "a record of TLS around each message"
    assert received["wrapped@right", False, True] < 1000, "JSON shrinks to less than a half"


@pytest.mark.system
def test_the_gate_checks_what_is_offered(checked):
    found = checked(*(f"wrapped@{name}" for name in ("right", "open", "long", "lazy", "plain")))
    checks = {key: check for key, check in found.items() if key[1].startswith("echo_with_")}
    assert {key: check["detail"] for key, check in checks.items() if not check["passed"]}.keys() == {
        ("wrapped@open", "echo_with_tls"),
        ("wrapped@long", "echo_with_deflate"),
        ("wrapped@lazy", "echo_with_deflate"),
    }
    assert checks["wrapped@open", "echo_with_tls"]["detail"] == "the server was not ready: it answers without TLS"
    assert checks["wrapped@lazy", "echo_with_deflate"]["detail"].endswith("the messages were not compressed")
    assert len(checks) == 8, "nothing is asked of a server that offers nothing"
    assert checks["wrapped@long", "echo_with_deflate"]["detail"].startswith("handshake_invalid: ")


@pytest.mark.nightly
def test_a_campaign_leaves_out_who_does_not_do_what_it_offers(tmp_path, wsbench):
    text = EXPERIMENT.format(arrangement="trials").replace("tls     = [false, true]\n", "")
    (tmp_path / "small.toml").write_text(text)
    done = wsbench("run", "--no-report", "--no-control", "small.toml", "--servers", "wrapped@open,wrapped@long")
    assert done.returncode in RAN, done.stdout + done.stderr
    assert "skipped wrapped@long: fails echo_with_deflate (RFC 7692)" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert {trial.name for _, trial in RunFolder(folder).finished()} == {"wrapped@open"}, "TLS was not asked for"


def test_only_servers_that_offer_it_take_part(tmp_path):
    asked = read(tmp_path, EXPERIMENT.format(arrangement="trials"))
    assert len(preparing.cells_of(asked, wrapped("right"))) == 4
    assert preparing.cells_of(asked, wrapped("plain")) == [{"tls": False, "deflate": False}]
    both = {"tls": True, "deflate": True}
    assert preparing.exceeded(asked, wrapped("plain"), both) == "does not offer tls and deflate"
    assert preparing.wanted(asked, wrapped("right")).use.asks == ["deflate", "tls"]


@pytest.mark.parametrize("line", ["deflate = true", 'content = "json"'])
def test_only_echoes_are_compressed_or_made_of_json(line, tmp_path):
    text = EXPERIMENT.format(arrangement="trials").replace('"echo"', '"ping"').replace('content       = "json"', line)
    text = text.replace("tls     = [false, true]\ndeflate = [false, true]", "connections = [1]")
    with pytest.raises(UserError, match=r"'load\.content' and 'load\.deflate' need scenario 'echo'"):
        read(tmp_path, text)


def test_an_offer_needs_an_echo_and_a_server_that_is_started(tmp_path):
    (tmp_path / "thing").mkdir()
    text = MINIMAL.format(default="one", extra='offers = ["tls"]')
    (tmp_path / "thing/server.toml").write_text(text)
    with pytest.raises(UserError, match=r"'variants\.one': what it offers is checked by an echo"):
        catalogue.read(tmp_path)
    running = '\n[variants.here]\nurl = "ws://localhost:9000"\n'
    (tmp_path / "thing/server.toml").write_text(text.replace('["ping"]', '["echo"]') + running)
    offers = {one.variant: one.offers for one in catalogue.read(tmp_path)}
    assert offers == {"one": ["tls"], "two": ["tls"], "here": []}


def test_ladders_may_be_wrapped():
    asked = capacity.Asked(("wrapped",), ("p99 < 20ms",), tls=True)
    made = experiment.Experiment.model_validate(tomllib.loads(capacity._experiment(asked, ["wrapped"])))
    assert made.load.asks == ["tls"]


def test_the_json_is_always_the_same_and_compresses_as_json_does():
    for size in (0, 1, 100, 16_384):
        text = content.json_text(size)
        assert len(text) == size
        assert text.isascii()
        assert text == content.json_text(size)
    whole = content.json_text(16_384)
    assert hashlib.sha256(whole).hexdigest() == "8619f0986dc7d490996fd042a4461d0779ddaf778edf932088c2fafc831ab1e3", "as published"
    assert json.loads(whole[: whole.rindex(b",{")] + b"]")
    assert 3 < len(whole) / len(zlib.compress(whole, 6)) < 5


def test_the_files_of_the_key_are_there():
    for path in serving.SWITCHES["tls"].values():
        assert Path(path).is_file()

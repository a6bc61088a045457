"""Manifests and the selection of servers."""

import contextlib
import copy
import os
import tomllib

import pytest

from wsbench.host.installation import ROOT
from wsbench.records.errors import UserError
from wsbench.servers import build, catalogue, serving
from wsbench.servers import manifest as manifests

MINIMAL = """
language = "C"
library = "none"
homepage = "https://example.org"
scenarios = ["ping"]
tags = ["native"]
default = "{default}"
{extra}
[variants.one]
library_version = "1"
build = []
run = ["x"]
version = ["x"]
[variants.two]
library_version = "2"
build = []
run = ["x"]
version = ["x"]
tags = ["old"]
"""


def manifest(folder, name="thing", default="one", extra="", rest=""):
    (folder / name).mkdir()
    (folder / name / "server.toml").write_text(MINIMAL.format(default=default, extra=extra) + rest)


def names(patterns, variants):
    return [variant.name for variant in catalogue.select(patterns, variants)]


def test_every_manifest_in_the_repository_is_sound():
    variants = catalogue.read(ROOT / "servers")
    assert {"reference", "netty", "go-net-websocket", "node-nodejs-websocket", "tcp-java"} <= {v.server for v in variants}


def test_a_bare_name_is_the_default_and_patterns_reach_the_others(tmp_path):
    manifest(tmp_path, "thing")
    manifest(tmp_path, "other")
    variants = catalogue.read(tmp_path)
    assert names(["thing"], variants) == ["thing@one"]
    assert names(["*"], variants) == ["other@one", "thing@one"]
    assert names(["*@*", "!other"], variants) == ["thing@one", "thing@two"]
    assert names(["tag:old"], variants) == ["other@two", "thing@two"]
    assert names(["*@*", "!tag:old"], variants) == ["other@one", "thing@one"]


def test_an_unknown_server_names_those_that_exist(tmp_path):
    manifest(tmp_path)
    with pytest.raises(UserError, match=r"no server matches 'nety' \(see `wsbench list servers`\)"):
        catalogue.select(["nety"], catalogue.read(tmp_path))


def test_an_unknown_key_names_file_and_key(tmp_path):
    manifest(tmp_path, extra='colour = "red"')
    with pytest.raises(UserError, match=r"thing/server.toml: unknown key 'colour'"):
        catalogue.read(tmp_path)


def test_all_faults_of_all_manifests_are_told_at_once_one_a_line(tmp_path):
    manifest(
        tmp_path, "first", default="three", extra='colour = "red"\nneeds = { rusty = "1" }', rest='[variants."a+b"]\nrun = 3\n'
    )
    manifest(tmp_path, "second", rest='[variants.there]\nurl = "wss://here/x"\npid = 0\n')
    with pytest.raises(UserError) as said:
        catalogue.read(tmp_path)
    first, second = (f"{tmp_path / name / 'server.toml'}: " for name in ("first", "second"))
    lines = [line.partition(", allowed")[0] for line in said.value.lines]
    assert lines == [
        first + "missing key 'variants.a+b.library_version'",
        first + "missing key 'variants.a+b.build'",
        first + "'variants.a+b.run': input should be a valid list, found 3",
        first + "missing key 'variants.a+b.version'",
        first + "unknown key 'colour'",
        first + "'needs': found 'rusty'",
        first + "'default': found 'three'",
        first + "'variants.a+b': a variant's name contains no '+', which introduces runtime settings",
        second + "'variants.there.url': found 'wss://here/x'",
        second + "'variants.there.pid': input should be greater than or equal to 1, found 0",
    ]


def test_a_folder_of_ones_own_adds_to_the_catalogue(tmp_path, monkeypatch):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        manifest(tmp_path / folder, f"mine-{folder}")
    folders = (tmp_path / "one", tmp_path / "two", tmp_path / "one", catalogue.SHIPPED)
    monkeypatch.setenv(catalogue.VARIABLE, os.pathsep.join(map(str, folders)))
    servers = [variant.server for variant in catalogue.read() if variant.is_default]
    assert {"mine-one", "mine-two", "reference", "netty"} <= set(servers)
    assert len(servers) == len(set(servers)), "a folder that is named twice counts once"
    assert servers == sorted(servers)


def test_two_servers_of_one_name_are_one_plain_error(tmp_path, monkeypatch):
    manifest(tmp_path, "netty")
    monkeypatch.setenv(catalogue.VARIABLE, str(tmp_path))
    with pytest.raises(UserError) as said:
        catalogue.read()
    assert said.value.lines == [
        f"two servers are named 'netty': {catalogue.SHIPPED / 'netty'} and {tmp_path / 'netty'}; rename one of the folders"
    ]


def test_a_folder_that_does_not_exist_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv(catalogue.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"WSBENCH_SERVERS: .*/nowhere is not a folder"):
        catalogue.read()


RUNS = """
[variants.here]
url = "ws://localhost:9000/chat?room=1"
pid = 17
paths = { doc = "/file" }
limits = { message_bytes = 1000 }
[variants.plain]
url = "tcp://[::1]:9001"
"""


def test_a_variant_that_runs_already_is_a_row_like_any_other(tmp_path):
    manifest(tmp_path, extra='runtime = "jvm"\nlimits = { connections = 5 }', rest=RUNS)
    variants = {variant.variant: variant for variant in catalogue.read(tmp_path)}
    here, plain, one = variants["here"], variants["plain"], variants["one"]
    assert (here.transport, plain.transport, one.transport) == ("websocket", "tcp", "websocket")
    assert here.paths == {"doc": "/file", "echo": "/chat?room=1", "ping": "/chat?room=1", "push": "/chat?room=1"}
    assert plain.paths == one.paths == manifests.PATHS
    assert (here.limits.message_bytes, here.limits.connections, one.limits.connections) == (1000, None, 5)
    assert (here.runtime, here.env, here.departures, here.needs) == (None, {}, [], {}), "nothing of it can be chosen"
    assert build.build(here, [0]) == build.Built(None, None, "runs already")
    assert (build.obstacle(here), build.state(here)) == (None, "runs already")
    with pytest.raises(UserError, match="does not apply to thing@here"):
        catalogue.select(["thing@here+jdk17"], list(variants.values()))


def test_a_path_of_ones_own_is_for_started_servers_too(tmp_path):
    manifest(tmp_path, extra='paths = { echo = "/ws", doc = "/file?x=1" }', rest='paths = { echo = "/other" }\n')
    one, two = catalogue.read(tmp_path)
    assert (one.paths["echo"], two.paths["echo"], two.paths["ping"]) == ("/ws", "/other", "/ping")
    assert serving.document(one.paths, 7) == "/file?x=1&size=7"
    assert serving.document(manifests.PATHS, 7) == "/doc?size=7"


@pytest.mark.parametrize(
    "url", ["wss://h/", "ws://", "ws:/h", "tcp://h", "tcp://h:1/x", "ws://u@h:1/", "ws://h:x/", "ws://h:1/ a", "ftp://h"]
)
def test_an_address_that_cannot_be_loaded_is_refused(url):
    with pytest.raises(ValueError, match="allowed: ws://HOST:PORT/PATH"):
        manifests.address(url)


def test_a_default_that_is_no_variant_names_those_that_are(tmp_path):
    manifest(tmp_path, default="three")
    with pytest.raises(UserError, match=r"'default': found 'three', allowed: one, two"):
        catalogue.read(tmp_path)


def test_a_variant_that_says_how_it_is_run_is_missing_nothing_else(tmp_path):
    manifest(tmp_path, rest='[variants.lost]\nlibrary_version = "0"\nbuild = []\nrun = ["x"]')
    with pytest.raises(UserError, match=r"thing/server.toml: missing key 'variants.lost.version'"):
        catalogue.read(tmp_path)


LOST = '[variants.lost]\nlibrary_version = "0"\nunavailable = "its jars are gone"\n'


def test_an_unavailable_variant_is_a_row_that_is_never_built(tmp_path):
    manifest(tmp_path, rest=LOST)
    variants = catalogue.read(tmp_path)
    assert names(["*@*"], variants) == ["thing@one", "thing@two", "thing@lost"]
    lost = next(variant for variant in variants if variant.variant == "lost")
    built = build.build(lost, [0])
    assert (built.receipt, built.problem, built.did) == (None, "unavailable: its jars are gone", "skipped")
    assert not build.log_of(lost).exists()


@pytest.mark.parametrize(
    ("default", "rest", "complaint"),
    [
        ("lost", LOST, "'default': found 'lost', which is unavailable"),
        ("one", LOST + 'run = ["x"]', "unknown key 'variants.lost.run'"),
    ],
)
def test_an_unavailable_variant_is_nothing_to_run(tmp_path, default, rest, complaint):
    manifest(tmp_path, default=default, rest=rest)
    with pytest.raises(UserError, match=complaint):
        catalogue.read(tmp_path)


def altered(table: dict, path: tuple = ()):
    """The places of every value of a manifest, from the outside in."""
    for key, value in table.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from altered(value, (*path, key))


@pytest.mark.parametrize("wrong", [5, "x", True, [], [5], ["x"], {}, {"x": 5}, {"x": {}}], ids=repr)
def test_a_value_of_a_wrong_kind_is_bad_input_and_no_traceback(monkeypatch, tmp_path, wrong):
    """Each value of two manifests that have most keys is replaced in turn."""
    file = tmp_path / "server.toml"
    for server in ("netty", "node-ws", "json-rpc"):
        usual = tomllib.loads((ROOT / "servers" / server / "server.toml").read_text(encoding="utf-8"))
        file.write_text("")
        for path in altered(usual):
            changed = copy.deepcopy(usual)
            place = changed
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = wrong
            monkeypatch.setattr(manifests, "toml_of", lambda *_, changed=changed: changed)
            with contextlib.suppress(UserError):
                manifests.read(file)


def test_scenarios_that_are_no_list_are_named_beside_what_is_offered(tmp_path):
    manifest(tmp_path, extra='offers = ["tls"]')
    file = tmp_path / "thing" / "server.toml"
    file.write_text(file.read_text().replace('["ping"]', "5"))
    with pytest.raises(UserError, match="'scenarios': input should be a valid list, found 5"):
        manifests.read(file)

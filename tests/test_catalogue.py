"""Manifests and the selection of servers."""

import pytest

from wsbench.host.installation import ROOT
from wsbench.records.errors import UserError
from wsbench.servers import build, catalogue

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
    with pytest.raises(UserError, match=r"no server matches 'nety'; known servers: thing"):
        catalogue.select(["nety"], catalogue.read(tmp_path))


def test_an_unknown_key_names_file_and_key(tmp_path):
    manifest(tmp_path, extra='colour = "red"')
    with pytest.raises(UserError, match=r"thing/server.toml: unknown key 'colour'"):
        catalogue.read(tmp_path)


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
        ("one", LOST + 'run = ["x"]', "'variants.lost.run': an unavailable variant has no commands"),
    ],
)
def test_an_unavailable_variant_is_nothing_to_run(tmp_path, default, rest, complaint):
    manifest(tmp_path, default=default, rest=rest)
    with pytest.raises(UserError, match=complaint):
        catalogue.read(tmp_path)

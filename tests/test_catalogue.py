"""Manifests and the selection of servers."""

import pytest

from wsbench import catalogue
from wsbench.catalogue import ROOT
from wsbench.errors import UserError

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


def manifest(folder, name="thing", default="one", extra=""):
    (folder / name).mkdir()
    (folder / name / "server.toml").write_text(MINIMAL.format(default=default, extra=extra))


def names(patterns, variants):
    return [variant.name for variant in catalogue.select(patterns, variants)]


def test_every_manifest_in_the_repository_is_sound():
    variants = catalogue.read(ROOT / "servers")
    assert {"reference", "netty", "go-net-websocket", "node-nodejs-websocket", "tcp-java"} <= {
        v.server for v in variants
    }


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
    with pytest.raises(UserError, match=r"no server matches 'nety'; there are: thing"):
        catalogue.select(["nety"], catalogue.read(tmp_path))


def test_an_unknown_key_names_file_and_key(tmp_path):
    manifest(tmp_path, extra='colour = "red"')
    with pytest.raises(UserError, match=r"thing/server.toml: unknown key 'colour'"):
        catalogue.read(tmp_path)


def test_a_default_that_is_no_variant_names_those_that_are(tmp_path):
    manifest(tmp_path, default="three")
    with pytest.raises(UserError, match=r"'default': found 'three', allowed: one, two"):
        catalogue.read(tmp_path)

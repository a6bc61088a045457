"""Builds: only what changed, once for all it serves, at the same time, without a network when built; failures are rows."""

import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest

from wsbench.host.installation import ROOT
from wsbench.host.process import run_logged
from wsbench.servers import build, catalogue

MANIFEST = """
language = "C"
library = "none"
homepage = "https://example.org"
scenarios = ["ping"]
default = "one"
"""
VARIANT = """
[variants.{name}]
library_version = "1.2"
build = [["sh", "-c", '''{command}''']]
run = ["true"]
version = ["echo", "thing 1.2"]
artefacts = ["build/thing"]
"""
COUNTED = "mkdir -p build && echo built >> build/count && cp source build/thing"
IN_NO_NETWORK = ["unshare", "--user", "--map-root-user", "--net"]


def server(folder, name="thing", **commands):
    place = folder / name
    place.mkdir()
    (place / "source").write_text("1")
    text = MANIFEST + "".join(VARIANT.format(name=variant, command=command) for variant, command in commands.items())
    (place / "server.toml").write_text(text)
    return place


def build_all(folder, jobs=2, tell=lambda _: None):
    return build.build_all(catalogue.read(folder), sorted(os.sched_getaffinity(0)), jobs, tell)


def times_built(place) -> int:
    return len((place / "build" / "count").read_text().splitlines())


def test_variants_with_the_same_commands_share_one_build(tmp_path):
    place = server(tmp_path, one=COUNTED, two=COUNTED, three=COUNTED + " && true")
    found = build_all(tmp_path)
    assert [one.receipt for one in found.values()] == ["thing 1.2"] * 3
    assert [one.did for one in found.values()].count("built") == 2
    assert times_built(place) == 2
    assert {one.did for one in build_all(tmp_path).values()} == {"was built"}
    assert times_built(place) == 2


@pytest.mark.system
def test_a_source_that_changed_is_built_and_what_is_said_about_it_is_not(tmp_path):
    place = server(tmp_path, one=COUNTED)
    build_all(tmp_path)
    (place / "README.md").write_text("more words")
    (place / "server.toml").write_text((place / "server.toml").read_text() + "# more words\n")
    assert build_all(tmp_path)["thing@one"].did == "was built"
    (place / "source").write_text("2")
    assert build_all(tmp_path)["thing@one"].did == "built"
    (place / "server.toml").write_text((place / "server.toml").read_text().replace("cp source", "cp -p source"))
    assert build_all(tmp_path)["thing@one"].did == "built"
    (place / "build" / "thing").unlink()
    assert build_all(tmp_path)["thing@one"].did == "built"


@pytest.mark.system
def test_a_failure_is_a_row_with_its_log_and_stops_no_other(tmp_path):
    broken = server(tmp_path, "broken", one="echo why it failed && exit 3")
    server(tmp_path, "sound", one=COUNTED)
    told = []
    found = build_all(tmp_path, jobs=1, tell=told.append)
    assert (found["broken@one"].did, found["sound@one"].did) == ("failed", "built")
    assert "exited with code 3" in found["broken@one"].problem
    log = broken / "build" / "wsbench-one.log"
    assert str(log) in found["broken@one"].problem
    assert "why it failed" in log.read_text()
    assert [(now.done, now.total) for now in told] == [(1, 2), (2, 2)]
    assert told[-1].left_s == 0 < told[0].left_s


@pytest.mark.system
def test_what_a_failed_build_left_behind_is_not_built(tmp_path):
    place = server(tmp_path, one=f"{COUNTED} && grep -v bad source")
    assert build_all(tmp_path)["thing@one"].did == "built"
    (place / "source").write_text("bad")
    assert build_all(tmp_path)["thing@one"].did == "failed"
    (place / "source").write_text("1")
    assert build.state(catalogue.read(tmp_path)[0]) == "not built"


MEETING = """mkdir -p build && touch ../here-{me}
for i in $(seq 100); do [ -e ../here-{other} ] && touch build/thing && exit 0; sleep 0.1; done; exit 1"""


@pytest.mark.system
def test_two_servers_are_built_at_the_same_time(tmp_path):
    server(tmp_path, "a", one=MEETING.format(me="a", other="b"))
    server(tmp_path, "b", one=MEETING.format(me="b", other="a"))
    assert {one.did for one in build_all(tmp_path).values()} == {"built"}


ALONE = "mkdir -p build && mkdir build/busy || exit 1; sleep 0.2; rmdir build/busy; touch build/thing"


@pytest.mark.system
def test_one_servers_variants_are_built_one_after_the_other(tmp_path):
    server(tmp_path, one=ALONE, two=ALONE + " && true")
    assert [one.problem for one in build_all(tmp_path).values()] == [None, None]


def offline(folder, *patterns):
    return subprocess.run(
        [*IN_NO_NETWORK, sys.executable, "-m", "wsbench.cli", "build", *patterns],
        env={**os.environ, "WSBENCH_SERVERS": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def no_network():
    if subprocess.run([*IN_NO_NETWORK, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may have no network namespace")
    there = 'import socket; socket.create_connection(("127.0.0.1", 9), 1)'
    refused = subprocess.run([*IN_NO_NETWORK, sys.executable, "-c", there], capture_output=True, text=True, check=False)
    assert "Network is unreachable" in refused.stderr


@pytest.mark.system
def test_what_is_built_needs_no_network(tmp_path, no_network):
    server(tmp_path, one=COUNTED)
    build_all(tmp_path)
    again = offline(tmp_path, "thing@*")
    assert (again.returncode, "1 was built" in again.stdout) == (0, True), again.stdout + again.stderr


@pytest.mark.nightly
def test_real_servers_that_are_built_need_no_network(no_network):
    built = [
        variant.name
        for variant in catalogue.read(ROOT / "servers")
        if build.state(variant) == "built" and build.obstacle(variant) is None
    ]
    if not built:
        pytest.skip("no server of the catalogue is built here")
    again = offline(ROOT / "servers", *built)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{len(built)} was built" in again.stdout


@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_npm_says_why_it_refuses_a_package(tmp_path):
    """With the words of the catalogue, and a package whose checksum is another than the lock file's."""
    (command,) = {
        tuple(words)
        for variant in catalogue.read()
        for words in getattr(variant.table, "build", ())
        if words[:2] == ["npm", "ci"] and words[3] == "build"
    }
    build = tmp_path / "build"
    build.mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "package.json").write_text('{"name": "a", "version": "1.0.0"}')
    with tarfile.open(build / "a.tgz", "w:gz") as packed:
        packed.add(tmp_path / "package", "package")
    needs = {"name": "b", "version": "1.0.0", "dependencies": {"a": "file:a.tgz"}}
    locked = {"version": "1.0.0", "resolved": "file:a.tgz", "integrity": "sha512-" + "A" * 86 + "=="}
    (build / "package.json").write_text(json.dumps(needs))
    lock = needs | {"lockfileVersion": 3, "packages": {"": needs, "node_modules/a": locked}}
    (build / "package-lock.json").write_text(json.dumps(lock))
    log = tmp_path / "log"
    assert run_logged([*command, "--offline"], tmp_path, log, {}) != 0
    assert "EINTEGRITY" in log.read_text()

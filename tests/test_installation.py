"""A wheel: its servers are built in the user's cache, its engine is beside it, its licences are known, its version is one."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import PATIENCE_S, WSBENCH
from run_maker import SERVERS, make_run

import wsbench
from wsbench.cli import exits
from wsbench.engine import program
from wsbench.host import installation, process
from wsbench.host.installation import ROOT
from wsbench.records.errors import TrialFailed, UserError
from wsbench.servers import build, catalogue

sys.path.insert(0, str(ROOT / "scripts"))
import notices

MANIFEST = """
language = "C"
library = "none"
homepage = "https://example.org"
scenarios = ["ping"]
default = "one"
[variants.one]
library_version = "1"
build = [["sh", "-c", "mkdir -p build && cp source build/thing"]]
run = ["true"]
version = ["cat", "build/thing"]
artefacts = ["build/thing"]
"""


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """What a wheel has installed, where nothing may be written, and an empty cache of the user's."""
    shipped = tmp_path / "site-packages" / "wsbench" / "shipped"
    (shipped / "servers" / "thing").mkdir(parents=True)
    (shipped / "servers" / "thing" / "server.toml").write_text(MANIFEST)
    (shipped / "servers" / "thing" / "source").write_text("1.0\n")
    (shipped / "revision").write_text("0123abc\n")
    monkeypatch.setattr(installation, "IS_CHECKOUT", False)
    monkeypatch.setattr(installation, "SHIPPED", shipped)
    monkeypatch.setattr(catalogue, "SHIPPED", shipped / "servers")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return shipped


def built(wheel):
    (variant,) = catalogue.read(wheel / "servers")
    return variant, build.build(variant, sorted(os.sched_getaffinity(0)))


def test_a_server_of_a_wheel_is_built_in_the_cache_once(wheel, tmp_path):
    before = sorted(wheel.rglob("*"))
    variant, done = built(wheel)
    assert (done.receipt, done.did) == ("1.0", "built"), done.problem
    assert variant.folder.parent == tmp_path / "cache" / "wsbench" / "servers"
    assert sorted(wheel.rglob("*")) == before
    assert built(wheel)[1].did == "was built"
    # What is said about it is no reason to build it anew in another release; what it is made of is.
    (wheel / "servers" / "thing" / "server.toml").write_text(MANIFEST + "# more\n")
    assert built(wheel)[1].did == "was built"
    (wheel / "servers" / "thing" / "source").write_text("1.1\n")
    other, done = built(wheel)
    assert (done.receipt, done.did) == ("1.1", "built")
    assert other.folder != variant.folder
    assert (variant.folder / "build" / "thing").read_text() == "1.0\n"


def test_a_catalogue_of_ones_own_is_built_where_it_lies(wheel, tmp_path):
    own = tmp_path / "own"
    (wheel / "servers").rename(own)
    (variant,) = catalogue.read(own)
    assert variant.folder == variant.sources == own / "thing"


def test_the_engine_and_the_revision_of_a_wheel_are_its_own(wheel, monkeypatch):
    installation.revision.cache_clear()
    assert installation.revision() == "0123abc"
    installation.revision.cache_clear()
    monkeypatch.delenv("WSBENCH_ENGINE", raising=False)
    assert program.binary() == wheel / "wsbench-engine"


def test_the_version_stands_in_one_place_and_has_its_section_of_the_changelog():
    version = tomllib.loads((ROOT / "engine" / "Cargo.toml").read_text())["package"]["version"]
    assert wsbench.__version__ == version, "run `make setup` again"
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("name", "extras"), [("tool", ["report"]), ("wheel", None), ("test", ["report", "test"])])
def test_every_python_package_that_is_installed_has_a_version_and_checksums(name, extras):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    packages = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    wrong = [one for one in packages if not re.match(r"[\w.-]+==\S+( ; .*)? \\\n +--hash=sha256:[0-9a-f]{64}", one)]
    assert not wrong
    locked = {re.match(r"[\w.-]+", one)[0] for one in packages}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if extras is None:  # what builds a wheel is no part of it
        asked = re.findall(r"^[a-z][\w-]*", (ROOT / "requirements" / "wheel.in").read_text(), re.MULTILINE)
    else:
        asked = project["dependencies"] + [one for extra in extras for one in project["optional-dependencies"][extra]]
    names = {re.match(r"[\w.-]+", one)[0] for one in asked} - {"wsbench"}
    assert names <= locked


@pytest.mark.parametrize(
    ("expression", "may_be"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("GPL-3.0-only OR MIT", True),
        ("(MIT OR GPL-2.0-only) AND ISC", True),
        ("Apache-2.0 AND GPL-3.0-only", False),
        ("MPL-2.0", False),
        ("", False),
        (None, False),
    ],
)
def test_a_licence_is_permitted_where_one_choice_of_it_is(expression, may_be):
    assert notices.permitted(expression) == may_be


def test_only_what_is_linked_has_a_notice_and_each_its_text():
    text = (ROOT / "engine" / "NOTICES.txt").read_text()
    listed = re.findall(r"^  (\S+) \d[\w.+-]*  ", text, re.MULTILINE)
    assert {"rustls", "ring", "zlib-rs", "hdrhistogram"} <= set(listed)
    assert not {"serde_derive", "tungstenite", "io-uring", "cc"} & set(listed)
    for name in listed:
        assert len(re.findall(rf"^(?:.*, )?{re.escape(name)} \d", text, re.MULTILINE)) >= 1


def test_a_user_without_a_home_directory_is_told_what_to_set(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    assert installation.home() is None
    assert installation.expanded("~/.sdkman/candidates") is None
    assert installation.expanded("/opt/jdk") == Path("/opt/jdk")
    with pytest.raises(UserError, match="this user has no home directory: set HOME, or XDG_CACHE_HOME"):
        installation.cache_folder()


def test_a_program_that_this_user_may_not_look_for_is_not_found(monkeypatch):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", "cargo")

    monkeypatch.setattr("subprocess.run", refused)
    assert process.output_of(["cargo", "--version"]).code == 127


def test_an_engine_that_gets_no_thread_says_what_to_raise(tmp_path):
    told = "thread 'main' panicked at src/run.rs:9:5:\nfailed to spawn thread: Resource temporarily unavailable\n"
    (tmp_path / "engine.log").write_text(told)
    with pytest.raises(TrialFailed, match=r"exit code 101: failed to spawn thread.*`ulimit -u`, or pids.max"):
        program.check_exit(101, tmp_path / "engine.log")


@pytest.mark.system
@pytest.mark.parametrize("command", ["report", "run"])
def test_a_limit_of_addresses_is_named_before_anything_is_measured_or_drawn(tmp_path, command):
    run = make_run(tmp_path / "campaign", SERVERS[:2], ({"connections": 64},))
    words = {"report": ["report", str(run.path)], "run": ["run", "quick", "--servers", "reference"]}[command]
    limited = ["sh", "-c", 'ulimit -v 8388608; exec "$@"', "sh", *WSBENCH, *words]
    done = subprocess.run(limited, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == exits.BAD_INPUT
    assert done.stderr.startswith("wsbench: `ulimit -v` is 8,388,608 KiB")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()

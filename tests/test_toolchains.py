"""Tools that are missing: found by version wherever they lie, chosen of what apt offers, and installed by one command."""

import os
import subprocess
import sys

import pytest

from wsbench.host import toolchains
from wsbench.host.installation import ROOT
from wsbench.records.errors import UserError
from wsbench.servers import build, catalogue

#: What apt offers, as `apt-cache policy` and `apt-cache pkgnames` print it: of releases that differ in all that matters.
OFFERS = {
    "bookworm": {
        **{"cargo": "0.66.0+ds1-1", "cargo-web": "1.96.0+dfsg1-1~deb12u2", "golang-go": "2:1.19~1"},
        **{
            "openjdk-17-jdk-headless": "17.0.19+9-1~deb12u1",
            "libboost-dev": "1.74.0.3",
            "libboost1.81-dev": "1.81.0-5",
        },
    },
    "trixie": {
        **{"cargo": "1.85.0+dfsg3-1", "cargo-web": "1.96.0+dfsg1-1~deb13u1+b1", "golang-go": "2:1.24~2"},
        **{"openjdk-21-jdk-headless": "21.0.13.1+2-1~deb13u1", "openjdk-25-jdk-headless": "25.0.5.1+2-1~deb13u1"},
        **{"libboost-dev": "1.83.0.2+b2"},
    },
    "noble": {
        **{"cargo": "1.75.0+dfsg0ubuntu1", "cargo-1.80": "1.80.1+dfsg0", "cargo-1.91": "1.91.1+dfsg~24.04"},
        **{"cargo-1.9": "1.9.0", "golang-go": "2:1.22~2build1", "openjdk-17-jdk-headless": "17.0.19+9-1~24.04"},
        **{"openjdk-21-jdk-headless": "21.0.13", "libboost-dev": "1.83.0.1ubuntu2"},
    },
}
APT = """#!/bin/sh
echo "$(basename "$0") $*" >> {folder}/asked
case "$1 $2" in
{cases}
pkgnames*) printf '%s\\n' {names} ;;
policy*) echo "$2:"; echo "  Candidate: (none)" ;;
esac
"""


@pytest.fixture(autouse=True)
def afresh():
    toolchains.forget()
    yield
    toolchains.forget()


def program(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.fixture
def release(request, tmp_path, monkeypatch):
    """A release's packages behind the apt of the PATH, and none of this machine's compilers."""
    offers = OFFERS[request.param]
    cases = "\n".join(f'"policy {name}") printf "{name}:\\n  Candidate: {version}\\n" ;;' for name, version in offers.items())
    script = APT.format(folder=tmp_path, cases=cases, names=" ".join(offers))
    for name in ("apt-cache", "apt-get"):
        program(tmp_path / "apt", name, script)
    program(tmp_path / "apt", "sudo", '#!/bin/sh\nexec "$@"\n')
    for name in ("sh", "env", "basename"):
        (tmp_path / "apt" / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path / "apt"))
    monkeypatch.setattr(toolchains, "_folders", lambda tool: [])
    return tmp_path


@pytest.mark.parametrize(
    ("release", "tool", "at_least", "packages"),
    [
        ("bookworm", "rust", "1.88", ["cargo-web", "rustc-web"]),
        ("trixie", "rust", "1.88", ["cargo-web", "rustc-web"]),
        ("trixie", "rust", "1.85", ["cargo", "rustc"]),
        ("noble", "rust", "1.88", ["cargo-1.91", "rustc-1.91"]),
        ("bookworm", "jdk", "17", ["openjdk-17-jdk-headless"]),
        ("bookworm", "jdk", "25", []),
        ("trixie", "jdk", "17", ["openjdk-21-jdk-headless"]),
        ("trixie", "jdk", "25", ["openjdk-25-jdk-headless"]),
        ("noble", "jdk", "25", []),
        ("bookworm", "boost", "1.81", ["libboost1.81-dev"]),
        ("trixie", "boost", "1.81", ["libboost-dev"]),
        ("bookworm", "go", "1.21", []),
        ("trixie", "go", "1.21", ["golang-go", "ca-certificates"]),
    ],
    indirect=["release"],
)
def test_packages_are_those_that_apt_offers_in_the_version_needed(release, tool, at_least, packages):
    assert toolchains.packages_for(tool, at_least) == packages


@pytest.mark.parametrize("release", ["trixie"], indirect=True)
def test_what_is_missing_is_installed_at_once_and_what_cannot_be_had_is_a_line(release):
    said = []
    problems = toolchains.install([("jdk", "25"), ("rust", "1.88"), ("maven", "3.6.3")], said.append)
    assert said == ["installing openjdk-25-jdk-headless cargo-web rustc-web"]
    asked = (release / "asked").read_text().splitlines()
    assert next(line for line in asked if line.startswith("apt-get")) == "apt-get update -qq"
    assert asked[-1].startswith("apt-get install")
    assert asked[-1].endswith("openjdk-25-jdk-headless cargo-web rustc-web")
    # This apt installs nothing, which is found out.
    assert problems[2] == "needs Maven ≥ 3.6.3, found none; not in this system's packages"
    assert problems[1].endswith("not in this system's packages: install it from https://rustup.rs")


@pytest.mark.parametrize("release", ["bookworm"], indirect=True)
def test_a_version_that_cannot_be_had_takes_nothing_from_an_older_one(release):
    said = []
    problems = toolchains.install([("jdk", "25"), ("jdk", "17"), ("jdk", "17")], said.append)
    assert said == ["installing openjdk-17-jdk-headless"]
    assert problems[0].startswith("needs a JDK ≥ 25, found none; not in this system's packages: install it")


@pytest.mark.parametrize("release", ["bookworm"], indirect=True)
def test_an_apt_that_fails_is_one_line(release, monkeypatch):
    program(release / "apt", "apt-get", "#!/bin/sh\necho E: no network\nexit 100\n")
    with pytest.raises(UserError, match=r"apt-get update -qq` failed with exit code 100: E: no network"):
        toolchains.install([("rust", "1.88")])
    monkeypatch.setattr(toolchains.os, "geteuid", lambda: 1000)
    (release / "apt" / "sudo").unlink()
    with pytest.raises(UserError, match="needs root or sudo: apt-get update"):
        toolchains.install([("rust", "1.88")])


def test_what_is_here_is_not_installed_again(monkeypatch):
    monkeypatch.setattr(toolchains, "_as_root", lambda argv: pytest.fail(f"asked for {argv}"))
    assert toolchains.install([("python", "3.11"), ("c", "")]) == []


def test_a_tool_that_is_too_old_on_the_path_is_taken_from_where_a_newer_one_lies(tmp_path, monkeypatch):
    program(tmp_path / "old", "cargo", "#!/bin/sh\necho cargo 1.63.0\n")
    program(tmp_path / "rust-1.89" / "bin", "cargo", "#!/bin/sh\necho cargo 1.89.0\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:/usr/bin:/bin")
    monkeypatch.setattr(toolchains, "_folders", lambda tool: [tmp_path / "rust-1.89" / "bin"])
    assert toolchains.lacks("rust", "1.88") is None
    assert toolchains.path({"rust": "1.88"}).split(":")[:2] == [str(tmp_path / "rust-1.89/bin"), str(tmp_path / "old")]
    assert toolchains.path({"rust": "1.60"}) == os.environ["PATH"]
    assert toolchains.lacks("rust", "1.95") == "needs Rust ≥ 1.95, found 1.63.0"


def test_every_tool_of_the_catalogue_is_in_the_table_and_can_be_had_somewhere():
    for variant in catalogue.read(ROOT / "servers"):
        assert set(variant.needs) <= set(toolchains.table()), variant.name
    for tool in toolchains.table().values():
        assert tool.packages or tool.pypi
        assert (tool.pypi is None) == (not tool.sha256)


def test_a_tool_that_no_table_has_names_those_there_are(tmp_path):
    (tmp_path / "thing").mkdir()
    manifest = (ROOT / "servers" / "reference" / "server.toml").read_text()
    (tmp_path / "thing" / "server.toml").write_text(manifest.replace("{ rust", "{ rusty"))
    with pytest.raises(UserError, match=r"'needs': found 'rusty', allowed: c, cpp, make, rust, .* or a table with run"):
        catalogue.read(tmp_path)


def test_what_a_server_lacks_is_told_by_its_name_and_can_be_installed(monkeypatch):
    variants = catalogue.read(ROOT / "servers")
    monkeypatch.setattr(toolchains, "found", lambda key, at_least="": None)
    (beast,) = catalogue.select(["cpp-beast"], variants)
    assert build.obstacle(beast) == "needs make ≥ 4, found none; `wsbench build --install cpp-beast` installs it"
    assert build.missing(beast) == [("make", "4"), ("cpp", "11"), ("boost", "1.81")]


def test_the_module_runs_before_anything_is_installed(tmp_path):
    """With the standard library alone, as `make setup` calls it."""
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import runpy; "]
    command[-1] += "sys.argv = ['toolchains', *sys.argv[2:]]; runpy.run_module('wsbench.host.toolchains', run_name='__main__')"
    done = subprocess.run([*command, str(ROOT), "path", "python=3.11"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, os.environ["PATH"]), done.stderr
    done = subprocess.run([*command, str(ROOT), "install", "rusty"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0][:33]) == (2, "unknown tool 'rusty'; known tools")

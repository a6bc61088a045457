"""The check for pull requests as anybody runs it: a repository with two commits of a server, built and compared."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import PATIENCE_S

HERE = Path(__file__).parent
SCRIPT = HERE.parent / "scripts" / "duel_pull_request.py"
ACTION = HERE.parent / "action.yml"
WSBENCH = f"{sys.executable} {HERE / 'quiet_machine.py'}"
OPTIONS = ("-c", "4", "--warmup", "100ms", "--measure", "500ms", "--metric", "messages_per_s", "--seed", "1")
#: The server of the repository; its build writes how long it spins per message.
SERVER = """
import os, runpy
os.environ["OWN_PATH"], os.environ["OWN_SPIN_US"] = "/ws", open("built").read()
runpy.run_path({own!r}, run_name="__main__")
"""


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path):
    """Three commits on `main`, `same` and `slow`: the second changes a text, the third spins 1 ms per message."""
    folder = tmp_path / "server"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "server.py").write_text(SERVER.format(own=str(HERE / "own_server.py")))
    for branch, spin in (("main", "0"), ("same", "0"), ("slow", "1000")):
        if branch != "main":
            git(folder, "switch", "--quiet", "--create", branch)
        (folder / "spin").write_text(spin)
        (folder / "README").write_text(branch)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", branch)
    return folder


def check(folder: Path, *words: str, budget: str = "40s") -> subprocess.CompletedProcess:
    given = ["--start", f"{sys.executable} server.py", "--path", "/ws", "--budget", budget, "--wsbench", WSBENCH]
    gate = ["--fail-if", "messages_per_s < -20 %", "--comment", str(folder.parent / "comment.md")]
    command = [sys.executable, SCRIPT, "--build", "cp spin built", "--repository", folder, *given, *gate, *words, "--", *OPTIONS]
    return subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.alone
def test_a_slower_head_is_a_decided_regression(repository):
    done = check(repository)
    assert done.returncode == 3, done.stdout + done.stderr
    comment = (repository.parent / "comment.md").read_text()
    assert comment.startswith("<!-- wsbench duel -->\n")
    assert "fewer messages/s" in comment
    assert "breached" in comment
    assert git(repository, "rev-parse", "main")[:12] in comment
    assert git(repository, "rev-parse", "slow")[:12] in comment
    assert "/tmp/" not in comment.replace(str(HERE), "").replace(sys.executable, "")
    assert git(repository, "worktree", "list").count("\n") == 1
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.alone
def test_an_equal_head_does_not_fail(repository):
    done = check(repository, "--base", "main", "--head", "same", budget="8s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "breached" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--base", "nothing"], "has no commit 'nothing'"),
        (["--build", "exit 1"], "the build of base failed: exit 1"),
        (["--start", "no-such-program"], "found no program 'no-such-program'"),
    ],
)
def test_what_cannot_be_compared_is_one_plain_line(repository, words, said):
    done = check(repository, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert git(repository, "worktree", "list").count("\n") == 1


def test_the_action_calls_the_script_with_options_that_it_has():
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    (duel,) = [step["run"] for step in steps if step["name"] == "Duel"]
    assert SCRIPT.name in duel
    help_text = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True).stdout
    for word in duel.replace("(", " ").split():
        if word.startswith("--") and word.strip('-"') not in ("", "quiet", "unshallow"):
            assert word in help_text, word


def step(name: str) -> str:
    (found,) = [one["run"] for one in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if one["name"] == name]
    return found


def installed(tmp_path, **inputs: str) -> subprocess.CompletedProcess:
    """The step that installs, with a `make` that only tells its words, and pip offline by its own option."""
    (tmp_path / "make").write_text('#!/bin/sh\necho made "$@"\n')
    (tmp_path / "make").chmod(0o755)
    given = {"RUNNER_TEMP": tmp_path, "GITHUB_ACTION_PATH": HERE.parent, "GITHUB_OUTPUT": tmp_path / "output"}
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", **{name: str(path) for name, path in given.items()}}
    words = ["bash", "-e", "-o", "pipefail", "-c", step("Install")]
    return subprocess.run(words, env=environment | inputs, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def test_the_action_builds_from_its_own_checkout(tmp_path):
    default = yaml.safe_load(ACTION.read_text())["inputs"]["install"]["default"]
    done = installed(tmp_path, INSTALL=default)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"made --directory {HERE.parent} setup\n"
    assert (tmp_path / "output").read_text() == f"bin={HERE.parent}/.venv/bin\n"


@pytest.mark.nightly
def test_the_action_takes_no_name_from_an_index(tmp_path):
    done = installed(tmp_path, INSTALL="wsbench[report]")
    assert done.returncode != 0
    assert "No matching distribution found for wsbench" in done.stderr
    assert "Looking in indexes" not in done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_every_step_of_the_action_is_bash():
    for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]:
        assert subprocess.run(["bash", "-n"], input=step["run"], text=True).returncode == 0, step["name"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(("code", "ends"), [("0", 0), ("2", 2), ("3", 3), ("4", 0)])
def test_what_decides_nothing_is_neutral(code, ends):
    (result,) = [step["run"] for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if step["name"] == "Result"]
    done = subprocess.run(["bash", "-c", result], env={"CODE": code}, capture_output=True, text=True)
    assert done.returncode == ends
    assert ("::notice" in done.stdout) == (code == "4")

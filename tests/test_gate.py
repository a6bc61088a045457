"""The gate as a user meets it: `wsbench check` and `wsbench start`, with servers that are right, faulty, deaf, or not there."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_S, WSBENCH

from wsbench.checks import autobahn
from wsbench.cli import exits
from wsbench.records.errors import TrialFailed, UserError

pytestmark = pytest.mark.system

FAULTY = Path(__file__).with_name("faulty_server.py")
MANIFEST = """
language  = "Python"
library   = "faulty"
homepage  = "https://docs.python.org/3/library/socketserver.html"
scenarios = ["doc", "ping", "push"]
default   = "right"
"""
VARIANT = """
[variants.{name}]
library_version = "1.0"
build   = []
run     = ["{python}", "{server}"{faults}]
version = ["{python}", "{server}", "--version"]
"""


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """A catalogue with one server: right, deaf to SIGTERM, wrong in what is required, wrong in what is advisory, or gone."""
    folder = tmp_path / "servers" / "faulty"
    folder.mkdir(parents=True)
    text = MANIFEST
    for name, fault in (("right", None), ("deaf", "deaf"), ("wrong", "wrong answer"), ("lax", "takes half a code")):
        faults = f', "{fault}"' if fault else ""
        text += VARIANT.format(name=name, python=sys.executable, server=FAULTY, faults=faults)
    text += '[variants.gone]\nlibrary_version = "0.9"\nunavailable = "nobody has it"\n'
    (folder / "server.toml").write_text(text)
    return {**os.environ, "WSBENCH_SERVERS": str(folder.parent), "NO_COLOR": "1"}


def test_a_right_server_passes_and_what_is_tried_is_counted(wsbench):
    done = wsbench("check", "faulty")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[1/1] faulty@right  passes  " in done.stdout
    assert "1 server: 1 pass, 0 fail, 0 cannot run here." in done.stdout


def test_only_what_is_required_fails_the_check_and_every_failure_is_named(wsbench):
    done = wsbench("check", "faulty@lax", "faulty@gone")
    assert done.returncode == 0, done.stdout
    assert "close_frame_of_one_byte_is_refused (RFC 6455 §5.5.1)" in done.stdout
    assert "unavailable: nobody has it" in done.stdout
    done = wsbench("check", "faulty@wrong", "faulty@lax")
    assert done.returncode == exits.BREACHED
    failed = [line.split()[:3] for line in done.stdout.splitlines() if " REQUIRED " in line]
    assert failed == [
        ["faulty@wrong", "REQUIRED", "ping_is_answered"],
        ["faulty@wrong", "REQUIRED", "still_serves"],
    ]
    assert "2 servers: 1 pass, 1 fail, 0 cannot run here." in done.stdout


def test_a_server_that_ignores_sigterm_fails(wsbench):
    done = wsbench("check", "faulty@deaf", "--json")
    assert done.returncode == exits.BREACHED
    (server,) = json.loads(done.stdout)["servers"]
    assert (server["server"], server["outcome"], server["receipt"][:10]) == ("faulty@deaf", "fails", "faulty 1.0")
    wrong = [check["name"] for check in server["checks"] if not check["passed"]]
    assert wrong == ["ends_within_five_seconds"]


def test_a_started_server_is_held_until_ctrl_c(environment, tmp_path):
    started = subprocess.Popen([*WSBENCH, "start", "faulty"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        lines = []
        while not lines or "Ctrl-C" not in lines[-1]:
            lines.append(started.stdout.readline().strip())
            assert lines[-1], lines
        (ping,) = [line for line in lines if line.startswith("ws://127.0.0.1:") and line.endswith("/ping")]
        port = int(ping.split(":")[2].split("/")[0])
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
        started.send_signal(signal.SIGINT)
        rest, _ = started.communicate(timeout=PATIENCE_S)
    finally:
        started.kill()
    assert started.returncode == 0
    assert "SIGTERM" in rest
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


REPORT = {
    "faulty@right": {
        "1.1.1": {"behavior": "OK", "behaviorClose": "OK"},
        "7.1.6": {"behavior": "INFORMATIONAL", "behaviorClose": "INFORMATIONAL"},
        "6.4.3": {"behavior": "NON-STRICT", "behaviorClose": "OK"},
        "2.5": {"behavior": "OK", "behaviorClose": "WRONG CODE"},
        "10.1.1": {"behavior": "FAILED", "behaviorClose": "OK"},
    }
}


def test_a_report_of_autobahns_is_read_and_the_worse_of_two_outcomes_counts(tmp_path):
    index = tmp_path / "index.json"
    index.write_text(json.dumps(REPORT))
    cases = autobahn.read("wstest", index)
    assert cases.counts == {"OK": 1, "INFORMATIONAL": 1, "NON-STRICT": 1, "WRONG CODE": 1, "FAILED": 1}
    assert list(cases.wrong.items()) == [("2.5", "WRONG CODE"), ("10.1.1", "FAILED")]
    index.write_text("{}")
    with pytest.raises(TrialFailed):
        autobahn.read("wstest", index)


def test_a_suite_that_writes_no_report_is_a_failure_and_none_at_all_is_said(tmp_path, monkeypatch):
    with pytest.raises(TrialFailed, match="ended with 1 and no report"):
        autobahn.run(autobahn.Suite("wstest", ["false", "{spec}"]), "faulty", "ws://127.0.0.1:1/echo", tmp_path / "made")
    assert json.loads((tmp_path / "made" / "spec.json").read_text())["servers"][0]["url"] == "ws://127.0.0.1:1/echo"
    monkeypatch.setattr(autobahn.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="neither `wstest` nor `kosoku`"):
        autobahn.find(tmp_path)

"""The command `wsbench capacity`, on real servers whose service time is set (`tests/servers/queue`)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from wsbench.records.rundir import RunFolder

TESTS = Path(__file__).parent


def capacity(folder, *words):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "WSBENCH_SERVERS": str(TESTS / "servers"), "PATH": path}
    program = [sys.executable, str(TESTS / "quiet_machine.py"), *words]
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


QUICK = ("--rung", "400ms", "--warmup", "0.5s", "--seed", "1")


@pytest.mark.alone
def test_a_cliff_is_found_and_confirmed(tmp_path):
    """A server whose replies take 50 ms beyond 1,500 messages a second."""
    promised = ("--slo", "p90 < 20ms", "--slo", "lost = 0", "--within", "20%", "--start", "400")
    done = capacity(tmp_path, "capacity", "queue@cliff", *promised, "--budget", "200s", *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["answers"]
    assert 1_400 < first["low"] <= first["capacity"] <= first["high"] < 1_700
    assert second["slo"] == "lost = 0"
    (run,) = (tmp_path / "runs").iterdir()
    made = [one["purpose"] for one in follow_ups(run)]
    assert made.count("confirmation") >= 1
    assert made.count("recovery") == 1
    shown = capacity(tmp_path, "report", str(run))
    assert shown.returncode == 0, shown.stderr
    page = (run / "report.html").read_text()
    assert "Capacity at p90 &lt; 20ms, in messages/s: queue" in page
    assert "The tables below have 1 other SLO." in page


@pytest.mark.system
def test_the_rounds_go_on_where_they_were(tmp_path):
    done = capacity(
        tmp_path, "capacity", "queue@md1", "--slo", "p50 < 200ms", "--start", "3000", "--most", "4000", "--budget", "1s", *QUICK
    )
    assert done.returncode in (0, 4), done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert f"wsbench run --resume runs/{run.name} --budget 2s" in done.stdout
    last = sorted(run.glob("*/trial.json"))[-1]
    last.unlink()
    longer = capacity(tmp_path, "run", "--resume", str(run), "--budget", "20s", "--within", "40%", "--no-report")
    assert longer.returncode in (0, 4), longer.stderr  # a busy machine has no time for a second ladder
    assert last.exists()
    assert RunFolder(run).campaign.until.budget_s == 20
    assert RunFolder(run).campaign.until.within == 0.4
    assert {one["purpose"] for one in follow_ups(run)} <= {"confirmation", "recovery"}


def follow_ups(run):
    return [one["follow_up"] for one in json.loads((run / "order.json").read_text()) if one.get("follow_up")]


@pytest.mark.alone
@pytest.mark.parametrize(
    "words",
    [
        ["chatty@right", "--rpc"],
        [
            f"{sys.executable} {TESTS / 'servers' / 'chatty' / 'server.py'}",
            "--session",
            "json-rpc",
            "--set",
            'params=["${content}"]',
        ],
    ],
)
def test_a_server_carries_its_own_protocol(tmp_path, words):
    done = capacity(
        tmp_path, "capacity", *words, "--slo", "p50 < 1s", "--start", "1500", "--most", "1500", "--budget", "1s", *QUICK
    )
    assert "carries at least 1,500 messages/s at p50 < 1s" in done.stdout, done.stdout + done.stderr


@pytest.mark.alone
def test_connections_are_raised_within_one_process(tmp_path):
    asked = ("--over", "connections", "--rate-each", "10", "--start", "50", "--most", "400")
    done = capacity(
        tmp_path, "capacity", "queue@md1", "--slo", "p90 < 50ms and lost = 0", *asked, "--budget", "60s", *QUICK, "--json"
    )
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["answers"]
    assert 150 < answer["capacity"] < 230, "2,000 messages a second, ten of each connection"


@pytest.mark.alone
def test_a_server_that_never_recovers_is_told(tmp_path):
    """From a queue of 200 messages on, every message takes four times as long."""
    done = capacity(
        tmp_path, "capacity", "queue@stuck", "--slo", "p99 < 20ms", "--start", "500", "--within", "30%", "--budget", "90s", *QUICK
    )
    assert "not recovered" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["queue@md1"], "--slo"),
        (["nothing-like-this", "--slo", "p99 < 5ms"], "nothing-like-this"),
        (["queue@md1", "--slo", "p99 < 5ms", "--over", "connections"], "each_per_s"),
        (["queue@md1", "queue@md1", "--slo", "p99 < 5ms"], "named twice"),
        (["queue@md1", *["--slo", "p99 < 5ms"] * 4], "found 4 of --slo, allowed: 3"),
        (["queue@md1", "--slo", "push_last.p99 < 5ms"], "allowed for scenario echo: a time such as response.p99"),
        (["queue@md1", "--slo", "response.p99 < 5ms", "--push"], "a time such as push.p99 or push_last.p99"),
    ],
)
def test_bad_input_is_one_plain_line(wsbench, words, says):
    done = wsbench("capacity", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "a=b"], "--set needs --session"),
        (["--push", "--rpc"], "give one of --push, --rooms, --rpc; --session goes with --rooms and --rpc"),
    ],
)
def test_options_that_do_not_go_together_are_refused(wsbench, words, said):
    done = wsbench("capacity", "netty", "--slo", "p99 < 1ms", *words)
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (2, f"wsbench: {said}")

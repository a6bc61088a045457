"""The command `wsbench capacity`, on real servers whose service time is set (`tests/servers/queue`)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from wsbench.analysis import tables
from wsbench.records.rundir import RunFolder

TESTS = Path(__file__).parent


def capacity(folder, *words):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "WSBENCH_SERVERS": str(TESTS / "servers"), "PATH": path}
    program = [sys.executable, str(TESTS / "quiet_machine.py"), *words]
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


QUICK = ("--probe", "1s", "--warmup", "0.5s", "--seed", "1")


@pytest.mark.alone
def test_a_cliff_is_found_and_each_probe_is_kept(tmp_path):
    """A server whose replies take 50 ms beyond 1,500 messages a second."""
    promised = ("--slo", "p90 < 20ms", "--slo", "lost = 0", "--within", "20%")
    done = capacity(tmp_path, "capacity", "queue@cliff", *promised, "--budget", "40s", *QUICK, "--json")
    assert done.returncode in (0, 4), done.stderr
    first, second = json.loads(done.stdout)["answers"]
    assert 1_000 < first["capacity"] < 2_200
    assert second["promise"] == "lost = 0"
    (run,) = (tmp_path / "runs").iterdir()
    made = purposes(run)
    assert (made.count("half"), made.count("recovery")) == (3, 1)
    half, tail = first["half_response_us_p50"], first["half_response_us_p99"]
    assert 0 < half < 50_000, "it is far from its cliff"
    assert tail is None or half <= tail, "None: other programs disturbed the tail"
    assert len(list(run.glob("*/trial.json"))) == len(made) == first["probes"]
    assert len(tables.trials_in(RunFolder(run))) == len(made), "no later reader measures them again"
    shown = capacity(tmp_path, "report", str(run))
    assert shown.returncode == 0, shown.stderr
    page = (run / "report.html").read_text()
    assert "Capacity while p90 &lt; 20ms, in messages/s: queue" in page
    assert "The tables below have 1 other promise." in page
    assert 'id="capacity-2"' in page


@pytest.mark.system
def test_a_search_goes_on_where_it_was(tmp_path):
    done = capacity(tmp_path, "capacity", "queue@cliff", "--slo", "p50 < 20ms", "--budget", "5s", *QUICK)
    assert done.returncode in (0, 4), done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert f"wsbench run --resume runs/{run.name} --budget 10s" in done.stdout + done.stderr
    last = sorted(run.glob("*/trial.json"))[-1]
    last.unlink()
    kept = list(run.glob("*/trial.json"))  # none, if a slow machine was in time for one probe only
    again = capacity(tmp_path, "run", "--resume", str(run))
    assert again.returncode == 0, again.stderr
    assert ("resuming" in again.stdout) == bool(kept)
    assert last.exists()
    made = len(list(run.glob("*/trial.json")))
    probes = purposes(run).count("search") + 2
    longer = capacity(tmp_path, "run", "--resume", str(run), "--budget", "60s", "--probes", str(probes), "--no-report")
    assert longer.returncode == 0, longer.stderr
    assert f"wsbench run --resume {run} --budget 120s --probes {2 * probes}" in longer.stdout
    assert purposes(run).count("search") == probes
    assert set(purposes(run)[made:]) <= {"search", "holdout"}
    assert json.loads((run / "campaign.json").read_text())["departures"][-2:] == [
        "searches with budget_s = 60 instead of the experiment's 5",
        f"searches with probes = {probes} instead of the experiment's no limit",
    ]


def purposes(run):
    return [one["search"]["purpose"] for one in json.loads((run / "order.json").read_text())]


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
def test_a_server_is_searched_in_its_own_protocol(tmp_path, words):
    done = capacity(tmp_path, "capacity", *words, "--slo", "p50 < 1s", "--start", "200", "--most", "200", "--budget", "8s", *QUICK)
    assert "200 messages/s: p50 < 1s kept" in done.stdout, done.stdout + done.stderr


@pytest.mark.alone
def test_a_server_that_never_recovers_is_told(tmp_path):
    """From a queue of 200 messages on, every message takes four times as long."""
    done = capacity(
        tmp_path, "capacity", "queue@stuck", "--slo", "p99 < 20ms", "--start", "1500", "--within", "20%", "--budget", "12s", *QUICK
    )
    assert "not recovered" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["queue@md1"], "--slo"),
        (["nothing-like-this", "--slo", "p99 < 5ms"], "nothing-like-this"),
        (["queue@md1", "--slo", "p99 < 5ms", "--over", "connections"], "each_per_s"),
        (["queue@md1", "queue@md1", "--slo", "p99 < 5ms"], "named twice"),
        (["queue@md1", *["--slo", "p99 < 5ms"] * 4], "promises"),
    ],
)
def test_bad_input_is_one_plain_line(wsbench, words, says):
    done = wsbench("capacity", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--set", "a=b"], "--set needs --session"), (["--push", "--rpc"], "--push does not go with --rpc or --session")],
)
def test_options_that_do_not_go_together_are_refused(wsbench, words, said):
    done = wsbench("capacity", "netty", "--slo", "p99 < 1ms", *words)
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (2, f"wsbench: {said}")

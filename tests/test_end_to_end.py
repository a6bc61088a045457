"""wsbench as a user runs it: real servers, the real engine, real files, and what happens when things go wrong."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import PATIENCE_S, RAN, WSBENCH

from wsbench.cli import exits
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import disturbed
from wsbench.records.rundir import RunFolder


def only_run(folder: Path) -> RunFolder:
    (path,) = (folder / "runs").iterdir()
    return RunFolder(path)


def outcomes(run: RunFolder) -> dict[int, str]:
    return {record.number: record.outcome for _, record in run.finished()}


def processes_with(text: str) -> list[psutil.Process]:
    """Live processes whose command line or environment names this test's own folder or server."""
    return [p for p in psutil.process_iter(["cmdline"]) if text in " ".join(p.info["cmdline"] or [])]


def wait_for(condition, what: str):
    until = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < until, f"never saw {what}"
        time.sleep(0.05)
    return found


@pytest.mark.system
def test_a_campaign_runs_every_trial_and_writes_its_report(wsbench, experiment, tmp_path):
    done = wsbench("run", str(experiment))
    assert done.returncode in RAN, done.stderr
    run = only_run(tmp_path)
    assert outcomes(run) == {number: "ok" for number in range(1, 5)}
    assert (run.path / "report.html").exists()
    assert (run.path / "trials.parquet").exists()
    for folder, record in run.finished():
        end = folder.events()[-1]
        assert end.event == "end"
        assert end.measured.answered == end.measured.sent > 0
        assert folder.plan.connections == record.cell["connections"]
        assert {s.of for s in folder.samples()} == {
            "server",
            "engine",
            "machine",
            "network",
            "switches",
            "pss",
            "sampler",
            "programs",
        }
        assert "SIGTERM" in record.server_exit


@pytest.mark.system
def test_what_the_command_line_changes_is_what_everybody_is_told(wsbench, experiment, tmp_path):
    assert wsbench("run", str(experiment), "--rounds", "1", "--no-report").returncode in RAN
    run = only_run(tmp_path)
    assert "rounds = 2" in run.experiment_toml.read_text()
    assert (run.campaign.rounds, len(run.order)) == (1, 2)
    departure = "1 round instead of the experiment's 2"
    assert run.campaign.departures == [departure]
    (run.path / "0002" / "trial.json").unlink()
    resumed = wsbench("run", "--resume", str(run.path))
    assert f"1 of 2 trials in 1 round are done; {departure}" in resumed.stdout
    assert sorted(outcomes(run)) == [1, 2]
    row = next(line for line in wsbench("list", "runs").stdout.splitlines() if "2/2" in line)
    assert departure in row
    assert departure.replace("'", "&#39;") in (run.path / "report.html").read_text()
    planned = wsbench("plan", str(experiment), "--servers", "fragile@steady").stdout
    assert "override: servers fragile@steady instead of the experiment's fragile" in planned
    assert "departure" not in wsbench("plan", str(experiment), "--rounds", "2").stdout


@pytest.mark.nightly
def test_only_some_cells_run_and_a_resumed_campaign_keeps_to_them(wsbench, experiment, tmp_path):
    only = ("--only", "connections=4")
    for wrong, line in (
        ("connections=5", "no connections of 5; allowed: 2, 4"),
        ("depth=1", "no values of 'depth' to choose from; it can be narrowed by conn"),
    ):
        refused = wsbench("run", str(experiment), "--only", wrong)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert line in refused.stderr
    done = wsbench("run", str(experiment), *only, "--until", "decided", "--budget", "3s", "--no-report")
    assert done.returncode in RAN, done.stderr
    run = only_run(tmp_path)
    assert run.campaign.rounds > 1
    assert {tuple(one.cell.items()) for one in run.order} == {(("connections", 4),)}
    departure = "only connections 4 of the experiment's 2, 4"
    assert departure in run.campaign.departures
    (run.path / "0001" / "trial.json").unlink()
    assert departure in wsbench("run", "--resume", str(run.path), "--no-report").stdout
    assert sorted(outcomes(run)) == [one.number for one in run.order]
    assert {folder.plan.connections for folder, _ in run.finished()} == {4}


@pytest.mark.system
def test_a_server_that_crashes_is_a_failed_row_and_the_campaign_goes_on(wsbench, experiment, tmp_path):
    done = wsbench("run", str(experiment), "--servers", "fragile@crashing,fragile")
    assert done.returncode in RAN, done.stderr
    run = only_run(tmp_path)
    rows = {record.name: set() for _, record in run.finished()}
    for _, record in run.finished():
        rows[record.name].add(record.outcome)
        if record.variant == "crashing":
            assert record.reason == "the server ended before it was stopped"
            assert "fatal: <script>" in record.log_tail[-1]
    assert rows == {"fragile@crashing": {"failed"}, "fragile@steady": {"ok"}}
    page = (run.path / "report.html").read_text()
    assert "<script>alert('heap')" not in page
    assert "is exhausted" in page


@pytest.mark.system
def test_a_server_without_its_tool_and_one_that_is_unavailable_are_skipped_with_a_line(wsbench, experiment, tmp_path):
    done = wsbench("run", str(experiment), "--servers", "fragile@*,!fragile@crashing", "--rounds", "1")
    assert done.returncode in RAN, done.stderr
    assert "skipped fragile@toolless: needs no-such-tool ≥ 1, found none; apt-get install no-such-tool" in done.stdout
    assert "skipped fragile@gone: unavailable: nobody has it any more" in done.stdout
    skipped = [row.name for row in only_run(tmp_path).servers if row.skipped]
    assert skipped == ["fragile@toolless", "fragile@gone"]


def test_an_unavailable_server_is_listed_and_has_no_trial_in_a_plan(wsbench, experiment):
    listed = next(line for line in wsbench("list", "servers").stdout.splitlines() if "fragile@gone" in line)
    assert listed.rstrip().endswith("unavailable: nobody has it any more")
    planned = wsbench("plan", str(experiment), "--servers", "fragile@steady,fragile@gone", "--rounds", "1").stdout
    assert "2 trials" in planned
    assert "left out fragile@gone: unavailable: nobody has it any more" in planned


@pytest.mark.system
def test_killed_at_any_moment_it_leaves_nothing_running_and_resume_finishes(experiment, environment, tmp_path, wsbench):
    command = [*WSBENCH, "run", str(experiment), "--servers", "fragile@forking"]
    harness = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    wait_for(lambda: list(tmp_path.glob("runs/*/0002/events.jsonl")), "the second trial")
    children = psutil.Process(harness.pid).children(recursive=True)
    assert len(children) >= 3, "leash, server, its child and engine should run"
    os.kill(harness.pid, signal.SIGKILL)
    harness.wait()
    _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
    assert not alive, alive
    run = only_run(tmp_path)
    before = {folder.path.name: (folder.path / "trial.json").read_bytes() for folder, _ in run.finished()}
    assert "0001" in before
    assert len(before) < 4
    done = wsbench("run", "--resume", str(run.path))
    assert done.returncode in RAN, done.stderr
    assert outcomes(run) == {number: "ok" for number in range(1, 5)}
    for name, record in before.items():
        assert (run.path / name / "trial.json").read_bytes() == record, "a finished trial was touched"


@pytest.mark.system
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, exits.INTERRUPTED), (signal.SIGTERM, exits.TERMINATED)])
def test_an_interrupt_keeps_finished_trials_and_stops_everything(experiment, environment, tmp_path, number, code):
    harness = subprocess.Popen(
        [*WSBENCH, "run", str(experiment)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: list(tmp_path.glob("runs/*/0002/events.jsonl")), "the second trial")
    children = psutil.Process(harness.pid).children(recursive=True)
    harness.send_signal(number)
    _, said = harness.communicate(timeout=PATIENCE_S)
    assert harness.returncode == code
    (campaign,) = tmp_path.glob("runs/*")
    kept = f"every finished trial is kept; go on with: wsbench run --resume {campaign.relative_to(tmp_path)}\n"
    assert said.decode().endswith(kept)
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    assert outcomes(only_run(tmp_path))[1] == "ok"


@pytest.mark.nightly
def test_what_the_machine_disturbed_runs_once_more(wsbench, experiment, tmp_path):
    assert wsbench("run", str(experiment), "--no-report").returncode in RAN
    run = only_run(tmp_path)
    steal_from(run.trial(2))
    done = wsbench("run", "--resume", str(run.path), "--again", "1")
    assert done.returncode in RAN, done.stderr
    assert "disturbed by the host, under new numbers" in done.stdout
    first, more = run.order[:4], run.order[4:]
    # This machine may be disturbed in earnest too.
    spoilt = {n for n in range(1, 5) if disturbed(TrialData(run.trial(n), run.trial(n).record))}
    assert 2 in spoilt
    assert {planned.again_of for planned in more} == spoilt
    assert [planned.number for planned in more] == list(range(5, 5 + len(spoilt)))
    for planned in more:
        of, record = first[planned.again_of - 1], run.trial(planned.number).record
        assert planned == of.model_copy(update={"number": planned.number, "again_of": of.number})
        assert (record.outcome, record.again_of) == ("ok", of.number)
    html = (run.path / "report.html").read_text()
    assert "INVALID" in html
    assert "ran again, because the host had disturbed" in html
    assert len(run.order) == len(list(run.finished()))


def steal_from(trial) -> None:
    """Half of the machine's CPU time, stolen in every sample."""
    file = trial.path / "resources.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line["of"] == "machine":
            line["cpu_s"]["steal"] += line["cpu_s"]["user"] + line["cpu_s"]["idle"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.nightly
def test_a_trial_of_several_engines_and_servers_is_read_like_any_other(wsbench, experiment, tmp_path):
    shape = ("--engines", "2", "--server-processes", "2", "--rounds", "1")
    done = wsbench("run", str(experiment), *shape)
    assert done.returncode in RAN, done.stderr
    assert "2 connections: 2 engine processes, 2 server processes (the file limit here is" in done.stdout
    run = only_run(tmp_path)
    assert (run.campaign.engines, run.campaign.server_processes) == (2, 2)
    for folder, record in run.finished():
        assert (record.outcome, record.engines, record.server_processes) == ("ok", 2, 2)
        end = folder.events()[-1]
        assert end.connections.established == folder.plan.connections == record.cell["connections"]
        assert len(folder.plan.target.replicas) == 1
        assert sum(part.events()[-1].measured.answered for part in folder.parts()) == end.measured.answered > 0
        assert max(sample.processes for sample in folder.samples() if sample.of == "server") >= 2
        assert max(sample.processes for sample in folder.samples() if sample.of == "engine") == 2
    assert (run.path / "report.html").exists()


@pytest.mark.system
def test_an_engine_that_is_killed_is_a_failed_row_and_the_campaign_goes_on(experiment, environment, tmp_path):
    typed = ["run", str(experiment), "--engines", "2", "--rounds", "1", "--no-report"]
    harness = subprocess.Popen([*WSBENCH, *typed], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    wait_for(lambda: list(tmp_path.glob("runs/*/0001/engine-1/events.jsonl")), "the first trial")
    children = psutil.Process(harness.pid).children(recursive=True)
    victim = next(one for one in children if one.cmdline()[-1].endswith("0001/engine-1"))
    victim.kill()
    said, _ = harness.communicate(timeout=PATIENCE_S)
    assert harness.returncode in RAN
    assert b"engine 2 of 2: the engine failed: it was killed by SIGKILL" in said
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    run = only_run(tmp_path)
    assert outcomes(run) == {1: "failed", 2: "ok"}
    assert not (run.path / "0001" / "events.jsonl").exists()


@pytest.mark.system
def test_two_cannot_run_one_campaign(wsbench, experiment, environment, tmp_path):
    harness = subprocess.Popen([*WSBENCH, "run", str(experiment)], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: list(tmp_path.glob("runs/*/0001")), "the first trial")
        done = wsbench("run", "--resume", str(only_run(tmp_path).path))
        assert done.returncode == 2
        assert "another wsbench is running" in done.stderr
    finally:
        harness.send_signal(signal.SIGINT)
        harness.wait(20)


@pytest.mark.system
def test_load_measures_a_server_of_the_users_own(wsbench, environment, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        ["python3", str(Path(environment["WSBENCH_SERVERS"]) / "fragile" / "server.py")],
        env={**environment, "HOST": "127.0.0.1", "PORT": str(port)},
    )
    try:
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "the server")
        done = wsbench("load", f"tcp://127.0.0.1:{port}", "-c", "3", "-n", "2000")
        assert done.returncode in (0, 4), done.stderr  # 4: a machine too busy to measure on
        assert "2,000 sent = 2,000 answered + 0 failed + 0 unanswered" in done.stdout
        assert "p99.9" in done.stdout
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "quick", "--servers", "nety"], "no server matches 'nety'; did you mean netty?"),
        (["build", "reference,nety"], "no server matches 'nety'; did you mean netty?"),
        (["run", "no-such"], "no experiment 'no-such' (see `wsbench list experiments`"),
        (["run", "quick", "--servers", "fragile"], "none of the chosen servers serves 'echo'"),
        (["run"], "expected either an experiment or --resume RUN"),
        (["run", "--resume", "nowhere"], "nowhere is not a run directory"),
        (["run", "--resume", "nowhere", "--rounds", "9"], "rounds that are added once results are known"),
        (["run", "--resume", "nowhere", "--time-scale", "0.5"], "--time-scale does not go with --resume"),
        (["run", "--resume", "nowhere", "--no-control"], "--no-control does not go with --resume"),
        (["run", "--resume", "nowhere", "--seed", "0"], "--seed does not go with --resume"),
        (["load", "ws://127.0.0.1:9/echo"], "127.0.0.1:9 does not answer: Connection refused"),
        (["load", "ftp://127.0.0.1"], "is not a target; allowed: ws://"),
        (["load", "ws://me:secret@127.0.0.1"], "wsbench: the URL has a user's name, which no server is told"),
        (
            ["load", "ws://192.0.2.1/echo"],
            "192.0.2.1 is not this machine; wsbench loads other hosts only if they are yours",
        ),
        (["load", "tcp://127.0.0.1:9", "-c", "0"], "found '0', allowed: a whole number from 1"),
        (["list", "moons"], "invalid choice: 'moons'"),
        (["report", "."], "is not a run directory"),
    ],
)
def test_bad_input_is_one_plain_line_and_exit_2(wsbench, arguments, line):
    done = wsbench(*arguments)
    assert done.returncode == 2, done.stdout
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert line in done.stderr


def test_a_port_in_use_is_said_before_anything_starts(wsbench, experiment):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = wsbench("run", str(experiment), "--port", str(port))
    assert done.returncode == 2
    assert done.stderr == f"wsbench: port {port} on 127.0.0.1 is in use; stop its listener, or choose another --port\n"


def test_plan_prints_every_trial_and_runs_nothing(wsbench, experiment, tmp_path):
    done = wsbench("plan", str(experiment), "--seed", "5")
    assert done.returncode == 0, done.stderr
    assert "4 trials, about" in done.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.system
def test_a_server_may_open_as_many_files_as_the_machine_allows(tmp_path):
    """Also where a login has the usual limit of 1,024."""
    code = """
import resource, sys
from pathlib import Path
from wsbench.host.process import Server
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
with Server(["sh", "-c", "ulimit -Sn; ulimit -Hn; exec sleep 60"], Path(), {}, [0], Path("log")) as running:
    while len(Path("log").read_text().split()) < 2:
        assert running.exit_code is None
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=PATIENCE_S)
    soft, hard = (tmp_path / "log").read_text().split()
    assert soft == hard


@pytest.mark.parametrize("what", ["servers", "experiments", "sessions", "metrics", "runs"])
def test_everything_can_be_listed(wsbench, what):
    done = wsbench("list", what)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.system
def test_doctor_says_what_to_do(wsbench):
    done = wsbench("doctor")
    assert done.returncode == 0, done.stderr
    assert "needs no-such-tool ≥ 1" in done.stdout
    assert "open files" in done.stdout


@pytest.mark.alone
def test_doctor_names_the_programs_that_would_disturb(wsbench, tmp_path):
    own = tmp_path / "disturber"
    own.symlink_to("/bin/sh")
    busy = subprocess.Popen([own, "-c", "while :; do :; done"])
    try:
        done = wsbench("doctor")
    finally:
        busy.kill()
        busy.wait()
    (line,) = [line for line in done.stdout.splitlines() if "other programs" in line]
    assert line.startswith("!!"), line
    assert re.search(r"\bdisturber [1-9]\d*%", line), line


def test_the_harness_reads_the_examples_of_the_contract():
    from wsbench.host.installation import ROOT
    from wsbench.records.engine_files import Plan

    plans = sorted((ROOT / "protocol" / "examples").glob("plan-*.json"))
    assert len(plans) >= 3
    for file in plans:
        assert json.loads(Plan.model_validate_json(file.read_bytes()).model_dump_json()) == json.loads(file.read_text())

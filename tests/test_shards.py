"""Several engine processes for one trial: who does what, that their parts add up, and what happens when one of them dies."""

import json
import os
import resource
import signal
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from conftest import PATIENCE_S, WSBENCH
from run_maker import Trial, write_trial

from wsbench import metrics
from wsbench.cli import exits
from wsbench.engine import program, shards
from wsbench.experiments.experiment import read
from wsbench.experiments.load import Load
from wsbench.host import machine
from wsbench.host.installation import ROOT
from wsbench.metrics.trial_data import TrialData
from wsbench.records.engine_files import (
    Closed,
    Echo,
    Idle,
    Messages,
    NoLoop,
    Open,
    Plan,
    Push,
    Seconds,
    Segment,
    Stage,
    Target,
)
from wsbench.records.errors import UserError
from wsbench.records.rundir import TrialFolder
from wsbench.run import trial
from wsbench.run.testbed import ThisHost
from wsbench.servers import build, catalogue

REFERENCE = ROOT / "servers" / "reference"


def whole_plan(connections: int = 10, **changes) -> Plan:
    target = Target(address="127.0.0.1:21000", host="127.0.0.1:21000", path="/echo")
    made = program.plan(
        scenario=Echo(opcode="text", bytes=16),
        transport="websocket",
        target=target,
        connections=connections,
        warmup=None,
        measure=Seconds(seconds=1),
        seed=1,
        cpus=[],
    )
    return made.model_copy(update={"threads": 4, **changes})


# ---- who does what ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connections", "limit", "processes"),
    [(19_952, 20_000, 1), (1_000_000, 20_000, 1), (58_564, 1000, 1), (58_565, 1000, 2), (1_000_000, None, 1)],
)
def test_the_file_limit_says_how_many_processes_it_takes(monkeypatch, connections, limit, processes):
    monkeypatch.setattr(machine, "file_limit", lambda: limit)
    assert shards.needed(connections, threads=4) == processes


@pytest.mark.parametrize(
    ("connections", "limit", "workers"),
    [(19_952, 20_000, 4), (19_953, 20_000, 4), (79_809, 20_000, 5), (1_000_000, 20_000, 51), (1_000_000, None, 4)],
)
def test_a_worker_has_a_file_table_of_its_own(monkeypatch, connections, limit, workers):
    monkeypatch.setattr(machine, "file_limit", lambda: limit)
    [plan] = shards.plans(whole_plan(connections, cpus=[0, 1, 2, 3], busy_poll=True), 1)
    assert (plan.threads, plan.busy_poll) == (workers, workers == 4), "workers that never sleep share no CPU"


def test_every_worker_may_open_a_connection(monkeypatch):
    monkeypatch.setattr(machine, "file_limit", lambda: 1000)
    for plan in shards.plans(whole_plan(100_000), 2):
        assert plan.connect.at_once == 2 * plan.threads > 100


def test_what_cannot_be_shared_out_is_one_line(monkeypatch):
    monkeypatch.setattr(machine, "file_limit", lambda: 1000)
    with pytest.raises(UserError, match="120,000 connections need 3 engine processes: each worker may open at most 1,000 files"):
        shards.chosen(2, whole_plan(120_000))
    with pytest.raises(UserError, match="each process needs at least one"):
        shards.chosen(11, whole_plan(10))
    moving = {"scenario": Push(), "stages": [Stage(to=10, over_s=1)]}
    with pytest.raises(UserError, match="need a single engine process"):
        shards.chosen(2, whole_plan(10, **moving))


def test_the_plans_differ_in_shard_cpus_and_sources_only():
    whole = whole_plan(10, cpus=[1, 2, 3], threads=3)
    first, second = shards.plans(whole, 2)
    assert (first.shard, second.shard) == ((0, 2), (1, 2))
    assert (first.cpus, second.cpus) == ([1, 3], [2])
    assert (first.threads, second.threads) == (2, 1)
    assert first.gate_s == second.gate_s > 0
    apart = {"shard", "cpus", "threads", "source_addresses", "gate_s"}
    assert first.model_dump(exclude=apart) == second.model_dump(exclude=apart) == whole.model_dump(exclude=apart)
    assert shards.plans(whole, 1)[0] == whole


def test_workers_that_never_sleep_share_no_cpu():
    assert [one.busy_poll for one in shards.plans(whole_plan(10, cpus=[1, 2], busy_poll=True), 2)] == [True, True]
    crowded = shards.plans(whole_plan(10, cpus=[1], threads=1, busy_poll=True), 2)
    assert [(one.busy_poll, one.cpus) for one in crowded] == [(False, [1]), (False, [1])]


def test_sources_are_found_on_loopback_and_asked_for_elsewhere(monkeypatch):
    monkeypatch.setattr(machine, "local_ports", lambda: 1000)
    found = [plan.source_addresses for plan in shards.plans(whole_plan(2000), 2)]
    assert found == [["127.0.0.1", "127.0.0.2"], ["127.0.0.3", "127.0.0.4"]]
    twice = whole_plan(2000).target.model_copy(update={"replicas": ["127.0.0.1:21001"]})
    found = [plan.source_addresses for plan in shards.plans(whole_plan(2000, target=twice), 2)]
    assert found == [["127.0.0.1"], ["127.0.0.2"]]
    assert shards.plans(whole_plan(400), 1)[0].source_addresses == ["0.0.0.0"]
    away = whole_plan(2000).target.model_copy(update={"address": "192.0.2.1:80"})
    with pytest.raises(UserError, match="need 2 source addresses with 1,000 local ports each"):
        shards.plans(whole_plan(2000, target=away), 2)


def test_what_a_server_may_open_is_asked_before_it_is_started(monkeypatch, experiment):
    monkeypatch.setattr(machine, "file_limit", lambda: 20_000)
    asked = read(experiment)
    setting = trial.Setting(asked, seed=1, testbed=ThisHost(Path(), machine.Placement([0], [1])), port=None)

    def shape(connections, scenario="ping", **changes):
        whole = asked.model_copy(update={"scenario": scenario})
        return trial.shape_of(replace(setting, experiment=whole, **changes), Load(connections=connections))

    assert shape(19_500) == trial.Shape(engines=1, servers=1)
    assert shape(19_600) == trial.Shape(engines=1, servers=2)
    assert shape(100_000).words == "6 server processes"
    assert shape(100, engines=2, server_processes=3) == trial.Shape(engines=2, servers=3)
    with pytest.raises(UserError, match="need 2 server processes: the file limit is 20,000 per process"):
        shape(30_000, server_processes=1)
    assert shape(30_000, scenario="push").servers == 2


# ---- with real processes ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference():
    """Starts the real reference server; `reference(count)` gives the addresses of so many processes of it."""
    built = build.build(next(one for one in catalogue.read() if one.name == "reference@websocket"), machine.placement().server)
    assert built.problem is None, built.problem
    running = []

    def start(count: int = 1) -> list[str]:
        addresses = []
        for _ in range(count):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            env = {**os.environ, "HOST": "127.0.0.1", "PORT": str(port), "THREADS": "1"}
            running.append(subprocess.Popen([str(REFERENCE / "target/release/reference")], env=env))
            # As the leash does for a campaign's servers.
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.prlimit(running[-1].pid, resource.RLIMIT_NOFILE, (hard, hard))
            until = time.monotonic() + PATIENCE_S
            while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
                assert time.monotonic() < until
                time.sleep(0.02)
            addresses.append(f"127.0.0.1:{port}")
        return addresses

    yield start
    for one in running:
        one.kill()
        one.wait()


def carry_out(plan: Plan, count: int, path: Path) -> TrialData:
    """By real processes, with the record that a trial has."""
    folder = TrialFolder(path)
    with shards.Engines(plan, count, folder, shards.ThisHost(program.require_binary())) as running:
        running.carry_out(lambda: None)
    record = write_trial(path / "record", Trial()).record.model_copy(update={"engines": count})
    return TrialData(folder, record)


def at(address: str, connections: int, **changes) -> Plan:
    path = "/push" if isinstance(changes.get("scenario"), Push) else "/echo"
    target = Target(address=address, host=address, path=path)
    return whole_plan(connections, **{"target": target, "threads": 2, **changes})


def conserved(data: TrialData) -> None:
    ledger = data.measured
    assert ledger.sent == ledger.answered + ledger.failed + ledger.unanswered
    ends = [part.events()[-1] for part in data.folder.parts()]
    assert sum(end.measured.answered for end in ends) == ledger.answered
    assert sum(end.connections.established for end in ends) == data.end.connections.established


@pytest.mark.system
def test_two_processes_echo_and_all_of_it_is_counted(reference, tmp_path):
    data = carry_out(at(reference()[0], 9, loop=Closed(), measure=Messages(messages=1001)), 2, tmp_path)
    assert (data.measured.sent, data.measured.answered) == (1001, 1001)
    assert data.histograms["service"].count == 1001
    assert data.end.connections.asked == 9
    conserved(data)


@pytest.mark.nightly
def test_two_processes_keep_one_rate_evenly(reference, tmp_path):
    loop = Open(rate=[Segment(from_per_s=400, to_per_s=400, for_s=1)])
    timing = {"warmup": Seconds(seconds=0.5), "measure": Seconds(seconds=1.5)}
    data = carry_out(at(reference()[0], 10, loop=loop, **timing), 2, tmp_path)
    assert data.measured.sent == 600
    assert data.window_s == 1.5
    assert data.due_in_window == data.planned_in_window == 600
    assert metrics.rates.start_spread_us(data) >= 0
    begins = [part.events() for part in data.folder.parts()]
    starts = {one.t_ns for events in begins for one in events if one.event == "phase" and one.phase == "measure"}
    assert len(starts) == 1, "one instant for all"
    conserved(data)


@pytest.mark.nightly
def test_broadcasts_reach_the_receivers_of_all_processes(reference, tmp_path):
    loop = Open(rate=[Segment(from_per_s=20, to_per_s=20, for_s=1)])
    data = carry_out(at(reference()[0], 31, scenario=Push(), loop=loop, measure=Seconds(seconds=1)), 3, tmp_path)
    assert [(one.expected, one.received) for one in data.broadcasts] == [(31, 31)] * 20
    assert metrics.broadcasts.push_reach(data) == 1
    assert data.measured.answered == data.measured.sent == 620 == data.histograms["push"].count
    assert max(one.last_ns - one.t_ns for one in data.broadcasts) >= data.histograms["push"].quantile("0.99") * 0.99
    assert data.end.control.foreign == 0
    conserved(data)


@pytest.mark.system
def test_a_killed_process_fails_the_trial_at_once_and_leaves_nothing(reference, environment, tmp_path):
    typed = ["load", f"ws://{reference()[0]}/echo", "-c", "6", "--engines", "3", "-t", "300", "--warmup", "0"]
    harness = subprocess.Popen([*WSBENCH, *typed], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    until = time.monotonic() + PATIENCE_S
    while not any('"measure"' in file.read_text() for file in tmp_path.glob("runs/*/engine-1/events.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.05)
    children = psutil.Process(harness.pid).children(recursive=True)
    assert sum(one.name() == "wsbench-engine" for one in children) == 3
    victim = next(one for one in children if "engine-1" in " ".join(one.cmdline()))
    victim.send_signal(signal.SIGKILL)
    said, _ = harness.communicate(timeout=PATIENCE_S)
    assert harness.returncode == exits.FAULT
    assert b"engine 2 of 3: the engine failed: it was killed by SIGKILL" in said
    assert not psutil.wait_procs(children, timeout=PATIENCE_S)[1]
    (folder,) = tmp_path.glob("runs/*")
    assert json.loads((folder / "trial.json").read_text())["outcome"] == "failed"
    assert not (folder / "events.jsonl").exists(), "no merged half result"


@pytest.mark.system
def test_ctrl_c_keeps_what_all_processes_measured(reference, environment, tmp_path):
    typed = ["load", f"ws://{reference()[0]}/echo", "-c", "6", "--engines", "2", "-t", "60", "--warmup", "0", "--json"]
    harness = subprocess.Popen([*WSBENCH, *typed], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    until = time.monotonic() + PATIENCE_S
    while not any('"measure"' in file.read_text() for file in tmp_path.glob("runs/*/engine-1/events.jsonl")):
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.5)
    harness.send_signal(signal.SIGINT)
    said, _ = harness.communicate(timeout=PATIENCE_S)
    assert harness.returncode == 130
    found = json.loads(said)
    assert (found["interrupted"], found["outcome"]) == (True, "interrupted")
    assert found["ledger"]["answered"] > 0
    assert found["connections"] == {"asked": 6, "established": 6, "open": 6}


@pytest.mark.nightly
@pytest.mark.parametrize("processes", [1, 2])
def test_25000_connections_are_held_against_two_servers(reference, tmp_path, processes):
    first, second = reference(2)
    target = Target(address=first, replicas=[second], host=first, path="/echo")
    plan = at(first, 25_000, target=target, scenario=Idle(), loop=NoLoop(), measure=Seconds(seconds=1))
    # On a machine that does other things too they may be long in coming.
    limits = plan.limits.model_copy(update={"connect_s": 100.0, "deadline_s": plan.limits.deadline_s + 90})
    data = carry_out(plan.model_copy(update={"limits": limits}), processes, tmp_path)
    assert data.end.connections.model_dump() == {"asked": 25_000, "established": 25_000, "open": 25_000}
    assert not data.end.errors

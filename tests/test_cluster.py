"""Engines on hosts whose clocks differ: the hosts' file, the clocks, and a load whose shards run "there", without Ray.

The hosts here are the very class that Ray runs on a host, in this process, behind a connection that shifts their clock.
"""

import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time

import pytest
from shifted_hosts import ALL_ROLES, TWO, Shifted, cluster

from wsbench.engine import program, shards
from wsbench.host import machine
from wsbench.host.installation import ROOT
from wsbench.host.process import Server
from wsbench.records.engine_files import Echo, Open, Seconds, Segment, Target
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.rundir import TrialFolder
from wsbench.run.cluster import clocks, commands, engines, hosts, instants, remote
from wsbench.run.cluster.onhost import OnHost
from wsbench.run.cluster.remotes import Remote, Samples
from wsbench.servers import build, catalogue, serving

# ---- what the user writes --------------------------------------------------------------------------------------------


def test_the_first_host_is_the_head(tmp_path):
    assert cluster(tmp_path).head == "10.0.0.1:26379"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing key 'host'"),
        (TWO.replace("10.0.0.2", "10.0.0.1"), "two hosts have the address '10.0.0.1'"),
        (TWO.replace('"two"', '"one"'), "two hosts have the name 'one'"),
        (TWO.replace("10.0.0.2", "127.0.0.1"), "Ray replaces it with another"),
        (TWO.replace("10.0.0.2", "elsewhere"), "an IP address, found 'elsewhere'"),
        (TWO + "colour = 'red'\n", "unknown key 'host.1.colour'"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, said):
    with pytest.raises(UserError, match=re.escape(said)):
        cluster(tmp_path, text)


def test_ray_listens_on_fixed_ports_and_reports_to_nobody(tmp_path):
    found = cluster(tmp_path)
    head, other = (commands.command_of(found, host) for host in found.host)
    assert {"--head", "--port=26379", "--include-dashboard=false", "--disable-usage-stats"} <= set(head)
    assert {"--address=10.0.0.1:26379", "--node-manager-port=26380", "--max-worker-port=26489"} <= set(other)
    settings = remote.environment(found)
    assert settings["RAY_AUTH_MODE"] == "token"
    assert [settings[name] for name in ("RAY_worker_niceness", "RAY_USAGE_STATS_ENABLED")] == ["0", "0"]


def test_up_makes_a_token_for_its_user_alone_and_prints_what_is_to_be_typed_elsewhere(tmp_path, wsbench, monkeypatch):
    file = tmp_path / "cluster.toml"
    file.write_text(f'token = "{tmp_path}/token"\n{TWO.replace("netns", "# netns")}')
    done = wsbench("cluster", "up", str(file))
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert len((tmp_path / "token").read_text()) == 64
    assert "on two: env RAY_AUTH_MODE=token" in done.stdout
    assert (tmp_path / "token").read_text() not in done.stdout


def test_a_load_on_hosts_that_are_not_up_is_one_line(tmp_path, wsbench):
    file = tmp_path / "cluster.toml"
    file.write_text(f'token = "{tmp_path}/no-token"\n{TWO}')
    reference = ["ws://127.0.0.1:1/echo", "--cluster", str(file)]
    assert "does not answer" in wsbench("load", *reference).stderr


# ---- clocks ----------------------------------------------------------------------------------------------------------


def test_the_offset_of_a_clock_is_found_within_its_bound():
    draw = random.Random(1)
    ahead, now = 123_456_789_000, 0

    def pass_by() -> int:
        nonlocal now
        now += 100_000 + round(draw.expovariate(1 / 300_000))
        return now

    def ask() -> tuple[int, int]:
        heard = pass_by() + ahead
        return heard, heard + 1_000

    found = clocks.measure(ask, pass_by, 64)
    assert abs(found.ns - ahead) < found.bound_ns < 500_000
    assert abs(found.ns - ahead) < 100_000


def test_one_slow_exchange_says_nothing():
    good = [clocks.Exchange(at, at + 50, at + 60, at + 110) for at in range(0, 4000, 1000)]
    assert clocks.offset([*good, clocks.Exchange(9000, 9000 + 80_000, 89_010, 89_060)]) == clocks.Offset(0, 50)


def test_every_instant_of_an_event_is_moved_and_nothing_else():
    line = b'{"count":7,"entered_ns":1005,"event":"x","first_ns":1001,"last_ns":1002,"t_ns":1000,"window_ns":1000}\n'
    moved = json.loads(instants.of_lines(line, 1000))
    assert moved == {
        "count": 7,
        "entered_ns": 5,
        "event": "x",
        "first_ns": 1,
        "last_ns": 2,
        "t_ns": 0,
        "window_ns": 1000,
    }


# ---- a load ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere():
    found = Shifted({"one": 5_000_000_000_000, "two": -3_000_000_000})
    yield found
    found.leave()


@pytest.fixture
def server(tmp_path):
    variant = next(one for one in catalogue.read(ROOT / "servers") if one.name == "reference@websocket")
    assert build.build(variant, sorted(os.sched_getaffinity(0))).problem is None
    port = machine.free_port("127.0.0.1", None, os.getpid())
    env = {"HOST": "127.0.0.1", "PORT": str(port), "THREADS": "1"}
    with Server(variant.table.run, variant.folder, env, [], tmp_path / "server.log") as running:
        serving.await_ready(running, "127.0.0.1", port, serving.Question("/ping"))
        yield port


def plan_for(port: int, seconds: float):
    address = f"127.0.0.1:{port}"
    made = program.plan(
        scenario=Echo(opcode="text", bytes=32),
        transport="websocket",
        target=Target(address=address, host=address, path="/echo"),
        connections=10,
        warmup=None,
        measure=Seconds(seconds=seconds),
        seed=1,
        cpus=[],
        loop=Open(rate=[Segment(from_per_s=100, to_per_s=100, for_s=1)]),
    )
    return made.model_copy(update={"threads": 2})


def test_hosts_with_other_clocks_make_one_result(tmp_path, elsewhere, server):
    folder = TrialFolder(tmp_path / "trial")
    folder.path.mkdir()
    loads = [Remote(host, elsewhere) for host in cluster(tmp_path).host]
    on = engines.OnCluster(loads)
    plan = plan_for(server, 1.0)
    assert on.count(None, plan) == 2
    with Samples(None, loads, folder.path) as samples, shards.Engines(plan, 4, folder, on) as running:
        samples.watch_engine(running.folders[0].path / "events.jsonl", 0.0)
        running.carry_out(lambda: None)
    ends = [part.events()[-1] for part in folder.parts()]
    whole = folder.events()[-1]
    assert whole.measured.sent == sum(end.measured.sent for end in ends) == 100
    assert (whole.measured.answered, whole.measured.failed, whole.measured.unanswered) == (100, 0, 0)
    assert whole.connections.established == 10
    begins = {event.phase: event for part in folder.parts() for event in part.events() if event.event == "phase"}
    now = time.monotonic_ns()
    assert all(now - 60_000_000_000 < event.t_ns < now for event in begins.values())
    windows = [e.t_ns for part in folder.parts() for e in part.events() if e.event == "phase" and e.phase == "measure"]
    assert max(windows) - min(windows) < 20_000_000
    hosts_of_it = folder.hosts()
    assert [(one.host.name, one.host.engines, one.host.lost) for one in hosts_of_it] == [
        ("one", [0, 2], False),
        ("two", [1, 3], False),
    ]
    for one in hosts_of_it:
        first, *_, last = one.host.clocks
        for found in (first, last):
            assert abs(found.offset_ns - elsewhere.ahead[one.host.name]) <= found.bound_ns + 1
        samples = one.samples()
        assert {"engine", "machine", "network", "sampler"} <= {sample.of for sample in samples}
        assert all(begins["connect"].t_ns - 10**9 < sample.t_ns < now for sample in samples)


@pytest.mark.parametrize("fault", ["engine", "host"])
def test_what_is_lost_ends_the_trial_at_once_and_leaves_no_half_result(tmp_path, elsewhere, server, fault):
    folder = TrialFolder(tmp_path / "trial")
    folder.path.mkdir()
    began: list[float] = []

    def watch():
        latest = folder.latest()
        if began or latest is None or latest.answered == 0:
            return
        began.append(time.monotonic())
        if fault == "host":
            elsewhere.lost = "two"
        else:
            os.kill(elsewhere.hosts["two"]._engines[1].pid, signal.SIGKILL)

    said = {"host": "lost host two", "engine": "engine 2 of 2: .*SIGKILL"}[fault]
    loads = [Remote(host, elsewhere) for host in cluster(tmp_path).host]
    with (
        pytest.raises(TrialFailed, match=said),
        Samples(None, loads, folder.path),
        shards.Engines(plan_for(server, 30.0), 2, folder, engines.OnCluster(loads)) as running,
    ):
        running.carry_out(watch)
    assert time.monotonic() - began[0] < 3
    assert not (folder.path / "events.jsonl").exists()
    assert [one.host.lost for one in folder.hosts()] == [False, fault == "host"]


def test_every_host_has_a_share(tmp_path, elsewhere):
    loads = [Remote(host, elsewhere) for host in cluster(tmp_path).host]
    on = engines.OnCluster(loads)
    plan = plan_for(1, 1.0)
    with pytest.raises(UserError, match="give each at least one"):
        on.count(1, plan)
    found = on.plans(plan, 3)
    assert [one.shard for one in found] == [(0, 3), (1, 3), (2, 3)]
    assert [len(one.cpus) for one in found] == [one.threads for one in found] == [1, 2, 1]
    assert set(found[0].cpus).isdisjoint(found[2].cpus)
    assert [one.gate_s is None for one in found] == [False] * 3
    (alone,) = engines.OnCluster(loads[:1]).plans(plan, 1)
    assert (alone.shard, alone.gate_s) == ((0, 1), None), "nobody would open its gates"
    crowded = plan.model_copy(update={"connections": 100_000})
    for one in loads:
        one.files = 20_000
    assert on.count(None, crowded) == 2, "a low limit takes more workers first"
    assert [one.threads for one in on.plans(crowded, 2)] == [3, 3]
    for one in loads:
        one.files = 400
    assert on.count(None, crowded) == 12
    with pytest.raises(UserError, match="100,000 connections need 12 engine processes on 2 hosts"):
        on.count(2, crowded)


def test_what_a_runtime_tells_is_moved_too():
    node = b'{"of":"delays","t_ns":2000,"at_ns":[1500,1600],"late_ns":[10,20]}\n'
    assert instants.of_lines(node, 1000) == b'{"of":"delays","t_ns":1000,"at_ns":[500,600],"late_ns":[10,20]}\n'
    jvm = b"[5000ns][info][gc] GC(0) Pause Young 1M->2M(3M) 4.0ms\n[6000ns] [7ns]\n"
    assert instants.of_jvm_log(jvm, 1000) == jvm.replace(b"5000", b"4000").replace(b"6000", b"5000")


def test_one_machine_may_do_both_but_nothing_twice(tmp_path):
    both = ALL_ROLES.replace("127.0.0.3", "127.0.0.2")
    assert [one.name for one in cluster(tmp_path, both).machines] == ["serve", "two"]
    with pytest.raises(UserError, match=re.escape("two hosts have the address '127.0.0.2' to load")):
        cluster(tmp_path, both.replace("127.0.0.4", "127.0.0.2"))
    with pytest.raises(UserError, match="a campaign needs exactly one host"):
        hosts.serving(tmp_path / "cluster.toml", cluster(tmp_path, TWO))
    with pytest.raises(UserError, match=re.escape("one: cpus = 2, but processes there may use [0]")):
        cluster(tmp_path).host[0].cpus_of([0])


def test_the_next_removes_what_a_killed_one_left_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living = OnHost(None)
    line = "import os; from wsbench.run.cluster.onhost import OnHost; host = OnHost(None); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", line], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    (left,) = set(tmp_path.iterdir()) - {living._place}
    another = OnHost(None)
    assert set(tmp_path.iterdir()) == {living._place, another._place}
    assert not left.exists()
    for host in (living, another):
        host.leave()
    assert not list(tmp_path.iterdir())

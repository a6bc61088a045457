"""A trial elsewhere, server and all, is the trial here; and what cannot be said of it by two clocks."""

import re
import time
from types import SimpleNamespace

import pytest
from shifted_hosts import ALL_ROLES, Shifted, cluster

from wsbench import metrics
from wsbench.engine import program
from wsbench.experiments import experiment
from wsbench.host import machine
from wsbench.metrics import parts
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.unmeasured import Unmeasured
from wsbench.records.errors import UserError
from wsbench.records.hosts import ClockRecord, HostRecord
from wsbench.records.rundir import TrialFolder, TrialOrder
from wsbench.run import trial
from wsbench.run.cluster import engines
from wsbench.run.cluster.testbed import Elsewhere
from wsbench.run.testbed import ThisHost
from wsbench.servers import build, catalogue

pytestmark = pytest.mark.nightly

TINY = """
question = "Does it?"
reading  = "Nothing here is a result."
servers  = ["reference"]
scenario = "echo"
loop     = "open"
headline = "messages_per_s"
[load]
connections = 10
rate_per_s = 200
[timing]
measure_s = {seconds}
rounds = 1
"""


@pytest.fixture
def three():
    # A clock that runs since another boot; none is before its own, however short ago this machine's was.
    behind = time.monotonic_ns() // 2
    found = Shifted({"serve": -behind, "one": 5_000_000_000_000, "two": -3_000_000_000})
    yield found
    found.leave()


def tried(tmp_path, where, name: str, watch=lambda folder: None, server="reference", seconds=2.0) -> TrialData:
    """One trial of a server at a place."""
    (tmp_path / "tiny.toml").write_text(TINY.format(seconds=seconds))
    (variant,) = catalogue.select([server], catalogue.read())
    assert build.build(variant, [0]).problem is None
    folder = TrialFolder(tmp_path / name)
    folder.path.mkdir()
    setting = trial.Setting(experiment.read(tmp_path / "tiny.toml"), 1, where, None, engines=2)
    order = TrialOrder(number=1, round=1, server=variant.server, variant=variant.variant, cell={})
    return TrialData(folder, trial.carry_out(order, variant, setting, folder, watch))


def test_a_trial_elsewhere_is_the_trial_here(tmp_path, three):
    here = tried(tmp_path, ThisHost(program.require_binary(), machine.placement()), "here")
    there = tried(tmp_path, Elsewhere(cluster(tmp_path, ALL_ROLES), "serve", three), "there")
    for data in (here, there):
        assert data.record.outcome == "ok", data.record.reason
    own, others = here.measured, there.measured
    assert (others.sent, others.answered, others.failed, others.unanswered) == (own.sent, own.answered, 0, 0)
    reasons = [metrics.measure(data).reasons for data in (here, there)]
    for name in reasons[0].keys() ^ reasons[1].keys():
        # On a busy machine, and while connections are made in a moment, samples may be too far apart.
        assert re.search(
            "too few samples|too short|no sample|less than a quarter|less than twice", (reasons[0] | reasons[1])[name]
        ), name
    begin, end = there.events[0].t_ns, there.end.t_ns
    assert there.record.server_started_ns < begin
    assert any(begin < sample.t_ns < end for sample in there.processes("server"))
    assert {file.name for file in here.folder.path.iterdir()} == {
        file.name for file in there.folder.path.iterdir() if not file.name.startswith("host-")
    }
    assert [one.host.role for one in there.folder.hosts()] == ["load", "serve", "load"]


@pytest.mark.parametrize("name", ["serve", "two"])
def test_a_lost_host_fails_the_trial_and_is_named(tmp_path, three, name):
    def lose(folder):
        if (latest := folder.latest()) is not None and latest.answered:
            three.lost = name

    where = Elsewhere(cluster(tmp_path, ALL_ROLES), "serve", three)
    began = time.monotonic()
    data = tried(tmp_path, where, "lost", lose, seconds=30.0)
    assert data.record.outcome == "failed"
    assert data.record.reason.startswith(f"lost host {name}")
    assert time.monotonic() - began < 10
    assert [one.host.name for one in data.folder.hosts() if one.host.lost] == [name]
    three.lost = None
    again = tried(tmp_path, where, "again")
    assert again.record.outcome == "ok", again.record.reason


def test_what_a_runtime_tells_elsewhere_is_on_our_clock(tmp_path, three):
    data = tried(tmp_path, Elsewhere(cluster(tmp_path, ALL_ROLES), "serve", three), "node", server="node-ws")
    assert data.record.outcome == "ok", data.record.reason
    found = metrics.measure(data)
    for name in ("event_loop_delay_ms_p50", "sending_heap_used_bytes_max"):
        assert found.values[name] is not None, found.reasons[name]


# ---- times by two clocks ----------------------------------------------------------------------------------------------


def ahead(name: str, role: str, by_ns: int, bound_ns: int, epoch_ns: int = 10**18) -> HostRecord:
    clock = ClockRecord(t_ns=1, offset_ns=by_ns, bound_ns=bound_ns)
    shards_there = [] if role == "serve" else [0]
    return HostRecord(
        **{"name": name, "role": role, "address": "10.0.0.1", "engines": shards_there},
        **{"epoch_ns": epoch_ns, "clocks": [clock, clock], "lost": False},
    )


def test_wall_clocks_are_as_far_apart_as_they_may_be():
    serve = ahead("serve", "serve", 5_000, 30)
    # A host whose monotonic clock began later has the same wall clock.
    assert parts.wall_error_ns([serve, ahead("a", "load", 1_005_000, 20, 10**18 - 1_000_000)]) == 50
    assert parts.wall_error_ns([serve, ahead("a", "load", 5_000, 20), ahead("b", "load", 4_000, 20)]) == 1_050
    assert parts.wall_error_ns([ahead("a", "load", 0, 20)]) is None
    assert parts.wall_error_ns([]) == 0


def test_a_broadcast_over_two_hosts_is_as_wrong_as_both_their_clocks():
    serve, one, two = ahead("serve", "serve", 0, 900), ahead("a", "load", 5_000, 20), ahead("b", "load", 700, 30)
    assert parts.crossing_error_ns([serve, one, two]) == 50
    assert parts.crossing_error_ns([serve, one]) == 0
    drifted = two.model_copy(update={"clocks": [two.clocks[0], ClockRecord(t_ns=9, offset_ns=780, bound_ns=10)]})
    assert parts.crossing_error_ns([serve, one, drifted]) == 20 + 90
    parts.require_close(200, 1_000)
    with pytest.raises(Unmeasured, match=re.escape("may differ by 0.201 µs: more than 20% of the median (1 µs)")):
        parts.require_close(201, 1_000)


@pytest.mark.parametrize(("median_us", "bound_us", "said"), [(1000, 99, None), (1000, 101, "may differ by 202 µs")])
def test_a_time_by_two_wall_clocks_is_left_out_where_they_may_be_too_far_apart(median_us, bound_us, said):
    hosts_of_it = [ahead("serve", "serve", 0, bound_us * 1000), ahead("a", "load", 0, bound_us * 1000)]
    times = SimpleNamespace(count=5, quantile=lambda q: median_us * 1000)
    data = SimpleNamespace(end=None, histograms={"push_stamp": times, "push": times}, hosts=[(one, None) for one in hosts_of_it])
    assert parts.recorded(data, "push") is times
    if said is None:
        assert parts.recorded(data, "push_stamp") is times
    else:
        with pytest.raises(Unmeasured, match=said):
            parts.recorded(data, "push_stamp")


def test_a_host_with_too_few_ports_for_its_share_is_named():
    def host(name: str, ports: int | None) -> SimpleNamespace:
        return SimpleNamespace(host=SimpleNamespace(name=name), ports=ports)

    whole = SimpleNamespace(
        target=SimpleNamespace(address="10.0.0.1:80", replicas=[]), source_addresses=["0.0.0.0"], connections=2_000
    )
    engines.OnCluster([host("a", 1_000), host("b", None)])._require_ports(whole)
    with pytest.raises(UserError, match="b has 999 local ports; its share is 1,000 connections"):
        engines.OnCluster([host("a", None), host("b", 999)])._require_ports(whole)

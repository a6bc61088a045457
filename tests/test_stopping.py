"""The stop rule: as a function of events, and against real servers that cannot keep up."""

from pathlib import Path

import pytest
from conftest import RAN

from wsbench import metrics
from wsbench.experiments.experiment import Stop
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records.engine_files import Error, PhaseBegin, Tick
from wsbench.records.rundir import RunFolder
from wsbench.run import stopping

SECOND = 1_000_000_000
RULE = Stop(connects_per_s=100, over_s=3, errors=0.01)
EXPERIMENT = """
question = "Who keeps up while connections are opened?"
reading  = "Nothing here is a result."
servers  = ["fragile@steady", "fragile@slow", "fragile@bursting"]
scenario = "ping"
loop     = "closed"
headline = "connections_reached"
scales   = ["connections"]
[load]
connections = 2000
connect     = { per_s = 1000, at_once = 50 }
connect_s   = 20
[timing]
measure_s = 1
rounds    = 1
again     = 0
[stop]
connects_per_s = 50
over_s = 5
errors = 0.01
"""


def begun(phase="connect", at_s=0):
    return PhaseBegin(event="phase", t_ns=at_s * SECOND, phase=phase)


def tick(at_s, open_, phase="connect"):
    zero = dict.fromkeys(("sent", "answered", "failed", "bytes_sent", "bytes_received", "cpu_ns"), 0)
    return Tick(event="tick", t_ns=at_s * SECOND, phase=phase, open=open_, wait_ns=0, **zero)


def reason(events, asked=10_000, ended=False):
    return stopping.reason(RULE, [begun(), *events], asked, ended)


def test_a_server_that_keeps_up_is_not_stopped():
    assert reason([tick(second, 1000 * second) for second in range(1, 9)]) is None


def test_a_rate_that_falls_below_the_rule_stops_it_and_the_reason_has_the_numbers():
    events = [
        *(tick(second, 1000 * second) for second in range(1, 5)),
        *(tick(4 + more, 4000 + 50 * more) for more in (1, 2, 3)),
    ]
    assert reason(events[:-1]) is None, "the span still holds a good second"
    assert reason(events) == "stopped at 4,150 connections: 50 connections a second over the last 3 s, less than 100"


def test_the_span_does_not_reach_back_before_the_first_connection():
    assert reason([tick(1, 10), tick(2, 20)]) is None
    assert reason([tick(3, 20)]).startswith("stopped at 20 connections: 7 connections")


def test_failed_connections_beyond_their_share_stop_it():
    failed = Error(event="error", t_ns=SECOND, phase="connect", kind="connect_refused", count=101, example="")
    assert reason([tick(1, 5000), failed]) == (
        "stopped at 5,000 connections: 101 connections failed (connect_refused), more than 0.01 of all"
    )
    assert reason([tick(1, 5000), failed.model_copy(update={"count": 100})]) is None


def test_a_server_that_ends_is_stopped_only_while_connections_are_missing():
    assert reason([tick(1, 5000)], ended=True) == "stopped at 5,000 connections: the server ended"
    assert reason([tick(1, 10_000)], ended=True) is None


def test_once_all_are_open_nothing_stops_it():
    assert reason([tick(1, 10_000), begun("warmup", 1), *(tick(s, 10_000, "warmup") for s in range(2, 20))]) is None


@pytest.fixture
def campaign(wsbench, tmp_path) -> dict:
    file = tmp_path / "storm.toml"
    file.write_text(EXPERIMENT)
    done = wsbench("run", str(file), "--scale", "0.5")
    assert done.returncode in RAN, done.stderr
    (path,) = Path(tmp_path / "runs").iterdir()
    run = RunFolder(path)
    assert run.campaign.scale == 0.5
    assert "scale 0.5: connections times 0.5" in run.campaign.departures
    return {record.variant: TrialData(folder, record) for folder, record in run.finished()} | {"page": path / "report.html"}


@pytest.mark.nightly
def test_real_servers_that_cannot_keep_up_are_rows_of_their_own(campaign):
    steady, slow, bursting = (campaign[name] for name in ("steady", "slow", "bursting"))
    assert steady.record.outcome == "ok", steady.record.reason
    assert metrics.connections.connections_reached(steady) == 1000
    assert slow.record.outcome == "stopped"
    assert slow.record.reason.startswith("stopped at ")
    assert "connections a second over the last 5 s, less than 50" in slow.record.reason
    assert metrics.connections.connections_reached(slow) < 1000
    assert bursting.record.outcome == "stopped"
    assert "the server ended" in bursting.record.reason or "failed" in bursting.record.reason
    assert "no room for another connection" in bursting.record.log_tail[-1]
    for trial in (slow, bursting):
        assert verdict(trial).outcomes[0].seen == trial.record.reason
        assert metrics.measure(trial, ["messages_per_s"]).values["messages_per_s"] is None
        assert trial.end is not None, "an interrupted engine still writes what it has seen"
    page = campaign["page"].read_text()
    assert slow.record.reason in page
    assert "Stopped early by the experiment" in page

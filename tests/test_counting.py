"""Which trials count for which metric, which rounds a server lost, and what verdicts of earlier data sets say."""

from dataclasses import replace

import pytest
from run_maker import SERVERS, failed, make_run, pushing, spoiled

from wsbench.analysis import stored_verdicts, tables
from wsbench.analysis.reading import load
from wsbench.metrics import METRICS
from wsbench.metrics.findings import FAMILIES, KINDS
from wsbench.records.rundir import TrialRecord

CELL = ({"connections": 64},)
TWO = SERVERS[1:3]
NETTY, WS = "netty@4.2", "ws@8.18"


def campaign(path, change, **more):
    return load(make_run(path / "run", TWO, CELL, rounds=5, change=change, **more))


def only(name, number, changed):
    """Alters the trial of one server in one round."""
    return lambda trial, order: changed(trial) if (order.server, order.round) == (name, number) else trial


def lossy(trial):
    return replace(trial, unanswered=int(trial.rate * trial.window_s / 50))


def rounds(results, name, metric):
    return set(results.by_round(name, results.cells[0], metric))


# ---- per metric ------------------------------------------------------------------------------------------------------


def test_every_metric_has_one_family():
    assert {one.family for one in METRICS.values()} == set(FAMILIES)
    assert {METRICS[name].family for name in ("service_us_p50", "service_us_p90", "service_us_mean")} == {"body"}
    assert {METRICS[name].family for name in ("service_us_p99", "service_us_p999", "service_us_max", "gc_pause_ms_max")} == {"tail"}
    assert METRICS["connect_us_p99"].family == "connect"
    assert METRICS["server_cpu_us_per_message"].family == "cpu"
    assert METRICS["connections_reached"].family == METRICS["error_fraction"].family == "counts"
    assert METRICS["idle_rss_bytes"].family == "memory"


def test_a_disturbed_trial_keeps_the_numbers_that_it_could_not_falsify(tmp_path):
    results = campaign(tmp_path, only("netty", 2, spoiled))
    assert rounds(results, NETTY, "messages_per_s") == {1, 3, 4, 5}
    assert rounds(results, NETTY, "server_rss_bytes_max") == rounds(results, NETTY, "errors") == {1, 2, 3, 4, 5}
    assert results.lost(NETTY, results.cells[0], "messages_per_s") == frozenset(), "the host took it, not the server"


def test_a_rerun_takes_the_place_of_the_trial_that_it_repeats(tmp_path):
    results = campaign(tmp_path, only("netty", 2, spoiled))
    cell = results.cells[0]
    first = next(one for one in results.group(NETTY, cell) if one.record.round == 2)
    results.group(NETTY, cell).append(first)
    assert len(results.counted(NETTY, cell, "server_rss_bytes_max")) == 5


def test_a_campaign_without_a_usable_number_says_why_and_what_to_do(tmp_path):
    results = campaign(tmp_path, lambda trial, order: spoiled(trial))
    assert not results.usable
    said = results.why_not(results.leading)
    assert "a CPU quota throttled the machine" in said.lower().replace("cpu", "CPU")
    assert said.endswith("Raise the quota or remove it.")
    assert not campaign(tmp_path / "b", lambda *_: failed("the server was not ready within 30 s")).usable
    assert campaign(tmp_path / "c", only("netty", 2, spoiled)).usable


def test_held_connections_whose_times_are_unusable_are_ranked_by_their_number(tmp_path):
    times = 'question = "q"\nscenario = "push"\nheadline = "push_us_p99"\n'
    results = campaign(tmp_path, lambda trial, _: pushing(throttled_s=0.1, connections=trial.connections), experiment=times)
    assert results.leading == "connections_reached"
    assert results.usable
    sound = campaign(tmp_path / "b", lambda trial, _: pushing(connections=trial.connections), experiment=times)
    assert sound.leading == "push_us_p99"


# ---- what a server lost ----------------------------------------------------------------------------------------------


def test_a_server_that_loses_messages_loses_the_round_where_it_has_no_number(tmp_path):
    results = campaign(tmp_path, only("netty", 2, lossy))
    cell = results.cells[0]
    assert rounds(results, NETTY, "messages_per_s") == {1, 2, 3, 4, 5}, "what it carried was measured"
    assert rounds(results, NETTY, "service_us_p99") == {1, 3, 4, 5}
    assert results.lost(NETTY, cell, "service_us_p99") == {2}
    assert results.lost(NETTY, cell, "messages_per_s") == results.lost(WS, cell, "service_us_p99") == frozenset()


@pytest.mark.parametrize(
    ("reason", "by_server"),
    [
        ("the server ended before it was stopped", True),
        ("the server ended before it was ready", False),
        ("the server was not ready within 30 s", False),
        ("the engine failed: no memory", False),
        ("this host could not carry out the plan: files", False),
        ("the machine ran out of memory: 90 MiB left", False),
    ],
)
def test_a_failed_trial_is_a_lost_round_if_the_server_failed_under_the_load(tmp_path, reason, by_server):
    results = campaign(tmp_path, only("netty", 3, lambda _: failed(reason)))
    assert results.lost(NETTY, results.cells[0], "messages_per_s") == (frozenset({3}) if by_server else frozenset())


def test_a_loss_in_a_disturbed_trial_is_not_held_against_the_server(tmp_path):
    results = campaign(tmp_path, only("netty", 2, lambda trial: spoiled(lossy(trial))))
    assert results.lost(NETTY, results.cells[0], "service_us_p99") == frozenset()


def test_the_note_of_a_row_names_what_the_server_did(tmp_path):
    from wsbench.analysis.summary import summary

    row = next(row for row in summary(campaign(tmp_path, only("netty", 2, lossy))) if row.name == NETTY)
    assert row.note == "messages lost in 1 of 5"
    assert row.verdicts == {"VALID": 5, "SUSPECT": 0, "INVALID": 0}


# ---- stored ----------------------------------------------------------------------------------------------------------


def test_findings_are_stored_and_read_again(tmp_path):
    results = campaign(tmp_path, lambda trial, order: spoiled(lossy(trial)) if order.round == 2 else trial)
    tables.write(results.folder, results.data)
    again = tables.read(results.folder)
    assert [trial.verdict for trial in again.trials] == [trial.verdict for trial in results.every_trial]
    assert any(len(trial.verdict.findings) > 1 for trial in again.trials)


def earlier(kind, *reasons, outcome="ok", reason=None, **numbers):
    record = TrialRecord(
        number=1,
        round=1,
        server="a",
        variant="1",
        cell={},
        outcome=outcome,
        reason=reason,
        started_unix_s=None,
        duration_s=None,
        ready_s=None,
        server_cpus=[0],
        engine_cpus=[1],
        server_exit=None,
        log_tail=[],
    )
    return stored_verdicts.verdict(kind, reasons, "server", record, None, numbers.get)


WAITED = "a worker of the engine waited for a CPU in 28.0% of the window: the throughput may be so much too low"
STOLEN = "5.2% of the CPU time of the machine was stolen by the hypervisor"
AWAITED = "rate × mean time gives 366.4 messages under way, not 1,000 (Little's law), for the last ones were waited for with fewer"


def invalid(found):
    return {family for family in FAMILIES if found.of(family) == "INVALID"}


def test_a_stored_wait_leaves_reach_memory_and_cpu():
    found = earlier("INVALID", WAITED, "the machine dropped 3,654 packets at a CPU's full queue: they came 0.2 s later or more")
    assert invalid(found) == {"throughput", "body", "tail"}
    assert found.of("connect") == "SUSPECT", "drops at a queue never made a trial INVALID"
    assert found.of("counts") == found.of("memory") == found.of("cpu") == "VALID"


def test_stored_reasons_share_the_word_of_the_trial():
    found = earlier("INVALID", WAITED, STOLEN)
    assert invalid(found) == {"throughput", "body", "tail", "cpu"}
    assert earlier("SUSPECT", STOLEN).kind == "SUSPECT"


@pytest.mark.parametrize("reasons", [(), ("something new",), (WAITED, "something new")])
def test_a_stored_word_that_nothing_explains_is_for_every_number(reasons):
    for kind in KINDS[1:]:
        assert {earlier(kind, *reasons).of(family) for family in FAMILIES} == {kind}


def test_stored_counts_are_outcomes_of_the_server_under_the_limits_of_today():
    found = earlier(
        "INVALID", "195 of 800 connections died", "195 of 1,000,000 messages were lost (timeout 195)", AWAITED, errors=195
    )
    assert {one.axis for one in found.findings} == {"server"}
    assert invalid(found) == {"body", "tail", "memory"}, "a quarter of the load was missing"
    assert found.of("throughput") == "VALID"


@pytest.mark.parametrize(("dropped", "axis"), [(12, "server"), (0, "engine"), (None, "engine")])
def test_stored_last_messages_are_the_servers_where_its_queue_dropped_connects(dropped, axis):
    (one,) = earlier("SUSPECT", AWAITED, listen_overflows=dropped).findings
    assert one.axis == axis
    assert (one.affects == {}) == (axis == "server")


def test_a_stored_stop_is_an_outcome():
    why = "stopped at 9 connections: the server ended"
    found = earlier(
        "VALID", why, "its heap was full: the last of 3 full collections left 9 of 9 MiB", outcome="stopped", reason=why
    )
    assert [one.name for one in found.outcomes] == ["stopped", "heap_full"]
    assert found.kind == "VALID"

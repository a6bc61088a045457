"""Checks of the verdict that belong to a load: open loops, broadcasts, held connections."""

import pytest
from judging import WITH_CPU, each, judged, said
from run_maker import Trial, at_rate, pushing, write_trial

from wsbench import metrics
from wsbench.metrics import server_checks
from wsbench.metrics.findings import Verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.monitoring.runtime_logs.record import MIB, Collection, HeapPoint, Telemetry
from wsbench.records import engine_files


def test_an_open_loop_whose_rate_was_met_is_valid_and_limited_by_nobody(tmp_path):
    assert judged(tmp_path, at_rate()) == Verdict((), "neither")
    full = judged(tmp_path / "full", at_rate(server_busy=0.99))
    assert full.bottleneck == "neither", "a server that keeps up is not a limit, however busy"


@pytest.mark.parametrize(("late", "kind"), [(0, "VALID"), (80, "VALID"), (84, "SUSPECT"), (800, "SUSPECT"), (804, "INVALID")])
def test_a_missed_rate_is_judged_at_the_edges_of_its_limit(tmp_path, late, kind):
    # 80,000 are due in the window: 80 are one in a thousand, 800 one in a hundred; two may be at an edge of the window.
    found = judged(tmp_path, at_rate(late=late))
    assert found.kind == kind
    assert kind == "VALID" or "the offered rate was not reached" in said(found)[0]


def test_who_was_the_limit_is_asked_once_the_rate_was_missed(tmp_path):
    assert judged(tmp_path / "a", at_rate(late=4_000, server_busy=0.97)).bottleneck == "server"
    assert judged(tmp_path / "b", at_rate(late=4_000, engine_busy=0.97)).bottleneck == "engine"
    assert judged(tmp_path / "c", at_rate(late=4_000)).bottleneck == "neither"


def test_a_full_engine_that_met_the_rate_is_no_lower_bound_but_not_trusted(tmp_path):
    found = judged(tmp_path, at_rate(engine_busy=0.97))
    assert (found.kind, found.bottleneck) == ("SUSPECT", "neither")
    assert "may include its own queue" in said(found)[0]
    lost = judged(tmp_path / "lost", at_rate(engine_busy=0.97, unanswered=800))
    assert {one.axis for one in lost.findings if one.name == "lost_messages"} == {"engine"}, "it may not have read the replies"
    lost = judged(tmp_path / "time to spare", at_rate(unanswered=800))
    assert {one.axis for one in lost.findings if one.name == "lost_messages"} == {"server"}


def test_a_schedule_that_is_not_the_plans_is_found(tmp_path):
    assert "the schedule deviated from the plan" in said(judged(tmp_path / "a", at_rate(rate=19_000)))[0]
    few = judged(tmp_path / "b", at_rate(rate=19_800, arrivals="poisson"))
    assert few.kind == "VALID", "800 fewer than 80,000 are within four deviations of Poisson arrivals"
    assert judged(tmp_path / "c", at_rate(rate=19_600, arrivals="poisson")).kind == "SUSPECT"


def test_messages_that_were_never_sent_are_lost(tmp_path):
    found = judged(tmp_path, at_rate(unsent=40))
    assert found.of("tail") == "SUSPECT"
    assert any("40 of 80,040 messages were lost" in reason for reason in said(found))
    assert judged(tmp_path / "b", at_rate(unsent=90)).of("tail") == "INVALID"


@pytest.mark.parametrize(
    ("polls", "p99_us", "kind"),
    [
        (False, 900, "VALID"),
        (False, 1_100, "SUSPECT"),
        (False, 11_000, "INVALID"),
        (True, 45, "VALID"),
        (True, 60, "SUSPECT"),
        (True, 1_100, "INVALID"),
    ],
)
def test_messages_that_left_late_are_found_whatever_the_response(tmp_path, polls, p99_us, kind):
    """900 µs are a fifth of this p99 of response, and what a sleeping engine is allowed."""
    folder = write_trial(tmp_path / "probe", at_rate(lag_us=1000))
    per_us = metrics.values(TrialData(folder, folder.record))["send_lag_us_p99"] / 1000
    found = judged(tmp_path, at_rate(lag_us=p99_us / per_us, busy_poll=polls))
    late = [one.affects.get("tail", "VALID") for one in found.findings if one.name == "send_lag"]
    assert late in ([kind], [] if kind == "VALID" else [kind])


def test_waiting_for_a_free_connection_is_part_of_a_load_with_a_depth(tmp_path):
    assert judged(tmp_path, at_rate(lag_us=3000, depth=1)).kind == "VALID"


def test_an_open_loop_without_a_recorded_lag_is_suspect(tmp_path):
    assert "how late messages were sent is unknown" in said(judged(tmp_path, at_rate(lag_us=None)))


@pytest.mark.parametrize(("under_way", "kind"), [(64, "VALID"), (105, "VALID"), (109, "SUSPECT"), (115, "INVALID")])
def test_littles_law_is_checked_on_an_open_loop_by_what_the_ticks_saw(tmp_path, under_way, kind):
    # 64 are expected. The times imply a deviation of 24.3: with seven ticks, 4 · 24.3 / √7 + 1 = 38 are chance, and the edges cut
    # a few. Then 2 % and 10 %.
    found = judged(tmp_path, at_rate(under_way=under_way))
    assert found.kind == kind
    assert kind == "VALID" or "Little's law" in said(found)[0]


def test_littles_law_accuses_no_engine_of_the_messages_that_a_full_server_left_unanswered(tmp_path):
    found = judged(tmp_path, at_rate(under_way=6_000, unanswered=11_000))
    assert found.of("tail") == "INVALID"
    assert not any("Little" in reason for reason in said(found))


@pytest.mark.parametrize(("little", "each", "kind"), [(0.3, 1, "VALID"), (0.3, None, "INVALID"), (1.3, 1, "INVALID")])
def test_connections_that_are_exchanged_are_not_always_under_way_and_never_more_than_there_are(tmp_path, little, each, kind):
    found = judged(tmp_path, Trial(little=little, loop=engine_files.Closed(messages_per_connection=each)))
    assert found.kind == kind
    assert kind == "VALID" or "Little's law" in said(found)[0]


def test_an_open_loop_without_the_ticks_at_its_edges_is_suspect_and_not_called_met(tmp_path):
    folder = write_trial(tmp_path / "0001", at_rate())
    trial = TrialData(folder, folder.record)
    trial.__dict__["ticks"] = []
    found = verdict(trial)
    assert "whether the offered rate was reached is unknown" in said(found)[0]


def test_broadcasts_that_reached_all_are_valid_and_missed_copies_are_errors(tmp_path):
    assert judged(tmp_path / "a", pushing()) == Verdict((), "neither")
    lost = judged(tmp_path / "b", pushing(unanswered=2))
    assert lost.of("tail") == "SUSPECT"
    assert "2 of 2,562 messages were lost" in said(lost)[0]
    assert judged(tmp_path / "c", pushing(unanswered=3)).of("tail") == "INVALID"
    assert judged(tmp_path / "d", pushing(recorded=2_000)).kind == "INVALID"


@pytest.mark.parametrize("kind", ["unasked", "out_of_order", "foreign"])
def test_what_nobody_asked_for_is_a_reason(tmp_path, kind):
    folder = write_trial(tmp_path / "0001", pushing())
    answered = TrialData(folder, folder.record).measured.answered
    for count, expected in ((1, "SUSPECT"), (answered // 1000, "SUSPECT"), (answered // 1000 + 1, "INVALID")):
        (one,) = judged(tmp_path / str(count), pushing(**{kind: count})).outcomes
        assert (one.affects, one.seen.split()[0]) == (each(expected, *WITH_CPU), str(count))
    idle = Trial(scenario=engine_files.Idle(), loop=engine_files.NoLoop(), rate=1e-9, **{kind: 9})
    assert judged(tmp_path / "idle", idle).of("body") == "SUSPECT", "there is nothing that it could falsify"


def test_copies_that_are_missing_or_too_many_are_told(tmp_path):
    assert judged(tmp_path / "right", Trial(copies=(1_000, 1_000, 0))).outcomes == ()
    (lost,) = judged(tmp_path / "lost", Trial(copies=(1_000, 940, 0))).outcomes
    assert (lost.name, lost.affects) == ("lost_copies", each("INVALID", "body", "tail"))
    assert lost.seen == "60 of 1,000 copies did not arrive until the end of the drain"
    (more,) = judged(tmp_path / "more", Trial(copies=(1_000, 27_500, 0))).outcomes
    assert (more.kind, more.seen.split()[0]) == ("INVALID", "26,500")
    (late,) = judged(tmp_path / "late", Trial(copies=(1_000, 1_000, 1))).outcomes
    assert (late.name, late.kind) == ("unasked", "SUSPECT")
    (leaks,) = judged(tmp_path / "leaks", Trial(copies=(1_000, 1_000, 0, 1_000))).outcomes
    assert (leaks.name, leaks.seen) == ("unasked", "1,000 copies in rooms reached somebody they were not for")


def test_a_worker_that_stood_still_is_told_and_costs_the_tail(tmp_path):
    for held_up_s, kind in ((0.25, "VALID"), (0.6, "SUSPECT"), (1.1, "INVALID")):
        found = judged(tmp_path / str(held_up_s), Trial(held_up_ns=round(held_up_s * 1e9)))
        assert (found.of("tail"), found.of("body"), len(found.findings)) == (kind, "VALID", int(kind != "VALID"))
    (one,) = found.findings
    assert (one.axis, one.name) == ("engine", "held_up")
    assert one.seen.startswith("an engine worker stood still for 1.1 s")


def test_held_connections_need_no_message_and_must_not_die(tmp_path):
    idle = {"scenario": engine_files.Idle(), "loop": engine_files.NoLoop(), "rate": 1e-9, "connections": 2_000}
    assert judged(tmp_path / "a", Trial(**idle, server_busy=0.1)) == Verdict((), "none")
    for died, kind in ((1, "SUSPECT"), (20, "SUSPECT"), (21, "INVALID")):
        (one,) = judged(tmp_path / str(died), Trial(**idle, died=died)).outcomes
        assert one.seen == f"{died} of 2,000 connections died"
        assert one.affects == each(kind, "body", "tail", "memory")


@pytest.mark.parametrize(("left_mib", "said"), [(168, "the last of 2 full collections left 168 of 176 MiB"), (100, None)])
def test_a_server_that_was_stopped_says_what_it_had_run_out_of(tmp_path, left_mib, said):
    folder = write_trial(tmp_path / "0001", Trial())
    record = folder.record.model_copy(update={"outcome": "stopped", "reason": "stopped at 9 connections: too slow"})
    data = TrialData(folder, record)
    heap = [HeapPoint(5, 170 * MIB, 176 * MIB, after=True), HeapPoint(8, 176 * MIB, None)]
    heap.append(HeapPoint(9, left_mib * MIB, 176 * MIB, after=True))
    collections = [Collection(5, "full"), Collection(7, "minor"), Collection(9, "full")]
    data.__dict__["runtime"] = Telemetry("jvm", frozenset({"minor", "full"}), collections, heap=heap)
    reasons = [one.seen for one in verdict(data).outcomes]
    assert reasons[0] == record.reason
    assert any(said in reason for reason in reasons) if said else not any("heap" in reason for reason in reasons)


@pytest.mark.parametrize(("times", "kind"), [(1, "VALID"), (3, "VALID"), (5, "SUSPECT")])
def test_a_flood_beside_the_replies_is_told(tmp_path, times, kind):
    folder = write_trial(tmp_path / "0001", Trial())
    data = TrialData(folder, folder.record)
    came = data.measured.bytes_received * times
    data.__dict__["measured"] = data.measured.model_copy(update={"bytes_received": came})
    found = verdict(data)
    assert found.of("throughput") == kind
    assert ("the server sends more than it was asked for" in " ".join(said(found))) == (kind == "SUSPECT")


@pytest.mark.parametrize(("tls", "each", "floods"), [(None, None, True), (None, 1, True), ("on", None, True), ("on", 1, False)])
def test_only_a_connection_with_tls_for_each_message_has_handshakes_to_bring(tmp_path, tls, each, floods):
    folder = write_trial(tmp_path / "0001", Trial(loop=engine_files.Closed(messages_per_connection=each)))
    data = TrialData(folder, folder.record)
    measured, plan = data.measured, data.plan
    data.__dict__["measured"] = measured.model_copy(update={"bytes_received": measured.bytes_received * 5})
    data.__dict__["plan"] = plan.model_copy(update={"tls": tls})
    assert bool(list(server_checks.flood(data))) == floods

"""Each check of the verdict, on a trial in which only that one thing is wrong."""

import pytest
from run_maker import HOUR_NS, Trial, at_rate, failed, pushing, write_trial

from wsbench import metrics
from wsbench.metrics import verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.monitoring.runtime_logs.record import MIB, Collection, HeapPoint, Telemetry
from wsbench.records import engine_files


def judge(path, **quantities) -> verdict.Verdict:
    folder = write_trial(path / "0001", Trial(**quantities))
    return verdict.verdict(TrialData(folder, folder.record))


def test_a_trial_in_which_nothing_is_wrong_is_valid_and_has_no_reasons(tmp_path):
    assert judge(tmp_path) == verdict.Verdict("VALID", (), "server")


@pytest.mark.parametrize(
    ("quantities", "kind", "words"),
    [
        ({"established": 63}, "INVALID", "63 of 64 connections were established"),
        ({"lost": 1}, "INVALID", "messages are not conserved"),
        ({"recorded": 79_000}, "INVALID", "79,000 have a latency"),
        ({"failed": 1}, "SUSPECT", "1 of 80,001 messages were lost (timeout 1)"),
        ({"unanswered": 70}, "SUSPECT", "70 of 80,070 messages were lost"),
        ({"unanswered": 90}, "INVALID", "90 of 80,090 messages were lost"),
        ({"engine_outcome": "interrupted"}, "INVALID", "the engine's outcome is interrupted"),
        ({"engine_outcome": "deadline"}, "INVALID", "the engine's outcome is deadline"),
        ({"little": 0.95}, "SUSPECT", "Little's law"),
        ({"little": 0.85}, "INVALID", "Little's law"),
        ({"little": 1.2}, "INVALID", "Little's law"),
        ({"little": 0.6, "by_count": True}, "SUSPECT", "fewer were in flight"),
        ({"little": 1.5, "by_count": True}, "INVALID", "Little's law"),
        ({"engine_wait": 0.06}, "SUSPECT", "waited for a CPU in 6.0% of the window"),
        ({"engine_wait": 0.11}, "INVALID", "waited for a CPU in 11.0% of the window"),
        ({"steal": 0.02}, "SUSPECT", "the hypervisor stole"),
        ({"steal": 0.06}, "INVALID", "the hypervisor stole"),
        ({"throttled_s": 0.1}, "INVALID", "a CPU quota throttled the machine"),
        ({"longest_ns": HOUR_NS}, "INVALID", "the end of the histogram's range"),
        ({"window_s": 0.4, "sample_s": 0.1}, "SUSPECT", "only 0.4 s long"),
        ({"window_began": False, "engine_outcome": "no_connection"}, "INVALID", "the measured window never began"),
        (
            {"window_began": False, "engine_outcome": "no_connection"},
            "INVALID",
            "the engine's outcome is no_connection",
        ),
        ({"engine_wait": None}, "SUSPECT", "how long the engine waited for a CPU is unknown"),
        ({"samples_end_early": True}, "SUSPECT", "not sampled across the window"),
    ],
)
def test_one_thing_wrong_is_found_and_named(tmp_path, quantities, kind, words):
    found = judge(tmp_path, **quantities)
    assert found.kind == kind
    assert any(words in reason for reason in found.reasons), found.reasons


@pytest.mark.parametrize("quantities", [{"little": 0.99}, {"engine_wait": 0.01}, {"steal": 0.005}, {"throttled_s": 0.0}])
def test_small_deviations_are_allowed(tmp_path, quantities):
    assert judge(tmp_path, **quantities).kind == "VALID"


#: Trials in which one way of reading the engine's wait reaches its limit before the others do.
EVEN_AND_MANY = {"sigma": 0.001, "connections": 640, "wake_ups": 80_000}
HELD_UP_TOGETHER = {"sigma": 0.001, "wake_ups": 1_000}
SKEWED_AND_ALONE = {"sigma": 1.2, "connections": 1, "wake_ups": 80_000}


def waits(path, quantities) -> dict[str, float]:
    """What each of the three limits is compared with, worked out from the metrics."""
    folder = write_trial(path, Trial(**quantities))
    found = metrics.values(TrialData(folder, folder.record))
    wait_us = found["engine_wait_us_per_message"]
    parts = {"wait_p50": 2 * wait_us / found["service_us_p50"], "wait_p99": 100 * wait_us / found["service_us_p99"]}
    return {"wait_share": found["engine_wait_percent"] / 100, **parts}


@pytest.mark.parametrize(
    ("name", "quantities", "kind"),
    [
        ("wait_share", EVEN_AND_MANY, "SUSPECT"),
        ("wait_share", EVEN_AND_MANY, "INVALID"),
        ("wait_p50", SKEWED_AND_ALONE, "SUSPECT"),
        ("wait_p50", SKEWED_AND_ALONE, "INVALID"),
        ("wait_p99", HELD_UP_TOGETHER, "SUSPECT"),
    ],
)
def test_a_wait_is_judged_at_the_edges_of_its_limit(tmp_path, name, quantities, kind):
    edge = verdict.LIMITS[name].suspect if kind == "SUSPECT" else verdict.LIMITS[name].invalid
    per_share = waits(tmp_path / "a", quantities | {"engine_wait": 0.001})[name] / 0.001
    words = {"wait_share": "of the window", "wait_p50": "of p50", "wait_p99": "of p99"}[name]
    for factor, expected in ((0.98, "VALID" if kind == "SUSPECT" else "SUSPECT"), (1.02, kind)):
        folder = write_trial(tmp_path / f"{factor}", Trial(**quantities, engine_wait=factor * edge / per_share))
        said = list(verdict._wait(TrialData(folder, folder.record)))
        assert [k for k, reason in said if words in reason] == ([] if expected == "VALID" else [expected])
        assert all(k == "SUSPECT" for k, reason in said if words not in reason), said


def test_the_wait_of_an_ordinary_machine_is_not_held_against_a_busy_server(tmp_path):
    assert judge(tmp_path, engine_wait=0.048, wake_ups=40_000).kind == "VALID"


def test_the_same_wait_weighs_more_on_one_connection_that_is_answered_at_once(tmp_path):
    alone = {"connections": 1, "rate": 20_000, "wake_ups": 80_000, "engine_wait": 0.03}
    found = judge(tmp_path, **alone)
    assert found.kind == "SUSPECT"
    assert [reason.split(" of ")[-1][:3] for reason in found.reasons] == ["p50", "p99"]


def test_a_failed_trial_is_invalid_with_its_reason(tmp_path):
    folder = write_trial(tmp_path / "0001", failed("no free port"))
    assert verdict.verdict(TrialData(folder, folder.record)).reasons == ("failed: no free port",)


def test_an_engine_that_was_the_limit_makes_a_lower_bound(tmp_path):
    found = judge(tmp_path, engine_busy=0.97, server_busy=0.6)
    assert (found.kind, found.bottleneck) == ("SUSPECT", "engine")
    assert "lower bound" in found.reasons[0]


def test_a_busy_engine_beside_a_fuller_server_is_not_the_limit(tmp_path):
    assert judge(tmp_path, engine_busy=0.96, server_busy=0.99) == verdict.Verdict("VALID", (), "server")


def test_a_busy_engine_beside_a_server_without_known_cpu_is_not_trusted(tmp_path):
    found = judge(tmp_path, engine_busy=0.97, server_cpus=())
    assert (found.kind, found.bottleneck) == ("SUSPECT", "unknown")
    assert "possibly a lower bound" in found.reasons[0]


def test_an_engine_that_never_sleeps_is_not_called_full(tmp_path):
    polling = {"busy_poll": True, "engine_busy": 1.0}
    assert judge(tmp_path / "a", **polling) == verdict.Verdict("VALID", (), "server")
    found = judge(tmp_path / "b", **polling, server_busy=0.5)
    assert (found.kind, found.bottleneck) == ("SUSPECT", "unknown")
    assert "unknown whether it was the limit" in found.reasons[0]
    assert judged(tmp_path / "c", at_rate(**polling)) == verdict.Verdict("VALID", (), "neither")


def test_two_idle_sides_are_neither(tmp_path):
    assert judge(tmp_path, engine_busy=0.3, server_busy=0.4) == verdict.Verdict("VALID", (), "neither")


def test_a_server_on_half_of_its_cpus_is_not_called_full(tmp_path):
    assert judge(tmp_path, server_busy=0.5, server_cpus=(0, 2)).bottleneck == "neither"


def test_a_short_run_by_count_gets_the_allowance_for_its_edges(tmp_path):
    edges = {"rate": 640, "connections": 64, "window_s": 1.0, "by_count": True, "little": 0.9}
    assert judge(tmp_path, **edges).kind == "VALID"
    assert judge(tmp_path / "long", **(edges | {"window_s": 20.0})).kind == "SUSPECT"


def test_a_connection_per_request_is_judged_by_the_whole_request(tmp_path):
    scenario = engine_files.Doc(persistent=False, bytes=100)
    assert judge(tmp_path, scenario=scenario).kind == "VALID"
    assert judge(tmp_path / "b", scenario=scenario, little=0.8).kind == "INVALID"


def test_a_trial_cut_short_is_invalid_and_not_a_crash(tmp_path):
    folder = write_trial(tmp_path / "0001", Trial())
    lines = (folder.path / "events.jsonl").read_text().splitlines(keepends=True)
    (folder.path / "events.jsonl").write_text("".join(lines[:-1]))
    found = verdict.verdict(TrialData(folder, folder.record))
    assert found.reasons == ("the engine's record is incomplete",)


def test_the_worst_reason_comes_first(tmp_path):
    found = judge(tmp_path, engine_wait=0.06, engine_outcome="deadline")
    assert found.kind == "INVALID"
    assert "deadline" in found.reasons[0]


@pytest.mark.parametrize(("faster", "kind"), [(1.15, "VALID"), (1.25, "SUSPECT"), (0.7, "VALID")])
def test_a_server_that_is_still_getting_faster_is_suspect(tmp_path, faster, kind):
    folder = write_trial(tmp_path / "0001", Trial())
    data = TrialData(folder, folder.record)
    middle = sum(data.window) / 2
    half = min(data.ticks, key=lambda tick: abs(tick.t_ns - middle)).answered
    data.__dict__["ticks"] = [
        tick.model_copy(update={"answered": round(half + (tick.answered - half) * faster)}) if tick.answered > half else tick
        for tick in data.ticks
    ]
    found = verdict.verdict(data)
    assert found.kind == kind
    assert any("still rising" in reason for reason in found.reasons) == (kind == "SUSPECT")


def test_a_cold_start_that_was_asked_for_may_rise(tmp_path):
    folder = write_trial(tmp_path / "0001", Trial())
    data = TrialData(folder, folder.record)
    data.__dict__["plan"] = data.plan.model_copy(update={"warmup": None})
    data.__dict__["ticks"] = [tick.model_copy(update={"answered": tick.answered**2}) for tick in data.ticks]
    assert verdict.verdict(data).kind == "VALID"


def test_every_limit_has_its_argument():
    assert all(len(limit.why) > 40 for limit in verdict.LIMITS.values())


# ---- open loops, broadcasts, held connections ------------------------------------------------------------------------


def judged(path, trial: Trial) -> verdict.Verdict:
    folder = write_trial(path / "0001", trial)
    return verdict.verdict(TrialData(folder, folder.record))


def test_an_open_loop_whose_rate_was_met_is_valid_and_limited_by_nobody(tmp_path):
    assert judged(tmp_path, at_rate()) == verdict.Verdict("VALID", (), "neither")
    full = judged(tmp_path / "full", at_rate(server_busy=0.99))
    assert full.bottleneck == "neither", "a server that keeps up is not a limit, however busy"


@pytest.mark.parametrize(("late", "kind"), [(0, "VALID"), (80, "VALID"), (84, "SUSPECT"), (800, "SUSPECT"), (804, "INVALID")])
def test_a_missed_rate_is_judged_at_the_edges_of_its_limit(tmp_path, late, kind):
    # 80,000 are due in the window: 80 are one in a thousand, 800 one in a hundred; two may be at an edge of the window.
    found = judged(tmp_path, at_rate(late=late))
    assert found.kind == kind
    assert kind == "VALID" or "the offered rate was not reached" in found.reasons[0]


def test_who_was_the_limit_is_asked_once_the_rate_was_missed(tmp_path):
    assert judged(tmp_path / "a", at_rate(late=4_000, server_busy=0.97)).bottleneck == "server"
    assert judged(tmp_path / "b", at_rate(late=4_000, engine_busy=0.97)).bottleneck == "engine"
    assert judged(tmp_path / "c", at_rate(late=4_000)).bottleneck == "neither"


def test_a_full_engine_that_met_the_rate_is_no_lower_bound_but_not_trusted(tmp_path):
    found = judged(tmp_path, at_rate(engine_busy=0.97))
    assert (found.kind, found.bottleneck) == ("SUSPECT", "neither")
    assert "may include its own queue" in found.reasons[0]


def test_a_schedule_that_is_not_the_plans_is_found(tmp_path):
    assert "the schedule deviated from the plan" in judged(tmp_path / "a", at_rate(rate=19_000)).reasons[0]
    few = judged(tmp_path / "b", at_rate(rate=19_800, arrivals="poisson"))
    assert few.kind == "VALID", "800 fewer than 80,000 are within four deviations of Poisson arrivals"
    assert judged(tmp_path / "c", at_rate(rate=19_600, arrivals="poisson")).kind == "SUSPECT"


def test_messages_that_were_never_sent_are_lost(tmp_path):
    found = judged(tmp_path, at_rate(unsent=40))
    assert found.kind == "SUSPECT"
    assert any("40 of 80,040 messages were lost" in reason for reason in found.reasons)
    assert judged(tmp_path / "b", at_rate(unsent=90)).kind == "INVALID"


@pytest.mark.parametrize(("share", "kind"), [(0.09, "VALID"), (0.11, "SUSPECT"), (0.49, "SUSPECT"), (0.51, "INVALID")])
def test_messages_that_left_late_are_held_against_the_response(tmp_path, share, kind):
    folder = write_trial(tmp_path / "probe", at_rate(lag_us=1000))
    found = metrics.values(TrialData(folder, folder.record))
    per_us = found["send_lag_us_p99"] / 1000 / found["response_us_p99"]
    found = judged(tmp_path, at_rate(lag_us=share / per_us))
    assert found.kind == kind
    assert kind == "VALID" or "messages left late" in found.reasons[0]


def test_waiting_for_a_free_connection_is_part_of_a_load_with_a_depth(tmp_path):
    assert judged(tmp_path, at_rate(lag_us=3000, depth=1)).kind == "VALID"


def test_an_open_loop_without_a_recorded_lag_is_suspect(tmp_path):
    assert "how late messages were sent is unknown" in judged(tmp_path, at_rate(lag_us=None)).reasons


@pytest.mark.parametrize(("under_way", "kind"), [(64, "VALID"), (77, "VALID"), (82, "SUSPECT"), (90, "INVALID")])
def test_littles_law_is_checked_on_an_open_loop_by_what_the_ticks_saw(tmp_path, under_way, kind):
    # 64 are expected; seven ticks of a Poisson number: 4 · 8 / √7 + 1 = 13 are chance, then 2 % and 10 %.
    found = judged(tmp_path, at_rate(under_way=under_way))
    assert found.kind == kind
    assert kind == "VALID" or "Little's law" in found.reasons[0]


@pytest.mark.parametrize(("little", "each", "kind"), [(0.3, 1, "VALID"), (0.3, None, "INVALID"), (1.3, 1, "INVALID")])
def test_connections_that_are_exchanged_are_not_always_under_way_and_never_more_than_there_are(tmp_path, little, each, kind):
    found = judged(tmp_path, Trial(little=little, loop=engine_files.Closed(messages_per_connection=each)))
    assert found.kind == kind
    assert kind == "VALID" or "Little's law" in found.reasons[0]


def test_an_open_loop_without_the_ticks_at_its_edges_is_suspect_and_not_called_met(tmp_path):
    folder = write_trial(tmp_path / "0001", at_rate())
    trial = TrialData(folder, folder.record)
    trial.__dict__["ticks"] = []
    found = verdict.verdict(trial)
    assert "whether the offered rate was reached is unknown" in found.reasons[0]


def test_broadcasts_that_reached_all_are_valid_and_missed_copies_are_errors(tmp_path):
    assert judged(tmp_path / "a", pushing()) == verdict.Verdict("VALID", (), "neither")
    lost = judged(tmp_path / "b", pushing(unanswered=2))
    assert lost.kind == "SUSPECT"
    assert "2 of 2,562 messages were lost" in lost.reasons[0]
    assert judged(tmp_path / "c", pushing(unanswered=3)).kind == "INVALID"
    assert judged(tmp_path / "d", pushing(recorded=2_000)).kind == "INVALID"


@pytest.mark.parametrize("kind", ["unasked", "out_of_order", "foreign"])
def test_what_nobody_asked_for_is_a_reason(tmp_path, kind):
    folder = write_trial(tmp_path / "0001", pushing())
    answered = TrialData(folder, folder.record).measured.answered
    for count, expected in ((1, "SUSPECT"), (answered // 1000, "SUSPECT"), (answered // 1000 + 1, "INVALID")):
        found = judged(tmp_path / str(count), pushing(**{kind: count}))
        assert (found.kind, found.reasons[0].split()[0]) == (expected, str(count))
    idle = Trial(scenario=engine_files.Idle(), loop=engine_files.NoLoop(), rate=1e-9, **{kind: 9})
    assert judged(tmp_path / "idle", idle).kind == "SUSPECT", "there is nothing that it could falsify"


def test_held_connections_need_no_message_and_must_not_die(tmp_path):
    idle = {"scenario": engine_files.Idle(), "loop": engine_files.NoLoop(), "rate": 1e-9, "connections": 2_000}
    assert judged(tmp_path / "a", Trial(**idle, server_busy=0.1)) == verdict.Verdict("VALID", (), "neither")
    for died, kind in ((1, "SUSPECT"), (2, "SUSPECT"), (3, "INVALID")):
        found = judged(tmp_path / str(died), Trial(**idle, died=died))
        assert found.kind == kind
        assert found.reasons[0] == f"{died} of 2,000 connections died"


@pytest.mark.parametrize(("left_mib", "said"), [(168, "the last of 2 full collections left 168 of 176 MiB"), (100, None)])
def test_a_server_that_was_stopped_says_what_it_had_run_out_of(tmp_path, left_mib, said):
    folder = write_trial(tmp_path / "0001", Trial())
    record = folder.record.model_copy(update={"outcome": "stopped", "reason": "stopped at 9 connections: too slow"})
    data = TrialData(folder, record)
    heap = [HeapPoint(5, 170 * MIB, 176 * MIB, after=True), HeapPoint(8, 176 * MIB, None)]
    heap.append(HeapPoint(9, left_mib * MIB, 176 * MIB, after=True))
    collections = [Collection(5, "full"), Collection(7, "minor"), Collection(9, "full")]
    data.__dict__["runtime"] = Telemetry("jvm", frozenset({"minor", "full"}), collections, heap=heap)
    reasons = verdict.verdict(data).reasons
    assert reasons[0] == record.reason
    assert any(said in reason for reason in reasons) if said else not any("heap" in reason for reason in reasons)


@pytest.mark.parametrize(("times", "kind"), [(1, "VALID"), (3, "VALID"), (5, "SUSPECT")])
def test_a_flood_beside_the_replies_is_told(tmp_path, times, kind):
    folder = write_trial(tmp_path / "0001", Trial())
    data = TrialData(folder, folder.record)
    came = data.measured.bytes_received * times
    data.__dict__["measured"] = data.measured.model_copy(update={"bytes_received": came})
    found = verdict.verdict(data)
    assert found.kind == kind
    assert ("a flood delays other connections" in " ".join(found.reasons)) == (kind == "SUSPECT")

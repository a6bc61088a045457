"""Each check of the verdict, on a trial in which only that one thing is wrong: what it saw, which families it affects, and how."""

import pytest
from run_maker import HOUR_NS, Trial, at_rate, failed, pushing, write_trial

from wsbench import metrics
from wsbench.metrics import engine_checks, host_checks
from wsbench.metrics.findings import FAMILIES, Verdict
from wsbench.metrics.limits import LIMITS
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import disturbed, usable, verdict
from wsbench.monitoring.runtime_logs.record import MIB, Collection, HeapPoint, Telemetry
from wsbench.records import engine_files

ALL = dict.fromkeys(FAMILIES, "INVALID")


def found_in(found: Verdict, words: str) -> dict[str, str]:
    """The families affected by the one finding that says this."""
    (one,) = [one for one in found.findings if words in one.seen]
    return one.affects


def said(found: Verdict) -> list[str]:
    """What was seen, the instrument first."""
    return [one.seen for one in (*found.instrument, *found.outcomes)]


def each(kind: str, *families: str) -> dict[str, str]:
    return dict.fromkeys(families, kind)


RATES = ("throughput", "body", "tail")
WITH_CPU = (*RATES, "cpu")
TAKEN = each("INVALID", *WITH_CPU) | {"connect": "SUSPECT"}


def judge(path, **quantities) -> Verdict:
    folder = write_trial(path / "0001", Trial(**quantities))
    return verdict(TrialData(folder, folder.record))


def test_a_trial_in_which_nothing_is_wrong_is_valid_and_has_no_reasons(tmp_path):
    assert judge(tmp_path) == Verdict((), "server")


@pytest.mark.parametrize(
    ("quantities", "axis", "affects", "words"),
    [
        ({"lost": 1}, "engine", {k: v for k, v in ALL.items() if k not in ("memory", "connect")}, "messages are not conserved"),
        ({"recorded": 79_000}, "engine", each("INVALID", "body", "tail"), "79,000 have a latency"),
        ({"engine_outcome": "interrupted"}, "engine", ALL, "the engine's outcome is interrupted"),
        ({"engine_outcome": "deadline"}, "engine", ALL, "the engine's outcome is deadline"),
        ({"little": 0.95}, "engine", each("SUSPECT", *RATES), "Little's law"),
        ({"little": 0.85}, "engine", each("INVALID", *RATES), "Little's law"),
        ({"little": 1.2}, "engine", each("INVALID", *RATES), "Little's law"),
        ({"little": 0.6, "by_count": True}, "engine", each("SUSPECT", *RATES), "fewer were in flight"),
        ({"little": 1.5, "by_count": True}, "engine", each("INVALID", *RATES), "Little's law"),
        ({"engine_wait": 0.06}, "engine", each("SUSPECT", *RATES), "waited for a CPU in 6.0% of the window"),
        ({"engine_wait": 0.11}, "engine", each("INVALID", *RATES), "waited for a CPU in 11.0% of the window"),
        ({"engine_wait": None}, "engine", each("SUSPECT", *RATES), "how long the engine waited for a CPU is unknown"),
        ({"steal": 0.008}, "host", each("SUSPECT", *WITH_CPU), "the hypervisor took 0.6% of the CPU time that the trial wanted"),
        ({"steal": 0.02}, "host", TAKEN, "the hypervisor took"),
        ({"throttled_s": 0.1}, "host", TAKEN, "a CPU quota throttled the machine"),
        ({"others": 0.08}, "host", each("SUSPECT", *WITH_CPU), "other programs used at least"),
        ({"others": 0.3}, "host", TAKEN | {"cpu": "SUSPECT"}, "other programs used at least"),
        ({"window_s": 0.4, "sample_s": 0.1}, "engine", each("SUSPECT", *WITH_CPU), "only 0.4 s long"),
        ({"samples_end_early": True}, "host", each("SUSPECT", *WITH_CPU), "not sampled across the window"),
        ({"failed": 1}, "server", {"tail": "SUSPECT"}, "1 of 80,001 messages were lost (timeout 1)"),
        ({"unanswered": 70}, "server", {"tail": "SUSPECT"}, "70 of 80,070 messages were lost"),
        ({"unanswered": 90}, "server", {"tail": "INVALID"}, "90 of 80,090 messages were lost"),
        ({"unanswered": 2_000}, "server", {"body": "SUSPECT", "tail": "INVALID"}, "2,000 of 82,000 messages were lost"),
        ({"unanswered": 9_000}, "server", {"body": "INVALID", "tail": "INVALID"}, "9,000 of 89,000 messages were lost"),
        ({"established": 63}, "server", each("INVALID", "body", "tail", "memory"), "63 of 64 connections were established"),
    ],
)
def test_one_thing_wrong_is_found_named_and_held_against_the_numbers_that_it_can_falsify(
    tmp_path, quantities, axis, affects, words
):
    found = judge(tmp_path, **quantities)
    assert found_in(found, words) == affects
    (one,) = [one for one in found.findings if words in one.seen]
    assert one.axis == axis
    assert one.remedy.endswith(".")
    assert {family: found.of(family) for family in FAMILIES} == dict.fromkeys(FAMILIES, "VALID") | affects


def test_a_clipped_time_is_held_against_the_tail(tmp_path):
    affects = found_in(judge(tmp_path, longest_ns=HOUR_NS), "the end of the histogram's range")
    assert affects == {"body": "SUSPECT", "tail": "INVALID"}


def test_a_server_without_a_connection_leaves_one_fact(tmp_path):
    found = judge(tmp_path, window_began=False, engine_outcome="no_connection", established=0)
    assert found.of("counts") == "VALID"
    assert all(found.of(family) == "INVALID" for family in FAMILIES if family != "counts")
    assert [one.axis for one in found.findings if one.kind == "INVALID"] == ["server"]


def test_a_window_that_never_began_is_the_instruments(tmp_path):
    found = judge(tmp_path, window_began=False)
    (affects,) = [one.affects for one in found.findings if one.name == "window"]
    assert set(affects) == set(FAMILIES) - {"counts", "connect"}


# ---- one word --------------------------------------------------------------------------------------------------------


def test_what_the_server_did_does_not_make_the_trial_suspect(tmp_path):
    found = judge(tmp_path, unanswered=9_000)
    assert (found.kind, found.of("tail")) == ("VALID", "INVALID")
    assert [one.name for one in found.outcomes] == ["lost_messages"]


def test_the_word_is_the_worst_of_the_instrument(tmp_path):
    assert judge(tmp_path, engine_wait=0.06, throttled_s=0.1).kind == "INVALID"
    assert judge(tmp_path / "b", engine_wait=0.06).kind == "SUSPECT"


def test_a_load_is_usable_while_one_of_its_numbers_is(tmp_path):
    for name, quantities, expected in (
        ("tail", {"unanswered": 90}, True),
        ("latencies", {"unanswered": 9_000}, True),
        ("throttled", {"throttled_s": 0.1}, False),
    ):
        folder = write_trial(tmp_path / name, Trial(**quantities))
        trial = TrialData(folder, folder.record)
        assert usable(trial, verdict(trial)) is expected, name
    folder = write_trial(tmp_path / "failed", failed())
    trial = TrialData(folder, folder.record)
    assert not usable(trial, verdict(trial))


# ---- the host --------------------------------------------------------------------------------------------------------


def trial_of(path, trial: Trial) -> TrialData:
    folder = write_trial(path, trial)
    return TrialData(folder, folder.record)


def test_idle_cpus_do_not_dilute_steal(tmp_path):
    few = judge(tmp_path / "few", steal=0.02)
    many = judge(tmp_path / "many", steal=0.02, apart=True)
    assert found_in(few, "the hypervisor took") == found_in(many, "the hypervisor took") == TAKEN


def test_the_cpu_time_of_a_rival_that_is_sampled_is_not_foreign(tmp_path):
    assert not judge(tmp_path / "rival", rival=0.6).findings
    assert "other programs" in judge(tmp_path / "foreign", others=0.6).findings[0].seen


@pytest.mark.parametrize("lacking", ["server", "engine"])
def test_foreign_cpu_time_is_unknown_where_a_side_was_not_sampled(tmp_path, lacking):
    trial = trial_of(tmp_path / "0001", Trial(others=0.6))
    trial.__dict__["_processes"] = trial._processes | {lacking: []}
    assert not [one for one in host_checks.checks(trial) if one.name == "foreign_cpu"]


def test_cpu_time_taken_while_connecting_is_held_against_connect_times_alone(tmp_path):
    trial = trial_of(tmp_path / "0001", Trial(connect_s=3.0))
    begun = trial.begins["warmup"]
    for sample in trial.machine:
        stolen = 0.1 * min(sample.t_ns, begun) / 1e9
        sample.__dict__["cpu_s"] = sample.cpu_s.model_copy(update={"steal": stolen})
    (one,) = [one for one in host_checks.checks(trial) if one.name == "steal"]
    assert one.affects == {"connect": "INVALID"}
    assert "while connections were opened" in one.seen


def test_connections_that_are_opened_in_the_window_share_its_verdict(tmp_path):
    found = judge(tmp_path, throttled_s=0.1, scenario=engine_files.Doc(persistent=False, bytes=100))
    assert found.of("connect") == "INVALID"


@pytest.mark.parametrize(
    ("quantities", "name"),
    [({"steal": 0.02}, "steal"), ({"throttled_s": 0.1}, "throttled"), ({"others": 0.3}, "foreign_cpu"), ({"steal": 0.008}, None)],
)
def test_a_trial_is_disturbed_by_what_the_host_took_from_it(tmp_path, quantities, name):
    found = disturbed(trial_of(tmp_path / "0001", Trial(**quantities)))
    assert (found and found.name) == name


def test_no_result_makes_a_trial_disturbed(tmp_path):
    for number, quantities in enumerate(({"engine_wait": 0.5}, {"unanswered": 9_000}, {"little": 0.5}, {"established": 1})):
        assert disturbed(trial_of(tmp_path / str(number), Trial(**quantities))) is None


# ---- the engine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "quantities", [{"little": 0.99}, {"engine_wait": 0.01}, {"steal": 0.004}, {"throttled_s": 0.0}, {"others": 0.04}]
)
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
    ("name", "quantities", "kind", "families"),
    [
        ("wait_share", EVEN_AND_MANY, "SUSPECT", RATES),
        ("wait_share", EVEN_AND_MANY, "INVALID", RATES),
        ("wait_p50", SKEWED_AND_ALONE, "SUSPECT", ("body", "tail")),
        ("wait_p50", SKEWED_AND_ALONE, "INVALID", ("body", "tail")),
        ("wait_p99", HELD_UP_TOGETHER, "SUSPECT", ("tail",)),
    ],
)
def test_a_wait_is_judged_at_the_edges_of_its_limit_by_the_numbers_that_it_affects(tmp_path, name, quantities, kind, families):
    edge = LIMITS[name].suspect if kind == "SUSPECT" else LIMITS[name].invalid
    per_share = waits(tmp_path / "a", quantities | {"engine_wait": 0.001})[name] / 0.001
    for factor, reached in ((0.98, False), (1.02, True)):
        folder = write_trial(tmp_path / f"{factor}", Trial(**quantities, engine_wait=factor * edge / per_share))
        found = Verdict(tuple(engine_checks._wait(TrialData(folder, folder.record))), "server")
        assert all((found.of(family) == kind) is reached for family in families), (factor, found)
        assert all(found.of(family) == "VALID" for family in FAMILIES if family not in RATES)


def test_a_wait_at_a_given_rate_costs_no_throughput(tmp_path):
    found = judged(tmp_path, at_rate(engine_wait=0.2))
    assert found.of("throughput") == found.of("cpu") == "VALID"
    assert found.of("body") == found.of("tail") == "INVALID"


def test_the_wait_of_an_ordinary_machine_is_not_held_against_a_busy_server(tmp_path):
    assert judge(tmp_path, engine_wait=0.048, wake_ups=40_000).kind == "VALID"


def test_the_same_wait_weighs_more_on_one_connection_that_is_answered_at_once(tmp_path):
    alone = {"connections": 1, "rate": 20_000, "wake_ups": 80_000, "engine_wait": 0.03}
    found = judge(tmp_path, **alone)
    assert found.kind == "SUSPECT"
    assert {family: found.of(family) for family in RATES} == {"throughput": "VALID", "body": "SUSPECT", "tail": "SUSPECT"}


def test_a_failed_trial_is_invalid_with_its_reason(tmp_path):
    folder = write_trial(tmp_path / "0001", failed("no free port"))
    assert said(verdict(TrialData(folder, folder.record))) == ["failed: no free port"]


def test_an_engine_that_was_the_limit_makes_a_lower_bound(tmp_path):
    found = judge(tmp_path, engine_busy=0.97, server_busy=0.6)
    assert (found.kind, found.bottleneck) == ("SUSPECT", "engine")
    assert "lower bound" in said(found)[0]


def test_a_busy_engine_beside_a_fuller_server_is_not_the_limit(tmp_path):
    assert judge(tmp_path, engine_busy=0.96, server_busy=0.99) == Verdict((), "server")


def test_a_busy_engine_beside_a_server_without_known_cpu_is_not_trusted(tmp_path):
    found = judge(tmp_path, engine_busy=0.97, server_cpus=())
    assert (found.kind, found.bottleneck) == ("SUSPECT", "unknown")
    assert "possibly a lower bound" in said(found)[0]


def test_an_engine_that_never_sleeps_is_not_called_full(tmp_path):
    polling = {"busy_poll": True, "engine_busy": 1.0}
    assert judge(tmp_path / "a", **polling) == Verdict((), "server")
    found = judge(tmp_path / "b", **polling, server_busy=0.5)
    assert (found.kind, found.bottleneck) == ("SUSPECT", "unknown")
    assert "unknown whether it was the limit" in said(found)[0]
    assert judged(tmp_path / "c", at_rate(**polling)) == Verdict((), "neither")


def test_two_idle_sides_are_neither(tmp_path):
    assert judge(tmp_path, engine_busy=0.3, server_busy=0.4) == Verdict((), "neither")


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
    found = verdict(TrialData(folder, folder.record))
    assert said(found) == ["the engine's record is incomplete"]


def test_the_worst_reason_comes_first(tmp_path):
    found = judge(tmp_path, engine_wait=0.06, engine_outcome="deadline")
    assert found.kind == "INVALID"
    assert "deadline" in said(found)[0]


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
    found = verdict(data)
    assert found.kind == kind
    assert any("still rising" in reason for reason in said(found)) == (kind == "SUSPECT")


def test_a_cold_start_that_was_asked_for_may_rise(tmp_path):
    folder = write_trial(tmp_path / "0001", Trial())
    data = TrialData(folder, folder.record)
    data.__dict__["plan"] = data.plan.model_copy(update={"warmup": None})
    data.__dict__["ticks"] = [tick.model_copy(update={"answered": tick.answered**2}) for tick in data.ticks]
    assert verdict(data).kind == "VALID"


def test_every_limit_has_its_argument():
    assert all(len(limit.why) > 40 for limit in LIMITS.values())


# ---- open loops, broadcasts, held connections ------------------------------------------------------------------------


def judged(path, trial: Trial) -> Verdict:
    folder = write_trial(path / "0001", trial)
    return verdict(TrialData(folder, folder.record))


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


@pytest.mark.parametrize(("share", "kind"), [(0.09, "VALID"), (0.11, "SUSPECT"), (0.49, "SUSPECT"), (0.51, "INVALID")])
def test_messages_that_left_late_are_held_against_the_response(tmp_path, share, kind):
    folder = write_trial(tmp_path / "probe", at_rate(lag_us=1000))
    found = metrics.values(TrialData(folder, folder.record))
    per_us = found["send_lag_us_p99"] / 1000 / found["response_us_p99"]
    found = judged(tmp_path, at_rate(lag_us=share / per_us))
    assert found.of("tail") == kind
    assert kind == "VALID" or "messages left late" in said(found)[0]


def test_waiting_for_a_free_connection_is_part_of_a_load_with_a_depth(tmp_path):
    assert judged(tmp_path, at_rate(lag_us=3000, depth=1)).kind == "VALID"


def test_an_open_loop_without_a_recorded_lag_is_suspect(tmp_path):
    assert "how late messages were sent is unknown" in said(judged(tmp_path, at_rate(lag_us=None)))


@pytest.mark.parametrize(("under_way", "kind"), [(64, "VALID"), (77, "VALID"), (82, "SUSPECT"), (90, "INVALID")])
def test_littles_law_is_checked_on_an_open_loop_by_what_the_ticks_saw(tmp_path, under_way, kind):
    # 64 are expected; seven ticks of a Poisson number: 4 · 8 / √7 + 1 = 13 are chance, then 2 % and 10 %.
    found = judged(tmp_path, at_rate(under_way=under_way))
    assert found.kind == kind
    assert kind == "VALID" or "Little's law" in said(found)[0]


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
    assert ("a flood delays other connections" in " ".join(said(found))) == (kind == "SUSPECT")

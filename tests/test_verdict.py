"""Each check of the verdict, on a trial in which only that one thing is wrong: what it saw, which families it affects, and how."""

import pytest
from judging import ALL, RATES, TAKEN, WITH_CPU, each, found_in, judge, judged, said
from run_maker import HOUR_NS, Trial, at_rate, failed, write_trial

from wsbench import metrics
from wsbench.metrics import engine_checks
from wsbench.metrics.findings import FAMILIES, Verdict
from wsbench.metrics.limits import LIMITS
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import of_load, verdict
from wsbench.records import engine_files


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
        ("more lost than answered", {"unanswered": 80_001}, False),
        ("half lost", {"unanswered": 80_000}, False),
        ("less than half lost", {"unanswered": 79_999}, True),
        ("never sent", {"unsent": 80_001}, False),
        ("every connection lost", {"died": 64, "failed": 64}, False),
        ("closed after the window", {"died": 64}, True),
        ("copies", {"copies": (100, 49, 0)}, False),
        ("no connection", {"established": 0, "engine_outcome": "no_connection"}, False),
    ):
        found = of_load(trial_of(tmp_path / name, Trial(**quantities)))
        assert (found.cause is None) is expected, name
        assert found.kind == "INVALID" or expected
    assert of_load(trial_of(tmp_path / "failed", failed())).cause.seen == "the server ended before it was ready"


def test_the_cause_of_a_useless_load_leads_and_leaves_out_what_it_rules_out(tmp_path):
    lost = {"unanswered": 80_001, "engine_wait": 0.4, "others": 0.02}
    found = of_load(trial_of(tmp_path / "by server", Trial(**lost)))
    assert found.findings[0] is found.cause
    assert found.cause.seen == "more messages were lost than answered: 80,001 of 160,001"
    assert [one.name for one in found.findings] == ["lost_messages"]
    found = of_load(trial_of(tmp_path / "by host", Trial(**lost, throttled_s=0.1)))
    assert [one.axis for one in found.findings] == ["server", "host"]  # a server that was kept from answering is not blamed alone
    found = of_load(trial_of(tmp_path / "by engine", Trial(**lost, engine_busy=0.99, server_busy=0.2)))
    assert found.cause.axis == "engine"
    assert "engine_busy" in [one.name for one in found.findings]


def test_messages_that_a_full_engine_never_sent_are_not_held_against_the_server(tmp_path):
    none = {"rate": 1e-9, "unsent": 80_000, "recorded": 0}
    found = of_load(trial_of(tmp_path / "by engine", at_rate(**none, engine_busy=0.99, server_busy=0.2)))
    assert (found.cause.axis, found.cause.seen) == ("engine", "no message was sent: 80,000 were due")
    assert "Lower the load" in found.cause.remedy
    assert not any(one.axis == "server" for one in found.findings if one.name == "no_answer")
    found = of_load(trial_of(tmp_path / "by server", at_rate(**none, engine_busy=0.01, server_busy=0.2)))
    assert (found.cause.axis, found.cause.name) == ("server", "no_answer")


def trial_of(folder, trial: Trial) -> TrialData:
    kept = write_trial(folder, trial)
    return TrialData(kept, kept.record)


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
def test_a_wait_is_judged_at_the_edges_of_its_limit_by_the_numbers_that_it_affects(
    tmp_path, monkeypatch, name, quantities, kind, families
):
    monkeypatch.setattr(metrics.waits, "delayed_share", lambda trial: 1.0)  # the other bound has a test of its own
    edge = LIMITS[name].suspect if kind == "SUSPECT" else LIMITS[name].invalid
    per_share = waits(tmp_path / "a", quantities | {"engine_wait": 0.01})[name] / 0.01
    for factor, reached in ((0.98, False), (1.02, True)):
        folder = write_trial(tmp_path / f"{factor}", Trial(**quantities, engine_wait=factor * edge / per_share))
        found = Verdict(tuple(engine_checks._wait(TrialData(folder, folder.record))), "server")
        assert all((found.of(family) == kind) is reached for family in families), (factor, found)
        assert all(found.of(family) == "VALID" for family in FAMILIES if family not in RATES)


def test_a_wait_at_a_given_rate_costs_no_throughput(tmp_path):
    found = judged(tmp_path, at_rate(engine_wait=0.2))
    assert found.of("throughput") == found.of("cpu") == "VALID"
    assert found.of("body") == found.of("tail") == "INVALID"


def test_one_long_wait_of_a_worker_that_hardly_sleeps_cannot_have_raised_a_median(tmp_path):
    """15 ms in one of forty stretches: 600 of 80,000 messages came meanwhile."""
    trial = at_rate(engine_wait=0.00375, wake_ups=400, connections=1_000, little=0.002, tick_s=0.1, window_s=4)
    folder = write_trial(tmp_path / "0001", trial)
    data = TrialData(folder, folder.record)
    middle = data.window[0] + 2 * 10**9
    data.__dict__["ticks"] = [one.model_copy(update={"wait_ns": 15_000_000 * (one.t_ns > middle)}) for one in data.ticks]
    assert metrics.waits.delayed_share(data) == pytest.approx((400 + 2 * 600) / 80_000, rel=0.02)
    by_mean = 2 * 1e3 * metrics.waits.engine_wait_us_per_message(data) / data.times.quantile("0.5")
    assert by_mean > LIMITS["wait_p50"].invalid
    found = Verdict(tuple(engine_checks._wait(data)), "neither")
    assert {family: found.of(family) for family in ("throughput", "body")} == {"throughput": "VALID", "body": "VALID"}


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
    assert judged(tmp_path / "c", at_rate(**polling, lag_us=0.5)) == Verdict((), "neither")


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

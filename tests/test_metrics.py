"""Metrics on synthetic trials whose numbers are known by construction."""

import re
from collections import Counter

import pytest
from run_maker import Trial, at_rate, failed, pushing, write_trial

from wsbench import metrics
from wsbench.analysis import titles
from wsbench.engine import histogram
from wsbench.host.installation import ROOT
from wsbench.metrics import trial_data as view_room
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records import engine_files, rundir, samples
from wsbench.records.engine_files import Seconds, Stage
from wsbench.sessions import compiling, session_file


def data(path, **quantities) -> TrialData:
    folder = write_trial(path / "0001", Trial(**quantities))
    return TrialData(folder, folder.record)


def doc(persistent: bool) -> engine_files.Doc:
    return engine_files.Doc(persistent=persistent, bytes=1000)


def test_every_metric_has_a_unit_a_direction_and_a_sentence():
    assert len(metrics.METRICS) >= 30
    for name, metric in metrics.METRICS.items():
        assert metric.name == name
        assert metric.unit
        assert metric.direction in ("higher", "lower", "neither")
        assert metric.summary.endswith((".", '".')), name


def test_every_metric_has_a_title_without_the_words_of_its_name():
    made = {name: titles.title(name) for name in metrics.METRICS}
    raw = re.compile(r"\b(us|ms|rss|pss|gc|cpu|fds|percent|per s|p50)\b|_")
    assert {name: title for name, title in made.items() if raw.search(title)} == {}
    assert {title for title, number in Counter(made.values()).items() if number > 1} == {"Throughput"}
    assert titles.title("server_cpu_percent_max", inside=True) == "highest server CPU"
    assert titles.title("capacity_2_per_s") == "Capacity, SLO 2"
    assert titles.title("idle_rss_bytes") == "Server memory while idle"


def test_the_rate_counts_replies_inside_a_window_that_time_ends(tmp_path):
    trial = data(tmp_path, rate=20_000, window_s=4)
    late = trial.measured.model_copy(update={"replies_in_window": 79_000})
    trial.__dict__["measured"] = late
    assert metrics.rates.messages_per_s(trial) == 79_000 / 4


def test_the_rate_counts_answered_messages_where_a_count_ends_the_run(tmp_path):
    trial = data(tmp_path, rate=20_000, window_s=4, by_count=True)
    trial.__dict__["measured"] = trial.measured.model_copy(update={"replies_in_window": 79_000})
    assert metrics.rates.messages_per_s(trial) == 80_000 / 4


def test_latencies_are_microseconds_of_the_measured_messages_only(tmp_path):
    found = metrics.values(data(tmp_path, rate=20_000, connections=64, sigma=0.001))
    assert found["service_us_mean"] == pytest.approx(3200, rel=2e-3)
    assert found["service_us_p50"] == pytest.approx(3200, rel=2e-3)
    assert found["service_us_max"] < 3300  # the warm-up of the maker holds an hour
    assert found["service_us_p50"] <= found["service_us_p99"] <= found["service_us_p999"] <= found["service_us_max"]
    assert found["connect_us_p50"] == pytest.approx(200, rel=0.05)
    assert found["request_us_p50"] is None


def test_apachebench_names_follow_its_definitions(tmp_path):
    found = metrics.values(data(tmp_path, rate=5_000, connections=100, scenario=doc(False), by_count=True))
    assert found["requests_per_s"] == 5_000
    assert found["time_per_request_ms"] == 20
    assert found["time_per_request_across_ms"] == 0.2
    assert found["served_90_ms"] == pytest.approx(found["request_us_p90"] / 1000)


def test_a_kept_connection_has_no_request_time_and_ninety_per_cent_are_of_the_service(tmp_path):
    found = metrics.values(data(tmp_path, scenario=doc(True)))
    assert found["request_us_p90"] is None
    assert found["served_90_ms"] == pytest.approx(found["service_us_p90"] / 1000)


def test_apachebench_names_do_not_apply_to_websocket_scenarios(tmp_path):
    found = metrics.values(data(tmp_path))
    assert found["requests_per_s"] is found["time_per_request_ms"] is found["served_90_ms"] is None


def test_server_cpu_is_that_of_the_window(tmp_path):
    found = metrics.values(data(tmp_path, server_busy=0.8, rate=10_000))
    assert found["server_cpu_percent_mean"] == pytest.approx(80)
    assert found["server_cpu_percent_max"] == pytest.approx(80)
    assert found["server_cpu_us_per_message"] == pytest.approx(80)


def test_cpu_is_not_extrapolated_beyond_the_last_sample(tmp_path):
    found = metrics.measure(data(tmp_path, samples_end_early=True))
    assert found.values["server_cpu_percent_mean"] is found.values["server_cpu_us_per_message"] is None
    assert "do not enclose" in found.reasons["server_cpu_percent_mean"]
    assert found.values["server_rss_bytes_max"] is not None


@pytest.mark.parametrize(("window_s", "known"), [(1.35, True), (1.15, False)])
def test_cpu_is_interpolated_only_where_the_edges_cannot_decide_it(tmp_path, window_s, known):
    # Each edge may be off by a quarter of 0.125 s: together 0.0625 s, which is 5 % of 1.25 s.
    found = metrics.measure(data(tmp_path, window_s=window_s, sample_s=0.125))
    assert (found.values["server_cpu_percent_mean"] is not None) == known
    assert known or "might be wrong" in found.reasons["server_cpu_percent_mean"]


def test_cpu_that_comes_in_ticks_needs_enough_of_them(tmp_path):
    ticks = data(tmp_path / "a", cpu_clock=False, server_busy=0.8)
    assert metrics.resources.server_cpu_percent_mean(ticks) == pytest.approx(80, rel=0.01)
    few = {"cpu_clock": False, "sample_s": 0.025, "window_s": 0.3}
    assert metrics.resources.server_cpu_percent_mean(data(tmp_path / "b", **few)) is None
    assert metrics.resources.server_cpu_percent_mean(data(tmp_path / "c", **few | {"cpu_clock": True})) == pytest.approx(95)


def test_a_run_of_a_third_of_a_second_has_its_servers_cpu(tmp_path):
    found = metrics.values(data(tmp_path, by_count=True, window_s=0.3, sample_s=0.025, rate=30_000))
    assert found["server_cpu_percent_mean"] == pytest.approx(95)
    assert found["server_cpu_us_per_message"] == pytest.approx(0.95e6 / 30_000)


def test_cpu_of_a_process_that_nobody_waited_for_is_not_known(tmp_path):
    trial = data(tmp_path)
    lost = [
        sample.model_copy(update={"cpu_ns": sample.cpu_ns - 2 * 10**9}) if place > 40 and sample.of == "server" else sample
        for place, sample in enumerate(trial.samples)
    ]
    trial.__dict__["samples"] = lost
    assert "a process of the server ended" in metrics.measure(trial).reasons["server_cpu_percent_mean"]


def test_memory_is_that_of_the_window_and_not_of_the_start_up(tmp_path):
    found = metrics.values(data(tmp_path, rss_mib=100, sample_s=0.4))
    assert found["server_rss_bytes_start"] == round((100 + 1.2) * 2**20)
    assert found["server_rss_bytes_max"] == pytest.approx((100 + 5.2) * 2**20)
    assert found["server_fds_max"] == 76


def test_the_engines_share_is_of_its_workers_wall_time(tmp_path):
    found = metrics.values(data(tmp_path, engine_busy=0.5, engine_wait=0.02, rate=20_000, wake_ups=40_000))
    assert found["engine_cpu_percent_mean"] == pytest.approx(50)
    assert found["engine_wait_us_per_message"] == pytest.approx(2.0)  # 80 ms for 80,000 messages, two a wake-up
    assert found["engine_wait_percent"] == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize(("wake_ups", "wait_us"), [(160_000, 1.0), (80_000, 1.0), (20_000, 4.0), (1, 64.0), (0, 64.0)])
def test_a_wait_holds_up_one_message_at_least_and_one_a_connection_at_most(tmp_path, wake_ups, wait_us):
    trial = data(tmp_path, engine_wait=0.02, wake_ups=wake_ups, rate=20_000, connections=64)
    assert metrics.waits.engine_wait_us_per_message(trial) == pytest.approx(wait_us)


def test_a_worker_that_hardly_sleeps_delays_only_what_comes_while_it_waits(tmp_path):
    quantities = {"engine_wait": 0.002, "wake_ups": 400, "connections": 1_000, "tick_s": 0.1}
    paced = of(tmp_path / "open", at_rate(rate=20_000, window_s=4, **quantities))
    # 0.2 ms between two ticks, in which four messages are answered and four fall due: nine of 2,000 wait.
    assert metrics.waits.engine_wait_us_per_message(paced) == pytest.approx(200 * (1 + 4 + 4) / 2_000, rel=0.01)
    closed = data(tmp_path / "closed", rate=20_000, window_s=4, **quantities)
    assert metrics.waits.engine_wait_us_per_message(closed) == pytest.approx(200 * (1 + 4) / 2_000, rel=0.01)
    unknown = [one if number % 7 else one.model_copy(update={"wait_ns": None}) for number, one in enumerate(paced.ticks)]
    paced.__dict__["ticks"] = unknown
    assert metrics.waits.engine_wait_us_per_message(paced) == pytest.approx(20, rel=0.01), "200 messages a wake-up"


def test_errors_are_lost_messages_and_missing_connections(tmp_path):
    found = metrics.values(data(tmp_path, failed=3, unanswered=2, established=60, connections=64))
    assert found["errors"] == 3 + 2 + 4
    assert found["error_fraction"] == pytest.approx(5 / 80_005)


def test_a_reply_that_is_not_overdue_when_the_engine_stops_is_not_known_to_be_lost(tmp_path):
    waiting = data(tmp_path / "closed", unanswered=2, reply_s=6.0)
    found = metrics.measure(waiting, ["errors", "error_fraction"])
    assert found.values == {"errors": None, "error_fraction": None}
    words = "0.1 s after the window, when the engine stopped, 2 replies were still due: they may take 6 s"
    assert set(found.reasons.values()) == {words}
    folder = write_trial(tmp_path / "open", at_rate(unanswered=2, reply_s=6.0))
    assert metrics.values(TrialData(folder, folder.record))["errors"] == 2, "an open loop has a rate to keep"
    assert metrics.values(data(tmp_path / "none", reply_s=6.0))["errors"] == 0


def test_connections_per_request_are_not_missing_connections(tmp_path):
    assert metrics.values(data(tmp_path, scenario=doc(False), established=3))["errors"] == 0


def test_a_failed_trial_has_no_number_but_the_time_to_ready(tmp_path):
    folder = write_trial(tmp_path / "0001", failed())
    found = metrics.values(TrialData(folder, folder.record))
    assert found.pop("ready_s") == 0.25
    assert set(found.values()) == {None}


def test_a_trial_without_files_is_not_measured_rather_than_zero(tmp_path):
    trial = data(tmp_path)
    for name in ("events.jsonl", "resources.jsonl", "latency.hlog", "plan.json"):
        (trial.folder.path / name).unlink()
    found = metrics.values(TrialData(trial.folder, trial.record))
    found.pop("ready_s")
    assert set(found.values()) == {None}


def test_a_window_that_never_began_has_no_rate_and_says_so(tmp_path):
    found = metrics.measure(data(tmp_path, window_began=False, engine_outcome="no_connection", established=0))
    assert found.values["messages_per_s"] is found.values["received_bytes_per_s"] is None
    assert found.reasons["messages_per_s"] == found.reasons["server_cpu_percent_mean"] == view_room.NO_WINDOW
    assert found.reasons["engine_cpu_percent_mean"] == view_room.NO_WINDOW
    assert found.values["errors"] == 64


def test_a_kernel_without_schedstat_leaves_the_wait_unknown_and_not_zero(tmp_path):
    found = metrics.measure(data(tmp_path, engine_wait=None))
    assert found.values["engine_wait_percent"] is None
    assert "schedstat" in found.reasons["engine_wait_percent"]
    assert found.values["engine_cpu_percent_mean"] == pytest.approx(60)


@pytest.mark.parametrize("quantities", [{}, {"window_began": False}, {"scenario": doc(False), "engine_wait": None}])
def test_every_number_that_is_none_has_a_reason_and_no_other_has(tmp_path, quantities):
    found = metrics.measure(data(tmp_path, **quantities))
    assert found.values.keys() == metrics.METRICS.keys()
    assert {name for name, value in found.values.items() if value is None} == found.reasons.keys()
    assert all(found.reasons.values())


def test_no_answer_at_all_is_a_rate_of_zero_and_no_time_per_request(tmp_path):
    trial = data(tmp_path, scenario=doc(True))
    trial.__dict__["counted"] = 0
    assert metrics.rates.messages_per_s(trial) == 0
    assert metrics.rates.time_per_request_ms(trial) is None
    assert metrics.resources.server_cpu_us_per_message(trial) is None


def test_the_example_run_of_the_protocol_is_understood():
    folder = rundir.TrialFolder(ROOT / "protocol" / "examples" / "run-echo")
    end = folder.events()[-1]
    assert isinstance(end, engine_files.End)
    found = histogram.merge(histogram.read_log(folder.latency_log))
    for tag in ("service", "response", "send_lag"):
        assert found[tag].count == end.measured.answered
    assert found["response"].mean >= found["service"].mean
    assert isinstance(folder.plan.loop, engine_files.Open)


# ---- open loops, broadcasts, connecting ------------------------------------------------------------------------------


def of(path, trial: Trial) -> TrialData:
    folder = write_trial(path / "0001", trial)
    return TrialData(folder, folder.record)


def test_an_open_loops_times_and_ratios(tmp_path):
    found = metrics.values(of(tmp_path, at_rate(lag_us=20)))
    assert found["response_us_p50"] == found["service_us_p50"]
    assert found["send_lag_us_mean"] == pytest.approx(20, rel=0.01)
    assert found["rate_ratio"] == 1
    assert found["planned_rate_ratio"] == 1


def test_a_rate_ratio_counts_what_left_inside_the_window_over_what_was_due(tmp_path):
    found = metrics.values(of(tmp_path, at_rate(unsent=20_000, late=1_000)))
    assert found["rate_ratio"] == 79_000 / 100_000
    assert found["planned_rate_ratio"] == 100_000 / 80_000
    assert found["error_fraction"] == 0.2


def test_a_closed_loop_has_no_rate_to_keep_and_no_due_time(tmp_path):
    found = metrics.measure(data(tmp_path))
    assert found.reasons["rate_ratio"] == found.reasons["planned_rate_ratio"] == metrics.parts.NOT_OPEN
    assert found.reasons["response_us_p99"] == "no response time was recorded"
    assert found.reasons["push_reach"] == metrics.broadcasts.NOT_PUSH


@pytest.mark.parametrize(
    ("rate", "seconds", "due"),
    [
        ([(100, 100, 1)], 3.5, 350),
        ([(0, 100, 2)], 1, 25),
        ([(0, 100, 2)], 3, 200),
        ([(10, 10, 2), (20, 0, 2)], 3, 35),
        ([(10, 10, 2), (20, 0, 2)], 9, 40),
        ([(50, 10, 0)], 2, 20),
    ],
)
def test_a_plans_rate_is_integrated_exactly(rate, seconds, due):
    segments = [engine_files.Segment(from_per_s=a, to_per_s=b, for_s=s) for a, b, s in rate]
    assert engine_files.Open(rate=segments).due_before(seconds) == pytest.approx(due)


def test_the_plans_rate_is_that_of_the_window_which_a_warm_up_precedes(tmp_path):
    ramp = [engine_files.Segment(from_per_s=0, to_per_s=4_000, for_s=4)]
    trial = of(tmp_path, at_rate(rate=3_000, loop=engine_files.Open(rate=ramp), window_s=4))
    # From second 1 to second 5: 12,000 / 1.6 on the ramp's last three seconds, and 4,000 in the one that holds.
    assert trial.planned_in_window == pytest.approx(7_500 + 4_000)


def test_the_last_member_of_a_room_is_timed_only_if_no_slow_message_is_left_out(tmp_path):
    rooms = compiling.compiled(session_file.path_of("mqtt"), compiling.Choice(room_size=5), 10)
    for unknown, reason in (
        (0, "no push_last time was recorded"),
        (7, "of 7 messages it is not known when the last member had them"),
    ):
        trial = data(tmp_path / str(unknown), scenario=rooms, copies=(900, 900, 0, 0, unknown))
        found = metrics.measure(trial, ["push_reach", "push_last_us_p50", "push_last_us_max"])
        assert found.values["push_reach"] == 1.0
        assert found.reasons == dict.fromkeys(("push_last_us_p50", "push_last_us_max"), reason)


def test_broadcasts_are_judged_by_their_last_receiver_and_only_if_it_came(tmp_path):
    cells = ((64, 64, 100, 300), (64, 64, 100, 500), (64, 64, 100, 900), (64, 32, 10, 20), (64, 0, 0, 0))
    found = metrics.values(of(tmp_path, pushing(broadcasts=cells)))
    assert found["push_reach"] == (3 * 64 + 32) / (5 * 64)
    assert found["push_spread_us"] == 400
    assert found["push_last_us_p50"] == 500
    assert found["push_last_us_max"] == 900
    assert found["push_us_p50"] is not None
    none = metrics.measure(of(tmp_path / "none", pushing(broadcasts=((64, 32, 10, 20),))))
    assert none.reasons["push_spread_us"] == none.reasons["push_last_us_max"] == "no broadcast reached all of its receivers"
    assert none.values["push_reach"] == 0.5
    assert "no broadcast was triggered" in metrics.measure(of(tmp_path / "b", pushing(broadcasts=()))).reasons["push_reach"]


def test_connecting_has_a_rate_where_it_took_long_enough(tmp_path):
    assert metrics.rates.connects_per_s(data(tmp_path / "a", connect_s=0.5, connections=100)) == 200
    short = metrics.measure(data(tmp_path / "b", connect_s=0.05, connections=100))
    assert "too short for a rate" in short.reasons["connects_per_s"]
    per_request = metrics.measure(data(tmp_path / "c", connect_s=0.5, scenario=doc(False)))
    assert per_request.values["connects_per_s"] is None


def test_dropped_connects_and_packets_are_those_of_the_trial_and_not_of_the_time_before(tmp_path):
    trial = data(tmp_path)
    assert metrics.connections.listen_overflows(trial) is None
    assert metrics.connections.backlog_drops(trial) is None
    traffic = dict.fromkeys(("received_bytes", "received_packets", "received_dropped"), 0)
    traffic |= dict.fromkeys(("sent_bytes", "sent_packets", "sent_dropped", "tcp_segments_sent"), 0)
    trial.__dict__["samples"] = [
        samples.NetworkSample(
            t_ns=t_ns,
            of="network",
            tcp_segments_sent_again=0,
            listen_overflows=count,
            backlog_dropped=2 * count,
            **traffic,
        )
        for t_ns, count in [(0, 90), (1, 95), (2, 97)]
    ]
    del trial.__dict__["_by_kind"]
    assert metrics.connections.listen_overflows(trial) == 7
    assert metrics.connections.backlog_drops(trial) == 14
    found = verdict(trial)
    assert found.kind == "SUSPECT"
    assert any("dropped 14 packets" in reason for reason in found.reasons)


def test_bytes_are_counted_both_ways(tmp_path):
    found = metrics.values(data(tmp_path, rate=1_000))
    assert (found["sent_bytes_per_s"], found["received_bytes_per_s"]) == (136_000, 130_000)


def test_connections_that_died_are_those_that_nothing_had_closed(tmp_path):
    assert metrics.failures.connections_lost(data(tmp_path / "a", died=3)) == 3
    churn = engine_files.Closed(messages_per_connection=10)
    reason = metrics.measure(data(tmp_path / "b", died=3, loop=churn)).reasons["connections_lost"]
    assert reason == "connections come and go in this load"


@pytest.mark.parametrize(
    ("stages", "seconds", "most"),
    [
        ([(10, 2, 1), (50, 2, 1)], 4, 49),
        ([(10, 2, 1), (50, 2, 1)], 4.5, 50),
        ([(20, 3, 1)], 3, 19),
        ([(100, 10, 25)], 10, 75),
        ([(100, 0, 100), (100, 10, 1)], 10, 100),
        ([(50, 0, 50), (0, 10, 1)], 10, 50),
        ([(100, 10, 1)], 5, 49),
    ],
)
def test_connections_that_are_due_as_the_measurement_ends_are_not_missing(stages, seconds, most):
    asked = [Stage(to=to, over_s=over_s, chunk=chunk) for to, over_s, chunk in stages]
    assert metrics.parts._most_due(asked, Seconds(seconds=seconds)) == most

"""Spans of a trial, metrics over them, and series: on synthetic trials whose numbers are known by construction."""

import json

import pytest
from run_maker import DRAIN_S, SECOND, START_NS, WARMUP_S, Trial, at_rate, pushing, write_trial

from wsbench import metrics
from wsbench.metrics import series, spans
from wsbench.metrics.spans import Instants, Span
from wsbench.metrics.tracks import Track, growth
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.unmeasured import Unmeasured
from wsbench.records import engine_files, samples

SILENT = engine_files.Segment(from_per_s=0, to_per_s=0, for_s=60)
BUSY = engine_files.Segment(from_per_s=100, to_per_s=100, for_s=1)
AT = Instants({"connect": 0, "measure": 10 * SECOND, "drain": 90 * SECOND}, (10 * SECOND, 90 * SECOND), 91 * SECOND, [])


def data(path, trial: Trial) -> TrialData:
    folder = write_trial(path / "0001", trial)
    return TrialData(folder, folder.record)


def plan(tmp_path, **changes) -> engine_files.Plan:
    return data(tmp_path, Trial()).plan.model_copy(update={"warmup": None, **changes})


def broadcast(t_s: float, last_s: float | None) -> engine_files.Broadcast:
    last_ns = None if last_s is None else round(last_s * SECOND)
    t_ns = round(t_s * SECOND)
    return engine_files.Broadcast(
        event="broadcast",
        t_ns=t_ns,
        number=0,
        expected=1,
        received=int(last_s is not None),
        first_ns=last_ns,
        last_ns=last_ns,
    )


def seconds(found: dict) -> dict:
    return {name: (one.begin_ns / SECOND, one.end_ns / SECOND) for name, one in found.items() if isinstance(one, Span)}


def test_a_broadcast_to_idle_connections_has_the_three_spans_of_the_study(tmp_path):
    asked = plan(tmp_path, scenario=engine_files.Push(), loop=engine_files.Open(rate=[SILENT, BUSY]))
    at = Instants(AT.begins, AT.window, AT.end_ns, [broadcast(70, 75.5)])
    whole = {"connect": (0, 10), "idle": (10, 70), "sending": (70, 75.5), "measured": (10, 90)}
    assert seconds(spans.find(asked, at)) == whole


def test_sending_ends_with_the_last_receiver_of_any_broadcast_also_where_one_reached_nobody(tmp_path):
    asked = plan(tmp_path, scenario=engine_files.Push(), loop=engine_files.Open(rate=[BUSY]))
    at = Instants(AT.begins, AT.window, AT.end_ns, [broadcast(11, 19), broadcast(12, 13), broadcast(14, None)])
    assert seconds(spans.find(asked, at))["sending"] == (11, 19)


def test_a_push_that_never_pushed_was_idle_to_its_end(tmp_path):
    asked = plan(tmp_path, scenario=engine_files.Push(), loop=engine_files.Open(rate=[SILENT]))
    found = spans.find(asked, AT)
    assert seconds(found)["idle"] == (10, 90)
    assert found["sending"] == "no broadcast was triggered in the measured window"


def test_an_open_loop_is_idle_until_its_schedule_has_a_rate(tmp_path):
    found = spans.find(plan(tmp_path, loop=engine_files.Open(rate=[SILENT, BUSY])), AT)
    assert seconds(found)["idle"] == (10, 70)
    assert seconds(found)["sending"] == (70, 90)


def test_held_connections_are_idle_and_nothing_is_sent(tmp_path):
    found = spans.find(plan(tmp_path, scenario=engine_files.Idle(), loop=engine_files.NoLoop()), AT)
    assert seconds(found)["idle"] == (10, 90)
    assert found["sending"] == "no message was sent"


def test_a_closed_loop_is_never_idle(tmp_path):
    found = spans.find(plan(tmp_path), AT)
    assert found["idle"] == "the connections were idle for less than 1 s"
    assert seconds(found)["sending"] == seconds(found)["measured"] == (10, 90)


def test_connections_that_come_and_go_have_no_phase_of_connecting(tmp_path):
    found = spans.find(plan(tmp_path, stages=[engine_files.Stage(to=5, over_s=1)]), AT)
    assert found["connect"] == found["idle"] == "connections come and go in this load"


def test_a_run_that_died_while_connecting_has_that_span_alone(tmp_path):
    found = spans.find(plan(tmp_path), Instants({"connect": 0}, None, 7 * SECOND, []))
    assert seconds(found) == {"connect": (0, 7)}


def test_the_plan_tells_for_how_long_nothing_is_due(tmp_path):
    measure = {"measure": engine_files.Seconds(seconds=30)}
    silent = plan(tmp_path, loop=engine_files.Open(rate=[SILENT, BUSY]), measure=engine_files.Seconds(seconds=80))
    assert spans.quiet_s(silent) == 60
    assert spans.quiet_s(silent.model_copy(update=measure)) == 30
    assert spans.quiet_s(silent.model_copy(update={"loop": engine_files.NoLoop(), **measure})) == 30
    assert spans.quiet_s(silent.model_copy(update={"loop": engine_files.Closed()})) == 0
    assert spans.quiet_s(silent.model_copy(update={"measure": engine_files.Messages(messages=5)})) == 0


def test_metrics_of_a_span_are_of_that_span(tmp_path):
    trial = at_rate(connect_s=4.0, server_busy=0.5, steal=0.0)
    found = metrics.measure(data(tmp_path, trial))
    assert found.values["connect_s"] == 4
    assert found.values["connect_cpu_idle_percent"] == pytest.approx(45)
    assert found.values["connect_server_cpu_percent"] == pytest.approx(50)
    assert found.values["cpu_idle_percent"] == pytest.approx(45)
    assert found.values["connect_rss_bytes"] == pytest.approx((80 + 4) * 2**20, rel=1e-3)
    assert found.values["sending_rss_bytes"] == pytest.approx((80 + 4 + WARMUP_S + 4) * 2**20, rel=1e-3)
    assert found.values["idle_rss_bytes"] is None
    assert "were idle" in found.reasons["idle_rss_bytes"]


def test_a_span_shorter_than_the_samples_are_apart_has_no_cpu_share(tmp_path):
    found = metrics.measure(data(tmp_path, pushing(sample_s=0.25, broadcasts=((64, 64, 100, 90_000),))))
    assert found.values["sending_s"] == 0.09
    assert found.values["sending_cpu_idle_percent"] is found.values["sending_server_cpu_percent"] is None
    assert "too short" in found.reasons["sending_cpu_idle_percent"]


def test_what_the_kernel_holds_is_counted_from_before_the_first_connection(tmp_path):
    trial = data(tmp_path, at_rate(connect_s=4.0))
    rows = [row if one.of != "machine" else with_memory(one, row) for one, row in lines(trial)]
    (trial.folder.path / "resources.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = metrics.values(TrialData(trial.folder, trial.record))
    assert found["connect_slab_grown_bytes"] == 4000
    assert found["connect_memory_grown_bytes"] == 40_000
    assert found["connect_memory_used_bytes"] == 540_000
    assert found["connect_memory_free_bytes"] == 260_000
    assert found["connect_socket_buffer_bytes_max"] == 4096
    older = metrics.measure(trial, ["connect_slab_grown_bytes"])
    assert "do not contain" in older.reasons["connect_slab_grown_bytes"]


def lines(trial: TrialData):
    return [(one, one.model_dump()) for one in trial.samples]


def with_memory(one: samples.MachineSample, row: dict) -> dict:
    """A thousand bytes of slab and ten thousand of use a second."""
    elapsed = (one.t_ns - START_NS) / SECOND
    memory = samples.MachineMemory(
        total_bytes=1_000_000,
        free_bytes=round(300_000 - elapsed * 10_000),
        available_bytes=round(500_000 - elapsed * 10_000),
        slab_bytes=round(50_000 + elapsed * 1_000),
    )
    sockets = samples.MachineSockets(tcp_in_use=3, tcp_time_wait=0, tcp_buffer_bytes=4096)
    return {**row, "memory": memory.model_dump(), "sockets": sockets.model_dump()}


def test_growth_is_off_by_no_more_than_it_says():
    """Use that begins at once in the middle between two samples, seen from every place of the edge."""
    used = lambda t: max(0.0, t - 0.5)  # noqa: E731
    at = [tenth / 4 for tenth in range(9)]

    for begin in (0.3, 0.45, 0.6):
        span = Span("measured", round(begin * SECOND), 2 * SECOND)
        inside = [t for t in at if t >= 0.25]
        track = Track([round(t * SECOND) for t in inside], [used(t) for t in inside])
        found = growth(track, slice(0, len(inside)), span, 0.0)
        assert abs(found.total - (used(2) - used(begin))) <= found.error < 0.2


def test_series_share_one_axis_that_begins_with_connecting(tmp_path):
    trial = data(tmp_path, at_rate(connect_s=1.0, server_busy=0.5))
    found = series.of(trial)
    assert {"server_cpu_percent", "server_rss_bytes", "open_connections", "cpu_idle_percent"} <= set(found)
    assert "heap_used_bytes" not in found
    assert found["server_cpu_percent"].values == pytest.approx([50] * len(found["server_cpu_percent"].values))
    for one in found.values():
        assert len(one.seconds) == len(one.values)
        assert one.seconds == sorted(one.seconds)
        assert 0 <= one.seconds[-1] <= 1 + WARMUP_S + 4 + DRAIN_S
    assert series.marks(trial)["connect"] == (0, 1)


def test_a_trial_without_samples_of_the_machine_has_reasons(tmp_path):
    trial = data(tmp_path, at_rate())
    trial.__dict__["samples"] = []
    with pytest.raises(Unmeasured, match="do not enclose"):
        trial.cpu_idle_share_over(trial.span("measured"))

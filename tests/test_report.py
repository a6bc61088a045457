"""The report as data: the long table, the summary, the answer in words, figures as values."""

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hdrh.histogram import HdrHistogram
from run_maker import SERVERS, Server, failed, make_run, spoiled, write_table

from wsbench import metrics
from wsbench.analysis import stats, wording
from wsbench.analysis.measuring import timelines
from wsbench.analysis.memory import memory_fits
from wsbench.analysis.reading import load
from wsbench.analysis.summary import summary
from wsbench.analysis.tables import trials_table
from wsbench.engine.histogram import decode, encode
from wsbench.report import document
from wsbench.report.answer import answer
from wsbench.report.data import _all_short, page_data, short
from wsbench.report.still import call

ONE_CELL = ({"connections": 64},)


def said(run_folder) -> tuple[str, list, str]:
    results = load(run_folder)
    found = answer(results, summary(results))
    return found.lead, found.cells, "\n".join(found.cannot)


def test_the_table_has_a_row_for_every_finished_trial_and_metric(run, results):
    table = pq.read_table(write_table(run))
    assert table.num_rows == 34 * len(metrics.METRICS)
    assert table.column_names[:5] == ["trial", "round", "server", "variant", "cell.connections"]
    assert str(table.schema.field("cell.connections").type) == "int64"
    rows = table.to_pylist()
    assert {row["unit"] for row in rows if row["metric"] == "messages_per_s"} == {"messages/s"}
    assert all(row["value"] is None for row in rows if row["trial"] == 5 and row["metric"] != "ready_s")
    words = {row["metric"]: row["verdict"] for row in rows if row["trial"] == 9}
    assert {words[name] for name in ("messages_per_s", "service_us_p99", "server_cpu_us_per_message")} == {"INVALID"}
    assert {words[name] for name in ("server_rss_bytes_max", "errors")} == {"VALID"}


def test_cell_values_of_mixed_kinds_become_text(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:1], cells=({"opcode": "text", "x": 1}, {"opcode": "binary", "x": "a"}), rounds=1)
    rows = trials_table(load(run).data, run.order).to_pylist()
    assert {(row["cell.opcode"], row["cell.x"]) for row in rows} == {("text", "1"), ("binary", "a")}


def test_the_summary_has_a_row_for_every_server_and_cell_by_throughput(run):
    rows = summary(run)
    assert len(rows) == 4 * 3
    assert [row.server for row in rows[:4]] == ["reference", "netty", "ws", SERVERS[3].name]
    assert [row.cell_text for row in rows[::4]] == ["connections 16", "connections 64", "connections 256"]


def test_invalid_and_failed_trials_are_counted_and_take_no_part_in_a_mean(results):
    rows = summary(results)
    assert sum(row.verdicts["INVALID"] for row in rows) == 1
    assert sum(row.failed for row in rows) == 1
    assert sum(row.missing for row in rows) == 2
    spoiled_trial = next(trial for trial in results.trials if trial.record.number == 9)
    row = next(r for r in rows if r.name == spoiled_trial.record.name and r.cell == spoiled_trial.cell)
    assert spoiled_trial.values["messages_per_s"] not in row.figure("messages_per_s").estimate.values
    assert spoiled_trial.values["server_rss_bytes_max"] in row.figure("server_rss_bytes_max").estimate.values


def test_two_repeats_have_no_interval_in_the_summary(tmp_path):
    row = summary(make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=2))[0]
    assert row.figure("messages_per_s").interval == ""
    assert row.figure("messages_per_s").with_interval == row.figure("messages_per_s").text


def test_the_answer_names_the_fastest_contender_and_not_the_ceiling(tmp_path):
    lead, _, _ = said(make_run(tmp_path / "r", SERVERS, ONE_CELL, rounds=3))
    assert lead.startswith("netty has the highest throughput: 2")
    assert re.search(r"messages/s \([\d,]+–[\d,]+\); ws, the next, is \d+ % lower \(\d+–\d+ %\)\.$", lead)


def test_two_rounds_rank_nothing(tmp_path):
    lead, cells, _ = said(make_run(tmp_path / "r", SERVERS, ONE_CELL, rounds=2))
    assert re.match(r"Not ranked: 2 rounds of the 3 that are needed \(\d+ s\)\. By the mean alone netty leads: ", lead)
    assert {one.says for one in cells[0].standings} == {"baseline", "not ranked"}
    assert cells[0].leaders == ()


def test_the_only_server_with_a_mean_leads_nobody(tmp_path):
    run = make_run(
        tmp_path / "r", SERVERS[1:3], ONE_CELL, change=lambda trial, order: spoiled(trial) if order.server == "ws" else trial
    )
    lead, _, _ = said(run)
    assert re.match(r"Not ranked: not measured\. Only netty has a mean: 2", lead)


def test_no_variant_of_the_ceiling_contends(tmp_path):
    variants = [Server("reference", "Rust", rate, 6, protocol) for protocol, rate in (("tcp", 31_000), ("websocket", 30_000))]
    run = make_run(tmp_path / "r", (*variants, *SERVERS[1:]), ONE_CELL, rounds=3)
    assert said(run)[0].startswith("netty has the highest throughput: 2")
    results = load(run)
    made = page_data(results, summary(results))
    assert [server["label"] for server in made["servers"] if server["ceiling"]] == [
        "reference@tcp",
        "reference@websocket",
    ]
    assert {row.server for row in summary(results) if not row.against_reference_text} == {"reference@tcp"}


@pytest.mark.parametrize("seed", [1, 2, 8])
def test_the_ratio_to_the_reference_never_contradicts_the_tiers(tmp_path, seed):
    """Servers behind by 1 % each: alone, most ratios seem to differ from 1; together, few are shown to."""
    servers = [Server("reference", "Rust", 30_000), *(Server(f"s{at}", "C", 30_000 * (1 - 0.012 * at)) for at in range(1, 7))]
    results = load(make_run(tmp_path / "r", servers, ONE_CELL, rounds=5, seed=seed))
    rows = {row.name: row for row in summary(results)}
    ceiling = rows.pop(results.reference)
    seen = set()
    for row in rows.values():
        found = row.against_reference
        assert (found.one, found.other) == (row.name, results.reference)
        differs = not found.least <= 1 <= found.most
        assert differs == (not set(row.tier) & set(ceiling.tier)) or found.says == "equal"
        paired = stats.ratio(*(results.by_round(name, row.cell, results.leading) for name in (row.name, results.reference)))
        seen.add((differs, paired.high < 1))
    assert (False, True) in seen, "a ratio by itself would have contradicted"


def test_five_rounds_allow_an_order_where_the_difference_is_clear(tmp_path):
    _, cells, cannot = said(make_run(tmp_path / "r", SERVERS, ONE_CELL, rounds=5))
    found = {one.server: one for one in cells[0].standings}
    assert [found[name].says for name in ("reference", "netty", "ws")] == ["baseline", "best", "behind"]
    assert re.fullmatch(r"4\d % lower \(4\d–\d\d %\)", found["ws"].behind)
    assert (cells[0].clear, cells[0].leaders, cannot) == (True, ("netty",), "")


def test_servers_within_the_noise_are_not_put_in_an_order(tmp_path):
    alike = (Server("one", rate=20_000), Server("two", rate=20_050), Server("slow", rate=5_000))
    _, cells, _ = said(make_run(tmp_path / "r", alike, ONE_CELL, rounds=5))
    first, second, third = cells[0].standings
    assert {first.server, second.server} == {"one", "two"}
    assert second.says == "equal within 3 %" or "decides it in 8 of 10 cases" in second.behind
    assert third.says == "behind"


def test_where_nobody_leads_beyond_chance_the_answer_says_so_first(tmp_path):
    alike = tuple(Server(f"server-{place}", rate=20_000 + place) for place in range(5))
    two = ({"connections": 16}, {"connections": 64})
    lead, cells, _ = said(make_run(tmp_path / "r", (*alike, Server("slow", rate=2_000)), two, rounds=5))
    assert lead.startswith("Over all 2 cells, undecided: one of 5 servers may have the highest throughput; slow is behind")
    assert "; slow is behind." in lead
    for cell in cells:
        assert not cell.clear
        assert cell.sentence.startswith("undecided: ")
        assert sum(one.leads for one in cell.standings) == len(cell.leaders) >= 2


def test_another_best_in_one_cell_is_told_with_the_overall_answer(tmp_path):
    def slow_alone(trial, order):
        return replace(trial, rate=9_000) if (order.server, order.cell) == ("one", {"connections": 16}) else trial

    servers = (Server("one", rate=60_000), Server("two", rate=20_000))
    two = ({"connections": 16}, {"connections": 64})
    lead, _, _ = said(make_run(tmp_path / "r", servers, two, rounds=5, change=slow_alone))
    assert lead.startswith("Over all 2 cells, one has the highest throughput; two, the next, is ")
    assert lead.endswith("But by cell, the best: two clearly in connections 16.")


def test_who_may_be_the_best_and_could_not_be_compared_stops_the_claim(tmp_path):
    def mostly_failing(trial, order):
        return spoiled(trial) if order.server == "netty" and order.round > 2 else trial

    lead, cells, cannot = said(make_run(tmp_path / "r", SERVERS, ONE_CELL, rounds=4, change=mostly_failing))
    assert lead.startswith("Not ranked: netty may be the best and could not be compared (")
    assert {one.says for one in cells[0].standings} == {"baseline", "not ranked", "not compared"}
    assert re.search(r"Left out: 2 trials \(netty\): .+\. [A-Z]", cannot)


def test_suspect_trials_are_a_warning_only_where_the_answer_is_another_without_them(tmp_path):
    def one_faster(trial, order):
        fast = order.server == "netty" and order.round > 2
        return replace(trial, engine_busy=0.985, server_busy=0.7) if fast else trial

    same = answer_of(make_run(tmp_path / "same", SERVERS, ONE_CELL, rounds=8, change=late(one_faster, 6)))
    assert [text for text in same.aside if "without them the answer is the same" in text]
    other = answer_of(make_run(tmp_path / "other", SERVERS, ONE_CELL, rounds=4, change=one_faster))
    assert not other.aside
    assert [text for text in other.cannot if re.search(r"SUSPECT and counted; without them .+ \(netty\): .+", text)]


def late(change, first):
    return lambda trial, order: change(trial, order) if order.round > first else trial


def answer_of(run_folder):
    results = load(run_folder)
    return answer(results, summary(results))


def test_a_baseline_far_above_is_said_in_the_title_and_squashes_nothing(tmp_path):
    def drawn_with(rate, name):
        made = make_run(tmp_path / name, (Server("reference", "Rust", rate, 6), *SERVERS[1:]), rounds=3)
        return drawn(made)["throughput-0"]["y"]

    far, near = drawn_with(500_000, "far"), drawn_with(30_000, "near")
    assert re.search(r"; reference, beyond the scale: [\d,]+–[\d,]+$", far["title"])
    assert near["title"].endswith("; dashed: reference")
    assert far["domain"][1] < near["domain"][1] < 40_000


def test_one_server_has_nothing_to_be_compared_with(tmp_path):
    lead, _, _ = said(make_run(tmp_path / "r", SERVERS[1:2], ONE_CELL, rounds=5))
    assert re.fullmatch(r"netty: [\d,]+ messages/s \(.+\); there is no other server to compare with\.", lead)


def test_the_answer_says_what_it_does_not_know(run):
    lead, _, cannot = said(run)
    assert lead.startswith("Over all 3 cells not ranked: netty may be the best and could not be compared")
    assert lead.endswith("By cell, the best: netty clearly in 2 of 3 cells.")
    for text in (
        "unfinished: 2 trials of 36 not run",
        "Failed: 1 trial,",
        "Skipped and not compared: undertow@1.0",
    ):
        assert text in cannot


def test_a_campaign_without_any_number_says_so(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:2], ONE_CELL, rounds=1, change=lambda *_: failed())
    assert said(run)[0] == "No result: no VALID or SUSPECT trial has a number."
    assert "Failed trials" in document.build(run).read_text(encoding="utf-8")


def test_a_campaign_that_has_not_begun_has_a_report(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:2], ONE_CELL, rounds=1, unfinished=2)
    assert "2 trials of 2 not run" in document.build(run).read_text(encoding="utf-8")


def drawn(run_folder) -> dict[str, dict]:
    """The page's figures by their id, as the page's own script makes them."""
    results = load(run_folder)
    data = json.dumps(page_data(results, summary(results)))
    found = call("allFigures", data)
    return {figure["id"]: figure for figure in json.loads(found)}


def test_a_sweep_of_numbers_makes_small_multiples_and_of_words_bars(tmp_path, run, results):
    assert results.numeric_key == "connections"
    assert drawn(run)["throughput-0"]["kind"] == "panels"
    words_only = make_run(tmp_path / "r", SERVERS[:2], ({"opcode": "text"}, {"opcode": "binary"}), rounds=1)
    figures = drawn(words_only)
    assert [figures[f"throughput-{i}"]["panel"] for i in (0, 2)] == ["opcode binary", "opcode text"]
    assert figures["throughput-0"]["kind"] == "bars"


def test_a_swept_number_over_a_factor_of_ten_gets_a_logarithmic_axis(run, tmp_path):
    assert drawn(run)["throughput-0"]["x"]["log"] is True
    near = make_run(tmp_path / "r", SERVERS[:1], ({"connections": 10}, {"connections": 20}), rounds=1)
    assert drawn(near)["throughput-0"]["x"]["log"] is False


def test_figures_and_tables_say_the_same_as_the_metrics(run, results):
    figure = drawn(run)["percentiles-0"]
    assert figure["table"]["head"][1:4] == [
        "Median service time (ms)",
        "p90 service time (ms)",
        "p99 service time (ms)",
    ]
    found = results.estimate("netty@4.2", results.cells[0], "service_us_p99").mean
    assert next(row for row in figure["table"]["rows"] if row[0] == "netty")[3] == wording.number(found / 1000)
    assert all("–" not in row for row in figure["table"]["rows"])
    line = next(one for one in figure["series"] if one["name"] == "netty")
    assert line["points"][-1][1] == pytest.approx(max(value for _, value in line["points"]))


def test_the_distance_to_the_reference_is_that_of_the_decision(run):
    figure = drawn(run)["distance-0"]
    assert figure["marks"] == [100]
    assert [row["name"] for row in figure["rows"]] == ["netty", "ws", SERVERS[3].name]
    row = next(one for one in summary(run) if one.name == "netty@4.2" and one.against_reference is not None)
    assert figure["rows"][0]["mean"] == pytest.approx(100 * row.against_reference.ratio, rel=1e-4)


def test_curves_series_and_heat_maps_have_no_more_points_than_can_be_seen(tmp_path):
    long = make_run(
        tmp_path / "r",
        SERVERS[:1],
        ONE_CELL,
        rounds=1,
        change=lambda trial, _: replace(trial, window_s=1500.0, sample_s=5),
    )
    results = load(long)
    (line,) = timelines(results.folder, results.data.numbers).values()
    assert (line.width_s, line.buckets) == (2, 751), "of 1 s there would be 1,501"
    assert 100 < len(line.heat.columns) <= 300
    rows = [row for column in line.heat.columns for row, _ in column]
    assert max(rows) - min(rows) < 60
    assert all(len(curve.points) <= 100 for curve in results.curves.values())
    assert sum(count for column in line.heat.columns for _, count in column) > 0


def test_over_time_a_series_that_does_not_exist_is_absent_with_its_reason(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=1)
    (run.path / "0001" / "resources.jsonl").write_text("")
    (run.path / "0001" / "latency.hlog").unlink()
    results = load(run)
    (line,) = timelines(results.folder, results.data.numbers).values()
    assert line.absent["cpu"] == line.absent["rss"] == "the server was not sampled"
    assert line.absent["p99"] == "no latency was recorded"
    assert line.heat is None
    assert line.series["rate"]


def test_over_time_the_rate_adds_up_to_the_messages_that_were_answered(run, results):
    trial = next(trial for trial in results.trials if trial.record.outcome == "ok")
    (line,) = timelines(run, [trial.record.number]).values()
    ticks = [json.loads(text) for text in (run.path / f"{trial.record.number:04}" / "events.jsonl").open()]
    answered = max(event["answered"] for event in ticks if event["event"] == "tick")
    end = max(event["t_ns"] for event in ticks if event["event"] == "tick") - ticks[0]["t_ns"]
    lengths = [min(line.width_s, end / 1e9 - place * line.width_s) for place in range(line.buckets)]
    assert sum(rate * s for rate, s in zip(line.series["rate"], lengths, strict=True)) == pytest.approx(answered, rel=1e-3)


def test_memory_per_connection_is_a_slope_with_an_interval_where_connections_are_swept(results, tmp_path):
    fit = next(fit for fit in memory_fits(results) if fit.name == "netty@4.2")
    assert fit.low <= fit.slope <= fit.high
    assert fit.slope == pytest.approx(0.03 * 2**20, rel=0.02)
    two = load(make_run(tmp_path / "r", SERVERS[:1], ({"connections": 10}, {"connections": 20}), rounds=3))
    assert "3 and 4 are needed" in memory_fits(two)[0].reason
    assert memory_fits(load(make_run(tmp_path / "s", SERVERS[:1], ONE_CELL, rounds=3))) == []


def test_the_pooled_histogram_of_the_page_is_that_of_the_trials(results):
    for curve in results.curves.values():
        assert decode(curve.log).count == curve.count


def test_a_histogram_that_was_written_is_read_as_it_was_by_us_and_by_the_library(results):
    for found in (results.pooled(*key) for key in results.curves):
        again, theirs = decode(encode(found)), HdrHistogram.decode(encode(found).encode())
        assert np.array_equal(again.counts, found.counts)
        assert theirs.get_total_count() == found.count
        assert theirs.get_value_at_percentile(50) == found.quantile(0.5)


def test_ten_thousand_numbers_are_shortened_as_one_is():
    values = [None, 0, 0.0, 5, 123_456_789, 0.000123456789, 17_213.456789, -2.5, 1e12 + 0.5, 99_999.96]
    assert _all_short(values)[0] is None
    assert _all_short(values)[1:] == pytest.approx([short(value) for value in values[1:]], rel=1e-12)


def test_many_trials_are_read_by_several_processes_with_the_same_result(run, results, monkeypatch):
    monkeypatch.setattr("wsbench.analysis.measuring.WORTH_PROCESSES", 1)
    assert load(run).trials == results.trials


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (17213.4, "17,200"),
        (0.0123456, "0.0123"),
        (9.996, "10.0"),
        (999.6, "1,000"),
        (0, "0"),
        (None, "–"),
        (577, "577"),
        (1_234_567, "1,230,000"),
        (95.0, "95.0"),
        (1.0, "1.00"),
    ],
)
def test_numbers_keep_three_digits_in_the_terminal_and_on_the_page(value, text):
    assert wording.number(value) == text
    assert call("number", value, 3, isinstance(value, int)) == text


def test_a_column_takes_the_unit_of_its_typical_value():
    assert wording.scale("µs", [300, 900]).with_unit(450) == "450 µs"
    assert wording.scale("µs", [300, 90_000]).with_unit(2_500) == "2.50 ms"
    assert wording.scale("bytes", [80 << 20]).with_unit(80 << 20) == "80.0 MiB"
    assert wording.scale("messages/s", [5.0]).unit == "messages/s"


def crowded(marks: int) -> dict:
    """A figure of two servers with so many trials, every tenth INVALID, every seventh SUSPECT."""
    look = {"colour": "#123456", "dash": [1, 0], "shape": "circle"}
    kind = [2 if place % 10 == 0 else 1 if place % 7 == 0 else 0 for place in range(marks)]
    of = [[[place % 5, place, kind[place], place + 1] for place in range(marks) if place % 2 == half] for half in (0, 1)]
    series = [{"name": str(half), "server": half, "look": look, "points": [], "dots": of[half]} for half in (0, 1)]
    axes = {axis: {"domain": [0, size], "ticks": [0], "log": False} for axis, size in (("x", 5), ("y", marks))}
    return {"kind": "lines", "title": "t", "label": "l", "series": series, "height": 20 * marks, **axes}


def test_the_marks_of_many_trials_are_points_of_a_path_and_those_of_few_are_elements():
    few, many = (str(call("drawing", crowded(marks), 540)) for marks in (60, 600))
    assert few.count("<use") == 60
    assert "crowd" not in few
    assert many.count("<use") == 60
    assert many.count('class="hollow"') == 60
    assert many.count("h0") == 600 - 60
    assert many.count('<path class="crowd pale"') == many.count('<path class="crowd"') == 2
    assert len(many) < 3 * len(few)


def test_a_trial_in_a_crowd_is_found_by_its_place():
    figure = crowded(600)
    geometry = call("lineGeometry", figure, 540)
    y = geometry["bottom"] - (geometry["bottom"] - geometry["top"]) * 41 / 600
    x = geometry["left"] + (geometry["right"] - geometry["left"]) / 5
    assert call("trialAt", figure, 540, x + 2, y - 3, also=("pointer",)) == 42
    assert call("trialAt", figure, 540, x + 40, y, also=("pointer",)) is None

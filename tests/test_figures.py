"""The figures of an experiment: drawn from a synthetic campaign, with what was published beside them and nothing made up."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from run_maker import EXPERIMENT, HOSTILE, Server, make_run

from wsbench.analysis.reading import load
from wsbench.analysis.summary import summary
from wsbench.engine.histogram import Histogram
from wsbench.experiments import experiment
from wsbench.records.engine_files import Stage
from wsbench.records.errors import UserError
from wsbench.report import document, figure_time, figures
from wsbench.report.data import page_data
from wsbench.report.still import studies


def with_figures(tables: str) -> str:
    return EXPERIMENT + tables


def blocks_of(tmp_path, tables: str, **options):
    return figures.blocks(load(make_run(tmp_path / "run", experiment=with_figures(tables), **options)))


def drawn(block) -> str:
    (svg,) = studies([block.figure])
    return str(svg)


LINES = '[[figure]]\ntitle = "Figure 2"\nkind = "lines"\nmetrics = ["messages_per_s", "service_us_p99"]\n'
PUBLISHED = '[figure.published]\nsource = "page 3"\nhead = ["server", "rate"]\nrows = [["Netty", "nearly 25,000"]]\n'


def test_a_metric_over_the_swept_number_is_a_drawing_and_its_numbers(tmp_path):
    rate, p99, published = blocks_of(tmp_path, LINES + PUBLISHED)
    assert rate.title == "Figure 2, throughput"
    assert p99.title == "Figure 2, p99 service time"
    assert rate.table.head == ["server", "connections 16", "connections 64", "connections 256"]
    assert len(rate.table.rows) == 4
    assert "<svg" in drawn(rate)
    assert (published.figure, published.table.rows) == (None, [["Netty", "nearly 25,000"]])
    assert published.title == "Figure 2: as published"
    assert published.text == "page 3"


def test_a_name_that_is_no_markup_stays_a_name(tmp_path):
    svg = drawn(blocks_of(tmp_path, LINES)[0])
    assert HOSTILE not in svg
    assert "o\"quote's & <b>" not in svg


def test_a_server_has_the_colour_that_it_has_in_the_pages_own_charts(tmp_path):
    alike = (Server("netty", "Java"), Server("jetty", "Java"))
    results = load(make_run(tmp_path / "run", alike, experiment=with_figures(LINES)))
    colours = {row["look"]["colour"] for row in page_data(results, summary(results))["servers"]}
    assert len(colours) == 2
    svg = drawn(figures.blocks(results)[0])
    assert all(f'stroke="{colour}"' in svg for colour in colours)


def test_places_are_rounded_and_names_are_not(tmp_path):
    versions = (Server("netty", "Java", variant="4.1.19"), Server("netty", "Java", 9_000, variant="4.1.118"))
    svg = drawn(blocks_of(tmp_path, LINES, servers=versions)[0])
    for name in ("netty@4.1.19", "netty@4.1.118"):
        assert f">{name}</text>" in svg
    places = re.findall(r' (?:d|transform)="([^"]*)"', svg)
    assert len(places) > 10
    assert not [place for place in places if re.search(r"\.\d\d", place)]


def test_bars_are_a_panel_a_cell_and_a_table_has_all_metrics_side_by_side(tmp_path):
    tables = '[[figure]]\ntitle = "CPU"\nkind = "bars"\nmetrics = ["server_cpu_percent_mean"]\n'
    tables += '[[figure]]\ntitle = "All"\nkind = "table"\nmetrics = ["messages_per_s", "errors"]\n'
    *bars, table = blocks_of(tmp_path, tables)
    assert [one.title for one in bars] == [f"CPU, connections {n}" for n in (16, 64, 256)]
    assert table.table.head[:2] == ["server", "cell"]
    assert {row[-1] for row in table.table.rows} == {"0"}, "no errors is 0, not a dash"


def test_memory_of_a_connection_is_the_slope_of_the_line_with_its_interval(tmp_path):
    fit = '[[figure]]\ntitle = "Memory"\nkind = "fit"\nmetrics = ["server_rss_bytes_max"]\nover = "connections"\n'
    (made,) = blocks_of(tmp_path, fit, cells=[{"connections": n} for n in (16, 64, 256, 1024)])
    assert made.table.head[1] == "for each connection"
    for row in made.table.rows:
        slope = float(row[1].partition(" ")[0].replace(",", ""))
        assert slope == pytest.approx(0.03 * 2**20, rel=0.01), "what the maker gives to each"
        low, high = (float(one.replace(",", "")) for one in row[2].split(" to "))
        assert low <= slope <= high


def test_two_sizes_are_no_line(tmp_path):
    fit = '[[figure]]\ntitle = "Memory"\nkind = "fit"\nmetrics = ["server_rss_bytes_max"]\nover = "connections"\n'
    (made,) = blocks_of(tmp_path, fit, cells=[{"connections": n} for n in (16, 64)])
    assert all(row[1:3] == ["–", "no line: 2 sizes, 3 are needed"] for row in made.table.rows)


def test_percentiles_are_those_of_the_histograms_in_milliseconds(tmp_path):
    tables = '[[figure]]\ntitle = "Latency"\nkind = "percentiles"\ntag = "service"\n'
    run = make_run(tmp_path / "run", cells=({"connections": 16},), rounds=1, experiment=with_figures(tables))
    results = load(run)
    (made,) = figures.blocks(results)
    assert made.table.head[1:6] == ["count", "min", "max", "mean", "stddev"]
    trial = next(one for one in results.trials if one.record.server == "netty")
    row = dict(zip(made.table.head, next(row for row in made.table.rows if row[0] == "netty"), strict=True))
    assert float(row["median"]) == pytest.approx(trial.values["service_us_p50"] / 1e3, rel=0.01)
    assert float(row["99 %"]) == pytest.approx(trial.values["service_us_p99"] / 1e3, rel=0.01)


def test_the_deviation_of_a_histogram_is_that_of_its_values():
    counts = np.zeros(2048, dtype=np.int64)
    counts[[100, 200, 300]] = [1, 2, 1]
    texts = figures._spread(Histogram(1, 3_600_000_000_000, 3, counts))
    assert texts[0] == "4"
    assert float(texts[4]) == pytest.approx(math.sqrt(5000) / 1e6, rel=0.01)


def test_what_has_no_number_says_so_and_draws_nothing(tmp_path):
    tables = '[[figure]]\ntitle = "Heap"\nkind = "lines"\nmetrics = ["heap_used_bytes_max"]\n'
    (made,) = blocks_of(tmp_path, tables)
    assert (made.figure, made.table) == (None, None)
    assert "No trial has a number for it" in made.text


def test_a_figure_of_an_unknown_metric_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="figure 'Figure 2': unknown metric 'moons'"):
        blocks_of(tmp_path, LINES.replace("messages_per_s", "moons"))


# ---- over time -----------------------------------------------------------------------------------------------------


STAGES = [
    Stage(to=50, over_s=0, chunk=50),
    Stage(to=50, over_s=60),
    Stage(to=250, over_s=1, chunk=100),
    Stage(to=0, over_s=10),
]


def corners(stages):
    class Plan:
        connections = 0

    Plan.stages = stages
    return figure_time.asked_for(Plan)


def test_the_users_asked_for_follow_the_stages_chunks_as_steps():
    made = corners(STAGES)
    assert made[-1] == (71.0, 0.0)
    assert figure_time.wanted(made, 30) == 50
    assert figure_time.wanted(made, 66) == pytest.approx(125), "half way down, one by one"
    assert [y for x, y in made if x == pytest.approx(60.5)] == [50, 150]


def test_a_trend_follows_the_points_and_not_a_single_peak():
    times = [(float(s), 10 + 0.5 * math.sin(7.0 * s) + (500 if s == 50 else 0), 600.0) for s in range(100)]
    found = figure_time.trend(times)
    assert len(found) == 100
    assert all(abs(y - 10) < 1 for _, y in found)
    assert figure_time.trend(times[:5]) == []


def test_users_and_response_times_are_drawn_second_by_second(tmp_path):
    tables = '[[figure]]\ntitle = "Over the run"\nkind = "time"\n'

    def longer(trial, order):
        return replace(trial, window_s=12.0, rate=2000.0)

    run = make_run(tmp_path / "run", cells=({"connections": 16},), rounds=1, experiment=with_figures(tables), change=longer)
    users, times = figures.blocks(document.with_timelines(load(run)))
    assert users.title == "Over the run: users"
    assert len(times.table.rows) == 4
    assert float(times.table.rows[0][1]) > 0
    assert all(len(one["dots"]) >= 11 for one in times.figure["series"])
    assert drawn(times).count("<path") > 4


@pytest.mark.parametrize("name", ["hoticn-2018-concurrency", "c1000k-2015", "jvm-echo-2023-easy", "tcp-vs-websocket-2013"])
def test_the_studies_figures_are_on_the_page_with_what_they_printed(tmp_path, name):
    run = make_run(tmp_path / "run", experiment=experiment.path_of(name).read_text())
    page = document.build(run).read_text()
    asked = figures.asked_of(load(run))
    for figure in asked:
        assert figure.title.replace("'", "&#39;") in page
        for row in figure.published.rows if figure.published else []:
            assert all(text.replace("'", "&#39;") in page for text in row)

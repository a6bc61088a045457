"""The report as data: the long table, the summary, the answer in words, and the page's text."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest
from run_maker import HOSTILE, SERVERS, Server, failed, make_run, spoiled

from wsbench import metrics, report
from wsbench.errors import UserError
from wsbench.report import charts, page, palette, words
from wsbench.report.answer import answer
from wsbench.report.results import load

ONE_CELL = ({"connections": 64},)
NO_SWEEP = 'question = "Who is fastest?"\n'


def spoil_some(trial, order):
    """Trial 5 fails, trial 9 is INVALID, and the engine limits the reference at 256 connections."""
    if order.number == 5:
        return failed()
    if order.number == 9:
        return spoiled(trial)
    if order.server == "reference" and order.cell["connections"] == 256:
        return replace(trial, engine_busy=0.985, server_busy=0.7)
    return trial


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    servers = (*SERVERS, Server("undertow", "Java", skipped="needs java ≥ 17, found none"))
    return make_run(tmp_path_factory.mktemp("runs") / "spoiled", servers, change=spoil_some, unfinished=2)


@pytest.fixture(scope="module")
def results(run):
    return load(run)


@pytest.fixture(scope="module")
def html(run):
    return report.build(run).read_text(encoding="utf-8")


def said(run_folder) -> tuple[str, list, str]:
    results = load(run_folder)
    found = answer(results, report.summary(results))
    return found.lead, found.cells, "\n".join(found.cannot)


def test_the_table_has_a_row_for_every_finished_trial_and_metric(run, results):
    table = pq.read_table(report.write_table(run))
    assert table.num_rows == 34 * len(metrics.METRICS)
    assert table.column_names[:5] == ["trial", "round", "server", "variant", "cell.connections"]
    assert str(table.schema.field("cell.connections").type) == "int64"
    rows = table.to_pylist()
    assert {row["unit"] for row in rows if row["metric"] == "messages_per_s"} == {"messages/s"}
    assert all(row["value"] is None for row in rows if row["trial"] == 5 and row["metric"] != "ready_s")
    assert {row["verdict"] for row in rows if row["trial"] == 9} == {"INVALID"}


def test_cell_values_of_mixed_kinds_become_text(tmp_path):
    run = make_run(
        tmp_path / "r", SERVERS[:1], cells=({"opcode": "text", "x": 1}, {"opcode": "binary", "x": "a"}), rounds=1
    )
    rows = report.trials_table(load(run)).to_pylist()
    assert {(row["cell.opcode"], row["cell.x"]) for row in rows} == {("text", "1"), ("binary", "a")}


def test_the_summary_has_a_row_for_every_server_and_cell_by_throughput(run):
    rows = report.summary(run)
    assert len(rows) == 4 * 3
    assert [row.server for row in rows[:4]] == ["reference", "netty", "ws", SERVERS[3].name]
    assert [row.cell_text for row in rows[::4]] == ["connections 16", "connections 64", "connections 256"]


def test_invalid_and_failed_trials_are_counted_and_take_no_part_in_a_mean(results):
    rows = report.summary(results)
    assert sum(row.verdicts["INVALID"] for row in rows) == 1
    assert sum(row.failed for row in rows) == 1
    assert sum(row.missing for row in rows) == 2
    spoiled_trial = next(trial for trial in results.trials if trial.record.number == 9)
    row = next(r for r in rows if r.name == spoiled_trial.record.name and r.cell == spoiled_trial.cell)
    assert spoiled_trial.values["messages_per_s"] not in row.figure("messages_per_s").estimate.values


def test_two_repeats_have_no_interval_in_the_summary(tmp_path):
    row = report.summary(make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=2))[0]
    assert row.figure("messages_per_s").interval == ""
    assert row.figure("messages_per_s").with_interval == row.figure("messages_per_s").text


def test_the_answer_names_the_fastest_contender_and_not_the_ceiling(tmp_path):
    lead, cells, cannot = said(make_run(tmp_path / "r", SERVERS, ONE_CELL, rounds=3))
    assert lead.startswith("netty had the highest throughput, the reference aside: 2")
    assert "95 % interval" in lead
    assert "not ranked" in cells[0].comparison
    assert "not enough rounds to rank: 3 of 5" in cannot


def test_five_rounds_allow_an_order_where_the_difference_is_clear(tmp_path):
    _, cells, cannot = said(make_run(tmp_path / "r", SERVERS, ONE_CELL, rounds=5))
    assert re.fullmatch(r"1\.8\d× \(1\.\d+–\d\.\d+\) that of ws", cells[0].comparison)
    assert "rank" not in cannot


def test_servers_within_the_noise_are_not_put_in_an_order(tmp_path):
    alike = (Server("one", rate=20_000), Server("two", rate=20_050), Server("slow", rate=5_000))
    _, cells, _ = said(make_run(tmp_path / "r", alike, ONE_CELL, rounds=5))
    assert re.fullmatch(r"cannot be told from (one|two)", cells[0].comparison)


def test_the_answer_says_what_it_does_not_know(run):
    lead, _, cannot = said(run)
    assert lead == "netty had the highest throughput in all 3 cells, the reference aside."
    for text in (
        "unfinished: 2 trials of 36 not run",
        "The engine, not the server, was the limit for reference (connections 256)",
        "INVALID: 1 trial,",
        "Failed: 1 trial,",
        "Skipped, and so not compared: undertow@1.0",
    ):
        assert text in cannot


def test_a_campaign_without_any_number_says_so(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:2], ONE_CELL, rounds=1, change=lambda *_: failed())
    assert said(run)[0] == "Nothing was measured: no trial has a number that may be shown."
    assert "Failed trials" in report.build(run).read_text(encoding="utf-8")


def test_a_campaign_that_has_not_begun_has_a_report(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:2], ONE_CELL, rounds=1, unfinished=2)
    assert "2 trials of 2 not run" in report.build(run).read_text(encoding="utf-8")


def test_a_sweep_of_numbers_makes_lines_and_of_words_makes_panels(tmp_path, results):
    assert results.numeric_key == "connections"
    assert len(charts.metric_charts(results, "messages_per_s")) == 1
    words_only = load(make_run(tmp_path / "r", SERVERS[:2], ({"opcode": "text"}, {"opcode": "binary"}), rounds=1))
    drawn = charts.metric_charts(words_only, "messages_per_s")
    assert [chart.cell_text for chart in drawn] == ["opcode binary", "opcode text"]
    assert drawn[0].table.head[0] == "server"


def test_a_swept_number_over_a_factor_of_ten_gets_a_logarithmic_axis(results, tmp_path):
    scale = charts.metric_charts(results, "messages_per_s")[0].spec["layer"][0]["encoding"]["x"]["scale"]
    assert scale["type"] == "log"
    near = load(make_run(tmp_path / "r", SERVERS[:1], ({"connections": 10}, {"connections": 20}), rounds=1))
    assert "type" not in charts.metric_charts(near, "messages_per_s")[0].spec["layer"][0]["encoding"]["x"]["scale"]


def test_a_server_has_one_colour_in_every_chart(results):
    drawn = [*charts.metric_charts(results, "messages_per_s"), *charts.curve_charts(results)]
    scales = {str(chart.spec["layer"][0]["encoding"]["color"]["scale"]) for chart in drawn}
    assert len(scales) == 1


def test_curves_and_tables_say_the_same_as_the_metrics(results):
    chart = charts.curve_charts(results)[0]
    assert chart.table.head == ["server", "median (ms)", "p90 (ms)", "p99 (ms)", "p99.9 (ms)", "longest (ms)"]
    found = results.estimate("netty@4.2", chart_cell(results), "service_us_p99").mean
    assert next(row for row in chart.table.rows if row[0] == "netty")[3] == words.number(found / 1000)


def chart_cell(results):
    return results.cells[0]


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
def test_numbers_keep_three_digits(value, text):
    assert words.number(value) == text


def test_a_column_takes_the_unit_of_its_typical_value():
    assert words.scale("µs", [300, 900]).with_unit(450) == "450 µs"
    assert words.scale("µs", [300, 90_000]).with_unit(2_500) == "2.50 ms"
    assert words.scale("bytes", [80 << 20]).with_unit(80 << 20) == "80.0 MiB"
    assert words.scale("messages/s", [5.0]).unit == "messages/s"


class Outline(HTMLParser):
    """Collects the elements of a page."""

    def __init__(self):
        super().__init__()
        self.elements = []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def test_hostile_text_is_text_and_adds_no_element(html):
    assert HOSTILE not in html
    assert "&lt;script&gt;document.title=" in html
    outline = Outline()
    outline.feed(html)
    kinds = [attributes.get("type") for tag, attributes in outline.elements if tag == "script"]
    assert len([kind for kind in kinds if kind is None]) == 2
    assert not [tag for tag, _ in outline.elements if tag == "b"]


def test_hostile_keys_commands_and_questions_are_text_as_well(tmp_path):
    hostile = '"><img src=x onerror=alert(1)></script>'
    run = make_run(
        tmp_path / "r",
        (Server(hostile, language=hostile, departures=(hostile,)),),
        ({"key": hostile}, {"key": "b"}),
        rounds=1,
        experiment=f"question = '{hostile}'\nreading = '{hostile}'\n",
    )
    text = report.build(run).read_text(encoding="utf-8")
    outline = Outline()
    outline.feed(text)
    assert not [tag for tag, _ in outline.elements if tag == "img"]
    assert not [name for _, attributes in outline.elements for name in attributes if name.startswith("on")]


def test_the_page_refers_to_nothing_outside_of_itself(html):
    outline = Outline()
    outline.feed(html)
    assert not [a for tag, a in outline.elements if tag in ("link", "iframe", "object", "base", "img")]
    assert not [a["src"] for _, a in outline.elements if "src" in a]
    policy = next(a["content"] for tag, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_the_page_says_how_it_was_made(html):
    for text in ("wsbench run echo-connections --seed 7", "Fictional CPU", "net.core.somaxconn", "java not found"):
        assert text in html
    assert "needs java ≥ 17, found none" in html
    assert "advisory, failed:" in html


def test_what_ran_otherwise_than_its_file_says_is_named_at_the_top(tmp_path, html):
    departures = ("2 rounds instead of the experiment's 5",)
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=2, departures=departures)
    page_text = report.build(run).read_text(encoding="utf-8")
    header = page_text.split("<main>")[0]
    assert "2 rounds</li>" in header
    assert "Departures from the experiment: 2 rounds instead of the experiment&#39;s 5." in header
    assert "Departures from the experiment" not in html
    assert "none: it ran as its file says" in html


def test_every_chart_has_its_numbers_as_a_table(html):
    figures = html.split('<figure class="chart"')[1:]
    assert len(figures) >= 8
    assert all("<table>" in figure.split("</figure>")[0] for figure in figures)
    assert all("<svg " in figure.split("</figure>")[0] for figure in figures)


def test_drawings_share_no_identifier(html):
    names = re.findall(r'\bid="([^"]+)"', html)
    assert len(names) == len(set(names))


def test_a_campaign_of_a_thousand_trials_is_a_page_that_opens(tmp_path):
    languages = ("Java", "Rust", "Go", "C", "JavaScript", "Python", "C++", "Elixir", "PHP")
    crowd = tuple(Server(f"server-{place}", languages[place % 9], 900 * (place + 1)) for place in range(40))
    cells = tuple({"connections": connections} for connections in (10, 40, 160, 640, 2560))
    run = make_run(tmp_path / "r", crowd, cells, rounds=5)
    assert len(run.order) == 1000
    assert report.build(run).stat().st_size < page.LARGEST_BYTES


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def schemes() -> list[dict[str, str]]:
    """The colours of the page's style, light and dark."""
    style = (page.HERE / "page.css").read_text(encoding="utf-8")
    return [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})\b", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.S)[:2]
    ]


def test_marks_are_told_from_the_card_and_texts_are_read_in_both_schemes():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for scheme in schemes():
        for colour in (colour for shades in palette.HUES for colour in shades):
            assert contrast(colour, scheme["card"]) >= 3, colour
        for text in ("ink", "soft", "accent", "valid", "suspect", "invalid"):
            assert min(contrast(scheme[text], scheme[ground]) for ground in ("page", "card")) >= 4.5, text


@pytest.mark.parametrize(
    "families",
    [["Java"] * 40, ["a", "b"] * 20, [f"language {place % 11}" for place in range(40)], list("abcdefghij") * 4],
)
def test_forty_servers_look_different_and_a_language_keeps_its_hue(families):
    found = palette.looks(families)
    assert len(set(found)) == 40
    hues = {}
    for family, look in zip(families, found, strict=True):
        hues.setdefault(family, set()).add(
            next(place for place, shades in enumerate(palette.HUES) if look.colour in shades)
        )
    assert all(len(used) == 1 for used in hues.values())


def test_eight_servers_of_a_language_have_eight_shapes():
    assert len({look.shape for look in palette.looks(["Java"] * 8)}) == 8


def test_the_same_run_makes_the_same_page(run, html):
    assert report.build(run).read_text(encoding="utf-8") == html


def test_a_broken_experiment_file_is_one_plain_line(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=1, experiment="question = [")
    with pytest.raises(UserError, match=r"experiment\.toml"):
        load(run)


def test_an_unknown_headline_is_an_error_and_not_another_metric(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=1, experiment='headline = "speed"\n')
    with pytest.raises(UserError, match="headline"):
        load(run)


def test_a_report_needs_neither_machine_nor_servers_file(tmp_path):
    run = make_run(tmp_path / "r", SERVERS[:1], ONE_CELL, rounds=1, experiment=NO_SWEEP)
    (run.path / "machine.json").unlink()
    (run.path / "servers.json").unlink()
    (run.path / "experiment.toml").unlink()
    assert "echo-connections" in report.build(run).read_text(encoding="utf-8")

"""What the answer is about where the load is given: the headline, memory for so many connections, and columns without a number."""

import random
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from run_maker import SERVERS, make_run, pushing

from wsbench.analysis.memory import METRIC, _fit
from wsbench.analysis.reading import load
from wsbench.analysis.summary import columns, left_out, summary
from wsbench.records.engine_files import Closed, GaussianThink, Idle, NoLoop
from wsbench.report import document
from wsbench.report.answer import answer
from wsbench.report.need import need

BROADCAST = 'question = "How long until the last has it?"\nheadline = "push_last_us_p50"\n'
IDLE = """
question = "How much memory does an idle connection cost?"
headline = "server_rss_bytes_max"
[sweep]
connections = [1000, 10000]
"""
ROOMS = 'question = "Which brings the most?"\nheadline = "pushes_per_s"\n'
FEW = tuple({"connections": number} for number in (20, 50, 100, 200))


def pushed(trial, order):
    last_us = {"reference": 200, "netty": 300, "ws": 900}.get(order.server, 400)
    return pushing(connections=trial.connections, broadcasts=((64, 64, 100, last_us + order.number % 3),) * 40)


def held(trial, order):
    """Connections of which nothing is asked."""
    rss_mib = trial.rss_mib + random.Random(order.number).gauss(0, 0.02)
    return replace(trial, scenario=Idle(), loop=NoLoop(), rate=1e-9, server_busy=0.01, engine_busy=0.01, rss_mib=rss_mib)


@pytest.fixture(scope="module")
def broadcasts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "push"
    return load(make_run(folder, SERVERS, ({"connections": 64},), rounds=5, change=pushed, experiment=BROADCAST))


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    return load(make_run(tmp_path_factory.mktemp("runs") / "idle", SERVERS, FEW, rounds=3, change=held, experiment=IDLE))


def test_in_an_open_loop_the_answer_is_the_headline_and_the_lowest_is_the_best(broadcasts):
    rows = summary(broadcasts)
    assert broadcasts.leading == "push_last_us_p50"
    assert [row.server for row in rows] == ["reference", "netty", SERVERS[3].name, "ws"]
    found = answer(broadcasts, rows)
    assert found.lead.startswith("netty has the lowest median time to the last receiver: 30")
    assert f"{SERVERS[3].name}, the next, is 33 % higher (33–34 %)." in found.lead
    assert "≥" not in found.cells[0].standings[0].value


def test_a_column_without_any_number_is_left_out_with_its_reason_once(broadcasts):
    assert not [name for name in columns(broadcasts) if name.startswith("service")]
    assert {"push_us_p50", "push_us_p99"} <= set(columns(broadcasts))
    for folder in broadcasts.folder.path.glob("[0-9]*"):
        (folder / "resources.jsonl").write_text("")
    without = load(broadcasts.folder)
    assert left_out(without)["server_rss_bytes_max"].startswith("the server was not sampled")
    html = document.build(without.folder).read_text(encoding="utf-8")
    assert html.count("Server memory (the server was not sampled: its process is unknown)") == 1
    assert '<th scope="col">Server memory' not in html.split('id="result-tables"')[1].split("</table>")[0]


def test_a_closed_loop_is_answered_by_its_throughput_whatever_the_headline(tmp_path):
    results = load(make_run(tmp_path / "r", SERVERS[:2], ({"connections": 64},), rounds=3))
    assert (results.headline, results.leading) == ("service_us_p99", "messages_per_s")
    assert left_out(results) == {}


def test_rooms_are_answered_by_what_reaches_the_members(tmp_path):
    def copied(trial, order):
        return replace(trial, copies=(90_000 if order.server == "netty" else 50_000,) * 2 + (0,))

    results = load(make_run(tmp_path / "r", SERVERS[:2], FEW[:1], rounds=5, change=copied, experiment=ROOMS))
    assert results.leading == "pushes_per_s"
    found = answer(results, summary(results))
    assert (found.best, found.lead.split(" (")[0]) == ("highest delivery rate", "netty: 22,500 messages/s")


def test_users_who_pause_are_answered_by_the_headline(tmp_path):
    def pausing(trial, order):
        return replace(trial, loop=Closed(think=GaussianThink(mean_s=5, deviation_s=2)))

    results = load(make_run(tmp_path / "r", SERVERS[:2], ({"connections": 64},), rounds=3, change=pausing))
    assert results.leading == "service_us_p99"


def test_a_campaign_without_numbers_keeps_what_its_answer_is_about(tmp_path):
    results = load(make_run(tmp_path / "r", SERVERS[:1], ({"connections": 64},), rounds=1, unfinished=1))
    assert columns(results) == ["messages_per_s"]


def test_memory_is_answered_for_the_connections_of_the_file_and_called_extrapolated(idle):
    rows = summary(idle)
    found = answer(idle, rows)
    name = SERVERS[3].name
    assert found.lead.startswith(f"For 10,000 connections, {name} needs the least memory, excluding the reference: 3")
    assert "95 % interval" in found.lead
    assert "KiB per connection" in found.lead
    assert ", extrapolated from 20 to 200" in found.lead
    assert "10,000 connections were not measured: the line is extrapolated from 200, 50.0 times fewer." in found.cannot[0]
    assert [row[0] for row in found.need.table.rows] == ["reference", name, "ws", "netty"]
    html = document.build(idle.folder).read_text(encoding="utf-8")
    assert html.index("needs the least memory") < html.index("Memory for 10,000 connections") < html.index('id="results"')


def test_the_interval_far_from_what_was_measured_holds_the_truth_as_often_as_it_says():
    draw, held_it, tries = random.Random(11), 0, 400
    for _ in range(tries):
        trials = [
            SimpleNamespace(
                plan=SimpleNamespace(connections=size),
                value={METRIC: 5e6 + 2000 * size + draw.gauss(0, 1e5)}.__getitem__,
            )
            for size in (20, 50, 100, 200) * 3
        ]
        fit = _fit(SimpleNamespace(cells=[()], counted=lambda *_, found=trials: found), "x", 10_000)
        held_it += fit.there_low <= 5e6 + 2000 * 10_000 <= fit.there_high
    assert 0.92 <= held_it / tries <= 0.98


def test_what_was_measured_is_not_called_extrapolated(tmp_path):
    asked = IDLE.replace("[1000, 10000]", "[20, 200]")
    results = load(make_run(tmp_path / "r", SERVERS[:2], FEW, rounds=3, change=held, experiment=asked))
    found = need(results)
    assert "extrapolated" not in found.lead + found.title
    assert found.lead.startswith("For 200 connections, netty needs the least memory, excluding the reference")
    assert found.cannot == []


def test_two_sizes_have_no_line_and_the_answer_is_by_cell(tmp_path):
    results = load(make_run(tmp_path / "r", SERVERS[:2], FEW[:2], rounds=3, change=held, experiment=IDLE))
    assert need(results) is None
    assert re.fullmatch(
        r"netty: connections 20 2\d\d MiB to connections 50 2\d\d MiB; there is no other server to compare with\.",
        answer(results, summary(results)).lead,
    )


def test_a_trial_that_asks_for_nothing_is_a_trial(idle):
    assert {trial.verdict.kind for trial in idle.trials} <= {"VALID", "SUSPECT"}


def test_who_has_exactly_as_much_leads_together(tmp_path):
    experiment = BROADCAST.replace("push_last_us_p50", "connections_reached")
    run = make_run(tmp_path / "run", SERVERS, ({"connections": 64},), rounds=1, change=pushed, experiment=experiment)
    results = load(run)
    found = answer(results, summary(results))
    assert results.leading == "connections_reached"
    assert all(server.name in found.lead for server in SERVERS if server.name != "reference")
    assert found.cells[0].leaders == ()


def test_without_a_usable_headline_the_first_comparison_of_the_experiment_leads(tmp_path):
    def silent(trial, order):
        return pushing(connections=trial.connections, broadcasts=(), rss_mib=trial.rss_mib)

    choices = "".join(
        f'[[choice]]\nneed = "A million idle connections"\nshows = "it"\nmetric = "{metric}"\n'
        for metric in ("push_last_us_p50", "server_rss_bytes_max", "connects_per_s")
    )
    cells = ({"connections": 64},)
    with_choices = load(make_run(tmp_path / "a", SERVERS, cells, rounds=3, change=silent, experiment=BROADCAST + choices))
    assert with_choices.leading == "server_rss_bytes_max"
    without = load(make_run(tmp_path / "b", SERVERS, cells, rounds=3, change=silent, experiment=BROADCAST))
    assert without.leading == "connections_reached"

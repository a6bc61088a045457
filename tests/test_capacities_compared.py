"""Two servers compared by what the probes of their searches show, with as little as one search each."""

import math
import random
import shutil
from dataclasses import replace
from functools import cache

import pytest
from browsing import Visit
from kinds import draws

from wsbench.analysis import campaigns, choices, stats
from wsbench.analysis.campaigns import Campaign
from wsbench.analysis.capacity import search
from wsbench.analysis.capacity.search import Bounds
from wsbench.analysis.compare import differences
from wsbench.analysis.reading import load
from wsbench.analysis.stats.contrasts import Contrasts, Open
from wsbench.analysis.stats.crossing import Evidence, Probe, crossing
from wsbench.analysis.stats.decision import Baseline, Best, Pairs, Rules, Two, decide, holm, of_ends
from wsbench.analysis.summary import summary
from wsbench.host.installation import ROOT
from wsbench.records.rundir import RunFolder
from wsbench.report import document, standing

PROBES = 40


def searched(truth, chance, scatter=0.015, probes=PROBES, rounds=1):
    """The series of a server whose capacity scatters from probe to probe; every round is a search of its own."""
    made, by_round = [], {}
    for number in range(1, rounds + 1):
        mine, bounds = [], Bounds(0.05, 1000.0, 1.0, 1e7)
        while len(mine) < probes:
            load = search.next_load(mine, bounds)
            mine.append(Probe(load, load <= truth * math.exp(chance.gauss(0, scatter))))
        made += mine
        by_round[number] = crossing(mine).estimate
    return stats.Searched(by_round, Evidence(tuple(made)), crossing(made).estimate)


def test_one_search_each_is_enough_for_a_difference_of_a_fifth():
    chance = random.Random(1)
    found = decide({"a": searched(12_000, chance), "b": searched(10_000, chance)}, Two("a", "b")).decisions[0]
    assert (found.says, found.relevant) == ("better", True)
    assert found.low < 1.2 < found.high
    assert found.reason == "by the intervals of both capacities"


def test_the_same_capacity_is_rarely_called_different():
    chance = random.Random(2)
    wrong = 0
    for _ in range(draws(60)):
        series = {name: searched(20_000, chance, probes=25) for name in "ab"}
        wrong += decide(series, Two("a", "b")).decisions[0].says in ("better", "worse")
    assert wrong <= 3


@pytest.mark.parametrize("ask", [Pairs(), *(pytest.param(ask, marks=pytest.mark.nightly) for ask in (Best(), Baseline("a")))])
def test_of_many_the_same_capacity_is_rarely_called_different(ask):
    chance = random.Random(21)
    wrong = 0
    for _ in range(draws(40, least=10)):
        series = {name: searched(20_000, chance, 0.1, 30) for name in "abcdef"}
        wrong += any(one.says in ("better", "worse") for one in decide(series, ask).decisions)
    assert wrong <= 2


def test_the_ends_of_all_capacities_share_the_error():
    assert of_ends(0.05, 2) == (0.05, 0.05)
    assert of_ends(0.06, 6) == pytest.approx((0.02, 0.012))


def test_many_comparisons_share_the_error_by_ends_and_not_by_pairs():
    """Ten probes show an end at 0.05 / 12 and not at 0.05 / 60."""
    chance = random.Random(22)
    series = {name: searched(10_000, chance, 0.2, 40) for name in "abcd"} | {"high": kept(200_000, 10), "low": broken(1_000, 10)}
    pair = next(one for one in decide(series, Pairs()).decisions if {one.one, one.other} == {"high", "low"})
    assert pair.says in ("better", "worse")
    both = {name: series[name] for name in ("high", "low")}
    rows = [("high", "low", Contrasts(both).contrast("high", "low"))] + [("x", "y", Open("not measured"))] * 14
    assert holm(rows, Rules())[0].says not in ("better", "worse")


def kept(load, probes):
    return stats.Searched({1: None}, Evidence(tuple(Probe(float(load), True) for _ in range(probes))), None)


def broken(load, probes):
    return stats.Searched({1: None}, Evidence(tuple(Probe(float(load), False) for _ in range(probes))), None)


def test_the_interval_of_a_ratio_holds_it():
    chance = random.Random(3)
    held, number = 0, draws(40)
    for _ in range(number):
        one, other = chance.uniform(5_000, 40_000), chance.uniform(5_000, 40_000)
        series = {"a": searched(one, chance), "b": searched(other, chance)}
        found = decide(series, Two("a", "b")).decisions[0]
        held += found.low is None or found.low <= one / other <= found.high
    assert held >= 0.95 * number


def test_among_several_the_best_is_found_and_a_baseline_compared_with():
    chance = random.Random(4)
    series = {name: searched(load, chance, probes=70) for name, load in (("slow", 8e3), ("fast", 30e3), ("middle", 15e3))}
    best = decide(series, Best())
    assert (best.order, best.first) == (("fast", "middle", "slow"), ("fast",))
    assert {one.one: one.says for one in best.decisions} == {"middle": "worse", "slow": "worse"}
    against = decide(series, Baseline("middle"))
    assert {one.one: one.says for one in against.decisions} == {"fast": "better", "slow": "worse"}


def test_a_lower_bound_beyond_the_other_interval_decides_without_a_ratio():
    chance = random.Random(5)
    at_least = stats.Searched({1: None}, Evidence(tuple(Probe(100_000.0, True) for _ in range(12))), None)
    found = decide({"a": at_least, "b": searched(20_000, chance)}, Two("a", "b")).decisions[0]
    assert (found.says, found.ratio, found.high) == ("better", None, None)


def test_what_few_probes_do_not_show_is_undecided():
    chance = random.Random(6)
    series = {"a": searched(15_000, chance, 0.01, 14), "b": searched(10_000, chance, 0.01, 14)}
    found = decide(series, Two("a", "b")).decisions[0]
    assert (found.says, found.rounds) == ("undecided", None)
    nothing = stats.Searched({}, Evidence(()), None)
    assert decide({"a": nothing, "b": series["b"]}, Two("a", "b")).reason == "no probe of its capacity counts"


def test_more_searches_of_a_server_are_taken_together():
    chance = random.Random(7)
    few = decide({"a": searched(10_800, chance, probes=20), "b": searched(10_000, chance, probes=20)}, Two("a", "b"))
    many = decide({name: searched(load, chance, rounds=4) for name, load in (("a", 10_800), ("b", 10_000))}, Two("a", "b"))
    assert many.decisions[0].says == "better"
    assert many.decisions[0].high - many.decisions[0].low < (few.decisions[0].high or math.inf) - (few.decisions[0].low or 0)


@pytest.mark.parametrize(("stated", "above", "below"), [(8_000.0, True, False), (12_500.0, False, True), (10_000.0, False, False)])
def test_a_stated_capacity_is_compared_with_the_probes(stated, above, below):
    found = stats.of_constant(searched(10_000, random.Random(8)), stated)
    assert (found.above(0.0) <= 0.05, found.below(0.0) <= 0.05) == (above, below)


def test_p_values_and_interval_say_the_same():
    found = Evidence(searched(10_000, random.Random(9)).evidence.probes)
    low, high = found.low(0.025), found.high(0.025)
    assert found.above(low) <= 0.025 < found.above(high)
    assert found.below(high) <= 0.025 < found.below(low)
    assert found.above(1e9) == found.below(1.0) == 1.0


# ---- in published campaigns ----------------------------------------------------------------------------------------


FIVE, FIFTY = "response.p99 < 5ms", "response.p99 < 50ms"


@cache
def published(name):
    return load(RunFolder.open(ROOT / "results" / name))


def test_searches_that_differ_in_where_they_begin_and_how_long_they_take_are_comparable():
    one = published("2026-11-25-capacity")
    keys = one.experiment.keys
    searching = keys["capacity"] | {"start": 8_000, "budget_s": 300}
    assert searching != keys["capacity"]
    other = replace(one, experiment=replace(one.experiment, keys=keys | {"capacity": searching}))
    assert differences(one, other) == []
    assert [text.partition(":")[0] for text in differences(one, under(other, FIVE))] == ["capacity"]


@pytest.mark.parametrize(
    ("searched", "shown"),
    [
        ([FIVE, "response.p99 < 20ms", FIFTY], ["capacity_per_s", "capacity_per_s", "capacity_3_per_s"]),
        ([FIFTY, FIVE], ["capacity_2_per_s", "capacity_2_per_s", "capacity_per_s"]),
        ([FIFTY], ["capacity_per_s"]),
        (["response.p99 < 1ms"], []),
    ],
)
def test_a_column_is_about_its_promise_wherever_a_campaign_has_it(searched, shown, monkeypatch):
    found = under(published("2026-11-25-capacity"), *searched)
    monkeypatch.setattr(campaigns, "_results", lambda run, running: found)
    made = choices.columns([Campaign("results/any", found.folder, found.campaign, len(found.order))])
    assert [one.choice.metric for one in made] == shown


def under(found, *promises):
    """The campaign as if it had searched under these promises alone."""
    capacity = found.searched.capacity.model_copy(update={"promises": list(promises)})
    return replace(found, searched=replace(found.searched, capacity=capacity))


def test_a_cell_in_which_only_bounds_are_known_is_undecided():
    found = published("2026-11-25-capacity")
    every = {place.text: place.sentence for place in standing.places(found, summary(found))}
    assert every["connections 1,000"].startswith("undecided: one of 6 servers")
    bounds = [row for row in summary(found) if row.figure("capacity_per_s").estimate.mean is None]
    assert bounds
    places = {place.text: place.sentence for place in standing.places(found, bounds)}
    assert places["connections 1,000"] == "undecided: no server has both ends of an interval"


def test_where_only_a_bound_is_known_the_report_shows_it(browser, tmp_path):
    found = published("2026-11-25-capacity")
    rows = [row for row in summary(found) if row.cell_text == "connections 50"]
    known = {row.server: row.figure("capacity_per_s") for row in rows}
    assert {of.estimate.bound[0] for of in known.values() if of.estimate.bound} == {"≥", "≤"}
    at_most = [row.server for row in rows if known[row.server].text.startswith("≤")]
    assert at_most == [row.server for row in rows[-len(at_most) :]]
    run = RunFolder.open(shutil.copytree(ROOT / "results" / "2026-11-27-capacity-thousand", tmp_path / "run"))
    texts = {row.figure("capacity_per_s").text for row in summary(load(run))}
    assert any(text.startswith("≥") for text in texts)
    document.build(run)
    with Visit(browser, run) as visit:
        visit.draw_everything()
        chart = visit.page.locator("svg", has_text="Capacity").first.text_content()
        table = visit.page.locator("table.summary").first.inner_text()
    assert [text for text in texts - {"–"} if text not in chart or text not in table] == [], "without any end"

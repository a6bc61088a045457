"""What a campaign of ladders says: capacities, curves, plateaus, precision, the report's blocks and the command's answer."""

import math
from dataclasses import replace

import numpy as np
import pytest
from run_maker import Server, make_run

from wsbench.analysis import ladders, slo, until
from wsbench.analysis.dataset import COLUMN, Columns, TrialResult
from wsbench.analysis.reading import load
from wsbench.analysis.sizing import Wanted, known
from wsbench.cli import exits, show_capacity
from wsbench.metrics.ladder import Step
from wsbench.records.goals import Until
from wsbench.records.rundir import Ladder
from wsbench.report import ladders as shown

TEXT = """
question = "How much?"
reading = "Compare."
scenario = "echo"
loop = "ladder"
headline = "capacity_per_s"
servers = ["*"]
[ladder]
slos = ["response.p99 < 20ms", "response.p99 < 5ms"]
[timing]
measure_s = 2
"""
SERVERS = (Server("one"), Server("two"))
LOADS = [1000 * 1.2**place for place in range(8)]


def results(tmp_path, capacities, curve=lambda load, capacity: 20_000 * (load / capacity) ** 4, within=0.1, bounds=(), coarse=1):
    """Campaigns of two servers; by server the capacity of each round under the first SLO, and half of it under the second."""
    rounds = len(capacities["one"])
    run = make_run(tmp_path / "run", SERVERS, ({"connections": 50},), rounds, experiment=TEXT)
    found = load(run)
    asked = [slo.parse(text) for text in found.climb.slos]
    values, reasons, texts = found.data.columns.values.copy(), found.data.columns.reasons.copy(), list(found.data.columns.texts)
    trials, steps = [], {}
    for trial in found.data.trials:
        capacity = capacities[trial.record.server][trial.record.round - 1]
        climbed = Ladder(slos=asked, rates=LOADS, relief_per_s=100, rung_s=2, gap_s=1, coarse=False)
        record = trial.record.model_copy(update={"ladder": climbed})
        for name, value in (
            ("capacity_per_s", capacity),
            ("capacity_2_per_s", capacity and capacity / 2),
            ("capacity_is_bound", float(trial.record.server in bounds)),
            ("capacity_2_is_bound", 0.0),
        ):
            values[trial.row, COLUMN[name]] = math.nan if value is None else value
            if value is None:
                texts.append("the lowest load of the ladder, 1,000, was not kept")
            reasons[trial.row, COLUMN[name]] = 0 if value is not None else len(texts) - 1
        if capacity:
            steps[record.number] = [
                Step(at, curve(at, capacity) / 9, curve(at, capacity), 2 * curve(at, capacity), 2000, 0, "") for at in LOADS
            ]
        trials.append((record, trial))
    columns = Columns(values, reasons, texts)
    made = [TrialResult(record, one.verdict, one.plan, columns, one.row) for record, one in trials]
    data = replace(found.data, trials=made, columns=columns, ladders=steps)
    goal = Until(budget_s=300, within=within, planned=100, metrics=["capacity_per_s", "capacity_2_per_s"])
    campaign = found.campaign.model_copy(update={"until": goal, "spent_s": 60.0})
    return replace(found, campaign=campaign, data=data, of_rounds=data.of_rounds())


NEAR = [2000.0, 2050.0, 1950.0, 2020.0, 1990.0, 2010.0]


def test_a_capacity_is_the_mean_of_the_processes(tmp_path):
    found = ladders.of(results(tmp_path, {"one": NEAR, "two": NEAR}), "one@1.0", (("connections", 50),), 0)
    assert found.estimate.mean == pytest.approx(2003, rel=1e-3)
    assert found.estimate.low < 2003 < found.estimate.high
    assert found.slo.text == "response.p99 < 20ms"
    assert found.within == pytest.approx(found.estimate.high / found.estimate.mean - 1)
    assert (found.lowest, found.plateau, found.held, found.unusable) == (None, None, None, False)


def test_the_curve_of_a_server_lies_between_those_of_its_processes(tmp_path):
    of = results(tmp_path, {"one": NEAR, "two": [2000.0, None, None, 2000.0, None, None]})
    points = ladders.curve(of, "one@1.0", (("connections", 50),), "p99")
    at = np.interp(2000, [one.load for one in points], [one.time_us for one in points])
    assert at == pytest.approx(20_000, rel=0.05)
    assert all(one.low <= one.time_us <= one.high for one in points)
    assert ladders.curve(of, "two@1.0", (("connections", 50),), "p99") == [], "two processes have no interval"


def test_a_capacity_on_a_plateau_is_told(tmp_path):
    """From 1,100/s on the time is about the bound whatever the rate."""
    level = lambda load, capacity: 20_000 * (0.5 if load < 1100 else (load / capacity) ** 0.2)  # noqa: E731
    of = results(tmp_path, {"one": NEAR, "two": NEAR}, level)
    said = ladders.of(of, "one@1.0", (("connections", 50),), 0).plateau
    assert said.startswith("on a plateau: with a bound that is a third lower it is 1,1")
    assert said.endswith(" messages/s")


def test_rounds_end_when_every_capacity_is_precise(tmp_path):
    narrow = until.standing(results(tmp_path, {"one": NEAR, "two": NEAR}))
    assert narrow.ended == "nothing is left to decide"
    assert narrow.closing == []
    assert narrow.words.startswith("round 6: one@1.0 (connections 50) carries 1,9")
    assert " messages/s at response.p99 < 20ms; one@1.0 (connections 50) carries " in narrow.words


def test_wide_intervals_need_more_rounds_and_few_rounds_are_never_enough(tmp_path):
    wide = [1500.0, 2600.0, 1800.0, 2300.0, 2000.0, 2100.0]
    standing = until.standing(results(tmp_path / "a", {"one": wide, "two": NEAR}))
    assert standing.ended is None
    assert "; about " in standing.words
    assert standing.words.endswith(" more rounds")
    few = until.standing(results(tmp_path / "b", {"one": NEAR[:3], "two": NEAR[:3]}))
    assert few.ended is None
    assert few.words.endswith("; about 2 more rounds")


def test_a_lower_bound_and_a_server_that_carries_nothing_are_answers(tmp_path):
    of = results(tmp_path, {"one": NEAR, "two": [None] * 6}, bounds=("one",))
    assert until.standing(of).ended == "nothing is left to decide"
    first, _, third, _ = until.comparisons(of)
    assert first.words == "one@1.0 (connections 50) carries at least 2,000 messages/s at response.p99 < 20ms"
    assert third.words == "two@1.0 (connections 50) carries less than 1,000 messages/s at response.p99 < 20ms"
    assert [
        show_capacity.exit_code(of),
        show_capacity.exit_code(results(tmp_path / "n", {"one": [None] * 3, "two": [None] * 3})),
    ] == [
        exits.DONE,
        exits.BREACHED,
    ]


def failing(of, reason):
    """The same campaign whose servers failed for this reason in every round."""
    broken = {"outcome": "failed", "reason": reason}
    trials = [replace(one, record=one.record.model_copy(update=broken)) for one in of.data.trials]
    data = replace(of.data, trials=trials)
    return replace(of, data=data, of_rounds=data)


def test_rounds_end_when_every_server_is_gone_and_the_host_is_not_blamed(tmp_path):
    of = results(tmp_path, {"one": NEAR, "two": NEAR})
    said = until.standing(failing(of, "the server was not ready within 60 s: it does not answer")).ended
    assert said.startswith("one@1.0: the server was not ready within 60 s")
    assert "two@1.0: the server was not ready" in said
    assert "no ladder counts" in until.standing(failing(of, "the engine ended")).ended


def test_each_slo_is_confirmed_and_the_first_overloaded(tmp_path):
    of = results(tmp_path, {"one": NEAR, "two": [None] * 6}, bounds=())
    asked = ladders.follow_ups(of, "one@1.0", (("connections", 50),))
    assert [(one.purpose, one.slo.text) for one in asked] == [
        ("confirmation", "response.p99 < 20ms"),
        ("recovery", "response.p99 < 20ms"),
        ("confirmation", "response.p99 < 5ms"),
    ]
    estimate = of.estimate("one@1.0", (("connections", 50),), "capacity_per_s")
    assert asked[0].load == pytest.approx(estimate.low, rel=1e-3)
    assert asked[1].load == pytest.approx(estimate.mean, rel=1e-3)
    assert ladders.follow_ups(of, "two@1.0", (("connections", 50),)) == []
    limited = results(tmp_path / "limited", {"one": NEAR, "two": NEAR}, bounds=("one",))
    assert [one.purpose for one in ladders.follow_ups(limited, "one@1.0", (("connections", 50),))] == ["confirmation"] * 2


def test_the_page_has_the_curves_with_every_capacity_marked(tmp_path):
    of = results(tmp_path, {"one": NEAR, "two": [None] * 6})
    first, second, third = shown.blocks(of)
    assert first.title == "p99 response time over the load"
    assert [second.title, third.title] == ["Median response time over the load", "p99.9 response time over the load"]
    assert [row[:3] for row in first.table.rows] == [
        ["one", "response.p99 < 20ms", "2,000"],
        ["two", "response.p99 < 20ms", "less than 1,000"],
        ["one", "response.p99 < 5ms", "1,000"],
        ["two", "response.p99 < 5ms", "less than 1,000"],
    ]
    marks = [mark for one in first.figure["series"] for mark in one["marks"]]
    assert sorted(y for _, y in marks) == pytest.approx([5.0, 20.0])
    assert [len(one["dots"]) for one in first.figure["series"] if one["name"] == "one"] == [48, 0, 0]
    assert second.table.rows[0][:2] == ["one", "288 µs"]
    assert shown.lead(of).startswith("Capacity at response.p99 < 20ms, in messages/s: one 2,000 (1,9")


def test_a_size_follows_from_a_capacity(tmp_path):
    of = results(tmp_path, {"one": NEAR, "two": [None] * 6})
    (one,) = known([of], Wanted(100_000, 0.1))
    estimate = of.estimate("one@1.0", (("connections", 50),), "capacity_per_s")
    assert (one.capacity.value, one.capacity.low) == (estimate.mean, estimate.low)
    assert (one.slo, one.ladders) == ("response.p99 < 20ms", 6)
    (half,) = known([of], Wanted(100_000, 0.1, "p99 < 5ms"))
    assert half.capacity.value == pytest.approx(estimate.mean / 2)
    assert known([of], Wanted(100_000, 0.1, "p99 < 7ms")) == []


def test_a_stored_campaign_keeps_its_ladders(tmp_path):
    from wsbench.analysis import tables

    of = results(tmp_path, {"one": NEAR, "two": NEAR})
    tables.write(of.folder, of.data)
    again = tables.read(of.folder)
    assert again.ladders == of.data.ladders

"""Rates that are lower bounds, because the engine was the limit: nothing shows that such a server is behind another."""

import math
from dataclasses import replace

import pytest
from claims_maker import LEVELS, as_paper, claim
from claims_maker import SERVERS as JUDGED
from run_maker import Server, make_run

from wsbench.analysis import campaigns, choices, compare, history, stats
from wsbench.analysis.claims.evaluate import evaluate
from wsbench.analysis.reading import load
from wsbench.analysis.summary import summary
from wsbench.experiments.choice import Choice
from wsbench.report import answer

FAST, SLOW, LAST = Server("netty", rate=26_000), Server("ws", rate=20_000), Server("bun", rate=9_000)
AT = {"connections": 64}


def series(value: float, bound: bool = False):
    found = {at: value * (1 + 0.01 * math.sin(at + value)) for at in range(1, 9)}
    return stats.AtLeast(found, "the engine was the limit") if bound else found


def of(one, other, **rules) -> stats.Decision:
    return stats.decide({"a": one, "b": other}, stats.Two("a", "b"), stats.Rules(**rules)).decisions[0]


def test_what_may_be_larger_is_never_below():
    assert of(series(100), series(50)).says == "better"
    assert of(series(100, True), series(50)).says == "better", "it is at least 100"
    found = of(series(100), series(50, True))
    assert (found.says, found.relevant, found.low, found.rounds) == ("undecided", False, None, None)
    assert "b is a lower bound: the engine was the limit" in found.reason
    assert found.ratio == pytest.approx(2, rel=0.02)
    assert of(series(50, True), series(100)).says == "undecided"
    assert of(series(50), series(100, True)).says == "worse"
    assert of(series(100, True), series(50, True)).says == "undecided"


def test_what_may_be_larger_is_equal_to_nothing():
    assert of(series(100), series(100)).says == "equal"
    for bounds in ((True, False), (False, True), (True, True)):
        assert of(series(100, bounds[0]), series(100, bounds[1])).says == "undecided", bounds


def test_of_values_with_a_zero_too():
    zero = {**series(50), 3: 0.0}
    assert of(series(100), zero).says == "better"
    assert of(series(100), stats.AtLeast(zero, "why")).says == "undecided"
    assert of(stats.AtLeast(zero, "why"), series(100)).says == "undecided"


def test_rounds_that_it_lost_still_speak_against_it():
    few = stats.AtLeast({1: 100.0, 2: 101.0, 3: 99.0}, "the engine was the limit")
    found = stats.decide({"a": few, "b": series(50)}, stats.Two("a", "b"), lost={"a": range(4, 9)}).decisions[0]
    assert found.says == "worse"


def test_whoever_is_bounded_may_be_the_best():
    rows = {"a": series(100), "b": series(50, True), "c": series(20)}
    found = stats.decide(rows, stats.Best())
    assert found.first == ("a", "b")
    assert found.of("c").says == "worse", "less than what the others do at least"
    assert found.of("c").low is None, "nobody knows how far it is behind"
    alone = stats.decide({**rows, "a": series(100, True), "b": series(50)}, stats.Best())
    assert alone.first == ("a",)


def test_over_many_cells_one_bound_is_enough():
    cells = [{"a": series(100), "b": series(50)}, {"a": series(100), "b": series(60, True)}]
    assert isinstance(stats.overall(cells)["b"], stats.AtLeast)
    assert not isinstance(stats.overall(cells)["a"], stats.AtLeast)
    assert isinstance(stats.trend([cells[0]["a"], cells[1]["b"]]), stats.contrasts.Open)


# ---- a campaign ----------------------------------------------------------------------------------------------------


def limited(*names: str, of_rounds=range(1, 100)):
    """The engine is the limit for these servers in these rounds."""

    def change(trial, order):
        hit = order.server in names and order.round in of_rounds
        return replace(trial, engine_busy=0.985, server_busy=0.7) if hit else replace(trial, server_busy=0.97)

    return change


def results_of(path, *names: str, servers=(FAST, SLOW, LAST), **options):
    return load(make_run(path, servers, (AT,), 5, change=limited(*names, **options)))


CELL = tuple(AT.items())


def test_a_limited_server_is_not_behind(tmp_path):
    plain, bound = results_of(tmp_path / "plain"), results_of(tmp_path / "bound", "ws")
    assert plain.best(CELL, "messages_per_s").first == ("netty@1.0",)
    found = bound.best(CELL, "messages_per_s")
    assert set(found.first) == {"netty@1.0", "ws@1.0"}
    assert found.of("bun@1.0").says == "worse"
    assert bound.best(CELL, "server_cpu_us_per_message").first, "only rates are lower bounds"
    assert not bound.estimate("ws@1.0", CELL, "server_cpu_us_per_message").at_least


def test_one_limited_round_makes_the_mean_a_bound(tmp_path):
    found = results_of(tmp_path / "run", "ws", of_rounds=(2,))
    assert found.estimate("ws@1.0", CELL, "messages_per_s").at_least
    assert not found.estimate("netty@1.0", CELL, "messages_per_s").at_least


def test_it_is_shown_with_its_sign(tmp_path):
    results = results_of(tmp_path / "run", "ws")
    rows = {row.name: row.figure("messages_per_s").text for row in summary(results)}
    assert rows["ws@1.0"].startswith("≥ ")
    assert not rows["netty@1.0"].startswith("≥")
    said = answer.answer(results, summary(results))
    assert "undecided: netty or ws may have the" in str(said)


def test_two_runs_of_one_server_are_compared_as_they_were_seen(tmp_path):
    run = make_run(tmp_path / "run", (FAST, SLOW), (AT,), 5, change=limited("netty"), control="netty")
    found = load(run).against_itself(CELL, "messages_per_s")
    assert found.low is not None
    assert "bound" not in found.reason


def test_a_change_up_from_a_bound_or_down_to_one_is_not_shown(tmp_path):
    anchor = Server("reference", rate=30_000)
    base = results_of(tmp_path / "base", "netty", servers=(FAST, anchor))
    faster = results_of(tmp_path / "new", servers=(replace(FAST, rate=45_000), anchor))
    slower = results_of(tmp_path / "slower", servers=(replace(FAST, rate=9_000), anchor))

    def netty(before, after):
        sides = compare.Side(before, None, "base"), compare.Side(after, None, "new")
        rows = compare.compare(*sides, ["messages_per_s"], anyway=True).rows
        return next(row for row in rows if row.server == "netty@1.0")

    assert netty(base, faster).says == "undecided"
    assert "netty@1.0 is a lower bound" in netty(base, faster).decision.reason
    assert netty(faster, base).says == "undecided"
    assert netty(base, slower).says == "worse"
    assert netty(slower, base).says == "better"


@pytest.mark.parametrize(("before", "after", "steps"), [(False, False, 1), (False, True, 1), (True, False, 0), (True, True, 0)])
def test_a_step_up_from_a_bound_is_none(before, after, steps):
    def found(level, bound):
        return [("a campaign", stats.Estimate((), level * (1 + 0.001 * at), None, None, None, bound)) for at in range(6)]

    assert len(history._line("netty@4.2", CELL, found(100, before) + found(150, after), 0.03).steps) == steps


# ---- choices and claims --------------------------------------------------------------------------------------------


def test_the_front_page_ranks_no_bound_behind(tmp_path, monkeypatch):
    declared = (Choice(need="Large messages", shows="messages per second", metric="messages_per_s", at=AT),)
    monkeypatch.setattr(choices, "_choices", lambda name: declared)
    (tmp_path / "runs").mkdir()
    make_run(tmp_path / "runs" / "one", (FAST, SLOW, LAST), (AT,), 5, change=limited("ws"))
    (column,) = choices.columns(campaigns.find([tmp_path / "runs"]))
    assert [(one.server, one.rank) for one in column.entries] == [
        ("netty@1.0", "may be best"),
        ("ws@1.0", "may be best"),
        ("bun@1.0", "behind"),
    ]
    ws = column.of("ws@1.0")
    assert (ws.bound, ws.note) == ("≥", "a lower bound: the engine was the limit")
    assert ws.text.startswith("≥ ")
    assert choices.answers([column])[0].best.endswith(", or ws")


def test_far_behind_a_bound_is_at_most_so_much_of_it(tmp_path, monkeypatch):
    declared = (Choice(need="Large messages", shows="messages per second", metric="messages_per_s", at=AT),)
    monkeypatch.setattr(choices, "_choices", lambda name: declared)
    (tmp_path / "runs").mkdir()
    make_run(tmp_path / "runs" / "one", (FAST, LAST), (AT,), 5, change=limited("netty"))
    (column,) = choices.columns(campaigns.find([tmp_path / "runs"]))
    assert column.of("bun@1.0").note.startswith("at most 0.3")


@pytest.mark.parametrize(
    ("slower", "faster", "verdict"), [((), (), "holds"), (("jetty",), (), "undecided"), ((), ("netty",), "holds")]
)
def test_a_claim_that_needs_the_slower_to_be_slow_stays_open(tmp_path, slower, faster, verdict):
    said = "every cell: netty.requests_per_s > jetty.requests_per_s"
    of_limits = limited(*slower, *faster)
    run = make_run(
        tmp_path / "run",
        JUDGED,
        LEVELS,
        5,
        change=lambda trial, order: of_limits(as_paper(trial, order), order),
        experiment=claim(said),
    )
    (found, *_) = evaluate(load(run))
    assert found.verdict == verdict, found.why

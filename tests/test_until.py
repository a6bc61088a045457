"""Rounds that go on until decided: how many are planned, in which order they run, and when they end."""

import itertools
import random
import shutil
from dataclasses import replace

import pytest
from conftest import RAN
from run_maker import SERVERS, failed, make_run, write_trial
from test_end_to_end import only_run

from wsbench.analysis import gates as gates_of
from wsbench.analysis import tables, until
from wsbench.analysis.reading import load
from wsbench.analysis.stats import ERROR, Decision
from wsbench.experiments import experiment as experiments
from wsbench.records.goals import Until
from wsbench.run import deciding, ordering
from wsbench.servers.manifest import Limits


class Fake:
    def __init__(self, name: str):
        self.server, self.variant, self.name = name, "v", f"{name}@v"
        self.limits = Limits()


def made(path, rounds, spread=0.02, ratio=1.0, pair=()):
    """A campaign of two servers, planned for 40 rounds, whose second one has `ratio` times the throughput."""
    draw = random.Random(5)
    names = [server.name for server in SERVERS[:2]]

    def change(trial, order):
        rate = 10_000 * (ratio if order.server == names[1] else 1.0) * (1 + spread * draw.uniform(-1, 1))
        return replace(trial, rate=rate)

    run = make_run(path, SERVERS[:2], ({"connections": 16},), rounds, change=change)
    asked = Until(budget_s=1e6, metrics=["messages_per_s"], pair=list(pair), planned=40)
    run.write_json("campaign.json", run.campaign.model_copy(update={"until": asked, "rounds": rounds}))
    return run


@pytest.mark.parametrize(("budget_s", "round_s", "planned"), [(300, 6, 50), (300, 6.1, 49), (10, 6, 5), (1e9, 1, 1000)])
def test_the_budget_fixes_the_number_of_rounds(budget_s, round_s, planned):
    assert ordering.planned_rounds(budget_s, round_s) == planned


def test_a_later_round_has_the_order_of_its_seed_whatever_ran_before(experiment):
    asked, servers = experiments.read(experiment), [Fake("a"), Fake("b"), Fake("c")]
    whole = ordering.order_of(asked, servers, 7, servers[0])
    second = ordering.round_of(2, 1001, asked, servers, 7, servers[0])
    assert [(one.name, one.cell) for one in second] == [(one.name, one.cell) for one in whole if one.round == 2]
    assert [one.number for one in second] == list(range(1001, 1001 + len(second)))
    orders = {tuple((one.name, *one.cell.values()) for one in ordering.round_of(n, 1, asked, servers, 7)) for n in range(1, 9)}
    assert len(orders) > 1


def standing(rounds=3, planned=10, budget_s=100.0, times_s=(2.0, 2.0, 2.0), comparisons=()):
    return until.Standing(Until(budget_s=budget_s, planned=planned), rounds, list(times_s), list(comparisons))


def compared(says, rounds=None, hopeless=False, gates=()):
    found = Decision("b@v", "a@v", says, 1.1, 0.9, 1.2, reason="why", foresee=lambda: rounds)
    return until.Comparison("messages_per_s", (), found, hopeless=hopeless, gates=tuple(map(gates_of.parse, gates)))


@pytest.mark.parametrize(
    ("found", "ended"),
    [
        (standing(comparisons=[compared("better"), compared("equal")]), "nothing is left"),
        (standing(comparisons=[compared("better"), compared("undecided", 3)]), None),
        (standing(comparisons=[compared("better"), compared("undecided", hopeless=True)]), "nothing is left"),
        (standing(2, times_s=(2.0, 2.0), comparisons=[compared("better")]), None),
        (standing(comparisons=[compared("better", gates=["messages_per_s > 30 %"])]), "nothing is left"),
        (standing(comparisons=[compared("better", gates=["messages_per_s > 5 %"])]), None),
        (standing(10, comparisons=[compared("undecided", 3)]), "10 planned rounds"),
        (standing(budget_s=7.9, comparisons=[compared("undecided", 3)]), "budget"),
        (standing(budget_s=8.0, comparisons=[compared("undecided", 3)]), None),
    ],
)
def test_rounds_end_when_decided_or_when_no_other_fits(found, ended):
    assert (found.ended is None) == (ended is None)
    assert ended is None or ended in found.ended


def test_every_round_says_what_is_left():
    found = standing(6, times_s=[40.0] * 6, comparisons=[compared("worse")] * 4 + [compared("undecided", 3)])
    assert found.words == "round 6: 4 of 5 decided"
    assert standing(2, times_s=[1, 1]).words == "round 2: the first decision may be made after round 3"
    assert standing(comparisons=[compared("undecided")]).words == "round 3: 0 of 1 decided"


def test_the_end_says_what_is_undecided_and_what_it_would_take():
    found = standing(10, times_s=[30.0] * 10, comparisons=[compared("worse"), compared("undecided", 40)])
    wanted = "a campaign of 40 rounds (20 min) decides it in 8 of 10 cases"
    assert found.closing == [
        "1 of 2 comparisons decided after 10 rounds, 5 min; all 10 planned rounds have run",
        f"undecided: b@v against a@v, messages_per_s: 1.10× (0.900–1.20); {wanted}",
    ]


def test_later_readers_use_the_error_that_the_looks_leave(tmp_path):
    run = made(tmp_path / "run", rounds=6)
    results = load(run)
    assert results.rules("messages_per_s").looks.planned == 40
    assert 0 < results.error < ERROR / 2
    run.write_json("campaign.json", run.campaign.model_copy(update={"until": None}))
    assert load(run).error == ERROR


def test_pauses_between_trials_do_not_count(tmp_path):
    records = [one.record for one in load(made(tmp_path / "run", rounds=3)).every_trial]
    shifted = [one.model_copy(update={"started_unix_s": one.started_unix_s + 86_400}) for one in records[2:]]
    assert until.round_times(records[:2] + shifted) == pytest.approx(until.round_times(records))
    together = {"heat": 1, "round": 1, "duration_s": 4.0}
    heat = [one.model_copy(update={**together, "started_unix_s": 5.0 + at}) for at, one in enumerate(records[:3])]
    assert until.round_times(heat) == [6.0]


@pytest.mark.parametrize(("rounds", "is_gone"), [((2,), False), ((2, 3), True), ((1, 2), False)])
def test_rounds_of_a_pair_end_when_one_of_them_is_gone(tmp_path, rounds, is_gone):
    run = made(tmp_path / "run", rounds=3, pair=("reference@1.0", "netty@4.2"))
    for planned in run.order:
        if planned.server == "netty" and planned.round in rounds:
            shutil.rmtree(run.trial(planned.number).path)
            write_trial(run.trial(planned.number).path, failed("the server is away: no answer"), planned)
    found = until.standing(load(run))
    assert found.gone == ("netty@4.2: the server is away: no answer" if is_gone else None)
    assert not is_gone or found.ended == found.gone


def test_the_budget_of_rounds_counts_the_time_between_trials(tmp_path):
    """Also when the campaign is resumed, and when it is read later."""
    run, clock = made(tmp_path / "run", rounds=2), itertools.count(1_000, 300)
    asked = run.campaign.until.model_copy(update={"budget_s": 500.0})
    run.write_json("campaign.json", run.campaign.model_copy(update={"until": asked}))
    in_trials_s = sum(until.round_times(one.record for one in load(run).every_trial))
    assert in_trials_s < 100
    assert deciding.Referee(run, lambda: next(clock)).goes_on(lambda line: None)
    assert run.campaign.spent_s == pytest.approx(300 + in_trials_s)
    assert not deciding.Referee(run, lambda: next(clock)).goes_on(lambda line: None)
    assert "the budget of 8 min" in until.standing(load(run)).ended


@pytest.mark.system
def test_a_campaign_until_decided_grows_and_can_be_resumed(wsbench, experiment, tmp_path):
    experiment.write_text(experiment.read_text().replace("[2, 4]", "[2]").replace("measure_s = 0.6", "measure_s = 0.3"))
    done = wsbench(
        "run", str(experiment), "--until", "decided", "--budget", "1s", "--metric", "server_rss_bytes_max", "--no-report"
    )
    assert done.returncode in RAN, done.stderr
    run = only_run(tmp_path)
    first = run.order
    assert {one.round for one in first} == set(range(1, run.campaign.rounds + 1))
    assert run.campaign.until.planned == ordering.LEAST_PLANNED
    assert "comparisons decided after" in done.stdout
    assert tables.trials_in(run) == run.finished_numbers(), "no later reader measures them again"
    wider = run.campaign.until.model_copy(update={"budget_s": 60.0})
    run.write_json("campaign.json", run.campaign.model_copy(update={"until": wider}))
    again = wsbench("run", "--resume", str(run.path), "--no-report")
    assert again.returncode in RAN, again.stderr
    assert run.order[: len(first)] == first
    assert run.campaign.rounds >= 3
    assert run.finished_numbers() == {one.number for one in run.order}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--budget", "5m"], "--budget needs --until"),
        (["--metric", "errors"], "--metric needs --until"),
        (["--until", "decided", "--rounds", "3"], "exclude each other"),
        (["--until", "decided", "--metric", "speed"], "unknown metric"),
    ],
)
def test_options_that_do_not_go_together_are_refused(wsbench, experiment, words, said):
    done = wsbench("run", str(experiment), *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1

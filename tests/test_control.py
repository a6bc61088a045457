"""The A/A control: who it is, that it is run, and that it is a measure of noise and not a contender."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from run_maker import SERVERS, make_run, write_table

from wsbench.analysis import stats
from wsbench.analysis.reading import load
from wsbench.analysis.summary import summary
from wsbench.experiments import experiment as experiments
from wsbench.report import export
from wsbench.report.answer import answer
from wsbench.run import ordering, request
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Limits

CELLS = ({"connections": 16}, {"connections": 64})
CONTROL = "reference@1.0 (control)"


class Fake:
    def __init__(self, server):
        self.server, self.variant, self.name = server, "v", f"{server}@v"
        self.limits = Limits()


def asked(file, rounds, control=None):
    written = experiments.read(file)
    repeated = written.model_copy(update={"timing": written.timing.model_copy(update={"rounds": rounds})})
    return request.Request("tiny", file, repeated, [], 1, "wsbench run", [], [], control=control)


@pytest.mark.parametrize(
    ("servers", "rounds", "wanted", "control"),
    [
        ("ab", 5, None, "a"),
        (["b", "reference", "a"], 7, None, "reference"),
        ("ab", 4, None, None),
        ("a", 5, None, None),
        ("a", 1, True, "a"),
        ("ab", 5, False, None),
    ],
)
def test_a_campaign_that_ranks_runs_one_server_twice(experiment, servers, rounds, wanted, control):
    made = asked(experiment, rounds, wanted)
    found = ordering.control_of(made.experiment.timing.rounds, [Fake(name) for name in servers], made.control)
    assert (found.server if found else None) == control


def test_the_control_runs_every_cell_once_more_in_every_round(experiment):
    made = asked(experiment, 5)
    servers: list[Variant] = [Fake("a"), Fake("b")]
    order = ordering.order_of(made.experiment, servers, 1, servers[1])
    for number in range(1, 6):
        block = [(one.name, one.cell["connections"]) for one in order if one.round == number]
        assert sorted(block) == [(name, cell) for name in ("a@v", "b@v", "b@v (control)") for cell in (2, 4)]
    assert {one.variant_name for one in order if one.control} == {"b@v"}


def test_the_plan_shows_it_and_can_leave_it_out(experiment, wsbench):
    servers = ("--servers", "fragile@steady,fragile@crashing", "--rounds", "5")
    assert "fragile@steady (control)" in wsbench("plan", str(experiment), *servers).stdout
    assert "(control)" not in wsbench("plan", str(experiment), *servers, "--no-control").stdout
    assert "(control)" not in wsbench("plan", str(experiment), *servers[:2], "--rounds", "4").stdout


def off(trial, order):
    """The control's second series is 6 % faster with 16 connections, as fast with 64; no other noise."""
    factor = 1.06 if order.control and order.cell["connections"] == 16 else 1.0
    rates = {server.name: server.rate for server in SERVERS}
    return replace(trial, rate=rates[order.server] * factor)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("aa") / "run", SERVERS, CELLS, rounds=5, change=off, control="reference")
    return load(run)


def test_it_is_no_contender_and_nothing_of_it_is_lost(results):
    assert results.control == CONTROL
    assert CONTROL not in results.names
    assert sum(trial.record.control for trial in results.every_trial) == 10
    assert not any(trial.record.control for trial in results.trials)
    assert not results.missing
    assert {row.name for row in summary(results)} == set(results.names)
    exported = [trial.server for trial in export.document(results).trials]
    assert (len(exported), exported.count(CONTROL)) == (len(results.order), 10)
    rows = pq.read_table(write_table(results.folder)).to_pylist()
    assert {row["control"] for row in rows} == {True, False}
    assert len({row["trial"] for row in rows}) == len(results.order)


def test_its_two_series_are_compared_and_never_widen_the_margin(results):
    first, second = results.cells
    differs, same = (results.against_itself(cell, "messages_per_s") for cell in (first, second))
    assert differs.ratio == pytest.approx(1.06, abs=1e-3)
    assert (differs.says, same.says) == ("better", "equal")
    assert results.rules("messages_per_s").margin == results.margin == stats.MARGIN


def test_a_control_that_differs_from_itself_is_a_warning_about_the_machine(results):
    found = answer(results, summary(results))
    assert found.control.startswith("A/A control: reference against itself: 1.06×")
    assert "(connections 16). Two identical servers differ by more than 3 %" in found.control


def test_a_control_within_the_margin_is_no_warning(tmp_path):
    results = load(make_run(tmp_path / "run", SERVERS, CELLS[1:], rounds=5, change=off, control="reference"))
    assert answer(results, summary(results)).control.endswith(": equal within 3 %.")


def test_a_campaign_without_one_has_no_such_sentence(tmp_path):
    results = load(make_run(tmp_path / "run", SERVERS[:2], CELLS[:1], rounds=5))
    assert results.control is None
    assert results.against_itself(results.cells[0], "messages_per_s") is None
    assert answer(results, summary(results)).control is None


def test_servers_get_letters_in_the_summary(results):
    letters = {row.name: row.tier for row in summary(results) if row.cell == results.cells[0]}
    assert letters["reference@1.0"] == "a"
    assert len(set(letters.values())) == 4

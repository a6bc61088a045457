"""A fault of wsbench in one metric, check, figure or claim: that part is missing with its reason, and everything else is there."""

import re
from dataclasses import replace

import pytest
from claims_maker import SERVERS as CLAIMED
from claims_maker import as_paper, claim
from judging import trial_of
from run_maker import EXPERIMENT, make_run
from trial_maker import START_NS, Trial

from wsbench import metrics
from wsbench.analysis import results as analysed
from wsbench.analysis.claims import evaluate
from wsbench.analysis.reading import load
from wsbench.metrics import quiet, verdict
from wsbench.metrics.findings import FAMILIES
from wsbench.records import contained
from wsbench.records.engine_files import Doc
from wsbench.records.errors import UserError
from wsbench.report import answer, document, export, figures, still


def broken(*_, **__):
    return {}["connect"]


REASON = re.compile(r"wsbench failed: KeyError: 'connect' \(\S+\.py:\d+\)")


@pytest.fixture
def used(monkeypatch):
    """As a user runs wsbench, whose metrics and parts of a report are not all needed."""
    monkeypatch.delenv(contained.STRICT)
    monkeypatch.setattr(contained, "_told", set())


@pytest.fixture
def faulty_metric(monkeypatch):
    name = "service_us_tick_mean_max"
    monkeypatch.setitem(metrics.METRICS, name, replace(metrics.METRICS[name], compute=broken))
    return name


def test_a_metric_that_raises_is_a_missing_number_and_one_line_in_the_log(tmp_path, used, faulty_metric, capsys):
    for number in range(2):
        found = metrics.measure(trial_of(tmp_path / str(number), Trial()))
    assert found.values[faulty_metric] is None
    assert REASON.fullmatch(found.reasons[faulty_metric])
    assert found.values["messages_per_s"] > 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"wsbench: metric {faulty_metric}: wsbench failed: KeyError: 'connect' (")


def test_in_tests_it_is_raised(tmp_path, faulty_metric):
    with pytest.raises(KeyError):
        metrics.measure(trial_of(tmp_path / "0001", Trial()))


@pytest.mark.parametrize("raised", [UserError("x"), OSError("x"), MemoryError(), ModuleNotFoundError("x")])
def test_what_the_user_or_the_machine_has_to_mend_is_raised(used, raised):
    def fails():
        raise raised

    with pytest.raises(type(raised)):
        contained.part("x", fails, str)


@pytest.mark.parametrize("name", ["cpu_time", "_little", "connections"])
def test_a_check_that_raises_leaves_no_number_in_use(tmp_path, used, monkeypatch, name):
    def check(trial):
        raise AssertionError("never")

    checks = [one if one.__name__ != name else check for one in verdict.CHECKS]
    assert checks != list(verdict.CHECKS)
    monkeypatch.setattr(verdict, "CHECKS", checks)
    found = verdict.verdict(trial_of(tmp_path / "0001", Trial()))
    (finding,) = [one for one in found.findings if one.name == "not_checked"]
    assert "could not be made: wsbench failed: AssertionError: never" in finding.seen
    assert {found.of(family) for family in FAMILIES} == {"INVALID"}


def test_a_disturbance_that_cannot_be_looked_for_is_no_reason_to_run_again(tmp_path, used, monkeypatch):
    monkeypatch.setattr(quiet, "stolen_at", broken)
    monkeypatch.setattr(verdict.host_checks, "cpu_time", broken)
    assert verdict.disturbed(trial_of(tmp_path / "0001", Trial())) is None


def test_a_report_lacks_only_what_raises(tmp_path, used, faulty_metric, monkeypatch):
    tables = '[[figure]]\ntitle = "Bars"\nkind = "bars"\nmetrics = ["errors"]\n[[figure]]\ntitle = "All"\nkind = "table"\n'
    run = make_run(tmp_path / "run", experiment=EXPERIMENT + tables + 'metrics = ["messages_per_s"]\n')
    monkeypatch.setitem(figures.DRAWN, "bars", broken)
    monkeypatch.setattr(answer, "places", broken)
    page = document.build(run).read_text(encoding="utf-8").replace("&#39;", "'")
    assert REASON.search(page[page.index("Bars: not drawn") :])
    assert re.search(f'<h2 id="answer">No answer: {REASON.pattern}', page)
    assert "<td" in page[page.index('<h2 id="results">') :]
    written = export.document(load(run))
    for trial in written.trials:
        assert REASON.fullmatch(trial.reasons[faulty_metric])
        assert trial.metrics["messages_per_s"] > 0


@pytest.mark.parametrize("function", ["_still", "_studies"])
def test_drawings_that_raise_leave_the_page_with_its_numbers(tmp_path, used, monkeypatch, function):
    tables = '[[figure]]\ntitle = "Bars"\nkind = "bars"\nmetrics = ["messages_per_s"]\n'
    monkeypatch.setattr(still, function, broken)
    page = document.build(make_run(tmp_path / "run", experiment=EXPERIMENT + tables)).read_text(encoding="utf-8")
    assert REASON.search(page.replace("&#39;", "'"))


def test_a_mean_and_a_decision_that_raise_have_a_reason_instead(tmp_path, used, monkeypatch):
    results = load(make_run(tmp_path / "run"))
    monkeypatch.setattr(analysed.stats, "estimate", broken)
    monkeypatch.setattr(analysed.stats, "decide", broken)
    name, cell = results.names[0], results.cells[0]
    assert REASON.fullmatch(results.estimate(name, cell, "messages_per_s").reason)
    assert REASON.fullmatch(results.best(cell, "messages_per_s").reason)


def test_a_claim_that_raises_is_undecided_and_the_others_are_judged(tmp_path, used, monkeypatch):
    condition = "every cell: netty.requests_per_s > grizzly.requests_per_s"
    text = claim(condition, f'[[claim]]\nid = "X2"\nsays = "And so."\nholds_if = "{condition}"\n')
    cells = tuple({"connections": number} for number in (10, 100, 1000))
    results = load(make_run(tmp_path / "run", CLAIMED, cells, 5, change=as_paper, experiment=text))
    usual = evaluate._verdict
    monkeypatch.setattr(evaluate, "_verdict", lambda one, *rest: broken() if one.id == "X1" else usual(one, *rest))
    first, other = (one for one in evaluate.evaluate(results) if one.versions == "published")
    assert (first.verdict, first.obstacle, other.verdict) == ("undecided", "missing", "holds")
    assert REASON.fullmatch(first.why)


def test_a_record_that_ends_after_its_first_line_has_no_numbers_and_its_campaign_a_report(tmp_path):
    run = make_run(tmp_path / "run", unfinished=0)
    file = run.trial(3).path / "events.jsonl"
    file.write_text(file.read_text().splitlines(keepends=True)[0])
    results = load(run)
    (trial,) = [one for one in results.trials if one.record.number == 3]
    assert trial.verdict.kind == "INVALID"
    assert trial.value("messages_per_s") is None
    assert trial.reason("messages_per_s")
    document.build(run)


def test_requests_with_connections_of_their_own_are_dated_from_the_heading_of_the_log(tmp_path):
    trial = trial_of(tmp_path / "0001", Trial(scenario=Doc(persistent=False, bytes=100), connect_s=0.5))
    assert "connect" not in trial.begins
    assert trial.origin_ns == START_NS
    persistent = trial_of(tmp_path / "0002", Trial(connect_s=0.5))
    assert [one.begin_ns for one in trial.tick_means] == [one.begin_ns for one in persistent.tick_means]
    log = trial.folder.latency_log
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if "StartTime" not in line))
    undated = type(trial)(trial.folder, trial.record)
    assert undated.origin_ns is None
    reason = metrics.measure(undated, ["service_us_tick_mean_max"]).reasons["service_us_tick_mean_max"]
    assert reason == "when the engine's histograms began is unknown"

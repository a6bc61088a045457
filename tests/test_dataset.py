"""The data set of a campaign: kept, it says what the raw trials said; it grows with them and is never overwritten by less."""

import shutil
import subprocess
import sys
from dataclasses import replace

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from run_maker import EXPERIMENT, SERVERS, make_run, pushing, spoil_some, without_sums

from wsbench.analysis import measuring, tables
from wsbench.analysis.claims.evaluate import evaluate
from wsbench.analysis.reading import load
from wsbench.metrics import METRICS
from wsbench.records import packing
from wsbench.records.errors import UserError
from wsbench.records.placeless import Places
from wsbench.records.rundir import RunFolder
from wsbench.report import document

CLAIM = """
[versions.today]
netty = "netty@4.2"
ws = "ws@8.18"
[[claim]]
id = "X1"
says = "Netty is faster than ws."
published = "page 1"
means = "more messages per second"
holds_if = "every cell: netty.messages_per_s > ws.messages_per_s"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "run"
    cells = ({"connections": 16}, {"connections": 256})
    return make_run(path, SERVERS, cells, rounds=5, change=spoil_some, control="netty", experiment=EXPERIMENT + CLAIM).path


@pytest.fixture(scope="module")
def raw(made):
    """What is said of its trials where nothing is kept."""
    return said(load(RunFolder.open(made)))


@pytest.fixture(scope="module")
def built(made, tmp_path_factory):
    run = RunFolder.open(shutil.copytree(made, tmp_path_factory.mktemp("built") / "run"))
    document.build(run)
    return run.path


@pytest.fixture
def bare(made, tmp_path):
    """The trials alone."""
    return RunFolder.open(shutil.copytree(made, tmp_path / "run"))


@pytest.fixture
def run(built, tmp_path):
    """The trials and what is kept of them."""
    return RunFolder.open(shutil.copytree(built, tmp_path / "run"))


def without_trials(run: RunFolder) -> RunFolder:
    for folder in run.path.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    return RunFolder(run.path)


def said(results):
    """Everything of a campaign that a reader sees, as plain values."""
    cells = [(name, cell) for cell in results.cells for name in results.names]
    return {
        "trials": [(one.record, one.verdict, one.plan, one.values, one.reasons) for one in results.every_trial],
        "means": [results.estimate(*of, metric) for of in cells for metric in METRICS],
        "curves": results.curves,
        "claims": [one.as_json() for one in evaluate(results)],
        "leading": (results.leading, results.second, results.control),
    }


def test_a_kept_data_set_says_what_the_raw_trials_said(raw, run):
    page = (run.path / document.FILE).read_bytes()
    published = without_trials(run)
    assert said(load(published)) == raw
    assert raw["claims"][0]["verdict"] == "holds"
    assert document.build(published).read_bytes() == page


def test_a_packed_campaign_is_read_without_being_unpacked(raw, run, tmp_path, monkeypatch):
    packed = RunFolder(packing.pack(run.path, tmp_path / "packed", Places({})))
    monkeypatch.setattr("wsbench.records.rundir.unpacked", lambda _: pytest.fail("it was unpacked"))
    assert said(load(packed)) == raw


def test_trials_that_a_data_set_lacks_are_measured_and_added(raw, bare):
    late = [bare.path / f"{number:04}" for number in (3, 17, 40)]
    for folder in late:
        folder.rename(folder.with_name(f"x{folder.name}"))
    document.build(bare)
    assert len(load(bare).every_trial) == len(raw["trials"]) - 3
    for folder in late:
        folder.with_name(f"x{folder.name}").rename(folder)
    assert said(load(bare)) == raw


def test_a_data_set_of_other_code_is_made_again_where_the_raw_files_are(run, monkeypatch):
    kept = tables.read(run)
    tables.write(run, replace(kept, made_by="another"))
    assert load(run).data.made_by == measuring.digest()
    assert len(load(run).every_trial) == len(kept.trials)
    assert load(without_trials(run)).data.made_by == "another"


def test_a_metric_that_a_data_set_does_not_have_is_none_with_a_reason(run):
    without_sums(run)
    file = run.path / tables.TRIALS
    table = pq.read_table(file)
    pq.write_table(table.filter(pc.not_equal(table["metric"], "errors")), file)
    trial = load(without_trials(run)).trials[0]
    assert trial.value("errors") is None
    assert trial.reason("errors") == tables.NOT_THEN


@pytest.mark.parametrize("name", tables.FILES)
def test_a_broken_data_set_is_one_line_and_nothing_where_the_trials_are(raw, run, name):
    without_sums(run)
    (run.path / name).write_bytes((run.path / name).read_bytes()[:-20])
    assert said(load(run)) == raw
    with pytest.raises(UserError, match="run"):
        load(without_trials(run))


def test_a_data_set_of_some_trials_is_not_replaced_by_one_of_fewer(run):
    (run.path / tables.OUTCOMES).unlink()
    before = (run.path / tables.TRIALS).read_bytes()
    with pytest.raises(UserError, match="would lose"):
        document.build(without_trials(run))
    assert (run.path / tables.TRIALS).read_bytes() == before


def test_broadcasts_keep_their_latencies_too(tmp_path):
    run = make_run(tmp_path / "push", SERVERS[:2], rounds=2, change=lambda *_: pushing())
    raw = said(load(run))
    document.build(run)
    kept = load(without_trials(run))
    assert said(kept) == raw
    assert kept.pooled("netty@4.2", kept.cells[0]).count > 0


def test_equal_data_sets_are_equal_files(run):
    before = {name: (run.path / name).read_bytes() for name in tables.FILES}
    tables.write(run, tables.read(run))
    assert {name: (run.path / name).read_bytes() for name in tables.FILES} == before


def test_a_stored_data_set_is_not_written_again_even_where_it_has_metrics_that_wsbench_lost(run):
    without_sums(run)
    file = run.path / tables.TRIALS
    table = pq.read_table(file)
    old = pc.if_else(pc.equal(table["metric"].cast("string"), "errors"), "an_old_metric", table["metric"].cast("string"))
    pq.write_table(table.set_column(table.column_names.index("metric"), "metric", old), file)
    before = file.read_bytes()
    document.build(without_trials(run))
    assert file.read_bytes() == before


def test_rows_of_other_code_are_marked_as_such(bare):
    late = bare.path / "0040"
    late.rename(late.with_name("x0040"))
    document.build(bare)
    tables.write(bare, replace(tables.read(bare), made_by="another"))
    shutil.rmtree(bare.path / "0001")
    late.with_name("x0040").rename(late)
    assert len(load(bare).every_trial) == len(bare.order)
    assert load(bare).data.made_by == ""


def test_a_long_table_without_a_trial_is_refused(run):
    without_sums(run)
    file = run.path / tables.TRIALS
    table = pq.read_table(file)
    pq.write_table(table.filter(pc.not_equal(table["trial"], 3)), file)
    with pytest.raises(UserError, match="lacks a trial"):
        load(without_trials(run))


def test_tables_of_different_trials_are_no_data_set(raw, bare):
    late = bare.path / "0040"
    late.rename(late.with_name("x0040"))
    document.build(bare)
    fewer = (bare.path / tables.OUTCOMES).read_bytes()
    late.with_name("x0040").rename(late)
    document.build(bare)
    without_sums(bare)
    (bare.path / tables.OUTCOMES).write_bytes(fewer)  # as if the disk had been full before the last file
    assert said(load(bare)) == raw
    with pytest.raises(UserError, match="of different trials"):
        load(without_trials(bare))


THREADS = """
import os, sys
from pathlib import Path
from wsbench.analysis import tables
from wsbench.records.rundir import RunFolder
before = len(os.listdir("/proc/self/task"))
assert tables.read(RunFolder(Path(sys.argv[1]))).trials
print(before, len(os.listdir("/proc/self/task")))
"""


def test_reading_leaves_no_thread_that_could_outlive_python(run):
    tables.write(run, load(run).data)
    done = subprocess.run([sys.executable, "-c", THREADS, str(run.path)], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after <= before

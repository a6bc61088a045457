"""The published campaigns of this repository: each is read by every command that reads a campaign, from its data set alone."""

import json
import re
import shutil
import subprocess
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wsbench.analysis import tables
from wsbench.analysis.claims.evaluate import evaluate
from wsbench.analysis.reading import load
from wsbench.host.installation import ROOT
from wsbench.records import packing, sums
from wsbench.records.rundir import RunFolder

FOLDERS = sorted(file.parent for file in (ROOT / "results").glob("*/campaign.json"))
VERDICTS = {"holds", "does not hold", "undecided"}


#: What differs most: a search, an old campaign without records of its control, a heat, and a million connections.
SOME = ("2026-11-25-million", "2026-11-22-hoticn-2018-concurrency", "2026-11-26-jvm-echo-2023-easy", "2026-11-26-rooms")


@pytest.mark.system
@pytest.mark.parametrize(
    "folder", [pytest.param(one, id=one.name, marks=[] if one.name in SOME else pytest.mark.nightly) for one in FOLDERS]
)
def test_a_published_campaign_has_its_data_set_and_its_claims_are_judged(folder):
    run = RunFolder.open(folder)
    results = load(run)
    assert results.data.numbers == tables.trials_in(run)
    assert results.data.numbers <= {planned.number for planned in run.order}
    assert {one.verdict for one in evaluate(results)} <= VERDICTS


def test_every_published_file_has_its_checksum():
    for folder in FOLDERS:
        assert sorted(sums.listed(folder)) == sorted(name for name in packing.OWN if (folder / name).exists())
        sums.verify(folder)


def texts_of(file):
    """The texts of a published file, those inside a table and an archive too."""
    if file.suffix == ".parquet":
        table = pq.read_table(file)
        for name in table.column_names:
            if pa.types.is_string(table[name].type) or pa.types.is_dictionary(table[name].type):
                yield from (text.encode() for text in table[name].unique().to_pylist() if text is not None)
    elif file.suffix == ".xz":
        with tarfile.open(file) as archive:
            yield from (archive.extractfile(one).read() for one in archive if not one.name.endswith(".hlog"))
    else:
        yield file.read_bytes()


@pytest.mark.nightly
def test_nothing_that_is_published_names_a_folder_of_the_machine_it_came_from():
    private = re.compile(rb"(?<![\w.~+-])/(?:work|root|home|tmp)/[\w.]")
    listed = subprocess.run(["git", "ls-files", "-z", "results"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        for text in texts_of(ROOT / name) if not name.endswith(".png") else ():
            assert private.search(text) is None, f"{name}: {private.search(text)[0]}"


def test_results_are_small_enough_to_clone():
    listed = subprocess.run(["git", "ls-files", "-z", "results"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    assert not [file for file in files if file.name == "report.html"], "a report is drawn from its data set"
    # Beside the tables that a command writes as Markdown.
    assert 1 << 20 < sum(file.stat().st_size for file in files if file.suffix != ".md" and file.exists()) < 20_000_000


def test_the_report_of_a_published_campaign_is_drawn_from_its_data_set(wsbench, tmp_path):
    shutil.copytree(ROOT / "results/2026-11-25-rpc", tmp_path / "rpc", ignore=shutil.ignore_patterns("report.html"))
    made = wsbench("report", str(tmp_path / "rpc"))
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "rpc/report.html").read_text(encoding="utf-8")
    assert all(label in page for label in ("graphql-ws", "centrifuge", "over time"))


@pytest.mark.nightly
def test_claims_compare_and_export_work_on_published_campaigns(wsbench):
    concurrency, backlog = (ROOT / "results" / f"2026-11-22-hoticn-2018-concurrency{name}" for name in ("", "-jetty-backlog"))
    claims = wsbench("claims", str(concurrency), "--json")
    assert claims.returncode == 0, claims.stderr
    assert {one["verdict"] for one in json.loads(claims.stdout)[str(concurrency)]} <= VERDICTS
    compared = wsbench("compare", str(concurrency), str(backlog), "--metric", "requests_per_s")
    assert compared.returncode == 0, compared.stderr
    assert "jetty@12.1" in compared.stdout
    exported = wsbench("export", str(concurrency), "csv")
    assert exported.stdout.count("\n") > 10_000

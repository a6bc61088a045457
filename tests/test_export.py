"""Every format is read by a reader that is not ours, and says what the campaign says."""

import csv
import io
import json
import math
import stat
import tarfile
import tempfile

import jsonschema
import junitparser
import pyarrow.parquet as pq
import pytest
from prometheus_client.openmetrics import parser
from run_maker import SERVERS, Server, failed, make_run, spoiled

from wsbench import metrics
from wsbench.analysis import thresholds
from wsbench.analysis.reading import load
from wsbench.cli import carried_out, exits
from wsbench.host.installation import ROOT
from wsbench.records import packing
from wsbench.records.errors import NothingUsable, UserError
from wsbench.records.placeless import Places
from wsbench.records.rundir import RunFolder
from wsbench.report import export


def change(trial, order):
    if order.number == 5:
        return failed("said \x1b[1m<script>\x00")
    if order.number == 9:
        return spoiled(trial)
    return trial


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    servers = (*SERVERS, Server("undertow", "Java", skipped="needs java ≥ 17, found none"))
    return make_run(tmp_path_factory.mktemp("runs") / "mixed", servers, change=change)


@pytest.fixture(scope="module")
def results(run):
    return load(run)


def asked(results, named=(), conditions=()):
    return export.Asked(results, export.chosen(results, list(named)), [thresholds.parse(text) for text in conditions])


def test_the_document_keeps_its_published_schema(results):
    published = json.loads((ROOT / "protocol" / "campaign.schema.json").read_text())
    assert published == export.schema(), "write it anew: python -m wsbench.report.export > protocol/campaign.schema.json"
    jsonschema.Draft202012Validator.check_schema(published)
    document = json.loads(export.as_json(asked(results)))
    jsonschema.validate(document, published)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "format": "wsbench-campaign-2"}, published)
    assert len(document["trials"]) == 36
    assert len(document["cells"]) == 12
    assert all(
        (value is None) == (name in trial["reasons"]) for trial in document["trials"] for name, value in trial["metrics"].items()
    )


def test_csv_and_parquet_have_the_same_rows(results):
    rows = list(csv.DictReader(io.StringIO(export.as_csv(asked(results)).decode())))
    table = pq.read_table(io.BytesIO(export.as_parquet(asked(results)))).to_pylist()
    assert len(rows) == len(table) == 36 * len(metrics.METRICS)
    for text, value in zip(rows, table, strict=True):
        assert (text["value"] == "") == (value["value"] is None) == bool(text["reason"])
        assert text["value"] == "" or math.isclose(float(text["value"]), value["value"])


def test_bencher_gets_values_inside_their_bounds(results):
    benchmarks = json.loads(export.as_bmf(asked(results)))
    assert len(benchmarks) == 12
    for measures in benchmarks.values():
        for measure in measures.values():
            assert set(measure) <= {"value", "lower_value", "upper_value"}
            assert measure.get("lower_value", 0) <= measure["value"] <= measure.get("upper_value", math.inf)


def test_the_github_action_gets_only_metrics_of_its_direction(results):
    bigger, smaller = (json.loads(form(asked(results))) for form in (export.as_github_bigger, export.as_github_smaller))
    assert {row["unit"] for row in bigger} == {"messages/s"}
    assert {row["unit"] for row in smaller} == {"µs", "bytes"}
    assert all(isinstance(row["value"], float) and row["name"] for row in bigger + smaller)
    with pytest.raises(UserError, match="higher is better"):
        export.as_github_bigger(asked(results, ["service_us_p50"]))
    with pytest.raises(NothingUsable, match=r"has any of capacity_per_s$"):
        export.as_github_bigger(asked(results, ["service_us_p50", "capacity_per_s"]))


def test_junit_counts_failed_invalid_and_breached_trials(results):
    xml = export.as_junit(asked(results, conditions=["server_rss_bytes_max > 200e6"]))
    suites = junitparser.JUnitXml.fromstring(xml)
    failures = [entry for suite in suites for case in suite for entry in case.result if isinstance(entry, junitparser.Failure)]
    kinds = [entry.type for entry in failures]
    assert kinds.count("failed") == kinds.count("INVALID") == 1
    netty = [trial for trial in results.trials if trial.record.server == "netty" and trial.record.outcome == "ok"]
    assert kinds.count("threshold") == sum(trial.values["server_rss_bytes_max"] > 200e6 for trial in netty) > 0
    assert sum(suite.failures for suite in suites) == len(failures)
    assert sum(suite.tests for suite in suites) == 37
    assert sum(suite.skipped for suite in suites) == 1


def test_openmetrics_is_read_by_prometheus(results):
    families = list(parser.text_string_to_metric_families(export.as_openmetrics(asked(results)).decode()))
    assert {family.name for family in families} == {f"wsbench_{name}" for name in export.chosen(results, [])}
    one = next(family for family in families if family.name == "wsbench_messages_per_s")
    cell = (("connections", 64),)
    means = {
        s.labels["server"]: s.value for s in one.samples if s.labels["statistic"] == "mean" and s.labels["connections"] == "64"
    }
    assert means[SERVERS[3].name] == results.estimate(f"{SERVERS[3].name}@{SERVERS[3].variant}", cell, "messages_per_s").mean


def test_the_percentile_distributions_hold_every_message(results):
    text = export.as_hgrm(asked(results)).decode()
    assert text.count("#[Mean") == len(results.curves)
    assert text.count("TotalCount     =") == len(results.curves)


def test_a_campaign_without_a_trial_that_counts_makes_no_file(tmp_path):
    results = load(make_run(tmp_path / "bad", change=lambda trial, order: failed(), rounds=1))
    for form in (export.as_bmf, export.as_openmetrics, export.as_github_bigger, export.as_hgrm):
        with pytest.raises(NothingUsable):
            form(asked(results))
    assert carried_out(["export", str(tmp_path / "bad"), "openmetrics"]) == exits.NOTHING_USABLE


def test_an_unknown_metric_is_named(results):
    with pytest.raises(UserError, match="unknown metric 'speed'"):
        export.chosen(results, ["speed"])


def test_a_packed_campaign_reads_the_same(run, results, tmp_path):
    packed = RunFolder.open(packing.pack(run.path, tmp_path / "packed", Places({})))
    assert not list(packed.path.glob("0*"))
    again = load(packed)
    assert [trial.values for trial in again.trials] == [trial.values for trial in results.trials]
    assert [trial.verdict for trial in again.trials] == [trial.verdict for trial in results.trials]
    with tarfile.open(packed.path / packing.ARCHIVE) as archive:
        assert {(member.uid, member.uname) for member in archive.getmembers()} == {(0, "")}
    with pytest.raises(UserError, match="exists"):
        packing.pack(run.path, tmp_path / "packed", Places({}))
    with pytest.raises(UserError, match="already packed"):
        packing.pack(packed.path, tmp_path / "twice", Places({}))


def test_a_packed_campaign_does_not_say_where_it_was_made(run, tmp_path):
    log = run.path / "0001" / "server.log"
    before = log.read_text()
    log.write_text(before + "loaded /srv/somebody/wsbench/servers/x and /srv/somebody/runs/y, not /srv/somebodyelse\n")
    try:
        packed = packing.pack(
            run.path, tmp_path / "placeless", Places({"/srv/somebody": "HOME", "/srv/somebody/wsbench": "WSBENCH"})
        )
    finally:
        log.write_text(before)
    said = RunFolder.open(packed).trial(1).server_log.read_text()
    assert said == before + "loaded WSBENCH/servers/x and HOME/runs/y, not /srv/somebodyelse\n"


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "hostile",
    [
        [member("../../outside")],
        [member("/ROOM/outside")],
        [member("0001/../../outside")],
        [member("outside")],
        [member("0001/.lock/outside")],
        [member("0001/outside", tarfile.SYMTYPE, "/etc/passwd")],
        [member("0001/outside", tarfile.LNKTYPE, "/etc/passwd")],
        [member("0001/outside", tarfile.FIFOTYPE)],
        [member("0001/outside", tarfile.DIRTYPE)],
        [member("0001/link", tarfile.SYMTYPE, ".."), member("0001/link/outside")],
        [member("0001/outside"), member("0001/outside")],
    ],
    ids=lambda hostile: f"{hostile[-1].name} {hostile[0].type.decode()}",
)
def test_an_archive_that_climbs_out_of_its_folder_is_refused(run, tmp_path, monkeypatch, hostile):
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    packed = packing.pack(run.path, tmp_path / "evil", Places({}))
    with tarfile.open(packed / packing.ARCHIVE, "w:xz") as archive:
        for one in hostile:
            archive.addfile(one.replace(name=one.name.replace("/ROOM", str(room))))
    (packed / "SHA256SUMS").unlink()
    with pytest.raises(UserError, match=r"is not a trial file|two files are named"):
        load(RunFolder.open(packed))
    for left in tmp_path.rglob("outside"):
        assert left.parent.name == "0001"
        assert stat.S_ISREG(left.lstat().st_mode)

"""Every file of a campaign has a checksum that is verified when it is read, and no file names a folder of the machine."""

import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from run_maker import SERVERS, make_run, without_sums

from wsbench import cli
from wsbench.analysis import measuring, tables
from wsbench.analysis.reading import load
from wsbench.host import places
from wsbench.host.installation import PACKAGE, ROOT
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records import lock, packing, sums
from wsbench.records.errors import UserError
from wsbench.records.frozen import write_json
from wsbench.records.placeless import Places
from wsbench.records.rundir import RunFolder

FLIPS = 10
ONE = {"servers": SERVERS[:1], "cells": ({"connections": 64},), "rounds": 1}
RAW = ("plan.json", "events.jsonl", "resources.jsonl", "latency.hlog", "trial.json", "SHA256SUMS")
CAMPAIGN = ("campaign.json", "order.json", "servers.json", "machine.json", "machine-after.json", "experiment.toml", "SHA256SUMS")


def raw_campaign(path: Path, **changes) -> RunFolder:
    """A campaign as `run` leaves it, without a data set."""
    run = make_run(path, **(ONE | changes))
    run.write({"machine-after.json": (path / "machine.json").read_bytes()})
    for folder, record in list(run.finished()):
        folder.end(record)
    return run


def with_tables(run: RunFolder) -> RunFolder:
    tables.write(run, load(run).data)
    return run


def flipped(file: Path) -> None:
    """Ten times: the file with one bit turned is named, and the file as it was is read."""
    whole, draw = file.read_bytes(), random.Random(file.name)
    for _ in range(FLIPS):
        at, bit = draw.randrange(len(whole)), 1 << draw.randrange(8)
        file.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        yield f"byte {at}, bit {bit}"
    file.write_bytes(whole)


def all_named(file: Path, read) -> None:
    read()
    for where in flipped(file):
        try:
            read()
        except UserError as error:
            said = str(error)
        else:
            pytest.fail(f"{file.name}, {where}: nobody noticed")
        assert file.name in said, where
        assert "\n" not in said
    read()


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return raw_campaign(tmp_path_factory.mktemp("runs") / "raw")


@pytest.mark.parametrize("name", [*CAMPAIGN, *(f"0001/{name}" for name in RAW)])
def test_a_single_bit_of_a_fresh_campaign_is_named(raw, name):
    all_named(raw.path / name, lambda: load(RunFolder(raw.path), anew=True))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    run = with_tables(raw_campaign(folder / "run"))
    return RunFolder(packing.pack(run.path, folder / "packed", Places({})))


@pytest.mark.parametrize("name", [*CAMPAIGN[:-1], *tables.FILES])
def test_a_single_bit_of_a_packed_campaign_is_named(packed, name):
    all_named(packed.path / name, lambda: load(RunFolder(packed.path)))


def test_a_single_bit_of_packed_trials_is_named(packed):
    all_named(packed.path / packing.ARCHIVE, lambda: load(RunFolder(packed.path), anew=True))


@pytest.mark.system
def test_a_single_bit_of_a_published_campaign_is_named(tmp_path):
    shutil.copytree(ROOT / "results/2026-11-25-rpc", tmp_path / "rpc")
    for name in ("campaign.json", "order.json", "servers.json", "machine.json", "experiment.toml", *tables.FILES):
        all_named(tmp_path / "rpc" / name, lambda: load(RunFolder(tmp_path / "rpc")))


def test_another_archive_in_the_place_of_one_published_apart_is_refused(tmp_path):
    one, other = (with_tables(raw_campaign(tmp_path / name, seed=seed)) for name, seed in (("one", 1), ("other", 2)))
    archives = [tmp_path / f"{name}.tar.xz" for name in ("one", "other")]
    published = packing.pack(one.path, tmp_path / "published", Places({}), archives[0])
    packing.pack(other.path, tmp_path / "elsewhere", Places({}), archives[1])
    shutil.copy(archives[1], published / packing.ARCHIVE)
    with pytest.raises(UserError, match=r"trials\.tar\.xz was altered"):
        load(RunFolder(published), anew=True)
    shutil.copy(archives[0], published / packing.ARCHIVE)
    values = [[trial.values for trial in load(run, anew=True).trials] for run in (one, RunFolder(published))]
    assert values[0] == values[1]
    all_named(published / packing.CHECKSUM, lambda: load(RunFolder(published), anew=True))


def test_sha256sum_verifies_what_wsbench_wrote(packed):
    for folder in (packed.path, packed.trial(1).path):
        done = subprocess.run(["sha256sum", "--strict", "-c", sums.SUMS], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert set(sums.listed(packed.trial(1).path)) >= {*RAW[:-1]}


def test_an_altered_table_is_computed_again_only_when_that_is_asked(tmp_path):
    run = with_tables(raw_campaign(tmp_path / "run"))
    whole, file = load(run).data.columns.values, run.path / tables.TRIALS
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UserError, match="wsbench report --rebuild"):
        load(run)
    again = load(run, anew=True)
    assert ((again.data.columns.values == whole) | (whole != whole)).all()
    tables.write(run, again.data)
    load(run)


def test_a_file_of_a_trial_that_is_gone_is_named(tmp_path):
    run = raw_campaign(tmp_path / "run")
    (run.path / "0001" / "resources.jsonl").unlink()
    with pytest.raises(UserError, match=r"resources\.jsonl is missing"):
        load(run)


def test_a_histogram_log_cut_at_a_line_is_an_error_and_in_an_older_run_invalid(tmp_path):
    run = raw_campaign(tmp_path / "run")
    log = run.path / "0001" / "latency.hlog"
    lines = log.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith(b"Tag=service,"))
    log.write_bytes(b"".join(lines[:last] + lines[last + 1 :]))
    with pytest.raises(UserError, match=r"latency\.hlog was altered"):
        load(run)
    without_sums(run)
    trial = run.trial(1)
    found = verdict(TrialData(trial, trial.record))
    assert (found.of("body"), found.of("tail")) == ("INVALID", "INVALID")


def test_a_campaign_older_than_checksums_is_read(tmp_path):
    run = raw_campaign(tmp_path / "run")
    without_sums(run)
    assert len(load(run).trials) == 1
    assert sums.listed(run.path) is None


def test_readers_find_a_checksum_while_files_are_replaced(tmp_path):
    run, ended, wrong = raw_campaign(tmp_path / "run"), threading.Event(), []
    order = (run.path / "order.json").read_bytes()

    def read():
        while not ended.is_set():
            try:
                run.read("order.json")
            except UserError as error:
                wrong.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        run.write({"order.json": order + b" " * (number % 7), "machine.json": (run.path / "machine.json").read_bytes()})
    ended.set()
    reader.join()
    assert not wrong


def test_a_write_that_was_cut_off_leaves_every_file_with_a_checksum(tmp_path, monkeypatch):
    run = raw_campaign(tmp_path / "run")
    order = (run.path / "order.json").read_bytes()
    write, done = sums.write_whole, []

    def dies(file, content):
        if len(done) == 2:
            raise KeyboardInterrupt
        write(file, content)
        done.append(file.name)

    monkeypatch.setattr(sums, "write_whole", dies)
    with pytest.raises(KeyboardInterrupt):
        run.write({"order.json": order + b"\n", "machine.json": b"{}"})
    assert done == ["SHA256SUMS", "order.json"]
    assert run.read("order.json") == order + b"\n"
    assert run.machine.hostname == "bench"


# ---- what is read, and by whom --------------------------------------------------------------------------------------


def test_whether_a_campaign_runs_is_asked_without_taking_its_lock(tmp_path):
    file, ended = tmp_path / ".lock", threading.Event()

    def look():
        while not ended.is_set():
            lock.is_held(file)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for _ in range(500):
            with lock.holding(file, "another wsbench is running"):
                assert lock.is_held(file)
            assert not lock.is_held(file)
    finally:
        ended.set()
        watcher.join()
    with lock.holding(file, ""), pytest.raises(UserError, match="waits"), lock.holding(file, "it waits"):
        pass


def test_tables_of_different_code_are_no_data_set(tmp_path):
    run = with_tables(raw_campaign(tmp_path / "run"))
    kept = tables.read(run)
    latencies = (run.path / tables.LATENCIES).read_bytes()
    tables.write(run, replace(kept, made_by="another"))
    run.write({tables.LATENCIES: latencies})
    with pytest.raises(UserError, match="by different versions of wsbench"):
        tables.read(run)


def test_the_digest_of_a_data_set_covers_the_code_that_its_numbers_come_from():
    covered = {str(file.relative_to(PACKAGE)) for file in measuring.code()}
    assert {f"records/{name}.py" for name in ("engine_files", "rundir", "samples", "session_table", "frozen")} <= covered
    assert {str(file.relative_to(PACKAGE)) for file in PACKAGE.glob("metrics/*.py")} <= covered
    assert {"engine/histogram.py", "monitoring/runtime_logs/jvm.py", "analysis/measuring.py"} <= covered
    assert not {name for name in covered if name.startswith(("cli/", "report/", "run/"))}


def test_runs_are_listed_without_a_look_into_trials_and_those_killed_at_once_by_name(tmp_path, monkeypatch, capsys):
    run = raw_campaign(tmp_path / "runs" / "2026-11-30T000000-echo", rounds=2)
    (run.path / "0001" / "trial.json").write_text("not read")
    (tmp_path / "runs" / "2026-11-30T000001-echo" / "servers").mkdir(parents=True)
    (tmp_path / "runs" / "2026-11-30T000002-load").mkdir()
    (tmp_path / "runs" / "2026-11-30T000003-load").mkdir()
    (tmp_path / "runs" / "2026-11-30T000003-load" / "trial.json").touch()
    (tmp_path / "runs" / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert cli.carried_out(["list", "runs"]) == 0
    said = "".join(capsys.readouterr())
    assert "2/2" in said
    assert [line.split(":")[0].split("/")[-1] for line in said.splitlines() if "has no outcome" in line] == [
        "2026-11-30T000001-echo",
        "2026-11-30T000002-load",
    ]


def test_the_trials_of_a_packed_campaign_are_counted_without_being_unpacked(packed, monkeypatch):
    monkeypatch.setattr("wsbench.records.rundir.unpacked", lambda _: pytest.fail("it was unpacked"))
    assert RunFolder(packed.path).finished_numbers() == {1}


def test_unpacked_trials_of_a_process_that_was_killed_are_removed(tmp_path, monkeypatch, packed):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, fresh = tmp_path / f"{packing.UNPACKED}left", tmp_path / f"{packing.UNPACKED}fresh"
    for folder in (left, fresh):
        (folder / "0001").mkdir(parents=True)
    used = packing.unpacked.__wrapped__(packed.path / packing.ARCHIVE)
    long_ago = time.time() - 2 * packing.FRESH_S
    for folder in (left, used):
        os.utime(folder, (long_ago, long_ago))
    packing.remove_leftovers()
    assert sorted(tmp_path.iterdir()) == sorted([fresh, used])


# ---- no folder of the machine ----------------------------------------------------------------------------------------


def test_a_short_folder_is_not_replaced_inside_a_histogram(tmp_path):
    run = raw_campaign(tmp_path / "run")
    text = (run.path / "0001" / "latency.hlog").read_text()
    short = next(f"/{text[at + 1]}" for at in range(len(text) - 1) if text[at] == "/" and text[at + 1].isalnum())
    packed = RunFolder(packing.pack(run.path, tmp_path / "packed", Places({short: "HOME"})))
    assert packed.trial(1).latency_log.read_text() == text
    values = [[trial.values for trial in load(one, anew=True).trials] for one in (run, packed)]
    assert values[0] == values[1]


@pytest.mark.parametrize(
    ("text", "placeless"),
    [
        ("loaded /srv/me/wsbench/servers/x, /srv/me/runs/y and /srv/me.", "loaded WSBENCH/servers/x, HOME/runs/y and HOME."),
        ("'-Xlog:gc*:file=\"/srv/me/wsbench/0001/gc.log\"'", "'-Xlog:gc*:file=\"WSBENCH/0001/gc.log\"'"),
        ("file:///srv/me/x -I/srv/me/include /srv/me:/tmp", "file://HOME/x -IHOME/include HOME:TMP"),
        ("/srv/mel /srv/me-2 /srv/me.old x/srv/me /usr/srv/me", "/srv/mel /srv/me-2 /srv/me.old x/srv/me /usr/srv/me"),
    ],
)
def test_whole_paths_of_the_machine_are_replaced(text, placeless):
    assert Places({"/srv/me": "HOME", "/srv/me/wsbench": "WSBENCH", "/tmp": "TMP", "/": "ROOT"}).in_text(text) == placeless


def test_records_name_no_folder_of_this_machine(tmp_path):
    run = raw_campaign(tmp_path / "runs" / "run")
    folder = run.trial(1)
    changed = folder.record.model_copy(
        update={
            "server_executable": f"{ROOT}/servers/x/build/server",
            "server_env": {"JDK_JAVA_OPTIONS": f'-Xlog:gc*:file="{folder.path}/gc.log"', "PORT": "21000"},
            "log_tail": [f"loaded {Path.home()}/lib.so"],
        }
    )
    found = places.of(run.path.parent).in_value(changed)
    assert found.server_executable == "WSBENCH/servers/x/build/server"
    assert found.server_env == {"JDK_JAVA_OPTIONS": '-Xlog:gc*:file="RUNS/run/0001/gc.log"', "PORT": "21000"}
    assert found.log_tail == ["loaded HOME/lib.so"]
    assert found.model_copy(update=changed.model_dump(include={"server_executable", "server_env", "log_tail"})) == changed


def test_the_table_of_an_older_campaign_is_packed_without_folders_and_with_its_numbers(tmp_path):
    run = raw_campaign(tmp_path / "run")
    record = run.trial(1).record.model_copy(update={"server_executable": "/srv/me/server"})
    run.trial(1).end(record)
    with_tables(run)
    packed = RunFolder(packing.pack(run.path, tmp_path / "packed", Places({"/srv/me": "HOME"}), mended=tables.without))
    found, before = load(packed).data, load(run).data
    assert found.trials[0].record == record.model_copy(update={"server_executable": "HOME/server"})
    assert ((found.columns.values == before.columns.values) | (before.columns.values != before.columns.values)).all()
    assert (found.made_by, found.latencies, found.timelines) == (before.made_by, before.latencies, before.timelines)
    assert load(packed, anew=True).data.trials[0].record == found.trials[0].record


def test_a_file_with_a_checksum_is_not_written_beside_it(tmp_path):
    run = with_tables(raw_campaign(tmp_path / "run"))
    trial = run.trial(1).path
    for file, value in ((run.path / "order.json", run.order), (trial / "plan.json", run.trial(1).plan)):
        before = file.read_bytes()
        with pytest.raises(AssertionError, match="has a checksum"):
            write_json(file, value)
        assert file.read_bytes() == before
    write_json(run.path / "unlisted.json", run.campaign)
    assert cli.carried_out(["report", str(run.path)]) == 0


#: Modules outside `records` that write files themselves: into a trial that has not ended, or apart from every campaign.
WRITERS = {
    *("checks/autobahn.py", "checks/selftest/server.py", "host/sysctls.py", "monitoring/sampler.py", "report/web/site.py"),
    *("cli/__init__.py", "host/process.py", "run/capacity.py", "run/duel.py", "run/trial.py", "servers/build.py"),
    *("run/cluster/commands.py", "run/cluster/engines.py", "run/cluster/onhost.py", "run/cluster/remotes.py"),
}


def test_no_other_module_writes_files_without_their_checksums():
    direct = re.compile(r"\.write_text\(|\.write_bytes\(|\bwrite_whole\b|open\([^)]*\"[wax]b?\"")
    found = {str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py") if direct.search(file.read_text())}
    assert {name for name in found if not name.startswith("records/")} == WRITERS

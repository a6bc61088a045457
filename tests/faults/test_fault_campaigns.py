"""Campaigns: nothing measured is overwritten by less, and a bad one from elsewhere harms no other."""

import errno
import json
import os
import random
import re
import shutil
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browsing import shown
from kinds import draws
from run_maker import SERVERS, make_run, without_sums

from wsbench.analysis import tables
from wsbench.analysis.campaigns import look, of_readable
from wsbench.analysis.reading import load
from wsbench.records import packing
from wsbench.records.errors import UserError
from wsbench.records.files import new_folder, write_whole
from wsbench.records.placeless import Places
from wsbench.records.rundir import RunFolder
from wsbench.report import document, export
from wsbench.report.web import pages, site
from wsbench.run import campaign

ONE = {"servers": SERVERS[:2], "cells": ({"connections": 64},)}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A campaign with its report, to be copied."""
    run = make_run(tmp_path_factory.mktemp("built") / "run", **ONE)
    document.build(run)
    return run.path


def copied(built: Path, to: Path) -> RunFolder:
    return RunFolder.open(shutil.copytree(built, to))


def published(built, to, keep=("report.html", "trials.parquet", "campaign.json", "order.json", "servers.json", "machine.json")):
    """A campaign as `results/` has it: what was derived, without the raw files."""
    run = copied(built, to)
    for entry in run.path.iterdir():
        if entry.name not in keep:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return run


def got(address: str, path: str) -> tuple[int, str]:
    """What a page answers."""
    try:
        with urllib.request.urlopen(f"{address}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.fault("T3", "`report` on a campaign whose trials are elsewhere", "exit 2, one line, every byte as it was")
@pytest.mark.parametrize("without", [None, "trials.parquet"])
def test_a_report_of_less(built, tmp_path, wsbench, without):
    run = published(built, tmp_path / "run")
    if without is not None:
        (run.path / without).unlink()
    before = contents(run.path)
    done = wsbench("report", str(run.path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "would lose" in done.stderr
    assert done.stderr.count("\n") == 1
    assert contents(run.path) == before


@pytest.mark.fault("T3", "`report` on a campaign of which one trial is gone", "the same report, by its data set")
def test_a_report_of_one_trial_less(built, tmp_path, wsbench):
    run = copied(built, tmp_path / "run")
    before, table = contents(run.path), pq.read_table(run.path / tables.TRIALS).to_pylist()
    shutil.rmtree(run.path / "0002")
    done = wsbench("report", str(run.path))
    assert done.returncode == 0
    assert contents(run.path)["report.html"] == before["report.html"]
    assert pq.read_table(run.path / tables.TRIALS).to_pylist() == table
    (run.path / "outcomes.parquet").unlink()
    done = wsbench("report", str(run.path))
    assert done.returncode == 2
    assert "1 of 6 trials" in done.stderr


def test_a_report_of_more_is_made_anew(tmp_path):
    run = make_run(tmp_path / "run", **ONE, unfinished=2)
    document.build(run)
    assert len(pq.read_table(run.path / "trials.parquet", columns=["trial"])["trial"].unique()) == 4
    shutil.rmtree(run.path)
    whole = make_run(tmp_path / "run", **ONE)
    document.build(whole)
    assert len(pq.read_table(whole.path / "trials.parquet", columns=["trial"])["trial"].unique()) == 6


@pytest.mark.fault("R1", "`run --resume` on a packed, unfinished campaign", "exit 2, and how to go on")
def test_a_packed_campaign_is_not_gone_on_with(tmp_path, wsbench):
    run = make_run(tmp_path / "run", **ONE, unfinished=2)
    packed = packing.pack(run.path, tmp_path / "packed", Places({}))
    before = contents(packed)
    done = wsbench("run", "--resume", str(packed), "--no-report")
    assert done.returncode == 2
    assert f"tar -xJf {packed / packing.ARCHIVE} -C {packed}" in done.stderr
    assert contents(packed) == before


@pytest.mark.fault("R2", "`site OUT` and `pack RUN OUT` beside a folder `OUT.part`, or with OUT taken", "it is left as it was")
@pytest.mark.parametrize("command", ["site", "pack"])
def test_a_folder_that_is_not_ours(tmp_path, wsbench, command):
    run = make_run(tmp_path / "runs" / "run", **ONE)
    for name in ("out.part", "taken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("precious")
    words = [str(run.path)] if command == "pack" else []
    folders = [] if command == "pack" else [str(tmp_path / "runs")]
    done = wsbench(command, *words, str(tmp_path / "out"), *folders)
    assert done.returncode == 0, done.stderr
    done = wsbench(command, *words, str(tmp_path / "taken"), *folders)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    for name in ("out.part", "taken"):
        assert contents(tmp_path / name) == {"mine": b"precious"}
    assert not list(tmp_path.glob(".*part")), "nothing is left of the attempt"


@pytest.mark.system
@pytest.mark.fault("R5", "six that want a folder of one name at once", "each has its own")
def test_six_at_once(tmp_path):
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda _: new_folder(tmp_path / "runs", "now"), range(60)))
    assert len({*made}) == 60
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda number: write_whole(tmp_path / "file", b"%d" % number * 10_000), range(60)))
    assert len({*(tmp_path / "file").read_bytes()}) <= 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "runs"]


def remove_trials(run: RunFolder) -> None:
    for folder in run.path.glob("0*"):
        shutil.rmtree(folder)


def spoil(run: RunFolder, how: str) -> None:
    record = json.loads((run.path / "campaign.json").read_text())
    table = run.path / "trials.parquet"
    without_sums(run)
    match how:
        case "truncated table":
            table.write_bytes(table.read_bytes()[:1000])
            remove_trials(run)
        case "another table":
            remove_trials(run)
            found = pq.read_table(table)
            pq.write_table(found.rename_columns([f"x{number}" for number in range(found.num_columns)]), table)
        case "not a number" | "too large" | "below zero":
            made = {"not a number": float("nan"), "too large": 1e300, "below zero": -1.0}[how]
            (run.path / "campaign.json").write_text(json.dumps(record | {"created_unix_s": made}))
        case "not JSON":
            (run.path / "order.json").write_text("[{")
        case "not UTF-8":
            (run.path / "campaign.json").write_bytes(b"\xff\xfe{}")
        case "a link":
            (run.path / "campaign.json").rename(run.path.parent.parent / "elsewhere")
            (run.path / "campaign.json").symlink_to(run.path.parent.parent / "elsewhere")
        case "a pipe":
            (run.path / "order.json").unlink()
            os.mkfifo(run.path / "order.json")
        case "huge numbers":
            table.unlink()
            file = run.path / "0001" / "events.jsonl"
            file.write_text(file.read_text().replace('"answered":', '"answered":9' + "9" * 400))
        case "zeros":
            table.unlink()
            (run.path / "0001" / "events.jsonl").write_bytes(bytes(5000) + b"\n")
        case "beyond every number":
            remove_trials(run)
            values(table, [1e300])
        case "a linked folder":
            run.path.rename(run.path.parent.parent / "bad")
            run.path.symlink_to(run.path.parent.parent / "bad")
        case "a long name":
            (run.path / "campaign.json").write_text(json.dumps(record | {"experiment": "e" * 300}))


def values(table, some: list[float]) -> None:
    """Puts these numbers, at random, in the place of all others."""
    found = pq.read_table(table)
    place = found.schema.get_field_index("value")
    draw = random.Random(1)
    made = [None if one is None else draw.choice(some) for one in found["value"].to_pylist()]
    pq.write_table(found.set_column(place, found.schema.field(place), pa.array(made, pa.float64())), table)


BROKEN = (
    *("truncated table", "another table", "not a number", "too large", "below zero", "not JSON", "not UTF-8", "a link"),
    *("a pipe", "huge numbers", "zeros", "beyond every number", "a linked folder", "a long name"),
)


@pytest.fixture(scope="module")
def among_broken(built, tmp_path_factory):
    """A folder of campaigns, one broken in each way and a good one; what `look` says of it; a site of it and what that left out."""
    home = tmp_path_factory.mktemp("broken")
    for how in BROKEN:
        spoil(copied(built, home / "runs" / how), how)
    copied(built, home / "runs" / "good")
    number, left_out = site.write([home / "runs"], home / "out")
    assert number == 1
    return home / "runs", look([home / "runs"]), left_out


@pytest.mark.fault("S1", "a broken campaign under `serve`, `site`, `list runs`", "named in a line; the others are shown")
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_campaign(among_broken, how):
    runs, (_, broken), left_out = among_broken
    for lines in (broken, left_out):
        assert sum(re.match(rf"{runs / how}\b", line) is not None for line in lines) == 1, lines


def test_a_good_campaign_among_broken_ones(among_broken, tmp_path, wsbench):
    runs, (found, broken), _ = among_broken
    assert [one.id for one in found] == ["runs/good"]
    assert len(broken) == len(BROKEN)
    with shown(runs) as address:
        status, front = got(address, "/")
        assert status == 200
        assert "runs/good" in front
        assert "Unreadable campaigns" in front
        for page in ("campaign/runs/good/", "campaign/runs/good/report.html", "history/echo-connections"):
            assert got(address, f"/{page}")[0] == 200
    (tmp_path / "runs").symlink_to(runs)
    done = wsbench("list", "runs")
    assert done.returncode == 0, done.stderr
    assert "runs/good" in done.stdout


@pytest.mark.fault("S1", "a campaign whose numbers are read and cannot be shown", "named in a line; the others are shown")
def test_a_campaign_that_breaks_a_page(built, tmp_path):
    for name in ("bad", "good"):
        copied(built, tmp_path / "runs" / name)
    bad = RunFolder(tmp_path / "runs" / "bad")
    remove_trials(bad)
    without_sums(bad)
    values(bad.path / "trials.parquet", [1e-300, 1e18])  # an interval beyond every number of the document
    assert len(look([tmp_path / "runs"])[0]) == 2
    with shown(tmp_path / "runs") as address:
        status, text = got(address, "/campaign/runs/bad/campaign.json")
        assert (status, text.split(":")[0]) == (422, "cannot be read")
        assert [got(address, page)[0] for page in ("/", "/claims", "/campaign/runs/good/campaign.json")] == [200] * 3
    number, left_out = site.write([tmp_path / "runs"], tmp_path / "out")
    assert number == 1
    assert [line.partition(":")[0] for line in left_out] == [str(bad.path)]
    assert "runs/bad/" not in (tmp_path / "out" / "index.html").read_text()
    assert not (tmp_path / "out" / "campaign" / "runs" / "bad").exists()


def test_a_page_over_campaigns_leaves_out_those_that_break_it(built, tmp_path):
    for name in ("bad", "good"):
        copied(built, tmp_path / "runs" / name)

    def made(of: list) -> list[str]:
        if any(one.id == "runs/bad" for one in of):
            raise ZeroDivisionError("two\nlines")
        return [one.id for one in of]

    broken = []
    assert of_readable(made, look([tmp_path / "runs"])[0], broken) == ["runs/good"]
    assert broken == [f"{tmp_path / 'runs' / 'bad'}: cannot be read: ZeroDivisionError: two"]


def test_a_site_makes_each_page_once_and_blames_no_campaign_for_a_full_disk(built, tmp_path, monkeypatch):
    for name in ("one", "other"):
        copied(built, tmp_path / "runs" / name)
    made, page = Counter(), pages.campaign
    monkeypatch.setattr(pages, "campaign", lambda one, *rest: made.update([one.id]) or page(one, *rest))
    assert site.write([tmp_path / "runs"], tmp_path / "out") == (2, [])
    assert made == {"runs/one": 1, "runs/other": 1}

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pages, "campaign", full)
    with pytest.raises(OSError, match="No space left"):
        site.write([tmp_path / "runs"], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_folders_of_one_name(built, tmp_path):
    for folder in ("a", "b"):
        copied(built, tmp_path / folder / "runs" / "one")
    folders = [tmp_path / "a" / "runs", tmp_path / "b" / "runs", tmp_path / "a" / ".." / "a" / "runs"]
    assert site.write(folders, tmp_path / "out") == (2, [])
    assert sorted(one.id for one in look(folders)[0]) == ["runs-2/one", "runs/one"]


@pytest.mark.parametrize(
    ("file", "column"), [("trials.parquet", "metric"), ("outcomes.parquet", "record"), ("latencies.parquet", "log")]
)
def test_turned_bits_of_a_table_are_one_line_or_numbers(built, tmp_path, file, column):
    """Whatever Arrow, zlib or a text's coding makes of them."""
    run = copied(built, tmp_path / "one")
    remove_trials(run)
    without_sums(run)
    table = run.path / file
    # Without compression a turned bit reaches the text; with it, only the decompressor.
    pq.write_table(pq.read_table(table), tmp_path / "plain", compression="none", use_dictionary=column == "metric")
    draw, lines, turned = random.Random(1), [], draws(25, least=8)
    for whole in (table.read_bytes(), (tmp_path / "plain").read_bytes()):
        for _ in range(turned):
            at = draw.randrange(len(whole))
            table.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
            try:
                results = load(run)
                for form in ("json", "csv", "hgrm"):
                    export.FORMATS[form](export.Asked(results, [], []))
            except UserError as error:
                lines += error.lines
    assert len(lines) > 0.1 * 2 * turned
    assert not any("\n" in line for line in lines)


@pytest.mark.fault("S2", "report.html and trials that are links, under `serve`, `site` and `pack`", "never followed")
def test_links_are_not_followed(built, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("do not hand this out")
    run = copied(built, tmp_path / "runs" / "one")
    (run.path / "report.html").unlink()
    (run.path / "report.html").symlink_to(secret / "key")
    (run.path / "9999").symlink_to(secret)
    (run.path / "0001" / "server.log").unlink(missing_ok=True)
    (run.path / "0001" / "server.log").symlink_to(secret / "key")
    with shown(tmp_path / "runs") as address:
        assert got(address, "/campaign/runs/one/report.html")[0] == 404
    site.write([tmp_path / "runs"], tmp_path / "out")
    packed = packing.pack(run.path, tmp_path / "packed", Places({}))
    trials = packing.unpacked(packed / packing.ARCHIVE)
    for folder in (tmp_path / "out", packed, trials):
        assert not any(b"do not hand this out" in content for content in contents(folder).values())


@pytest.mark.fault("S3", "`.lock` is a pipe", "taken for no lock; `--resume` says what to do")
def test_a_lock_that_is_a_pipe(built, tmp_path):
    run = copied(built, tmp_path / "runs" / "one")
    os.mkfifo(run.path / ".lock")
    found, _ = look([tmp_path / "runs"])
    assert [one.running for one in found] == [False]
    with pytest.raises(UserError, match="is not a plain file"):
        campaign.resume(run, None, None, None)


@pytest.mark.fault("H2", "marks that turn words around or move the cursor, in a campaign's texts", "shown as what they are")
def test_marks_in_a_campaign(tmp_path, wsbench):
    mark = "\u202egnp.\x9b31m\x1b[2J"
    run = make_run(tmp_path / "runs" / "one", **ONE)
    record = json.loads((run.path / "campaign.json").read_text())
    (run.path / "campaign.json").write_text(json.dumps(record | {"command": f"wsbench {mark}", "tags": [mark]}))
    page = document.build(run).read_text()
    listed = wsbench("list", "runs").stdout
    with shown(tmp_path / "runs") as address:
        answers = [got(address, path)[1] for path in ("/", "/campaign/runs/one/")]
    for text in (page, *answers, listed):
        assert not {"\u202e", "\x9b", "\x1b"} & {*text}
    assert r"\u202egnp.\x9b31m\x1b[2J" in listed

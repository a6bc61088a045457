"""Packed campaigns, histograms and lines from elsewhere: read under limits, or refused in one line."""

import base64
import io
import os
import struct
import subprocess
import sys
import tarfile
import zlib

import pytest
from conftest import PATIENCE_S
from run_maker import SERVERS, make_run

from wsbench.engine import histogram
from wsbench.records import packing
from wsbench.records.errors import UserError
from wsbench.records.files import LARGEST_BYTES
from wsbench.records.placeless import Places
from wsbench.records.rundir import RunFolder, TrialFolder

MIB = 1 << 20


def archive(folder, *members: tuple[tarfile.TarInfo, bytes]):
    file = folder / packing.ARCHIVE
    with tarfile.open(file, "w:xz", format=tarfile.PAX_FORMAT) as made:
        for member, content in members:
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return file


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def deep_link(tmp_path):
    """As the archive of CVE-2025-4517: names so long that a check of where a link leads gives up."""
    step = "d" * 247
    members, place = [], "0001"
    for letter in "abcdefghijklmnop":
        members.append((member(f"{place}/{step}", tarfile.DIRTYPE), b""))
        members.append((member(f"{place}/{letter}", tarfile.SYMTYPE, step), b""))
        place += f"/{step}"
    up = "/".join("abcdefghijklmnop")
    members.append((member(f"0001/{up}/{'l' * 254}", tarfile.SYMTYPE, "../" * 16), b""))
    members.append((member("0001/escape", tarfile.SYMTYPE, f"{up}/{'l' * 254}/{'../' * 8}{tmp_path}"), b""))
    members.append((member("0001/escape/outside"), b"was here"))
    return members


@pytest.mark.fault("T1", "a packed campaign whose names and links lead outside", "one line, nothing outside is touched")
@pytest.mark.parametrize(
    "members",
    [
        deep_link,
        lambda _: [(member("../outside"), b"x")],
        lambda tmp_path: [(member(str(tmp_path / "outside")), b"x")],
        lambda tmp_path: [(member("0001/a", tarfile.SYMTYPE, str(tmp_path)), b""), (member("0001/a/outside"), b"x")],
        lambda tmp_path: [(member("0001/a", tarfile.LNKTYPE, str(tmp_path / "victim")), b"")],
        lambda _: [(member("0001/a", tarfile.FIFOTYPE), b"")],
        lambda _: [(member("0001/a", tarfile.CHRTYPE), b"")],
        lambda _: [(member("0001/.hidden"), b"x")],
        lambda _: [(member("0001/a"), b"x"), (member("0001/a"), b"y")],
    ],
    ids=["cve-2025-4517", "up", "absolute", "symlink", "hardlink", "fifo", "device", "hidden", "twice"],
)
def test_an_archive_that_leads_outside(tmp_path, members):
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    inside = tmp_path / "campaign"
    inside.mkdir()
    with pytest.raises(UserError, match=packing.ARCHIVE):
        packing.unpacked(archive(inside, *members(tmp_path)))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["campaign", "victim"]
    assert victim.read_text() == "as it was"


@pytest.mark.system
@pytest.mark.fault("R7", "a small archive that becomes a large one: content, header, number of files", "one line at the limit")
@pytest.mark.parametrize("kind", [pytest.param("content", marks=pytest.mark.nightly), "header", "files"])
def test_an_archive_that_grows(tmp_path, kind, monkeypatch):
    if kind == "content":
        file = archive(tmp_path, (member("0001/zeros"), bytes(300 * MIB)))
        assert file.stat().st_size < MIB
        said = "too much for its packed size"
    elif kind == "header":
        one = member("0001/a")
        one.pax_headers = {"comment": "x" * (8 * MIB)}
        file, said = archive(tmp_path, (one, b"x")), "a header of"
    else:
        monkeypatch.setattr(packing, "MOST_FILES", 100)
        file, said = (
            archive(tmp_path, *((member(f"0001/{number}"), b"") for number in range(101))),
            "more than 100 files",
        )
    with pytest.raises(UserError, match=said):
        packing.unpacked(file)


@pytest.mark.fault("R6", "an archive cut off, or with a bit turned, at many places", "one line, or the campaign as it was")
def test_a_broken_archive(tmp_path):
    run = make_run(tmp_path / "run", SERVERS[:1], ({"connections": 64},), rounds=1)
    packed = packing.pack(run.path, tmp_path / "packed", Places({})) / packing.ARCHIVE
    whole, refused = packed.read_bytes(), 0
    files = {one.name: one.read_bytes() for one in (packing.unpacked(packed) / "0001").iterdir()}
    for number, at in enumerate(range(0, len(whole), max(1, len(whole) // 200))):
        for broken in (whole[:at], whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :]):
            file = tmp_path / f"{number}-{len(broken)}.tar.xz"
            file.write_bytes(broken)
            try:
                found = packing.unpacked(file) / "0001"
            except UserError:
                refused += 1
            else:
                assert {one.name: one.read_bytes() for one in found.iterdir()} == files
    assert refused > 330


def test_what_was_packed_is_unpacked(tmp_path):
    run = make_run(tmp_path / "run", SERVERS[:1], ({"connections": 64},), rounds=2)
    packed = RunFolder(packing.pack(run.path, tmp_path / "packed", Places({})))
    for folder, record in run.finished():
        assert packed.trial(record.number).record == record
        assert (packed.trial(record.number).latency_log).read_bytes() == folder.latency_log.read_bytes()


LIMITED = """
import resource, sys
from pathlib import Path
from wsbench.engine import histogram
from wsbench.records.errors import UserError
import numpy
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    histogram.read_merged(Path(sys.argv[1]))
except UserError as error:
    print(error)
"""


def payload(body: bytes) -> str:
    packed = zlib.compress(body, 9)
    return base64.b64encode(struct.pack(">II", histogram.COOKIE_V2_COMPRESSED, len(packed)) + packed).decode()


@pytest.mark.nightly
@pytest.mark.fault("T4", "a latency.hlog whose lines are zlib bombs", "one line, in little memory")
@pytest.mark.parametrize("kind", ["one", "many"])
def test_a_histogram_that_grows(tmp_path, kind):
    file = tmp_path / "latency.hlog"
    if kind == "one":
        lines = [payload(bytes(1 << 30))]
    else:
        counts = b"\x02" * (3 * MIB)
        head = histogram.HEADER.pack(histogram.COOKIE_V2, len(counts), 0, 5, 1, 1 << 62, 1.0)
        lines = [payload(head + counts)] * 400
    file.write_text("".join(f"Tag=service,0.0,1.0,1.0,{line}\n" for line in lines))
    assert file.stat().st_size < 4 * MIB
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(file)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    said = "1: not a line of an HdrHistogram log" if kind == "one" else "too much for a log of this size"
    assert said in done.stdout


@pytest.mark.fault("T4b", "histograms of several shapes under a tag, counts beyond any run", "one line")
def test_histograms_that_do_not_fit(tmp_path):
    def line(digits: int, counts: bytes) -> str:
        head = histogram.HEADER.pack(histogram.COOKIE_V2, len(counts), 0, digits, 1, 1 << 40, 1.0)
        return f"Tag=service,0.0,1.0,1.0,{payload(head + counts)}\n"

    file = tmp_path / "latency.hlog"
    for lines in (line(3, b"\x02") + line(2, b"\x02"), line(3, b"\xfe\xff\xff\xff\xff\xff\xff\x7f") * 2):
        file.write_text(lines)
        with pytest.raises(UserError, match=r"latency\.hlog"):
            histogram.read_merged(file)


@pytest.mark.fault("S2", "files of a campaign that are links, pipes, folders or huge", "one line; never followed, never waited for")
@pytest.mark.parametrize("name", ["plan.json", "events.jsonl", "resources.jsonl", "latency.hlog"])
def test_files_that_are_none(tmp_path, name):
    secret = tmp_path / "secret"
    secret.write_text("{}\n")
    folder = TrialFolder(tmp_path / "0001")
    folder.path.mkdir()
    file = folder.path / name
    read = {
        "plan.json": lambda: folder.plan,
        "events.jsonl": folder.events,
        "resources.jsonl": folder.samples,
        "latency.hlog": lambda: histogram.read_merged(folder.latency_log),
    }[name]
    for make in (
        lambda: file.symlink_to(secret),
        lambda: os.mkfifo(file),
        lambda: file.mkdir(),
        lambda: os.truncate(os.open(file, os.O_CREAT | os.O_WRONLY), LARGEST_BYTES + 1),
    ):
        make()
        with pytest.raises(UserError, match=name):
            read()
        file.rmdir() if file.is_dir() else file.unlink()

"""Whatever reads what others wrote, given what nobody would write: a number, nothing, or an error with words, and in time.

Real files are altered, a value or some bytes of them at a time. `make test` looks at a few alterations, the same each time;
`make fuzz` at new ones for as long as it is told.
"""

import base64
import io
import json
import lzma
import math
import struct
import tarfile
import tempfile
import zlib
from pathlib import Path
from unittest import mock

import pytest
from alterations import altered, altered_lines, odd_toml, row, spoilt, with_words
from hypothesis import given
from hypothesis import strategies as st
from run_maker import SERVERS, Trial, at_rate, make_run, pushing, without_sums, write_table

from wsbench.analysis import thresholds
from wsbench.analysis.campaigns import look
from wsbench.analysis.reading import load
from wsbench.engine import histogram
from wsbench.experiments import experiment
from wsbench.experiments.claims import language
from wsbench.host.installation import ROOT
from wsbench.metrics import measure
from wsbench.metrics.timeline import timeline
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.monitoring import hsperf
from wsbench.monitoring.runtime_logs import probes
from wsbench.records import packing
from wsbench.records.frozen import toml_of
from wsbench.records.rundir import RunFolder, TrialFolder
from wsbench.report import document, export
from wsbench.run.cluster import hosts, instants
from wsbench.servers import catalogue

pytestmark = pytest.mark.nightly

LOGS = Path(__file__).parents[1] / "runtime_logs"

# ---- a trial --------------------------------------------------------------------------------------------------------

TRIALS = {
    "closed": Trial(),
    "open": at_rate(),
    "push": pushing(),
}


@pytest.fixture(scope="module", params=TRIALS)
def trial(request, tmp_path_factory):
    """A trial of each kind, with what every runtime tells."""
    change = lambda made, order: TRIALS[request.param]  # noqa: E731
    run = make_run(tmp_path_factory.mktemp(request.param) / "run", SERVERS[:1], ({"connections": 64},), rounds=1, change=change)
    folder = run.trial(1)
    for name, log in (("gc.log", "jdk17-g1-mixed.log"), ("runtime.jsonl", "node.jsonl"), ("server.log", "go.log")):
        (folder.path / name).write_bytes((LOGS / log).read_bytes())
    return folder


def judged(folder: TrialFolder) -> None:
    """All that is made of a trial."""
    with with_words():
        if (record := folder.record) is None:
            return
        for probe in (None, *probes.PROBES):
            data = TrialData(folder, record.model_copy(update={"probe": probe, "server_started_ns": 1}))
            found = measure(data)
            assert all(value is None or math.isfinite(value) for value in found.values.values())
            assert {name for name, value in found.values.items() if value is None} == found.reasons.keys()
            verdict(data)
            timeline(data)


@row("a trial's plan, record, events and samples")
@pytest.mark.parametrize("name", ["plan.json", "trial.json", "events.jsonl", "resources.jsonl"])
@given(data=st.data())
def test_trials(trial, name, data):
    file = trial.path / name
    text = file.read_text()
    if name.endswith(".json"):
        changed = json.dumps(data.draw(altered(json.loads(text)))).encode()
    else:
        changed = data.draw(altered_lines(text))
    try:
        file.write_bytes(changed)
        judged(trial)
    finally:
        file.write_text(text)


@row("what runtimes tell of themselves")
@pytest.mark.parametrize("log", sorted(file.name for file in LOGS.iterdir()))
@given(data=st.data())
def test_runtimes(tmp_path_factory, log, data):
    name = {"go.log": "go", "node.jsonl": "node"}.get(log, "jvm")
    text = (LOGS / log).read_text()
    folder = tmp_path_factory.mktemp("log")
    changed = data.draw(altered_lines(text) if name == "node" else spoilt(text.encode()))
    (folder / probes.PROBES[name].file).write_bytes(changed)
    told = probes.read(name, folder, 1)
    assert isinstance(told, str) or abs(sum(one.ns for one in told.pauses)) < 1e30
    instants.LOGS["gc.log"](changed, 5)
    instants.LOGS["runtime.jsonl"](changed, 5)


# ---- a campaign -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("runs") / "one", SERVERS[:2], ({"connections": 16}, {"connections": 64}), rounds=2)
    (run.path / "hosts.json").write_text("[]")
    write_table(run)
    without_sums(run)
    return run


@row("a campaign's files")
@pytest.mark.parametrize(
    "name", ["campaign.json", "order.json", "servers.json", "machine.json", "experiment.toml", "trials.parquet"]
)
@given(data=st.data())
def test_campaigns(campaign, name, data):
    file = campaign.path / name
    whole = {one.name: one.read_bytes() for one in campaign.path.iterdir() if one.is_file()}
    content = whole[name]
    if name.endswith(".json"):
        changed = json.dumps(data.draw(altered(json.loads(content)))).encode()
    elif name.endswith(".toml"):
        changed = data.draw(st.one_of(spoilt(content), odd_toml(toml_of(content.decode(), ""))))
    else:
        changed = data.draw(spoilt(content))
    try:
        file.write_bytes(changed)
        with with_words():
            look([campaign.path.parent])
        with with_words():
            results = load(RunFolder(campaign.path))
            for form in ("json", "csv", "junit"):
                export.write(export.Asked(results, [], []), form, None)
            if not name.endswith(".parquet"):
                document.build(RunFolder(campaign.path), results)
    finally:
        for made, content in whole.items():
            (campaign.path / made).write_bytes(content)


# ---- what the user writes, or has from somebody ----------------------------------------------------------------------


CLUSTER = """
token = "a-token-of-one's-own"
[[host]]
name = "server"
address = "10.0.0.1"
role = "serve"
cpus = [0, 1]
[[host]]
name = "load"
address = "10.0.0.2"
role = "load"
cpus = [0]
"""
FILES = {
    "experiment": (sorted((ROOT / "experiments").glob("*.toml")), experiment.read),
    "manifest": (sorted((ROOT / "servers").glob("*/server.toml")), lambda file: catalogue.read(file.parents[1])),
    "cluster": ([CLUSTER], hosts.read),
}


@row("experiments, manifests, clusters")
@pytest.mark.parametrize("kind", FILES)
@given(data=st.data())
def test_tables(tmp_path_factory, kind, data):
    known, read = FILES[kind]
    chosen = data.draw(st.sampled_from(known))
    text = chosen if isinstance(chosen, str) else chosen.read_text()
    changed = data.draw(st.one_of(spoilt(text.encode()), odd_toml(toml_of(text, ""))))
    file = tmp_path_factory.mktemp("table") / "thing" / "server.toml"
    file.parent.mkdir()
    file.write_bytes(changed)
    with with_words():
        read(file)


CLAIM = "every server: throughput@64 > 1.5 * throughput@16 where connections <= 64 and latency[p99] within 5 %"
TEXTS = {
    "thresholds": ("response_us_p99 > 5_000.5e3", thresholds.parse),
    "claims": (CLAIM, language.condition),
    "values": ("highest(throughput at connections 64) / 2", language.value),
    "filters": ("connections = 64, server = x", language.filters),
}


@row("thresholds and claims")
@pytest.mark.parametrize("kind", TEXTS)
@given(data=st.data())
def test_texts(kind, data):
    text, parse = TEXTS[kind]
    changed = data.draw(st.one_of(spoilt(text.encode()).map(lambda made: made.decode(errors="replace")), st.text()))
    with with_words():
        parse(changed)


# ---- archives, histograms, counters ----------------------------------------------------------------------------------


def log_line(payload: bytes) -> bytes:
    packed = zlib.compress(payload)
    framed = struct.pack(">II", histogram.COOKIE_V2_COMPRESSED | histogram.WORD_BITS, len(packed)) + packed
    return b"Tag=service,1.0,1.0,1.0," + base64.b64encode(framed) + b"\n"


@row("histograms")
@given(data=st.data())
def test_histograms(tmp_path_factory, trial, data):
    log = trial.latency_log.read_bytes()
    lines = [line for line in log.splitlines(keepends=True) if not line.startswith((b"#", b'"'))]
    line = data.draw(st.sampled_from(lines))
    raw = zlib.decompress(base64.b64decode(line.rpartition(b",")[2])[8:])
    changed = data.draw(
        st.one_of(spoilt(log), spoilt(raw).map(log_line), spoilt(raw[:40]).map(lambda head: log_line(head + raw[40:])))
    )
    file = tmp_path_factory.mktemp("log") / "latency.hlog"
    file.write_bytes(changed)
    with with_words():
        for found in histogram.read_merged(file).values():
            for quantile in (0, 0.5, 0.999, 1):
                assert found.quantile(quantile) is None or found.quantile(quantile) >= 0
            assert found.mean is None or math.isfinite(found.mean)
            found.curve()
    with with_words():
        list(histogram.read_log(file))


@row("packed campaigns")
@given(data=st.data())
def test_archives(tmp_path_factory, data):
    place = tmp_path_factory.mktemp("packed")
    archive, room, outside = place / packing.ARCHIVE, place / "unpacked", place / "outside"
    room.mkdir()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=data.draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))) as out:
        for name in ("0001/trial.json", "0001/" + "n" * 120, "0002/engine-1/é.log"):
            member = tarfile.TarInfo(name)
            member.size = 700
            out.addfile(member, io.BytesIO(b"x" * 700))
    content = bytearray(made.getvalue())
    for _ in range(data.draw(st.integers(1, 3))):
        at = 512 * data.draw(st.integers(0, len(content) // 512 - 1))
        field = data.draw(st.sampled_from([(0, 100), (100, 8), (124, 12), (156, 1), (157, 100), (257, 8), (345, 155)]))
        put = data.draw(
            st.one_of(
                st.binary(max_size=field[1]),
                st.sampled_from([b"../x", bytes(outside), b"2", b"x", b"L", b"g", b"S", b"77777777777"]),
            )
        )
        content[at + field[0] : at + field[0] + len(put)] = put[: field[1]]
        if data.draw(st.booleans()):
            head = bytes(content[at : at + 512])
            content[at + 148 : at + 156] = b"%06o\0 " % (sum(head[:148]) + sum(head[156:]) + 256)
    packed = lzma.compress(bytes(content), preset=0)
    archive.write_bytes(data.draw(st.one_of(st.just(packed), spoilt(packed))))
    with with_words(), mock.patch.object(tempfile, "tempdir", str(room)):
        found = packing.unpacked(archive)
        for one in found.rglob("*"):
            assert one.is_dir() or (one.is_file() and not one.is_symlink())
    assert {*place.iterdir()} == {archive, room}
    assert [one.name[:8] for one in room.iterdir()] == ["wsbench-"]


def counters() -> bytes:
    """A file of a JVM's counters, as HotSpot lays it out."""
    entries = b""
    for name, value in (("sun.gc.generation.0.space.0.used", 5), ("sun.gc.generation.0.space.0.capacity", 9)):
        text = name.encode() + b"\0"
        data_at = -(-(20 + len(text)) // 8) * 8
        body = struct.pack("<iiiBBBBi", data_at + 8, 20, 0, ord("J"), 0, 0, 0, data_at) + text
        entries += body.ljust(data_at, b"\0") + struct.pack("<q", value)
    head = hsperf.MAGIC + bytes([1, 2, 0, 1]) + bytes(16) + struct.pack("<ii", 32, 2)
    return head + entries


@row("a JVM's counters")
@given(data=st.data())
def test_counters(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("counters") / "1"
    file.write_bytes(counters())
    heap = hsperf.Heap(file)
    assert heap.sample().committed_bytes == 9
    heap.close()
    file.write_bytes(data.draw(spoilt(counters())))
    heap = hsperf.Heap(file)
    for _ in range(2):
        sample = heap.sample()
        assert sample is None or 0 <= sample.committed_bytes <= hsperf.LARGEST_HEAP
        file.write_bytes(data.draw(spoilt(counters())))
    heap.close()

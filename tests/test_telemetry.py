"""What runtimes tell of themselves: real logs of real servers (in `runtime_logs`), and trials of the catalogue's servers.

The logs of the JVM are those of netty under a small load with a small heap, but for `g1-mixed` and `z-generations`: those are of a
program that keeps a quarter of what it allocates, because netty keeps too little to be collected so. Of the long ones only the
lines of the tags gc, gc,start, gc,init, safepoint and those with `Pause` are kept, and of the last three the first 150.
"""

import json
import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import PATIENCE_S
from run_maker import Trial, at_rate, write_trial

from wsbench import metrics
from wsbench.engine import program
from wsbench.experiments import experiment
from wsbench.host import machine
from wsbench.host.installation import ROOT
from wsbench.metrics import series
from wsbench.metrics.trial_data import TrialData
from wsbench.monitoring.runtime_logs import go, jvm, node, probes
from wsbench.monitoring.runtime_logs.record import MIB
from wsbench.records.rundir import TrialFolder, TrialOrder
from wsbench.run import testbed, trial
from wsbench.servers import catalogue

LOGS = Path(__file__).parent / "runtime_logs"
GO_STARTED_NS = 25_218_078_985_080

#: Counted in the files with grep: minor, mixed, full, concurrent; pauses and their sum in ms; safepoints.
JVM = {
    "jdk17-serial": (4, 0, 1, 0, 5, 22.273, 8),
    "jdk25-serial": (4, 0, 1, 0, 5, 28.523, 5),
    "jdk17-parallel": (6, 0, 1, 0, 7, 115.817, 9),
    "jdk25-parallel": (5, 0, 1, 0, 6, 62.503, 6),
    "jdk17-g1": (3, 0, 1, 1, 6, 31.791, 8),
    "jdk25-g1": (3, 0, 1, 1, 6, 105.523, 6),
    "jdk17-g1-mixed": (24, 13, 0, 4, 45, 131.126, 45),
    "jdk25-g1-mixed": (29, 5, 1, 4, 45, 139.430, 44),
    "jdk17-z": (0, 0, 0, 4, 12, 0.170, 16),
    "jdk25-z": (0, 0, 0, 4, 23, 0.412, 27),
    "jdk25-z-generations": (8, 0, 0, 3, 45, 0.675, 48),
}


@pytest.mark.parametrize("name", JVM)
def test_the_log_of_every_collector_is_counted_by_kind(name):
    found = jvm.read(LOGS / f"{name}.log")
    counts = [sum(one.kind == kind for one in found.collections) for kind in ("minor", "mixed", "full", "concurrent")]
    pauses_ms = round(sum(one.ns for one in found.pauses) / 1e6, 3)
    assert (*counts, len(found.pauses), pauses_ms, len(found.safepoints)) == JVM[name]
    # A pause lies inside a safepoint; JDK 17 counts the wait for its threads to it too.
    assert sum(one.ns for one in found.safepoints) > sum(one.ns for one in found.pauses)


def test_a_collection_tells_the_heap_before_and_after_it():
    found = jvm.read(LOGS / "jdk17-serial.log")
    text = (LOGS / "jdk17-serial.log").read_text()
    assert "Pause Young (Allocation Failure) 6M->1M(23M)" in text
    before, after = found.heap[:2]
    assert (before.used_bytes, after.used_bytes, after.committed_bytes) == (6 * MIB, 1 * MIB, 23 * MIB)
    assert (before.after, after.after) == (False, True)
    assert before.t_ns == found.pauses[0].begin_ns < after.t_ns == found.pauses[0].end_ns


def test_the_heap_of_z_begins_where_its_collection_does():
    found = jvm.read(LOGS / "jdk25-z-generations.log")
    before, after = found.heap[:2]
    assert (before.used_bytes, after.used_bytes) == (8 * MIB, 8 * MIB)
    assert (after.t_ns - before.t_ns) / 1e9 == pytest.approx(0.054, abs=0.001)  # the line says 0.054s


def test_a_jvm_that_wrote_nothing_is_not_one_that_never_collected(tmp_path):
    (tmp_path / "gc.log").write_text("[1ns][info][gc] Using Serial\n")
    assert jvm.read(tmp_path / "gc.log").collections == []
    (tmp_path / "gc.log").write_text("")
    assert jvm.read(tmp_path / "gc.log") is None
    assert jvm.read(tmp_path / "none.log") is None


def test_the_trace_of_go_has_two_pauses_a_collection_and_counts_from_the_start():
    found = go.read(LOGS / "go.log", GO_STARTED_NS)
    assert len(found.collections) == (LOGS / "go.log").read_text().count("gc ") == 5
    assert [(one.ns, one.what) for one in found.pauses[:2]] == [
        (12_000, "sweep termination"),
        (5_000, "mark termination"),
    ]
    # The load began one second after the start.
    assert 1.0 < (found.pauses[0].begin_ns - GO_STARTED_NS) / 1e9 < 1.1
    assert found.heap[0].used_bytes == 3 * MIB
    assert go.read(LOGS / "go.log", None) is None


def test_a_go_server_that_wrote_no_trace_has_no_count(tmp_path):
    (tmp_path / "server.log").write_text("listening\n")
    assert go.read(tmp_path / "server.log", GO_STARTED_NS) is None


def test_the_probe_in_node_tells_collections_heap_and_delays():
    found = node.read(LOGS / "node.jsonl")
    assert [one.kind for one in found.collections] == ["minor"] * 3
    assert [one.what for one in found.pauses] == ["scavenge"] * 3
    assert all(one.used_bytes < one.committed_bytes for one in found.heap)
    at = [one.t_ns for one in found.delays]
    assert at == sorted(at)
    assert 30 < len(at) <= 80


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    whole = (LOGS / "node.jsonl").read_bytes()
    (tmp_path / "runtime.jsonl").write_bytes(whole[:-20])
    assert len(node.read(tmp_path / "runtime.jsonl").delays) < len(node.read(LOGS / "node.jsonl").delays)


@pytest.mark.system
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_probe_sees_a_full_collection_and_a_loop_that_stood_still(tmp_path):
    program = (
        "setTimeout(() => { const until = Date.now() + 120; while (Date.now() < until); }, 150);"
        "setTimeout(() => global.gc(), 400); setTimeout(() => {}, 800)"
    )
    env = probes.environment("node", {"PATH": os.environ["PATH"]}, tmp_path)
    began_ns = time.monotonic_ns()
    subprocess.run(["node", "--expose-gc", "-e", program], env=env, check=True, timeout=PATIENCE_S)
    found = node.read(tmp_path / "runtime.jsonl")
    assert any(one.kind == "full" for one in found.collections)
    assert max(one.ns for one in found.delays) > 80e6
    assert all(began_ns < one.begin_ns < time.monotonic_ns() for one in found.pauses)


def test_a_probe_adds_to_what_the_environment_says_already(tmp_path):
    folder = tmp_path / "a b"
    java = probes.environment("jvm", {"JDK_JAVA_OPTIONS": "-Xmx1g", "PORT": "1"}, folder)
    assert java["JDK_JAVA_OPTIONS"].startswith("-Xmx1g '-Xlog:gc*,safepoint:file=\"")
    assert f'"{folder}/gc.log"' in java["JDK_JAVA_OPTIONS"]
    assert java["PORT"] == "1"
    assert probes.environment("go", {"GODEBUG": "netdns=go"}, folder)["GODEBUG"] == "netdns=go,gctrace=1"
    assert probes.environment("go", {}, folder) == {"GODEBUG": "gctrace=1"}
    assert probes.environment(None, {"PORT": "1"}, folder) == {"PORT": "1"}
    assert probes.environment("node", {}, folder)["WSBENCH_PROBE"] == f"{folder}/runtime.jsonl"


@pytest.mark.system
@pytest.mark.skipif(shutil.which("java") is None, reason="needs a JVM")
def test_a_jvm_takes_its_probe_also_where_the_folder_has_a_space_in_its_name(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    env = probes.environment("jvm", {"PATH": os.environ["PATH"], "JDK_JAVA_OPTIONS": "-Xmx32m"}, folder)
    subprocess.run(["java", "-version"], env=env, check=True, timeout=PATIENCE_S, capture_output=True)
    assert jvm.read(folder / "gc.log") is not None


def as_told(path, probe: str | None, log: str | None = None, name: str = "") -> TrialData:
    """A synthetic trial beside a real log whose times are moved into its measured window."""
    folder = write_trial(path / "0001", at_rate(connect_s=2.0))
    data = TrialData(folder, folder.record)
    if log is not None:
        found = jvm.read(LOGS / log)
        shift = data.span("measured").begin_ns + 10**8 - min(one.begin_ns for one in found.pauses)
        parts = (line.split("ns]", 1) for line in (LOGS / log).read_text().splitlines())
        (folder.path / name).write_text("".join(f"[{int(t_ns[1:]) + shift}ns]{rest}\n" for t_ns, rest in parts))
    return TrialData(folder, folder.record.model_copy(update={"probe": probe}))


def test_metrics_of_collections_are_those_of_the_window(tmp_path):
    found = metrics.measure(as_told(tmp_path, "jvm", "jdk17-g1-mixed.log", "gc.log"))
    of = found.values
    assert (of["gc_minor"], of["gc_mixed"], of["gc_full"], of["gc_concurrent"]) == (24, 13, 0, 4)
    assert of["gc_pause_ms_sum"] == pytest.approx(131.126)
    assert of["gc_pause_percent"] == pytest.approx(100 * 131.126 / 4000)
    assert of["gc_pause_ms_p99"] == of["gc_pause_ms_max"] > of["gc_pause_ms_sum"] / 45
    assert of["safepoint_ms_sum"] > of["gc_pause_ms_sum"]
    assert of["heap_used_bytes_max"] == 35 * MIB
    assert of["heap_committed_bytes_max"] == 40 * MIB
    assert (of["sending_gc_minor"], of["sending_gc_full"], of["connect_gc_minor"]) == (24, 0, 0)
    assert of["event_loop_delay_ms_p99"] is None
    assert found.reasons["event_loop_delay_ms_p99"] == "jvm does not report an event loop"


def pausing(path, *pauses_s: tuple[float, float]) -> TrialData:
    """A trial of 10 s whose replies take 50 times as long from 2 s on, for half a second, and a JVM with pauses (begin, length)."""
    folder = write_trial(path / "0001", Trial(window_s=10.0, tick_s=0.1, bursts=((2.0, 0.1),)))
    data = TrialData(folder, folder.record.model_copy(update={"probe": "jvm"}))
    lines = [(0, "Using Serial")]
    for begin_s, length_s in pauses_s:
        end_ns = data.span("measured").begin_ns + round((begin_s + length_s) * 1e9)
        lines.append((end_ns, f"GC({len(lines)}) Pause Young (Allocation Failure) 6M->1M(23M) {1000 * length_s:.3f}ms"))
    (folder.path / "gc.log").write_text("".join(f"[{t_ns}ns][info][gc] {text}\n" for t_ns, text in lines))
    return data


def test_replies_near_a_pause_are_told_from_the_others(tmp_path):
    of = metrics.values(pausing(tmp_path, (2.0, 0.1)))
    assert of["near_gc_replies_percent"] == pytest.approx(7, abs=1), "0.6 s of 10 s, and parts of ticks"
    assert of["near_gc_service_percent"] == pytest.approx(100 * 5 * 50 / (5 * 50 + 95), abs=4)
    rest = of["service_us_mean"] * (100 - of["near_gc_service_percent"]) / (100 - of["near_gc_replies_percent"])
    assert of["service_us_mean_apart_from_gc"] == pytest.approx(rest, rel=1e-3)
    assert of["service_us_mean_apart_from_gc"] < of["service_us_mean"] / 3
    elsewhere = metrics.values(pausing(tmp_path / "elsewhere", (5.0, 0.1)))
    assert elsewhere["near_gc_replies_percent"] == pytest.approx(7, abs=1)
    assert elsewhere["near_gc_service_percent"] < 3
    none = metrics.values(pausing(tmp_path / "none"))
    assert none["near_gc_service_percent"] == 0
    assert none["service_us_mean_apart_from_gc"] == pytest.approx(none["service_us_mean"])


def test_where_no_reply_can_be_told_from_a_pause_there_is_a_reason(tmp_path):
    of = metrics.measure(pausing(tmp_path, *((0.4 * place, 0.01) for place in range(26))))
    assert of.values["near_gc_replies_percent"] == of.values["near_gc_service_percent"] == 100
    assert of.reasons["service_us_mean_apart_from_gc"] == "every reply came near a pause"
    long = metrics.measure(as_told(tmp_path / "long", "jvm", "jdk17-serial.log", "gc.log"))
    assert long.reasons["near_gc_service_percent"] == "the engine ticks every 1 s: too seldom to see a pause"


def test_a_runtime_nobody_asks_has_reasons_and_not_zeros(tmp_path):
    found = metrics.measure(as_told(tmp_path, None))
    names = [name for name in metrics.METRICS if "gc_" in name or "heap_" in name or "safepoint" in name]
    assert len(names) > 20
    assert [name for name in names if found.values[name] is not None] == []
    assert found.reasons["gc_full"] == "wsbench has no probe for this server's runtime"
    silent = metrics.measure(as_told(tmp_path / "silent", "go"), ["gc_concurrent"])
    assert silent.reasons["gc_concurrent"] == "the probe of go wrote nothing to server.log"


def test_what_a_probe_wrote_is_not_what_the_server_said(tmp_path):
    line = (LOGS / "go.log").read_text().splitlines()[0]
    assert probes.is_told("go", line)
    assert not probes.is_told("go", "gc is my middle name")
    assert not probes.is_told(None, line)


# ---- the catalogue's own servers -------------------------------------------------------------------------------------

TINY = """
question = "Does the runtime tell of itself?"
reading  = "Nothing here is a result."
servers  = ["*"]
scenario = "echo"
loop     = "closed"
headline = "messages_per_s"
[load]
connections = 20
payload_bytes = 2048
messages = 20000
[timing]
warmup_s = 0.3
rounds = 1
"""
SERVERS = {"netty": ("jvm", "gc_minor"), "node-ws": ("node", "gc_minor"), "go-net-websocket": ("go", "gc_concurrent")}


#: A nursery of 2 MiB, and every message's bytes in the heap: it collects many times in 20,000 messages, however slow the machine.
SMALL_HEAP = (
    *("-Xms16m", "-Xmx16m", "-Xmn2m", "-XX:+UseSerialGC"),
    *("-Dio.netty.noPreferDirect=true", "-Dio.netty.allocator.type=unpooled"),
)


#: The same of the other runtimes.
SMALL_ENV = {"NODE_OPTIONS": "--max-semi-space-size=1", "GOGC": "10"}


def small(variant: catalogue.Variant) -> catalogue.Variant:
    """A server with so little heap that it collects after a few hundred messages."""
    program, *rest = variant.table.run
    if program != "java":
        return replace(variant, table=variant.table.model_copy(update={"env": variant.table.env | SMALL_ENV}))
    given = [word for word in rest if not word.startswith(("-Xms", "-Xmx"))]
    return replace(variant, table=variant.table.model_copy(update={"run": [program, *SMALL_HEAP, *given]}))


@pytest.mark.system
@pytest.mark.parametrize("server", SERVERS)
def test_a_trial_of_a_real_server_knows_its_collections(server, tmp_path):
    if not (ROOT / "servers" / server / "build").exists():
        pytest.skip(f"{server} is not built: wsbench build {server}")
    probe, count = SERVERS[server]
    (tmp_path / "tiny.toml").write_text(TINY)
    asked = experiment.read(tmp_path / "tiny.toml")
    (variant,) = catalogue.select([server], catalogue.read(ROOT / "servers"))
    folder = TrialFolder(tmp_path / "0001")
    folder.path.mkdir()
    order = TrialOrder(number=1, round=1, server=server, variant=variant.variant, cell={})
    setting = trial.Setting(asked, 1, testbed.ThisHost(program.require_binary(), machine.placement()), None)
    record = trial.carry_out(order, small(variant), setting, folder, lambda _: None)
    assert (record.outcome, record.probe) == ("ok", probe), record.reason
    data = TrialData(folder, folder.record)
    found = metrics.measure(data)
    for name in (
        *(count, "gc_pause_ms_sum", "gc_pause_ms_max", "heap_used_bytes_max", "sampling_cpu_percent"),
        *("server_pss_bytes_ready", "server_pss_bytes_ended", "sending_memory_used_bytes", "connect_s"),
    ):
        assert found.values[name] > 0, (name, found.reasons.get(name))
    begin, end = data.begins["connect"], data.end.t_ns
    assert any(begin < one.begin_ns < end for one in data.runtime.pauses)
    assert record.server_started_ns < begin
    assert {"heap_used_bytes", "gc_pause_ms", "server_rss_bytes", "open_connections"} <= set(series.of(data))
    assert not any(probes.is_told(probe, line) for line in record.log_tail)
    assert {"switches", "pss", "sampler", "machine"} <= {sample.of for sample in data.samples}


@pytest.mark.system
@pytest.mark.parametrize(("scales", "heap"), [(["heap"], 32), ([], 64)])
def test_processes_share_the_heap_where_it_scales(scales, heap, tmp_path):
    if not (ROOT / "servers" / "node-ws" / "build").exists():
        pytest.skip("node-ws is not built: wsbench build node-ws")
    (tmp_path / "tiny.toml").write_text(TINY)
    asked = experiment.read(tmp_path / "tiny.toml").model_copy(update={"scales": scales})
    (variant,) = catalogue.select(["node-ws+heap64m"], catalogue.read(ROOT / "servers"))
    folder = TrialFolder(tmp_path / "0001")
    folder.path.mkdir()
    order = TrialOrder(number=1, round=1, server="node-ws", variant=variant.variant, cell={})
    setting = trial.Setting(asked, 1, testbed.ThisHost(program.require_binary(), machine.placement()), None, server_processes=2)
    record = trial.carry_out(order, variant, setting, folder, lambda _: None)
    assert (record.outcome, record.server_processes) == ("ok", 2), record.reason
    assert record.server_env["NODE_OPTIONS"] == f"--max-old-space-size={heap}"


def test_an_old_trial_without_any_of_it_can_still_be_read(tmp_path):
    folder = write_trial(tmp_path / "0001", Trial())
    record = json.loads((folder.path / "trial.json").read_text())
    assert record.pop("probe") is None
    record.pop("server_started_ns")
    (folder.path / "trial.json").write_text(json.dumps(record))
    assert TrialData(folder, folder.record).runtime == "wsbench has no probe for this server's runtime"

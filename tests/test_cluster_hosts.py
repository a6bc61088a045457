"""Three hosts made of network namespaces, one that serves and two that load, over Ray: the same counts as on one host, and what is
reported and left when something is lost. Needs root, `ip` and Ray (`pip install 'wsbench[cluster]'`); `-s` prints the times.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest

from wsbench import build, catalogue, histogram, metrics
from wsbench.catalogue import ROOT
from wsbench.rundir import RunFolder, TrialFolder
from wsbench.view import TrialView

SERVE, LOADS = "wsbt-s", ("wsbt-a", "wsbt-b")
SPACES = (SERVE, *LOADS)
BRIDGE = "wsbtbr"
PORT = 21_000
CLUSTER = """
token = "{folder}/token"
port = 26379
wait_s = {wait_s}
[[host]]
name = "load-a"
address = "10.77.8.2"
cpus = [{last}]
netns = "wsbt-a"
[[host]]
name = "load-b"
address = "10.77.8.3"
cpus = [{last}]
netns = "wsbt-b"
[[host]]
name = "serve"
role = "serve"
address = "10.77.8.1"
cpus = [0]
netns = "wsbt-s"
"""
#: What a busy machine's samples may be too few for.
UNSURE = {"connects_per_s", "connect_cpu_idle_percent"}
EXPERIMENT = """
question = "The same elsewhere?"
reading  = "Nothing here is a result."
servers  = ["reference"]
scenario = "{scenario}"
loop     = "open"
headline = "messages_per_s"
[load]
rate_per_s = {rate}
[sweep]
connections = [10, 40]
[timing]
measure_s = {seconds}
rounds = {rounds}
"""


def ip(*words: str, check: bool = True) -> subprocess.CompletedProcess:
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True)


def possible() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None or find_spec("ray") is None:
        return False
    made = ip("netns", "add", "wsbt-probe", check=False).returncode == 0
    return made and ip("netns", "del", "wsbt-probe", check=False).returncode == 0


pytestmark = pytest.mark.skipif(not possible(), reason="needs root, ip and Ray")


def end_namespaces() -> None:
    for space in SPACES:
        # By itself it would stay for as long as the kernel keeps a socket of the namespace.
        ip("link", "del", f"v{space}", check=False)
        ip("netns", "del", space, check=False)
    ip("link", "del", BRIDGE, check=False)


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    """The namespaces, a reference server in one, Ray in the two others; the folder to load from."""
    folder = tmp_path_factory.mktemp("cluster")
    for name, wait_s in (("cluster.toml", 90), ("impatient.toml", 3)):
        (folder / name).write_text(CLUSTER.format(folder=folder, wait_s=wait_s, last=os.cpu_count() - 1))
    end_namespaces()
    server = None
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("link", "set", BRIDGE, "up")
        for number, space in enumerate(SPACES, 1):
            ip("netns", "add", space)
            ip("link", "add", f"v{space}", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"v{space}", "master", BRIDGE, "up")
            ip("-n", space, "addr", "add", f"10.77.8.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        variant = next(one for one in catalogue.read(ROOT / "servers") if one.name == "reference@websocket")
        assert build.build(variant, sorted(os.sched_getaffinity(0))).problem is None
        binary = variant.folder / variant.table.run[0]
        env = {"HOST": "10.77.8.1", "PORT": str(PORT), "THREADS": "1"}
        server = subprocess.Popen(["ip", "netns", "exec", SERVE, str(binary)], env={**os.environ, **env})
        up(folder)
        yield folder
    finally:
        if server is not None:
            server.kill()
            server.wait()
        inside(folder, "cluster", "down", "cluster.toml")
        end_namespaces()


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "NO_COLOR": "1"}


def command(*words: str) -> list[str]:
    return ["ip", "netns", "exec", LOADS[0], sys.executable, "-m", "wsbench.cli", *words]


def inside(folder: Path, *words: str, timeout: float = 120) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*words), cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=timeout
    )


def up(folder: Path) -> None:
    """A host that has been given up takes a moment to end: only then is it started anew."""
    # Ray's children get the niceness of what starts it, which a test runner may have lowered.
    start = ["nice", "-n", str(-os.nice(0)), *command("cluster", "up", "cluster.toml")]
    until = time.monotonic() + 90
    while inside(folder, "cluster", "status", "cluster.toml").returncode != 0:
        done = subprocess.run(start, cwd=folder, env=environment(folder), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert time.monotonic() < until, "the cluster did not come up"
        time.sleep(2)


def load(kind: str, *words: str) -> list[str]:
    return ["load", f"ws://10.77.8.1:{PORT}/{kind}", "--mine", "10.77.8.1", "-c", "40", *words]


def result(done: subprocess.CompletedProcess) -> tuple[dict, Path]:
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return document, Path(document["folder"])


def end_of(folder: Path) -> dict:
    return json.loads((folder / "events.jsonl").read_text().splitlines()[-1])


@pytest.mark.parametrize("words", [("echo", "--rate", "400"), ("push", "--push", "10")], ids=["echo", "push"])
def test_the_same_plan_gives_the_same_counts_here_and_on_hosts(bed, words):
    asked = load(words[0], *words[1:], "-t", "3", "--json", "--engines", "2")
    ends = []
    for more in ([], ["--cluster", "cluster.toml"]):
        _, folder = result(inside(bed, *asked, *more))
        ends.append(end_of(bed / folder))
    here, there = (end["measured"] for end in ends)
    assert (there["sent"], there["answered"], there["failed"], there["unanswered"]) == (
        *(here["sent"], here["answered"]),
        *(0, 0),
    )
    parts = [end_of(part)["measured"] for part in sorted((bed / folder).glob("engine-*"))]
    assert len(parts) == 2
    assert sum(part["answered"] for part in parts) == there["answered"]
    hosts = [one.host for one in TrialFolder(bed / folder).hosts()]
    assert [(one.name, one.engines) for one in hosts] == [("load-a", [0]), ("load-b", [1])]


# ---- a campaign ------------------------------------------------------------------------------------------------------


def campaign(folder: Path, *words: str, scenario="echo", rate=200, seconds=3, rounds=1) -> list[str]:
    text = EXPERIMENT.format(scenario=scenario, rate=rate, seconds=seconds, rounds=rounds)
    (folder / f"{scenario}.toml").write_text(text)
    return ["run", f"{scenario}.toml", "--engines", "2", "--seed", "5", "--no-report", *words]


def made_by(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess, RunFolder]:
    before = set(folder.glob("runs/*"))
    done = inside(folder, *words, timeout=300)
    new = set(folder.glob("runs/*")) - before
    assert len(new) == 1, done.stderr + done.stdout
    return done, RunFolder(new.pop())


@pytest.mark.parametrize(("scenario", "rate"), [("echo", 200), ("push", 10)])
def test_a_campaign_on_hosts_is_the_campaign_on_one(bed, scenario, rate):
    asked = campaign(bed, scenario=scenario, rate=rate)
    _, here = made_by(bed, *asked)
    done, there = made_by(bed, *asked, "--cluster", "cluster.toml")
    assert done.returncode == 0, done.stderr
    assert [planned.cell for planned in here.order] == [planned.cell for planned in there.order]
    assert [(row.key.name, row.key.role) for row in there.hosts] == [
        *[("load-a", "load"), ("load-b", "load")],
        ("serve", "serve"),
    ]
    assert all(row.machine.sysctls for row in there.hosts)
    for one, other in zip(here.finished(), there.finished(), strict=True):
        same_trial(*one, *other)


def bucket_by_bucket(counts: list[np.ndarray]) -> np.ndarray:
    """The sum; one that was never so high has fewer buckets."""
    most = max(map(len, counts))
    return sum(np.pad(one, (0, most - len(one))) for one in counts)


def same_trial(folder, record, other_folder, other) -> None:
    assert (record.outcome, other.outcome) == ("ok", "ok"), (record.reason, other.reason)
    here, there = TrialView(folder, record), TrialView(other_folder, other)
    counts = [(view.end.connections.established, view.measured.sent, view.measured.answered) for view in (here, there)]
    assert counts[0] == counts[1]
    ledger = there.measured
    assert (ledger.failed, ledger.unanswered, ledger.sent) == (0, 0, ledger.answered)
    assert there.plan.target.address.startswith("10.77.8.1:")
    parts = other_folder.parts()
    assert [one.host.engines for one in other_folder.hosts()] == [[0], [1], []]
    logs = [histogram.merge(histogram.read_log(part.latency_log)) for part in parts]
    assert set(there.histograms) == set().union(*logs)
    for tag, whole in there.histograms.items():
        assert np.array_equal(whole.counts, bucket_by_bucket([log[tag].counts for log in logs if tag in log])), tag
    measured = [{name for name, value in metrics.values(view).items() if value is not None} for view in (here, there)]
    # Times by the wall clocks of two hosts are left out where these may be too far apart; so is what a busy machine cannot tell.
    assert {name for name in measured[0] - measured[1] if not name.startswith("push_stamp")} <= UNSURE
    for one in other_folder.hosts():
        assert len(one.host.clocks) >= 3
        assert all(abs(found.offset_ns) <= found.bound_ns for found in one.host.clocks), "it is one clock in truth"
        assert {"machine", "network"} <= {
            sample.of for sample in (one if one.host.role == "load" else there.folder).samples()
        }
    kinds = {sample.of for sample in there.samples}
    assert {"server", "machine", "pss", "switches", "sampler"} <= kinds


def engines() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "wsbench-engine" and any(
            "/tmp/wsbench-" in word for word in process.info["cmdline"] or []
        ):
            found.append(process)
    return found


def servers() -> list[psutil.Process]:
    """Those of a campaign: of a leash's child."""
    found = [one for one in psutil.process_iter(["name"]) if one.info["name"] == "reference"]
    return [one for one in of_host(found, SERVE) if "leash.py" in " ".join(one.parent().cmdline())]


def of_host(processes: list[psutil.Process], space: str) -> list[psutil.Process]:
    there = Path(f"/run/netns/{space}").stat().st_ino
    return [one for one in processes if namespace(one) == there]


def namespace(process: psutil.Process) -> int | None:
    try:
        return Path(f"/proc/{process.pid}/ns/net").stat().st_ino
    except OSError:
        return None


def kill_engine(_) -> None:
    of_host(engines(), LOADS[1])[0].kill()


def kill_actor(_) -> None:
    of_host(engines(), LOADS[1])[0].parent().kill()


def kill_raylet(_, space: str = LOADS[1]) -> None:
    raylets = [one for one in psutil.process_iter(["name"]) if one.info["name"] == "raylet"]
    of_host(raylets, space)[0].kill()


def cut_link(_, space: str = LOADS[1]) -> None:
    ip("link", "set", f"v{space}", "down")


def kill_serving_actor(_) -> None:
    servers()[0].parent().parent().kill()


def kill_serving_raylet(driver) -> None:
    kill_raylet(driver, SERVE)


def cut_serving_link(driver) -> None:
    cut_link(driver, SERVE)


def kill_driver(driver: subprocess.Popen) -> None:
    driver.kill()


#: What does it, what is said, and within how many seconds wsbench has ended, its goodbye to the hosts that are left included.
FAULTS = {
    "engine": (kill_engine, "SIGKILL", 8),
    "actor": (kill_actor, "lost host load-b", 10),
    "driver": (kill_driver, None, 5),
    "link": (cut_link, "lost host load-b", 20),
    "raylet": (kill_raylet, "lost host load-b", 20),
}


#: The same in a campaign: what does it, what the trial's row says, within how many seconds.
CAMPAIGN_FAULTS = {
    "engine": (kill_engine, "SIGKILL", 8),
    "actor": (kill_actor, "lost host load-b", 10),
    "raylet": (kill_raylet, "lost host load-b", 20),
    "serving-actor": (kill_serving_actor, "lost host serve", 10),
    "serving-raylet": (kill_serving_raylet, "lost host serve", 20),
    "serving-link": (cut_serving_link, "lost host serve", 20),
}


@pytest.fixture
def whole_again(bed):
    """After what breaks the cluster itself."""
    yield
    mend(bed)


def mend(bed: Path) -> None:
    """The links are there, and Ray is started anew where it has ended."""
    for space in SPACES:
        ip("link", "set", f"v{space}", "up")
    up(bed)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_loss_is_told_within_seconds_and_nothing_is_left(bed, whole_again, fault):
    do, said, within_s = FAULTS[fault]
    words = command(*load("echo", "--rate", "400", "-t", "12", "--json", "--cluster", "cluster.toml"))
    driver = subprocess.Popen(
        words,
        cwd=bed,
        env=environment(bed),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while len(engines()) < 2 and driver.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(3)
    assert len(engines()) == 2, driver.stderr.read() if driver.poll() is not None else "the engines did not start"
    began = time.monotonic()
    do(driver)
    out, _ = driver.communicate(timeout=60)
    told_s = time.monotonic() - began
    text = "nobody is left to be told" if said is None else json.loads(out)["reason"]
    left_until = time.monotonic() + 60
    while engines() and time.monotonic() < left_until:
        time.sleep(0.2)
    print(f"\n| {fault} | {text} | {told_s:.1f} s | {len(engines())} engines, after {time.monotonic() - began:.1f} s |")
    assert not engines()
    assert said is None or said in text
    assert told_s < within_s


def begun(bed: Path, *words: str) -> subprocess.Popen:
    """wsbench under way: both engines and the server run, for two seconds."""
    out = (bed / "driver.log").open("w")
    driver = subprocess.Popen(
        command(*words), cwd=bed, env=environment(bed), stdout=out, stderr=out, start_new_session=True
    )
    until = time.monotonic() + 90
    while len(engines()) < 2 and driver.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(2)
    assert len(engines()) == 2, (bed / "driver.log").read_text()
    return driver


def awaited(what, within_s: float):
    """What it returns, once that is something."""
    until = time.monotonic() + within_s
    while not (found := what()):
        assert time.monotonic() < until, "it did not come in time"
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("fault", CAMPAIGN_FAULTS)
def test_a_campaign_has_a_failed_row_and_goes_on(bed, whole_again, fault):
    do, said, within_s = CAMPAIGN_FAULTS[fault]
    before = set(bed.glob("runs/*"))
    driver = begun(bed, *campaign(bed, "--cluster", "cluster.toml", seconds=8))
    run = RunFolder((set(bed.glob("runs/*")) - before).pop())
    began = time.monotonic()
    do(driver)
    record = awaited(lambda: run.trial(1).record, within_s)
    told_s = time.monotonic() - began
    mend(bed)
    assert driver.wait(timeout=180) == 0, (bed / "driver.log").read_text()
    print(f"\n| {fault} | {record.reason} | {told_s:.1f} s |")
    assert record.outcome == "failed"
    assert said in record.reason
    assert [one.outcome for _, one in run.finished()] == ["failed", "ok"]
    assert run.trial(1).record == record
    assert not engines()
    assert not servers()


def test_a_host_that_does_not_come_back_ends_the_campaign_with_a_plain_line(bed, whole_again):
    before = set(bed.glob("runs/*"))
    driver = begun(bed, *campaign(bed, "--cluster", "impatient.toml", seconds=8))
    run = RunFolder((set(bed.glob("runs/*")) - before).pop())
    kill_serving_raylet(driver)
    assert driver.wait(timeout=60) == 2
    said = (bed / "driver.log").read_text()
    assert "waiting for serve, at most 3 s: lost host serve" in said
    assert "wsbench: serve did not come back within 3 s" in said
    assert [one.outcome for _, one in run.finished()] == ["failed"]
    mend(bed)
    done = inside(bed, "run", "--resume", str(run.path), "--no-report")
    assert "this campaign was begun on the hosts load-a, load-b, serve" in done.stderr
    done = inside(bed, "run", "--resume", str(run.path), "--no-report", "--cluster", "cluster.toml")
    assert done.returncode == 0, done.stderr
    assert [one.outcome for _, one in run.finished()] == ["failed", "ok"]

"""Three hosts made of network namespaces, one that serves and two that load over Ray: the same counts as on one host, and what is
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

import psutil
import pytest

from wsbench import build, catalogue
from wsbench.catalogue import ROOT

SERVE, LOADS = "wsbt-s", ("wsbt-a", "wsbt-b")
SPACES = (SERVE, *LOADS)
BRIDGE = "wsbtbr"
PORT = 21_000
CLUSTER = """
token = "{folder}/token"
port = 26379
[[host]]
name = "load-a"
address = "10.77.8.2"
cpus = 1
netns = "wsbt-a"
[[host]]
name = "load-b"
address = "10.77.8.3"
cpus = 1
netns = "wsbt-b"
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
    (folder / "cluster.toml").write_text(CLUSTER.format(folder=folder))
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
    # Ray's children get the niceness of what starts it, which a test runner may have lowered.
    start = ["nice", "-n", str(-os.nice(0)), *command("cluster", "up", "cluster.toml")]
    done = subprocess.run(start, cwd=folder, env=environment(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    until = time.monotonic() + 90
    while inside(folder, "cluster", "status", "cluster.toml").returncode != 0:
        assert time.monotonic() < until, "the cluster did not come up"
        time.sleep(1)


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
    assert [
        json.loads((part / "host.json").read_text())["name"] for part in sorted((bed / folder).glob("engine-*"))
    ] == [
        "load-a",
        "load-b",
    ]


def engines() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "wsbench-engine" and any(
            "/tmp/wsbench-" in word for word in process.info["cmdline"] or []
        ):
            found.append(process)
    return found


def of_host(processes: list[psutil.Process], space: str) -> list[psutil.Process]:
    there = Path(f"/run/netns/{space}").stat().st_ino
    return [one for one in processes if Path(f"/proc/{one.pid}/ns/net").stat().st_ino == there]


def kill_engine(_) -> None:
    of_host(engines(), LOADS[1])[0].kill()


def kill_actor(_) -> None:
    of_host(engines(), LOADS[1])[0].parent().kill()


def kill_raylet(_) -> None:
    raylets = [one for one in psutil.process_iter(["name"]) if one.info["name"] == "raylet"]
    of_host(raylets, LOADS[1])[0].kill()


def cut_link(_) -> None:
    ip("link", "set", f"v{LOADS[1]}", "down")


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


@pytest.fixture
def whole_again(bed):
    """After what breaks the cluster itself: the link is there, and Ray is started anew."""
    yield
    if inside(bed, "cluster", "status", "cluster.toml").returncode != 0 or ip(
        "link", "show", "up", check=False
    ).stdout.count("vwsbt") < len(SPACES):
        ip("link", "set", f"v{LOADS[1]}", "up")
        inside(bed, "cluster", "down", "cluster.toml")
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

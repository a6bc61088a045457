"""A load of a server that is none of ours from two hosts, over Ray: the same counts as from one, and what is reported and left when
something is lost. `-s` prints the times.
"""

import json
import subprocess
import time
from pathlib import Path

import pytest
from namespaces import PORT, command, cut_link, engines, environment, inside, kill_actor, kill_engine, kill_raylet

from wsbench.records.rundir import TrialFolder


def test_somebody_elses_ray_can_be_joined(bed):
    """By its address and with what the environment says of its token; it is neither started nor ended."""
    text = (bed / "cluster.toml").read_text().replace(f'token = "{bed}/token"', 'ray = "10.77.8.2:26379"')
    (bed / "joined.toml").write_text(text)
    theirs = {**environment(bed), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(bed / "token")}
    words = command("cluster", "status", "joined.toml")
    done = subprocess.run(words, cwd=bed, env=theirs, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.count(": connected")) == (0, 3), done.stdout + done.stderr
    assert "start and end it yourself" in inside(bed, "cluster", "down", "joined.toml").stderr


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


@pytest.mark.fault(
    "D3",
    "of a load from two hosts: an engine, an actor, a raylet, the driver, or a link is lost",
    "told within seconds; nothing is left",
)
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

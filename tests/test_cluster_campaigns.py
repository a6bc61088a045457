"""Campaigns on three hosts over Ray: the same as on one machine, and a failed row where something is lost. `-s` prints the
times.
"""

import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import RAN
from namespaces import (
    command,
    cut_serving_link,
    engines,
    environment,
    inside,
    kill_actor,
    kill_engine,
    kill_raylet,
    kill_serving_actor,
    kill_serving_raylet,
    mend,
    servers,
)

from wsbench import metrics
from wsbench.engine import histogram
from wsbench.metrics.trial_data import TrialData
from wsbench.records.rundir import RunFolder

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
again = 0
"""

#: Clocks of two hosts may be too far apart for a time by both; a busy machine's samples may be too far apart.
UNSURE = "clocks of the two hosts|too few samples|too short|no sample|less than a quarter|less than twice"


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


@pytest.mark.parametrize(("scenario", "rate"), [pytest.param("echo", 200, marks=pytest.mark.system), ("push", 10)])
def test_a_campaign_on_hosts_is_the_campaign_on_one(bed, scenario, rate):
    asked = campaign(bed, scenario=scenario, rate=rate)
    _, here = made_by(bed, *asked)
    done, there = made_by(bed, *asked, "--cluster", "cluster.toml")
    assert done.returncode in RAN, done.stderr
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
    here, there = TrialData(folder, record), TrialData(other_folder, other)
    counts = [(data.end.connections.established, data.measured.sent, data.measured.answered) for data in (here, there)]
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
    reasons = [metrics.measure(data).reasons for data in (here, there)]
    for name in reasons[1].keys() - reasons[0].keys():
        assert re.search(UNSURE, reasons[1][name]), name
    for one in other_folder.hosts():
        assert len(one.host.clocks) >= 3
        assert all(abs(found.offset_ns) <= found.bound_ns for found in one.host.clocks), "it is one clock in truth"
        assert {"machine", "network"} <= {sample.of for sample in (one if one.host.role == "load" else there.folder).samples()}
    kinds = {sample.of for sample in there.samples}
    assert {"server", "machine", "pss", "switches", "sampler"} <= kinds


#: The same in a campaign: what does it, what the trial's row says, within how many seconds.
CAMPAIGN_FAULTS = {
    "engine": (kill_engine, "SIGKILL", 8),
    "actor": (kill_actor, "lost host load-b", 10),
    "raylet": (kill_raylet, "lost host load-b", 20),
    "serving-actor": (kill_serving_actor, "lost host serve", 10),
    "serving-raylet": (kill_serving_raylet, "lost host serve", 20),
    "serving-link": (cut_serving_link, "lost host serve", 20),
}


def begun(bed: Path, *words: str) -> subprocess.Popen:
    """wsbench under way: both engines and the server run, for two seconds."""
    out = (bed / "driver.log").open("w")
    driver = subprocess.Popen(command(*words), cwd=bed, env=environment(bed), stdout=out, stderr=out, start_new_session=True)
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


@pytest.mark.fault(
    "D1",
    "of a campaign on three hosts: an engine, an actor, a raylet, the server's actor, its raylet, or its link is lost",
    "within seconds a failed row that names it; the campaign goes on, nothing is left",
)
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
    assert driver.wait(timeout=180) in RAN, (bed / "driver.log").read_text()
    print(f"\n| {fault} | {record.reason} | {told_s:.1f} s |")
    assert record.outcome == "failed"
    assert said in record.reason
    assert [one.outcome for _, one in run.finished()] == ["failed", "ok"]
    assert run.trial(1).record == record
    assert not engines()
    assert not servers()


@pytest.mark.fault("D2", "a host does not come back", "one line, exit 2; resumed on the same hosts")
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
    assert "this campaign was started on the hosts load-a, load-b, serve" in done.stderr
    done = inside(bed, "run", "--resume", str(run.path), "--no-report", "--cluster", "cluster.toml")
    assert done.returncode in RAN, done.stderr
    assert [one.outcome for _, one in run.finished()] == ["failed", "ok"]

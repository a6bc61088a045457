"""The machine at its limits: a disk that is full from any write on, a wall clock that is set while something runs."""

import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from conftest import RAN, SERVERS, WSBENCH, started_by

from wsbench.metrics import measure
from wsbench.metrics.trial_data import TrialData
from wsbench.records.rundir import RunFolder

pytestmark = pytest.mark.nightly

HOUR_NS = 3600 * 10**9


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> str:
    """The library that makes a machine have faults."""
    library = tmp_path_factory.mktemp("machine") / "machine.so"
    source = Path(__file__).with_name("machine.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source, "-ldl"], check=True)
    return str(library)


# ---- a full disk -----------------------------------------------------------------------------------------------------


class Disk:
    """A folder `runs` whose disk is full from a write on."""

    def __init__(self, folder: Path, library: str, experiment: Path):
        text = experiment.read_text().replace("[2, 4]", "[2]").replace("measure_s = 0.6", "measure_s = 0.3")
        experiment.write_text(text)
        self.folder, self._library, self._experiment = folder, library, experiment
        self._counts = folder / "counts"

    def run(self, full_from: int, *words: str) -> tuple[subprocess.CompletedProcess, int]:
        """A campaign, and how many writes there were. It leaves no process."""
        self._counts.write_bytes(struct.pack("qq", 0, full_from))
        env = {"LD_PRELOAD": self._library, "FAULT_DISK": self._counts, "FAULT_UNDER": self.folder / "runs"}
        with subprocess.Popen(
            [*WSBENCH, *(words or ("run", str(self._experiment)))],
            cwd=self.folder,
            env={**os.environ, **env, "WSBENCH_SERVERS": str(SERVERS), "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            said = running.communicate(timeout=180)
        assert not started_by(running.pid)
        done = subprocess.CompletedProcess(running.args, running.returncode, *said)
        return done, struct.unpack("qq", self._counts.read_bytes())[0]


@pytest.fixture
def disk(tmp_path, machine, experiment):
    return Disk(tmp_path, machine, experiment)


def filled(disk: Disk, at: int) -> None:
    """From this write on there is no room; then there is again."""
    shutil.rmtree(disk.folder / "runs", ignore_errors=True)
    done, writes = disk.run(at)
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    if writes <= at:
        assert done.returncode in RAN, said
        return
    assert done.returncode == 1, said
    assert done.stderr.count("\n") == 1, said
    assert "No space left on device; free space on that disk" in done.stderr
    assert "FAILED" not in said, "the server is not blamed"
    told = done.stdout.count("] fragile@steady ")
    for folder in (disk.folder / "runs").glob("*"):
        assert not list(folder.rglob("*.part"))
        if not (folder / "campaign.json").exists():
            continue
        kept = [record.number for _, record in RunFolder(folder).finished()]
        assert len(kept) >= told, "what was shown is there"
        done, _ = disk.run(1 << 40, "run", "--resume", str(folder))
        assert done.returncode in RAN, done.stderr
        assert [record.number for _, record in RunFolder(folder).finished()] == [1, 2]


@pytest.mark.fault(
    "R4",
    "the disk is full from a write on: some writes of a campaign",
    "exit 1, one line; it is resumed, and nothing is lost",
)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.35, 0.7, 0.97])
def test_a_full_disk(disk, share):
    filled(disk, int(share * disk.run(1 << 40)[1]))


@pytest.mark.fault(
    "R4",
    "the disk is full from a write on: every write of a campaign and its report",
    "exit 1, one line; it is resumed, and nothing is lost",
    slow=True,
)
def test_a_full_disk_at_every_write(disk):
    for at in range(disk.run(1 << 40)[1]):
        filled(disk, at)


@pytest.mark.fault("R4", "the disk is full while `report`, `pack` or `site` writes", "exit 1, one line, no half result")
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("words", [["pack", "RUN", "runs/packed"], ["site", "runs/site"], ["report", "RUN"]])
def test_a_full_disk_while_something_is_made(disk, words, share):
    disk.run(1 << 40)
    (run,) = (disk.folder / "runs").iterdir()
    words = [str(run) if word == "RUN" else word for word in words]
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    _, writes = disk.run(1 << 40, *words)
    for made in ("packed", "site"):
        shutil.rmtree(disk.folder / "runs" / made, ignore_errors=True)
    for file, content in before.items():
        file.write_bytes(content)
    done, _ = disk.run(int(share * writes), *words)
    assert (done.returncode, done.stderr.count("\n")) in ((1, 1), (2, 1)), done.stderr
    assert "No space left on device" in done.stderr
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    assert [one.name for one in (disk.folder / "runs").iterdir()] == [run.name]


# ---- a clock that is set ---------------------------------------------------------------------------------------------

STEPPED = """
question = "What does a clock that is set do to a campaign?"
reading  = "Nothing here is a result."
servers  = ["reference"]
scenario = "{scenario}"
loop     = "open"
headline = "service_us_p50"
[load]
connections = 4
rate_per_s = {rate}
[timing]
measure_s = 3
rounds = 1
again = 0
"""


@pytest.mark.fault(
    "K1",
    "the wall clock is set by an hour, while a campaign runs",
    "no number is wrong by it; what it times is left out",
)
@pytest.mark.parametrize("by_ns", [HOUR_NS, -HOUR_NS])
@pytest.mark.parametrize(("scenario", "rate"), [("echo", 200), ("push", 20)])
def test_a_clock_that_is_set(tmp_path, machine, scenario, rate, by_ns):
    file = tmp_path / "stepped.toml"
    file.write_text(STEPPED.format(scenario=scenario, rate=rate))
    running = subprocess.Popen(
        [*WSBENCH, "run", str(file), "--no-report"],
        cwd=tmp_path,
        env={**os.environ, "LD_PRELOAD": machine, "FAULT_CLOCK_IN": str(tmp_path / "clock"), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with running:
        until = time.monotonic() + 90
        while running.poll() is None and time.monotonic() < until:
            events = list(tmp_path.glob("runs/*/0001/events.jsonl"))
            if events and '"phase":"measure"' in events[0].read_text():
                break
            time.sleep(0.02)
        time.sleep(1.3)
        (tmp_path / "clock").write_text(str(by_ns))
        said = running.stdout.read()
    assert running.returncode in RAN, said
    ((folder, record),) = RunFolder(next(tmp_path.glob("runs/*"))).finished()
    assert record.outcome == "ok", record.reason
    assert 3 < record.duration_s < 60
    trial = TrialData(folder, record)
    assert abs(trial.end.wall_moved_ns - HOUR_NS) < 10**9
    found = measure(trial)
    for name, value in found.values.items():
        assert value is None or not name.endswith(("_us_max", "_us_p999")) or value < 30e6, name
    if scenario == "push":
        assert found.values["push_us_p50"] is not None
        assert found.values["push_stamp_us_p50"] is None
        assert "the wall clock moved by 3.6e+09 µs" in found.reasons["push_stamp_us_p50"]
    else:
        assert found.values["service_us_p50"] is not None
        assert found.values["receive_delay_us_p50"] is None
        assert "the wall clock was set" in found.reasons["engine_adds_us"]

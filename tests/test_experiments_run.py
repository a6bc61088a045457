"""Every file of `experiments/`, at its smallest size, as a user runs it: campaign, data set, report, claims and exports.

The folder says which there are, so a new experiment is run too. A metric, a check, a figure or a claim that raises ends the test.
"""

import pytest
from conftest import RAN

from wsbench import cli
from wsbench.analysis import tables
from wsbench.experiments import experiment
from wsbench.experiments.experiment import Experiment
from wsbench.host.installation import ROOT
from wsbench.records.rundir import RunFolder
from wsbench.report import export
from wsbench.run import preparing
from wsbench.servers import catalogue
from wsbench.servers.catalogue import Variant
from wsbench.servers.settings import mebibytes

pytestmark = pytest.mark.system

FILES = sorted(experiment.EXPERIMENTS.glob("*.toml"))
#: Of what `make` builds for the tests, those that start soonest first.
SERVERS = ("reference@websocket", "go-net-websocket", "node-ws", "json-rpc", "aedes", "netty")
SECONDS = 0.8
MOST = {"connections": 200, "messages": 1_000, "heap": 32}


def servers_of(of: Experiment) -> list[Variant]:
    """One that serves it; two where trials run at the same time; a JVM where its heap is scaled."""
    known = [catalogue.select([name], catalogue.read(ROOT / "servers"))[0] for name in SERVERS]
    able = [one for one in known if of.served in one.serves and len(preparing.cells_of(of, one)) == len(of.cells())]
    able = [one for one in able if (one.runtime == "jvm") == ("heap" in of.scales)]
    return able[: 1 if of.arrangement == "trials" else 2]


def time_scale(of: Experiment) -> float:
    seconds = of.timing.warmup_s + (of.measure_s or 0)
    if of.arrangement == "slices":
        return max(SECONDS / seconds, 2 * of.timing.slice_s / of.timing.measure_s)
    return min(1.0, SECONDS / seconds) if seconds else 1.0


def scale(of: Experiment) -> float:
    sizes = {
        "connections": max([of.load.connections or 0, *of.sweep.get("connections", []), *(one.to for one in of.load.stages or [])]),
        "messages": of.load.messages or 0,
        "heap": max(map(mebibytes, of.runtime.heap), default=0),
    }
    found = [MOST[what] / sizes[what] for what in of.scales if sizes[what]]
    return min(1.0, max(found, default=1.0))


def smallest(of: Experiment, servers: list[Variant]) -> list[str]:
    """The first value of each swept key, but both of a switch."""
    words = ["--rounds", "1", "--no-control", "--again", "0", "--seed", "1"]
    words += ["--servers", ",".join(one.name for one in servers)]
    words += ["--time-scale", str(time_scale(of)), *(["--scale", str(scale(of))] if of.scales else [])]
    for key, values in of.sweep.items():
        if len(values) > 1 and type(values[0]) is not bool:
            words += ["--only", f"{key}={values[0]}"]
    return words


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_experiment_runs_from_its_file_to_its_exports(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    of = experiment.read(file)
    servers = servers_of(of)
    assert servers, f"no server that is built for the tests serves {of.served!r}: add one to SERVERS and to the Makefile's TESTED"

    def wsbench(*words: str) -> str:
        code = cli.carried_out([*words])
        said = capsys.readouterr()
        assert code in (RAN if words[0] == "run" else (0,)), said.err
        assert "wsbench failed" not in said.out + said.err
        return said.out

    wsbench("run", file.stem, *smallest(of, servers))
    (folder,) = (tmp_path / "runs").iterdir()
    run = RunFolder(folder)
    assert {record.outcome for _, record in run.finished()} == {"ok"}
    started = {one.name for one in run.order}
    assert {name.partition("+")[0] for name in started} == {one.name for one in servers}
    assert tables.trials_in(run) == {one.number for one in run.order}
    assert (folder / "report.html").stat().st_size > 100_000
    written = export.Document.model_validate_json(wsbench("export", str(folder), "json"))
    assert {one.server for one in written.trials} == started
    assert not [reason for one in written.trials for reason in one.reasons.values() if "wsbench failed" in reason]
    assert all(trial.events()[-1].connections.established for trial, _ in run.finished())
    claims = wsbench("claims", str(folder), "--json")
    assert all(f'"{one.id}"' in claims for one in of.claim)
    for form in ("csv", "junit"):
        assert servers[0].server in wsbench("export", str(folder), form)

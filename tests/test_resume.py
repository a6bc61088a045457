"""`run --resume` goes on only with what the trials so far were measured with, and says what differs."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import SERVERS

from wsbench import cli
from wsbench.analysis import tables
from wsbench.analysis.reading import load
from wsbench.engine import program
from wsbench.host import machine
from wsbench.host.installation import ROOT
from wsbench.records.errors import UserError
from wsbench.records.frozen import json_of
from wsbench.records.packing import pack
from wsbench.records.placeless import Places
from wsbench.records.rundir import RunFolder
from wsbench.run import campaign, request, same, testbed
from wsbench.servers import catalogue, sources

EXPERIMENT = """
question = "Does the harness work?"
reading  = "Nothing here is a result."
servers  = ["fragile"]
scenario = "ping"
loop     = "open"
headline = "messages_per_s"
[load]
connections = 2
rate_per_s = 100
[sweep]
connections = [2, 4]
[timing]
measure_s = 0.3
rounds = 1
again = 0
"""


class Silent:
    def __init__(self):
        self.said = []

    def say(self, line):
        self.said.append(line)

    def trials_begin(self, *_): ...
    def trial_runs(self, *_): ...
    def trial_ends(self, *_): ...


def this_host() -> testbed.ThisHost:
    return testbed.ThisHost(program.require_binary(), machine.placement())


@contextmanager
def catalogue_of(folder: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(catalogue.VARIABLE, str(folder))
        yield


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A campaign of two trials, and the folder of its server."""
    folder = tmp_path_factory.mktemp("resume")
    shutil.copytree(SERVERS / "fragile", folder / "servers" / "fragile")
    (folder / "tiny.toml").write_text(EXPERIMENT)
    with catalogue_of(folder / "servers"):
        asked = request.request(str(folder / "tiny.toml"), f"wsbench run {folder}/tiny.toml")
        return campaign.begin(asked, folder / "runs", this_host(), None, Silent()), folder / "servers"


@pytest.fixture
def killed(begun, tmp_path):
    """A copy of it, killed after the first trial, and a copy of its servers."""
    run, servers = begun
    shutil.copytree(run.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "0002")
    shutil.copytree(servers, tmp_path / "servers")
    with catalogue_of(tmp_path / "servers"):
        yield RunFolder.open(tmp_path / "run")


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def refused(run: RunFolder) -> str:
    before = {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    with pytest.raises(UserError) as error:
        campaign.resume(run, this_host(), None, Silent())
    assert before == {file: file.read_bytes() for file in run.path.rglob("*") if file.is_file()}
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_campaign_goes_on_with_what_it_began_with(killed):
    campaign.resume(killed, this_host(), None, Silent())
    assert [record.anyway for _, record in killed.finished()] == [[], []]
    assert killed.campaign.departures == []


def test_a_trial_that_is_run_again_replaces_its_numbers(killed, begun):
    shutil.copytree(begun[0].path / "0002", killed.path / "0002")
    tables.write(killed, load(killed).data)
    shutil.rmtree(killed.path / "0002")
    campaign.resume(killed, this_host(), None, Silent())
    records = [record for _, record in killed.finished()]
    assert [one.record.started_unix_s for one in load(killed).data.trials] == [one.started_unix_s for one in records]


def test_a_campaign_whose_trials_were_published_apart_is_not_run_again(begun, tmp_path):
    apart = pack(begun[0].path, tmp_path / "published", Places({}), tmp_path / "trials.tar.xz")
    assert f"tar -xJf trials.tar.xz -C {apart}" in refused(RunFolder.open(apart))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("rate_per_s = 100", "rate_per_s = 50", "load.rate_per_s 100 → 50"),
        ("[2, 4]", "[2, 4, 8]", "sweep.connections [2, 4] → [2, 4, 8]"),
        ("rounds = 1", "rounds = 3", "timing.rounds 1 → 3"),
        ("measure_s = 0.3", "# 0.3", "timing.measure_s 0.3 → none"),
        ("[load]", "[load", "experiment.toml"),
        ("[sweep]", "# a word\n[sweep]", "its comments or spaces have changed"),
    ],
)
def test_another_experiment_is_named(before, after, said):
    assert said in "; ".join(same.of_text(EXPERIMENT, EXPERIMENT.replace(before, after)))
    assert not same.of_text(EXPERIMENT, EXPERIMENT)


def test_another_server_and_experiment_are_named(killed, tmp_path):
    edit(killed.experiment_toml, "rate_per_s = 100", "rate_per_s = 50")
    edit(tmp_path / "servers" / "fragile" / "server.py", "import", "# changed\nimport")
    said = refused(killed)
    assert "experiment.toml: load.rate_per_s 100 → 50; fragile@steady: its sources or commands have changed" in said


def altered(run: RunFolder, name: str, value) -> None:
    run.write({name: json_of(value)})


def test_another_machine_engine_or_version_of_a_server_is_named(killed):
    record, was = killed.campaign, killed.machine
    altered(killed, "machine.json", was.model_copy(update={"cpu_model": "Fictional", "kernel": "2.4", "cpus": was.cpus + 1}))
    began = record.began
    of = next(iter(began.artefacts.values())).model_copy(update={"receipt": "fragile 2.7", "made": "0" * 64})
    changed = {"engines": {"": "0.0.1, sha256 0"}, "artefacts": dict.fromkeys(began.artefacts, of)}
    altered(killed, "campaign.json", record.model_copy(update={"began": began.model_copy(update=changed)}))
    said = refused(killed)
    for words in (
        f"the machine: cpu_model Fictional → {was.cpu_model}",
        f"cpus {was.cpus + 1} → {was.cpus}",
        f"kernel 2.4 → {was.kernel}",
        "the engine 0.0.1, sha256 0 →",
        "fragile@steady: version report fragile 2.7 →",
        "fragile@steady: it was built anew",
    ):
        assert words in said


def test_a_campaign_that_did_not_record_what_it_began_with_is_refused_and_still_read(killed):
    altered(killed, "campaign.json", killed.campaign.model_copy(update={"began": None}))
    assert same.UNRECORDED in refused(killed)
    assert len(list(killed.finished())) == 1


def test_anyway_goes_on_and_each_further_trial_says_in_spite_of_what(killed):
    edit(killed.experiment_toml, "rate_per_s = 100", "rate_per_s = 50")
    campaign.resume(killed, this_host(), None, Silent(), anyway=True)
    difference = "experiment.toml: load.rate_per_s 100 → 50"
    assert [record.anyway for _, record in killed.finished()] == [[], [difference]]
    assert killed.campaign.departures == [f"resumed in spite of a difference: {difference}"]
    assert b"rate_per_s = 50" in killed.read("experiment.toml")
    assert difference in refused(killed), "the trials are not all of one kind"


def test_a_changed_file_of_the_campaign_itself_is_never_accepted(killed):
    edit(killed.path / "order.json", '"round":1', '"round":2')
    with pytest.raises(UserError, match=r"order\.json was altered"):
        campaign.resume(killed, this_host(), None, Silent(), anyway=True)


def test_anyway_goes_with_resume(capsys):
    assert cli.carried_out(["run", "quick", "--anyway", "--no-report"]) == 2
    assert "--anyway goes with --resume" in capsys.readouterr().err


def test_records_of_a_campaign_name_no_folder_of_this_machine(begun):
    run, _ = begun
    for name in ("campaign.json", "servers.json", "0001/trial.json", "0001/plan.json"):
        text = (run.path / name).read_text()
        for folder in (ROOT, Path.home(), run.path.parent.resolve()):
            assert f"{folder}/" not in text, name


def test_what_a_build_made_has_a_digest_without_what_a_run_leaves(tmp_path):
    made = tmp_path / "build" / "lib"
    made.mkdir(parents=True)
    (made / "a.so").write_bytes(b"1")
    (made / "link").symlink_to("a.so")
    before = sources.digest_of_made([tmp_path / "build"])
    (made / "__pycache__").mkdir()
    (made / "__pycache__" / "a.pyc").write_bytes(b"x")
    (tmp_path / "build" / "wsbench-1.log").write_bytes(b"x")
    assert sources.digest_of_made([tmp_path / "build"]) == before
    for change in (lambda: (made / "a.so").write_bytes(b"2"), lambda: (made / "b").touch(), lambda: (made / "link").unlink()):
        change()
        after = sources.digest_of_made([tmp_path / "build"])
        assert after != before
        before = after


def test_a_server_that_is_not_built_any_more_is_a_difference(killed, tmp_path):
    (tmp_path / "servers" / "fragile" / "server.py").unlink()
    assert "fragile@steady: version report" in refused(killed)

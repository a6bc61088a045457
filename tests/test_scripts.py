"""The programs that measure the project itself, run for real and small: what they print is a table with numbers."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from wsbench.cli import arguments
from wsbench.experiments import experiment
from wsbench.records.errors import UserError
from wsbench.servers import catalogue

SCRIPTS, STUDIES = (Path(__file__).parents[1] / name for name in ("scripts", "studies"))
SMALL = """
question = "Do both clients measure?"
reading  = "Nothing here is a result."
servers  = ["reference"]
scenario = "doc"
loop     = "closed"
headline = "requests_per_s"
[load]
connections   = 4
messages      = 200
payload_bytes = 64
persistent    = false
"""


def rows(*arguments: str) -> list[list[str]]:
    """The cells of the table's rows, without its head."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    table = [line.strip("|").split("|") for line in done.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in table[2:]]


@pytest.mark.alone
def test_the_engine_and_apachebench_measure_the_same_server(tmp_path):
    small = tmp_path / "small.toml"
    small.write_text(SMALL)
    ((name, at_once, size, kept, ours, theirs, *_),) = rows(
        str(STUDIES / "beside_ab.py"), "--experiment", str(small), "--repeats", "1", "reference@websocket"
    )
    assert (name, at_once, size, kept) == ("reference@websocket", "4", "64", "one a request")
    for said in (ours, theirs):
        assert float(re.match(r"[\d,]+", said)[0].replace(",", "")) > 0


@pytest.mark.alone
def test_the_cost_of_sampling_is_measured_against_nobody_looking():
    found = rows(str(STUDIES / "cost_of_sampling.py"), "--repeats", "1", "--measure-s", "0.5", "reference@websocket")
    assert [row[1] for row in found] == ["nobody again", "samples"]
    assert all(float(row[2].split()[0]) > 0 for row in found)
    assert [bool(row[4]) for row in found] == [False, True]


@pytest.mark.alone
def test_the_engine_tells_its_own_part_of_a_response_time():
    found = rows(str(STUDIES / "engine_part.py"), "--repeats", "1", "--measure-s", "1", "--rate", "200", "reference@websocket")
    assert [(row[1], row[2]) for row in found] == [
        (engine, stamped) for engine in ("polls", "sleeps") for stamped in ("every", "one in 8", "none")
    ]
    assert [row[4] != "–" for row in found] == [True, True, False] * 2
    assert [row[5] != "–" for row in found] == [False] * 3 + [True] * 3
    assert all(float(row[3].split()[0]) > 0 for row in found)


# ---- the published campaigns -----------------------------------------------------------------------------------------


def published():
    spec = importlib.util.spec_from_file_location("published", SCRIPTS / "published.py")
    made = importlib.util.module_from_spec(spec)
    sys.modules["published"] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


def test_every_campaign_to_publish_can_be_asked_for():
    text = (SCRIPTS.parent / "results" / "campaigns.toml").read_text(encoding="utf-8")
    found = published().campaigns(text)
    assert len(found) > 10
    variants = catalogue.read()
    for one in found:
        for command in (one.command, *one.before, *one.after):
            words = shlex.split(command)
            arguments.parser(words).parse_args(words)
        asked = arguments.parser(words := shlex.split(one.command)).parse_args(words)
        made = experiment.read(experiment.path_of(asked.experiment))
        assert catalogue.select(asked.servers.split(",") if asked.servers else made.servers, variants), one.name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[campaign]]\nname = "a"\ncommand = "run a"\n' * 2, "a stands twice"),
        ('[[campaign]]\nname = "a"\ncommand = "run a"\nwhen = "now"\n', "when"),
        ("", "campaign"),
    ],
)
def test_a_list_of_campaigns_that_is_wrong_is_refused(text, says):
    with pytest.raises(UserError, match=says):
        published().campaigns(text)

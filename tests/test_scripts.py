"""The scripts that measure the project itself, run for real and small: what they print is a table with numbers."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[1] / "scripts"
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
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    table = [line.strip("|").split("|") for line in done.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in table[2:]]


def test_the_engine_and_apachebench_measure_the_same_server(tmp_path):
    small = tmp_path / "small.toml"
    small.write_text(SMALL)
    ((name, at_once, size, kept, ours, theirs, *_),) = rows(
        str(SCRIPTS / "beside_ab.py"), "--experiment", str(small), "--repeats", "1", "reference@websocket"
    )
    assert (name, at_once, size, kept) == ("reference@websocket", "4", "64", "one a request")
    for said in (ours, theirs):
        assert float(re.match(r"[\d,]+", said)[0].replace(",", "")) > 0


def test_the_cost_of_sampling_is_measured_against_nobody_looking():
    found = rows(str(SCRIPTS / "cost_of_sampling.py"), "--repeats", "1", "--measure-s", "0.5", "reference@websocket")
    assert [row[1] for row in found] == ["nobody again", "samples"]
    assert all(float(row[2].split()[0]) > 0 for row in found)
    assert [bool(row[4]) for row in found] == [False, True]

"""The command line as it starts: at once, with nothing imported that is not used; what is not installed is one line."""

import json
import subprocess
import sys

import pytest

from wsbench.cli import arguments

#: What only the report, the statistics and the pages use.
OF_REPORT = {
    "scipy",
    "statsmodels",
    "pyarrow",
    "pandas",
    "ruptures",
    "jinja2",
    "py_mini_racer",
    "starlette",
    "uvicorn",
}
HEAVY = OF_REPORT | {"numpy", "pydantic", "rich", "psutil"}
IMPORTED = """
import json, sys
{block}
from wsbench import cli
sys.argv = {argv!r}
try:
    cli.main()
except SystemExit as end:
    print(json.dumps([end.code, sorted(name.partition(".")[0] for name in sys.modules)]))
"""
#: As where the base alone is installed: find_spec and import both say no.
BLOCK = """
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {names!r} else found(name, *rest)
"""


def run(folder, *words: str, absent: set[str] = frozenset()) -> tuple[int, set[str], str]:
    """Exit code, what was imported, and what was said on standard error."""
    block = BLOCK.format(names=sorted(absent)) if absent else ""
    code = IMPORTED.format(argv=["wsbench", *words], block=block)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    exit_code, modules = json.loads(done.stdout.splitlines()[-1])
    return exit_code, set(modules), done.stderr


@pytest.mark.parametrize("words", [["--help"], [], ["no-such-command"], ["run", "--help"], ["check", "--help"]])
def test_help_and_mistakes_wait_for_no_import(tmp_path, words):
    _, modules, _ = run(tmp_path, *words)
    assert not modules & HEAVY


@pytest.mark.parametrize("words", [["load", "--help"], ["doctor", "--help"], ["selftest", "--help"], ["list", "servers"]])
def test_the_base_imports_nothing_of_the_report(tmp_path, words):
    code, modules, said = run(tmp_path, *words)
    assert code == 0, said
    assert not modules & OF_REPORT


@pytest.mark.parametrize("name", arguments.COMMANDS)
def test_every_command_has_its_help_and_its_function(tmp_path, name):
    code, _, said = run(tmp_path, name, "--help")
    assert (code, said) == (0, "")
    module, _, function = arguments.COMMANDS[name][1].partition(":")
    assert callable(getattr(__import__(f"wsbench.{module}", fromlist=[function]), function))


def test_a_campaign_whose_report_could_not_be_made_is_refused_before_it_runs(tmp_path):
    code, _, said = run(tmp_path, "run", "quick", absent=OF_REPORT)
    assert code == 2
    assert said.startswith("wsbench: this needs jinja2, which is not installed: pip install 'wsbench[report]'; or use")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [["report", "runs/x"], ["history", "quick"], ["serve"], ["compare", "runs/x", "runs/x"]])
def test_what_needs_the_report_says_what_to_install(tmp_path, words):
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "campaign.json").write_text("{}")
    code, _, said = run(tmp_path, *words, absent=OF_REPORT)
    assert (code, said.count("\n")) == (2, 1)
    assert said.endswith("which is not installed: pip install 'wsbench[report]'\n")


def test_version_names_harness_engine_and_catalogue(wsbench):
    done = wsbench("--version")
    harness, engine, catalogue = done.stdout.splitlines()
    assert done.returncode == 0
    assert engine.startswith(f"wsbench-engine {harness.removeprefix('wsbench ')} (")
    assert catalogue.endswith("(WSBENCH_SERVERS)")

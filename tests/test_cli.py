"""The command line as it starts: at once, with nothing imported that is not used; what is not installed is one line."""

import ast
import contextlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import PATIENCE_S

from wsbench import cli
from wsbench.cli import arguments, exits
from wsbench.host import installation
from wsbench.records.engine_files import Closed
from wsbench.records.errors import UserError

ROOT = Path(__file__).parents[1]
#: In a checkout, where these tests run.
EXTRA = f"pip install --editable '{ROOT}[report]'"

#: What only the report, the statistics and the pages use.
OF_REPORT = {"prometheus_client", "py_mini_racer", "pyarrow", "ruptures", "starlette", "uvicorn"}
HEAVY = OF_REPORT | {"jinja2", "numpy", "psutil", "pydantic", "rich", "scipy"}
#: Each command line in a process of its own: a fork of one in which nothing but `wsbench.cli` is imported.
IMPORTED = """
import contextlib, io, json, os, sys
{block}
from wsbench import cli
for words in {lines!r}:
    if os.fork() == 0:
        code, written = None, {{name: io.TextIOWrapper(io.BytesIO(), write_through=True) for name in ("stdout", "stderr")}}
        with contextlib.redirect_stdout(written["stdout"]), contextlib.redirect_stderr(written["stderr"]):
            sys.argv = ["wsbench", *words]
            try:
                cli.main()
            except SystemExit as end:
                code = end.code
        modules = sorted({{name.partition(".")[0] for name in sys.modules}})
        print(json.dumps([code, modules, written["stderr"].buffer.getvalue().decode()]), flush=True)
        os._exit(0)
    os.wait()
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


def run(folder, *lines: list[str], absent: set[str] = frozenset()) -> dict[str, tuple[int, set[str], str]]:
    """For each command line its exit code, what was imported, and what was said on standard error."""
    block = BLOCK.format(names=sorted(absent)) if absent else ""
    code = IMPORTED.format(lines=lines, block=block)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {" ".join(words): (code, set(modules), said) for words, (code, modules, said) in zip(lines, found, strict=True)}


def test_help_and_mistakes_wait_for_no_import(tmp_path):
    done = run(tmp_path, ["--help"], [], ["no-such-command"], ["run", "--help"], ["check", "--help"])
    assert {line: modules & HEAVY for line, (_, modules, _) in done.items() if modules & HEAVY} == {}


@pytest.mark.system
def test_the_base_imports_nothing_of_the_report(tmp_path):
    done = run(tmp_path, ["load", "--help"], ["doctor", "--help"], ["selftest", "--help"], ["list", "servers"])
    found = {line: (code, said, modules & OF_REPORT) for line, (code, modules, said) in done.items()}
    assert found == dict.fromkeys(done, (0, "", set()))


@pytest.mark.parametrize("name", arguments.COMMANDS)
def test_every_command_has_its_help_and_its_function(wsbench, name):
    done = wsbench(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert name in done.stdout
    module, _, function = arguments.COMMANDS[name].function.partition(":")
    assert callable(getattr(__import__(f"wsbench.{module}", fromlist=[function]), function))


@pytest.mark.parametrize("name", arguments.COMMANDS)
def test_the_help_of_a_command_has_its_exit_codes(capsys, name):
    with pytest.raises(SystemExit):
        arguments.parsed([name, "--help"])
    _, _, table = capsys.readouterr().out.partition("exit codes:\n")
    codes = [int(line.split()[0]) for line in table.splitlines() if not line.startswith(" " * 5)]
    assert codes == [code for code, _ in exits.table(name)]
    assert set(exits.OF_ALL) <= set(codes) <= set(exits.MEANINGS)


def test_every_command_is_in_one_group():
    assert [name for names in arguments.GROUPS.values() for name in names] == list(arguments.COMMANDS)


@pytest.mark.parametrize("words", [[], ["help"], ["--help"]])
def test_help_has_every_command_with_what_it_does(capsys, words):
    with pytest.raises(SystemExit) as end:
        arguments.parsed(words)
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code in (0, None)
    assert all(f"  {name:<12}{command.about}" in lines for name, command in arguments.COMMANDS.items())
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", arguments.COMMANDS)
def test_the_examples_of_a_command_are_understood(capsys, name):
    for example in arguments.COMMANDS[name].examples:
        first, *words = shlex.split(example.partition(" > ~")[0])
        assert first == "wsbench"
        with contextlib.suppress(SystemExit):
            assert arguments.parsed(words).command == arguments.COMMANDS[name].function
    with pytest.raises(SystemExit):
        arguments.parsed(["help", name])
    assert arguments.COMMANDS[name].examples[0] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["laod", "x"], "no command 'laod'; did you mean load? (see `wsbench --help`)"),
        (["xyzzy"], "no command 'xyzzy' (see `wsbench --help`)"),
        (
            ["load", "ws://127.0.0.1:1/", "--conections", "5"],
            "unrecognized arguments: --conections 5; did you mean --connections? (see `wsbench load --help`)",
        ),
        (["plan", "quick", "more"], "unrecognized arguments: more (see `wsbench plan --help`)"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_nearest(words, said):
    with pytest.raises(UserError) as met:
        arguments.parsed(words)
    assert str(met.value) == said


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_and_their_options(capsys):
    assert cli.carried_out(["completion", "bash"]) == exits.DONE
    script = capsys.readouterr().out

    def completed(*words: str) -> list[str]:
        line = f'COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_wsbench; printf "%s\\n" "${{COMPREPLY[@]}}"'
        return subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True, check=True).stdout.split()

    assert completed("wsbench", "du") == ["duel"]
    assert completed("wsbench", "load", "--connectio") == ["--connections"]
    assert completed("wsbench", "plan", "--arrangement", "sl") == ["slices"]


@pytest.mark.parametrize("words", [["version"], ["-V"], ["--version"]])
def test_versions_have_three_spellings(capsys, words):
    with pytest.raises(SystemExit):
        arguments.parsed(words)
    assert re.match(r"wsbench \d", capsys.readouterr().out)


def test_each_command_of_the_table_of_exit_codes_exists():
    assert set(exits.OF_COMMAND) <= set(arguments.COMMANDS)


LISTED = [sys.executable, "-m", "wsbench.cli", "list", "metrics"]


@pytest.mark.system
def test_output_that_is_closed_or_knows_no_unicode_is_no_error(tmp_path):
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *LISTED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (closed.returncode, closed.stdout, closed.stderr) == (0, "", "")
    kept = '{ "$@"; echo $? >code; } | head -1'
    piped = subprocess.run(["sh", "-c", kept, "sh", *LISTED], cwd=tmp_path, capture_output=True, check=False)
    assert ((tmp_path / "code").read_text(), piped.stderr) == (f"{exits.PIPE_CLOSED}\n", b"")
    plain = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(LISTED, cwd=tmp_path, env=plain, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u00b5s" in done.stdout


def test_what_an_encoding_lacks_is_what_json_would_write():
    text = "µ\N{GRINNING FACE}"
    written, end = cli._as_json(UnicodeEncodeError("ascii", text, 0, len(text), "not in range"))
    assert (json.loads(f'"{written}"'), end) == (text, len(text))


def test_an_invalid_value_that_nobody_refused_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("wsbench.cli.reading.list_things", lambda _: Closed(depth=2**63))
    assert cli.carried_out(["list", "metrics"]) == exits.BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert "depth" in line


def test_a_campaign_whose_report_could_not_be_made_is_refused_before_it_runs(tmp_path):
    ((code, _, said),) = run(tmp_path, ["run", "quick"], absent=OF_REPORT).values()
    assert code == 2
    assert said.startswith(f"wsbench: this needs prometheus_client, which is not installed: {EXTRA}; or use")
    assert not (tmp_path / "runs").exists()


@pytest.mark.system
def test_what_needs_the_report_says_what_to_install(tmp_path):
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "campaign.json").write_text("{}")
    lines = [["report", "runs/x"], ["history", "quick"], ["serve"]]
    for code, _, said in run(tmp_path, *lines, absent=OF_REPORT).values():
        assert (code, said.count("\n")) == (2, 1)
        assert said.endswith(f"which is not installed: {EXTRA}\n")


@pytest.mark.system
def test_loads_duels_searches_and_comparisons_do_without_the_report(tmp_path):
    lines = [
        ["load", "ws://127.0.0.1:9/", "--report", "load.html"],
        ["duel", "ws://127.0.0.1:9/", "ws://127.0.0.1:9/"],
        ["capacity", "ws://127.0.0.1:9/", "--slo", "p99 < 5ms"],
        ["compare", "nothing", "nothing"],
    ]
    for words, (_, modules, said) in run(tmp_path, *lines, absent=OF_REPORT).items():
        assert "is not installed" not in said, words
        assert not modules & OF_REPORT


def test_version_names_harness_engine_and_catalogue(wsbench):
    done = wsbench("--version")
    harness, engine, catalogue = done.stdout.splitlines()
    assert done.returncode == 0
    assert engine.startswith(f"wsbench-engine {harness.removeprefix('wsbench ')} (")
    assert catalogue.endswith("(WSBENCH_SERVERS)")


def declared(extra: str | None = None) -> set[str]:
    """The modules of the packages that pyproject.toml names, for the base or an extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    names = {re.match(r"[\w.-]+", one)[0].replace("_", "-").lower() for one in wanted}
    modules = importlib.metadata.packages_distributions()
    return {module for module, of in modules.items() if names & {one.replace("_", "-").lower() for one in of} and module[0] != "_"}


def test_every_package_that_is_imported_is_declared():
    imported = set()
    for file in (ROOT / "wsbench").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(node.module.partition(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"wsbench"}
    assert foreign <= declared() | declared("report") | declared("cluster")


def test_what_the_report_needs_is_asked_for_before_anything_is_measured():
    assert set(cli.OF_REPORT) == declared("report")


def test_no_command_to_install_names_an_index():
    assert installation.extra("report") == EXTRA
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "wsbench").rglob("*.py"), ROOT / "action.yml"]
    named = re.compile(r"pip3? install[^\n]*?[ '\"]wsbench\b(?![-\w*/.])")
    assert not {str(file): found[0] for file in texts if (found := named.search(file.read_text()))}

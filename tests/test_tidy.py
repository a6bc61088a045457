"""The rules of the house, executed: arrows one way, one room for processes, sizes, documents that know what exists."""

import ast
import re

import pytest

from wsbench import catalogue, experiment
from wsbench.installation import ROOT

PACKAGE = ROOT / "wsbench"
#: What a room may import of wsbench. A room that is missing here may import nothing.
MAY_IMPORT = {
    "engine_files": {"frozen"},
    "packing": {"errors"},
    "samples": {"frozen"},
    "spans": {"engine_files"},
    "rundir": {"engine_files", "errors", "frozen", "packing", "samples"},
    "histogram": {"errors"},
    "files": {"errors"},
    "frozen": {"errors", "files"},
    "process": {"errors", "leftovers"},
    "settings": {"errors", "frozen"},
    "installation": {"process"},
    "toolchains": {"errors", "installation", "process"},
    "sources": set(),
    "catalogue": {"errors", "frozen", "installation", "settings", "sources", "toolchains"},
    "runtime": {"catalogue", "errors", "process", "rundir", "sampler", "settings"},
    "build": {"catalogue", "errors", "process", "rundir", "runtime", "sources", "toolchains"},
    "figure_table": {"frozen"},
    "experiment": {"claims", "engine_files", "errors", "figure_table", "frozen", "installation", "rundir", "settings"},
    "scaling": {"engine_files", "errors", "experiment", "settings"},
    "stopping": {"engine_files", "experiment"},
    "machine": {"errors", "installation", "process", "rundir", "toolchains"},
    "kernel": {"samples"},
    "hsperf": {"kernel", "samples"},
    "telemetry": {"frozen"},
    "cluster": {
        *(
            "catalogue",
            "engine_files",
            "errors",
            "frozen",
            "installation",
            "machine",
            "preparing",
            "process",
            "rundir",
            "sampler",
        ),
        *("serving", "settings", "shards", "__init__"),
    },
    "capacity": {"machine", "serving", "shards"},
    "sysctls": {"errors", "frozen"},
    "sampler": {"engine_files", "hsperf", "kernel", "samples"},
    "engine": {"engine_files", "errors", "installation"},
    "conformance": {"peer"},
    "autobahn": {"errors", "process"},
    "gate": {
        *("autobahn", "build", "catalogue", "conformance", "errors", "machine", "process", "rundir", "serving"),
    },
    "gate_view": {"gate", "terminal", "__init__"},
    "serving": {"answers", "catalogue", "errors", "frozen", "machine", "process", "runtime", "telemetry"},
    "preparing": {"build", "catalogue", "errors", "gate", "rundir"},
    "place": {"catalogue", "machine", "preparing", "rundir", "sampler", "serving", "settings", "shards"},
    "trial": {
        *("catalogue", "engine", "engine_files", "errors", "experiment", "frozen", "place", "rundir", "telemetry"),
        *("serving", "shards", "spans", "stopping"),
    },
    "merge": {"engine_files", "errors", "histogram", "rundir"},
    "shards": {"engine", "engine_files", "errors", "frozen", "machine", "merge", "process", "rundir"},
    "load": {
        "answers",
        "capacity",
        "cluster",
        "engine",
        "engine_files",
        "errors",
        "frozen",
        "machine",
        "rundir",
        "sampler",
        "shards",
        "spans",
    },
    "load_view": {
        *("engine_files", "frozen", "histogram", "metrics", "rundir", "terminal", "thresholds", "verdict", "view"),
    },
    "servers_view": {"build", "catalogue", "machine", "runtime", "terminal"},
    "hdr": {"histogram", "view"},
    "thresholds": {"errors", "metrics", "view"},
    "campaign": {
        *("catalogue", "errors", "experiment", "frozen", "machine", "packing", "place", "preparing", "rundir"),
        *("scaling", "trial", "verdict", "view", "__init__"),
    },
    "view": {"engine_files", "histogram", "rundir", "telemetry", "samples", "spans"},
    "metrics": {"engine_files", "histogram", "rundir", "telemetry", "samples", "spans", "view"},
    "series": {"samples", "spans", "view"},
    "bottleneck": {"limits", "metrics", "view"},
    "verdict": {"bottleneck", "limits", "engine_files", "metrics", "view"},
    "export": {"errors", "frozen", "hdr", "metrics", "report", "rundir", "stats", "thresholds", "__init__"},
    "stats": set(),
    "claims": {"errors", "frozen", "metrics", "stats"},
    "claims_view": {"claims", "experiment", "report", "rundir", "terminal"},
    "report": {
        *("claims", "engine_files", "errors", "figure_table", "frozen", "histogram", "limits", "metrics", "rundir"),
        *("series", "stats"),
        *("verdict", "view", "__init__", "report"),
    },
    "compare": {"errors", "metrics", "report", "rundir", "stats"},
    "browse": {
        *(
            "compare",
            "engine_files",
            "errors",
            "export",
            "frozen",
            "metrics",
            "report",
            "rundir",
            "stats",
            "verdict",
            "view",
            "__init__",
        ),
    },
    "judgements": {"engine_files", "histogram", "metrics", "view"},
    "selftest": {
        *("engine", "engine_files", "errors", "frozen", "judgements", "machine", "process", "rundir", "view"),
    },
    "terminal": {"judgements", "engine_files", "metrics", "report", "rundir", "verdict", "view"},
}
#: What every room may use.
BASE = {"errors", "files", "plain"}
MODULES = sorted(file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py" or file.parent != PACKAGE)


def room(file) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(file) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "wsbench":
            parts = node.module.split(".")[1:]
            names = [parts[0]] if parts else [alias.name for alias in node.names]
            found |= {"__init__" if name.startswith("__") else name for name in names}
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("wsbench.")}
    return found


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_arrows_point_one_way(file):
    if room(file) != "cli":
        below = set() if room(file) in BASE else BASE
        assert imports(file) <= MAY_IMPORT.get(room(file), set()) | below | {room(file)}


def test_the_arrows_have_no_circle():
    def reaches(start, goal, seen):
        return any(n == goal or (n not in seen and reaches(n, goal, seen | {n})) for n in MAY_IMPORT.get(start, set()))

    for name in MAY_IMPORT:
        assert name == "report" or not reaches(name, name, set()), name


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_only_one_room_starts_processes(file):
    if file.name != "process.py":
        assert not re.search(r"^\s*(import|from) subprocess", file.read_text(), re.MULTILINE)


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_only_one_room_knows_ray(file):
    if file != PACKAGE / "cluster" / "remote.py":
        assert not re.search(r"^\s*(import|from) ray\b", file.read_text(), re.MULTILINE)


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_every_room_says_what_it_is_for_and_is_not_too_large(file):
    text = file.read_text()
    assert ast.get_docstring(ast.parse(text)), "open with what this room is for"
    assert len(text.splitlines()) <= 400


def test_every_server_has_a_readme_and_every_experiment_opens_with_its_question():
    for variant in catalogue.read(ROOT / "servers"):
        assert (variant.folder / "README.md").exists(), variant.server
    for file in experiment.EXPERIMENTS.glob("*.toml"):
        assert file.read_text().startswith("question"), file


def test_the_readme_names_only_commands_that_exist():
    text = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)`?", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target

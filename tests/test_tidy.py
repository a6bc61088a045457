"""The rules of the house, executed: packages only, documents that know what exists. Imports: `lint-imports`."""

import ast
import re
import subprocess
import sys

from wsbench.experiments import experiment
from wsbench.host.installation import ROOT
from wsbench.servers import catalogue

PACKAGE = ROOT / "wsbench"
MODULES = sorted(file for file in PACKAGE.rglob("*.py") if file.parent != PACKAGE)
#: Slow to import, or not there in a base installation.
HEAVY = {"jinja2", "numpy", "pyarrow", "pydantic", "py_mini_racer", "ray", "rich", "scipy", "starlette", "statsmodels"}


def test_the_package_holds_packages_and_each_says_what_goes_in_and_out():
    assert [file.name for file in PACKAGE.glob("*.py")] == ["__init__.py"]
    for folder in PACKAGE.iterdir():
        if folder.is_dir() and folder.name not in ("shipped", "__pycache__"):
            text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
            assert re.search(r"^In: ", text, re.MULTILINE), folder
            assert "Out: " in text, folder
            assert "mport" in text, folder


def test_the_command_line_imports_nothing_heavy():
    line = "import sys, wsbench.cli, wsbench.cli.arguments; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_every_module_says_what_it_is_for():
    assert [str(file) for file in MODULES if not ast.get_docstring(ast.parse(file.read_text()))] == []


def test_every_server_has_a_readme_and_every_experiment_opens_with_its_question():
    for variant in catalogue.read(ROOT / "servers"):
        assert (variant.folder / "README.md").exists(), variant.server
    for file in experiment.EXPERIMENTS.glob("*.toml"):
        assert file.read_text().startswith("question"), file

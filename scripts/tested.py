#!/usr/bin/env python3
"""How well tests guard the judging code: the lines and branches that they reach, and the random changes that they notice.

    .venv/bin/python scripts/tested.py [--number 20] [--seed 1] [--jobs 2] [--limit 120] [--marks "not system"] [--ignore FILE]

All tests run once, with what they start, which tells who reaches what. A mutant flips a comparison, `and` and `or`, or an operator
of arithmetic, drops a `not`, or adds 1 to a number. It is killed if one of the tests that reach its line fails, or one of a file
that imports its module or its package; what a fixture or an import runs, only the latter find. `--limit`: the seconds that such a
group of tests may take; a mutant with which they take longer has timed out, whether it or they are slow.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from coverage import CoverageData
from coverage.exceptions import DataError

ROOT = Path(__file__).resolve().parents[1]
JUDGING = ("wsbench/analysis/stats", "wsbench/metrics", "wsbench/run", "wsbench/checks")
#: Of these, mutants are made: a check of a server is itself tried on faulty servers.
MUTATED = JUDGING[:3]
#: How many of the tests that reach a line are tried before whole files: those that import its module come first.
NEAREST = 40
SETTINGS = """
[run]
branch = true
source = {sources}
data_file = {folder}/covered
parallel = true
patch = subprocess, _exit
sigterm = true
dynamic_context = test_function
"""
SWAPS = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
}


def sites(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The nodes that can be changed, each with what is changed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, "comparison"
        elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in SWAPS and not _joins(node):
            yield node, "operator"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "not"
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, "number"


def _joins(node: ast.AST) -> bool:
    """Texts, and types in annotations, are joined by operators too."""
    return isinstance(node, ast.BinOp) and any(isinstance(one, ast.JoinedStr) for one in (node.left, node.right))


def mutated(text: str, number: int) -> tuple[str, str, range]:
    """The text with its site of this number changed, the change in words, and the lines of its statement up to the change."""
    tree = ast.parse(text)
    node, what = list(sites(tree))[number]
    around = (one for one in ast.walk(tree) if isinstance(one, ast.stmt) and one.lineno <= node.lineno <= one.end_lineno)
    lines = range(max(one.lineno for one in around), node.end_lineno + 1)
    before = ast.unparse(copy.deepcopy(node))
    if what == "comparison":
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif what == "operator":
        node.op = SWAPS[type(node.op)]()
    elif what == "not":
        node.op = ast.UAdd()
        node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
    else:
        node.value += 1
    return ast.unparse(ast.fix_missing_locations(tree)), f"{node.lineno}: {before}  →  {ast.unparse(node)}", lines


def imported(file: Path) -> set[str]:
    """The modules and packages that a file of tests names in its imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the checkout that shares everything with it except the package."""
    with tempfile.TemporaryDirectory(prefix="wsbench-mutant-") as made:
        for entry in ROOT.iterdir():
            if entry.name not in ("wsbench", ".hypothesis"):
                (Path(made) / entry.name).symlink_to(entry)
        shutil.copytree(ROOT / "wsbench", Path(made) / "wsbench")  # with what is compiled
        yield Path(made)


def pytest(place: Path, *words: str, runner: tuple[str, ...] = (), limit_s: float | None = None, **variables: str):
    return subprocess.run(
        [sys.executable, "-m", *runner, "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1", **variables},
        capture_output=True,
        text=True,
        timeout=limit_s,
    )


def reports(place: Path, settings: Path) -> Iterator[str]:
    """The lines and branches of each judging package that were reached."""

    def coverage(*words: str) -> str:
        command = [sys.executable, "-m", "coverage", *words, f"--rcfile={settings}"]
        return subprocess.run(command, cwd=place, capture_output=True, text=True, check=True).stdout

    coverage("combine", "--quiet")
    for package in JUDGING:
        shown = coverage("report", "--skip-covered", "--skip-empty", f"--include={package}/*")
        yield f"{package}\n{shown}"


class Suite:
    """The tests, what each reaches, and which of them fail without a change (they judge no mutant)."""

    def __init__(self, selection: list[str], workers: int):
        self.selection = selection
        files = [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if f"--ignore=tests/{file.name}" not in selection]
        self.files = {file.stem: file.relative_to(ROOT).as_posix() for file in files}
        self.imports = {file.stem: imported(file) for file in files}
        with copied() as place:
            settings = place / "coveragerc"
            settings.write_text(SETTINGS.format(folder=place, sources=",".join(JUDGING)), encoding="utf-8")
            words = [*selection, "-rfE", f"--numprocesses={workers}", "--dist=loadfile"]
            done = pytest(place, *words, runner=("coverage", "run", "-m"), COVERAGE_RCFILE=str(settings))
            self.failing = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            print(*done.stdout.splitlines()[-1:], *self.failing, sep="\n", flush=True)
            self.reached: dict[tuple[str, int], set[str]] = {}
            for part in place.glob("covered.*"):
                data = CoverageData(str(part))
                with suppress(DataError):  # of a process that was killed while it wrote
                    data.read()
                    for file in data.measured_files():
                        for line, tests in data.contexts_by_lineno(file).items():
                            self.reached.setdefault((Path(file).relative_to(place).as_posix(), line), set()).update(tests)
            print(*reports(place, settings), sep="\n\n", flush=True)

    def groups(self, file: str, lines: range) -> list[list[str]]:
        """What judges a change of these lines, the likeliest first: tests that reach them, then whole files."""
        module = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        package = module.rpartition(".")[0]
        direct = [name for name, names in self.imports.items() if module in names]
        others = [name for name, names in self.imports.items() if package in names and name not in direct]
        reaching = {tuple(test.rsplit(".", 1)) for line in lines for test in self.reached.get((file, line), ()) if test}
        near = sorted((name not in direct, name, test) for name, test in reaching if name in self.files)[:NEAREST]
        tests = [f"{self.files[name]}::{test}" for _, name, test in near]
        return [found for found in (tests, *([self.files[name] for name in names] for names in (direct, others))) if found]

    def notices(self, place: Path, tests: list[str], limit_s: float) -> str | None:
        """How these tests notice a change, if they do."""
        failing = [f"--deselect={test}" for test in self.failing]
        try:
            done = pytest(place, *self.selection, "-x", "-n0", *failing, *tests, limit_s=limit_s)
        except subprocess.TimeoutExpired:
            return "timed out"
        return None if done.returncode in (0, 5) else "killed"  # 5: none of them was selected


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--number", type=int, default=20)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--limit", type=float, default=120)
    asked.add_argument("--marks", default="not system")
    asked.add_argument(
        "--ignore", action="append", default=["test_docs.py"], metavar="FILE", help="tests of documents, not of code"
    )
    options = asked.parse_args()
    files = [file for folder in MUTATED for file in sorted((ROOT / folder).rglob("*.py"))]
    texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    places = [(file, number) for file, text in texts.items() for number in range(sum(1 for _ in sites(ast.parse(text))))]
    chosen = random.Random(options.seed).sample(places, options.number)
    suite = Suite(["-m", options.marks, *(f"--ignore=tests/{name}" for name in options.ignore)], options.jobs)
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def tried(file: str, number: int) -> tuple[str, str]:
        text, change, lines = mutated(texts[file], number)
        groups = suite.groups(file, lines)
        place = free.get()
        whole = ROOT / file
        try:
            (place / file).write_text(text, encoding="utf-8")
            noticed = next(filter(None, (suite.notices(place, tests, options.limit) for tests in groups)), None)
        finally:
            shutil.copy2(whole, place / file)  # with its time, so that what is compiled is still right
            free.put(place)
        return noticed or ("survived" if groups else "untested"), f"{file}:{change}"

    if not chosen:
        return int(bool(suite.failing))
    found: Counter[str] = Counter()
    with ExitStack() as copies, ThreadPoolExecutor(options.jobs) as pool:
        for _ in range(options.jobs):
            free.put(copies.enter_context(copied()))
        for number, (said, change) in enumerate(pool.map(lambda one: tried(*one), chosen), 1):
            found[said] += 1
            print(f"{number}: killed {found['killed']}; {said}: {change}", flush=True)
    print(", ".join(f"{said}: {count} of {len(chosen)} ({count / len(chosen):.0%})" for said, count in found.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

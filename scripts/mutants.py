#!/usr/bin/env python3
"""Changes the judging code at random places, runs the unit tests that import it, and prints which of them notice.

    .venv/bin/python scripts/mutants.py [--number 20] [--seed 1] [--jobs 2] [--limit 120]

A mutant flips a comparison, `and` and `or`, or an operator of arithmetic, drops a `not`, or adds 1 to a number. It is killed if a
test of a file that imports its module or its package fails. `--limit`: the seconds that its tests may take; a
mutant that takes longer is killed too.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JUDGING = ("wsbench/analysis/stats", "wsbench/metrics", "wsbench/run")
#: Tests of the documents, which notice no change of code.
PROSE = ["test_docs.py"]
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


def mutated(text: str, place: int) -> tuple[str, str]:
    """The text with its site of this number changed, and the change in words."""
    tree = ast.parse(text)
    node, what = list(sites(tree))[place]
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
    return ast.unparse(ast.fix_missing_locations(tree)), f"{node.lineno}: {before}  →  {ast.unparse(node)}"


def imported(file: Path) -> set[str]:
    """The modules and packages that a file of tests names in its imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@cache
def tests_of(module: str) -> list[tuple[str, ...]]:
    """The files of tests that import a module, then the others that import its package."""
    files = {file.name: imported(file) for file in sorted((ROOT / "tests").glob("test_*.py")) if file.name not in PROSE}
    direct = tuple(file for file, names in files.items() if module in names)
    package = module.rpartition(".")[0]
    return [
        found
        for found in (direct, tuple(file for file, names in files.items() if package in names and file not in direct))
        if found
    ]


def module_of(file: Path) -> str:
    return file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


@cache
def pass_unchanged(tests: tuple[str, ...], file: Path, limit_s: float) -> bool:
    return pass_with(tests, file, file.read_text(encoding="utf-8"), limit_s)


def pass_with(tests: tuple[str, ...], file: Path, text: str, limit_s: float) -> bool:
    """Whether tests pass in a copy of the checkout that has this text in place of the module's."""
    with tempfile.TemporaryDirectory(prefix="wsbench-mutant-") as made:
        place = Path(made)
        for entry in ROOT.iterdir():
            if entry.name not in ("wsbench", ".hypothesis"):
                (place / entry.name).symlink_to(entry)
        shutil.copytree(ROOT / "wsbench", place / "wsbench")  # with what is compiled
        (place / file.relative_to(ROOT)).write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "not system"]
        try:
            done = subprocess.run(
                [*command, *(f"tests/{name}" for name in tests)],
                cwd=place,
                env={**os.environ, "PYTHONPATH": made},
                capture_output=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode in (0, 5)  # 5: all of them start servers, and none was run


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--number", type=int, default=20)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--limit", type=float, default=120)
    options = asked.parse_args()
    files = [file for folder in JUDGING for file in sorted((ROOT / folder).rglob("*.py"))]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    places = [(file, place) for file in files for place in range(sum(1 for _ in sites(ast.parse(texts[file]))))]
    chosen = random.Random(options.seed).sample(places, options.number)

    def tried(file: Path, place: int) -> tuple[str, str]:
        text, change = mutated(texts[file], place)
        return outcome(file, text), f"{file.relative_to(ROOT)}:{change}"

    def outcome(file: Path, text: str) -> str:
        groups = tests_of(module_of(file))
        for tests in groups:
            if not pass_unchanged(tests, file, options.limit):
                return "not judged, because its tests fail without it"
            if not pass_with(tests, file, text, options.limit):
                return "killed"
        return "survived" if groups else "untested"

    killed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, (said, change) in enumerate(pool.map(lambda one: tried(*one), chosen), 1):
            killed += said == "killed"
            print(f"{number}: killed {killed}; {said}: {change}", flush=True)
    print(f"killed {killed} of {len(chosen)} ({100 * killed / len(chosen):.0f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

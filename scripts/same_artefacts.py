"""Do the same sources give the same artefacts? Builds servers twice, in folders of different names and depths, and compares
every file.

    .venv/bin/python scripts/same_artefacts.py [SERVER…]        names, globs, tags as for `wsbench build` (default: all)

A row a build (variants that share one are one): `same`, or the files that differ. Exit code 1 where any differs or a build fails.
What a tool writes for itself (pip's and npm's caches of where they were installed, compiled Python, Cargo's bookkeeping) is no
artefact: of a virtual environment the packages' own files are compared, of `target` the program alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from wsbench.cli import terminal
from wsbench.servers import build, catalogue, sources
from wsbench.servers.catalogue import Variant

PLACES = ("a", "another/and/much/longer/place")
#: Files that name the folder they were installed in, or the moment.
BOOKKEEPING = ("RECORD", "REQUESTED", "direct_url.json", ".package-lock.json", "pyvenv.cfg")


def main() -> int:
    chosen = catalogue.select(sys.argv[1:] or ["*@*"], catalogue.read())
    variants = list({(variant.server, variant.builder): variant for variant in chosen}.values())
    possible = [variant for variant in variants if build.obstacle(variant) is None]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        rows = []
        for row in pool.map(compare, possible):
            rows.append(row)
            print(f"[{len(rows)}/{len(possible)}] {row[0]} {row[1]}", flush=True)
    rows += [[variant.name, "skipped", str(build.obstacle(variant))] for variant in variants if variant not in possible]
    terminal.table(None, ["build", "result", "detail"], rows)
    return int(any(result not in ("same", "skipped") for _, result, _ in rows))


def compare(variant: Variant) -> list[str]:
    with tempfile.TemporaryDirectory() as root:
        made = []
        for place in PLACES:
            folder = Path(root, place, variant.server)
            shutil.copytree(variant.folder, folder, ignore=shutil.ignore_patterns(*sources.MADE))
            built = build.build(replace(variant, folder=folder), sorted(os.sched_getaffinity(0)))
            if built.problem is not None:
                return [variant.name, "failed", built.problem]
            made.append(digests(folder, variant.table.artefacts))
        first, second = made
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if differing:
        return [variant.name, "DIFFERS", f"{len(differing)} of {len(first)} files: {', '.join(differing[:4])}"]
    return [variant.name, "same", f"{len(first)} files"] if first else [variant.name, "failed", "no artefact"]


def digests(folder: Path, artefacts: list[str]) -> dict[str, str]:
    found = {}
    for artefact in artefacts:
        root = folder / artefact
        for file in [root] if root.is_file() else sorted(root.rglob("*")):
            if file.is_file() and not file.is_symlink() and _counts(file.relative_to(folder)):
                found[str(file.relative_to(folder))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def _counts(file: Path) -> bool:
    if "target" in file.parts[:1]:
        return len(file.parts) == 3 and file.suffix == ""
    in_environment = "venv" in file.parts
    if in_environment and ("site-packages" not in file.parts or {"pip", "setuptools"} & set(file.parts)):
        return False
    made_by_wsbench = file.name.startswith("wsbench-")
    return (
        not made_by_wsbench
        and "maven-status" not in file.parts
        and file.name not in BOOKKEEPING
        and "__pycache__" not in file.parts
    )


if __name__ == "__main__":
    sys.exit(main())

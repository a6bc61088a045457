#!/usr/bin/env python3
"""Builds the documentation site: `make docs`, or `python scripts/docs.py [--source-only]`.

Assembles a source tree in build/docs from docs/, the Markdown files at the root and in a few other folders, and reference
pages generated from the code; rewrites relative links for the site; then runs Zensical, which writes build/site.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import docs_tables
from docs_markdown import MARKDOWN, anchored, lines_outside_code
from docs_reference import GENERATED

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build" / "docs"
#: Where the repository's other files can be read, such as "https://example.org/wsbench/blob/main/". Empty: links to them
#: become plain paths.
REPO_URL = ""

#: Files outside docs/ and their page on the site; and pages of docs/ that have another place there.
PLACES = {
    "README.md": "index.md",
    "METHODOLOGY.md": "rationale/methodology.md",
    "ARCHITECTURE.md": "rationale/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "protocol/README.md": "reference/protocol.md",
    "results/README.md": "project/results.md",
    "results/campaigns.md": "project/campaigns.md",
    "results/instrument.md": "rationale/instrument.md",
    "engine/benches/RESULTS.md": "rationale/engine-benchmarks.md",
    "docs/report.md": "rationale/report.md",
    "docs/studies.md": "rationale/studies.md",
    "docs/cluster.md": "rationale/cluster.md",
    "docs/verdicts.md": "rationale/verdicts.md",
    "docs/sizing.md": "reference/sizing.md",
    "docs/faults.md": "reference/faults.md",
    "servers": "reference/servers.md",
    "experiments": "reference/experiments.md",
}
#: A campaign's notes and tables, which stand next to its results.
OF_CAMPAIGN = re.compile(r"results/(?P<campaign>[^/]+)/(?P<page>NOTES|tables)\.md")
IMAGES = {".png", ".svg", ".jpg", ".webp"}

# ---- Markdown --------------------------------------------------------------------------------------------------------


def place_of(file: str) -> str | None:
    """The site's page of a file of the repository; None where it has none."""
    if file in PLACES:
        return PLACES[file]
    if found := OF_CAMPAIGN.fullmatch(file):
        return f"project/{found['page'].lower()}/{found['campaign']}.md"
    return file.removeprefix("docs/") if file.startswith("docs/") and file.endswith(".md") else None


def rewritten(text: str, file: str, page: str) -> tuple[str, set[str]]:
    """The text of a file as a page of the site, and the images that it shows."""
    images: set[str] = set()
    folder, here = posixpath.dirname(file), posixpath.dirname(page) or "."
    outside: dict[str, str] = {}

    def moved(target: str) -> tuple[str | None, str]:
        """Where a link leads on the site, or None; and the path in the repository."""
        if re.match(r"[a-z]+:|#", target):
            return target, target
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(folder, path))
        if Path(path).suffix in IMAGES:
            images.add(path)
            return posixpath.relpath(f"assets/{path}", here), path
        if found := place_of(path):
            return posixpath.relpath(found, here) + (f"#{anchor}" if anchor else ""), path
        return (REPO_URL + path if REPO_URL else None), path

    def replaced(found: re.Match) -> str:
        if found["definition"]:
            target, path = moved(found["where"])
            return f"[{found['name']}]: {target}" if target else ""
        if found["inline"]:
            inner = MARKDOWN.sub(replaced, found["text"]) if "](" in found["text"] else found["text"]
            target, path = moved(found["target"])
            if target:
                return f"{found['mark']}[{inner}]({target}{found['title'] or ''})"
            return plain(inner, path)
        if found["reference"]:
            label = (found["label"] or found["words"]).lower()
            return plain(found["words"], outside[label]) if label in outside else found[0]
        return found[0]

    for found in MARKDOWN.finditer(text):
        if found["definition"] and moved(found["where"])[0] is None:
            outside[found["name"].lower()] = moved(found["where"])[1]
    return listed(anchored(MARKDOWN.sub(replaced, text))), images


def listed(text: str) -> str:
    """The site nests lists by four spaces, forges by two or three, and it wants an empty line before a list."""
    lines = text.splitlines()
    outside = {number for number, _ in lines_outside_code(text)}
    made: list[str] = []
    for number, line in enumerate(lines, 1):
        item = re.match(r"( *)(?:[-*]|\d+\.) ", line) if number in outside else None
        inside = re.match(r"( +)\S", line) if number in outside else None
        if item:
            if not item[1] and made and made[-1] and not re.match(r" |[-*] |\d+\. |#|\|", made[-1]):
                made.append("")
            line = "    " * (len(item[1]) // 2) + line.lstrip()
        elif inside and made and not made[-1] and len(inside[1]) < 4:
            line = "    " + line.lstrip()
        made.append(line)
    return "\n".join(made) + "\n"


def plain(words: str, path: str) -> str:
    return f"`{path}`" if words.strip("`") in (path, posixpath.basename(path)) else f"{words} (`{path}`)"


# ---- the site --------------------------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[str, str]]:
    """Every page of the site: its path in the repository and its text."""
    for file in sorted((ROOT / "docs").rglob("*.md")):
        yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    for name in PLACES:
        if name.endswith(".md") and not name.startswith("docs/") and name != "README.md":
            yield name, (ROOT / name).read_text(encoding="utf-8")
    for file in sorted((ROOT / "results").glob("*/*.md")):
        yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    for name, make in GENERATED.items():
        yield name, make()


def assemble() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    for name, text in pages():
        page = place_of(name)
        made, images = rewritten(text, name, page)
        write(SOURCE / page, made)
        for image in images:
            (SOURCE / "assets" / image).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / image, SOURCE / "assets" / image)
    for file in (ROOT / "docs").rglob("*.css"):
        shutil.copyfile(file, SOURCE / file.name)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def write_tables(names: list[str]) -> None:
    """Writes the pages of `docs_tables`, or those whose path contains a name. Two at a time: a page of a search takes seconds."""
    chosen = [page for page in docs_tables.pages() if not names or any(name in page for name in names)]
    with ProcessPoolExecutor(2) as pool:
        for page, text in zip(chosen, pool.map(docs_tables.made, chosen), strict=True):
            write(ROOT / page, text)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument(
        "--tables", nargs="*", metavar="PAGE", help="only write the pages that come from published campaigns, or those named so"
    )
    asked.add_argument("--source-only", action="store_true", help="write build/docs, do not run Zensical")
    options = asked.parse_args()
    if options.tables is not None:
        write_tables(options.tables)
        return 0
    assemble()
    if options.source_only:
        return 0
    zensical = Path(sys.executable).parent / "zensical"
    if not zensical.exists():
        print("Zensical is not installed: run `make docs`", file=sys.stderr)
        return 2
    return subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())

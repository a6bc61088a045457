"""The documentation: links, anchors, commands, options and paths exist; generated pages are those that the code makes."""

import argparse
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from wsbench import metrics
from wsbench.cli import arguments
from wsbench.experiments import experiment
from wsbench.host.installation import ROOT
from wsbench.servers import catalogue

SPEC = importlib.util.spec_from_file_location("docs", ROOT / "scripts" / "docs.py")
docs = importlib.util.module_from_spec(SPEC)
sys.path.insert(0, str(ROOT / "scripts"))
SPEC.loader.exec_module(docs)
docs_markdown, docs_tables = (sys.modules[name] for name in ("docs_markdown", "docs_tables"))

TRACKED = subprocess.run(
    ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
    capture_output=True,
    text=True,
    check=True,
).stdout.split("\0")
FILES = [Path(name) for name in TRACKED if (ROOT / name).exists()]
THERE = {str(path) for file in FILES for path in (file, *file.parents)}  # what a fresh clone has: nothing drawn or built here
MARKDOWN = sorted(name for name in TRACKED if name.endswith(".md") and (ROOT / name).exists())


@cache
def text_of(name: str) -> str:
    return docs.GENERATED[name]() if name in docs.GENERATED else (ROOT / name).read_text(encoding="utf-8")


# ---- links -----------------------------------------------------------------------------------------------------------


def broken(name: str) -> list[str]:
    """Relative links of a page that lead nowhere, or to an anchor that is not there."""
    found = []
    for target in docs_markdown.links(text_of(name)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        relative = file.resolve().relative_to(ROOT).as_posix() if file.resolve().is_relative_to(ROOT) else None
        if relative is None or not (relative in THERE or relative in docs.GENERATED):
            found.append(f"{target}: there is no such file")
        elif anchor and relative.endswith(".md") and anchor not in docs_markdown.anchors(text_of(relative)):
            found.append(f"{target}: there is no such heading")
    return found


def test_every_link_leads_somewhere():
    assert [f"{name}: {link}" for name in (*MARKDOWN, *docs.GENERATED) for link in broken(name)] == []


def test_a_broken_link_and_a_broken_anchor_are_seen():
    text = "[a](no.md) [b](README.md#nothing) [c][d]\n\n[d]: also-no.md\n\n`[e](code.md)`\n\n```\n[f](code.md)\n```\n"
    assert list(docs_markdown.links(text)) == ["no.md", "README.md#nothing", "also-no.md"]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("The engine's *floor*", "the-engines-floor"),
        ("5. The manifest: `servers/<name>/server.toml`", "5-the-manifest-serversnameservertoml"),
        ("2. `events.jsonl`", "2-eventsjsonl"),
        ("A [link](x.md), and push_reach", "a-link-and-push_reach"),
    ],
)
def test_anchors_are_those_of_forges(heading, anchor):
    assert docs_markdown.slug(heading) == anchor


def test_links_out_of_the_site_become_paths_and_links_within_it_are_moved():
    text = "[a](METHODOLOGY.md#claims) [b](Makefile) [c](https://x.org) [d](#here) [e][f]\n\n[f]: servers/netty\n"
    made, _ = docs.rewritten(text, "CONTRIBUTING.md", "project/contributing.md")
    assert made.split("\n")[0] == (
        "[a](../rationale/methodology.md#claims) b (`Makefile`) [c](https://x.org) [d](#here) e (`servers/netty`)"
    )


def test_lists_become_those_of_the_site():
    text = "words\n- a\n  more\n  - b\n\n  a paragraph\n1. c\n   - d\n\n```\n  - code\n```\n"
    expected = "words\n\n- a\n  more\n    - b\n\n    a paragraph\n1. c\n    - d\n\n```\n  - code\n```\n"
    assert docs.listed(text) == expected


# ---- pages of published campaigns --------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_pages_have_the_numbers_of_their_campaigns():
    old = [page for page, make in docs_tables.pages().items() if (ROOT / page).read_text(encoding="utf-8") != make()]
    assert old == [], "python scripts/docs.py --tables"


# ---- generated pages ---------------------------------------------------------------------------------------------------


def test_the_command_line_page_names_every_command_and_option():
    page = text_of("docs/reference/cli.md")
    for name in arguments.COMMANDS:
        assert f"## wsbench {name}\n" in page
    for option in ("--rate R", "--fail-if", "--resume RUN", "--connections"):
        assert option in page


def test_the_metrics_page_names_every_metric_with_unit_and_direction():
    page = text_of("docs/reference/metrics.md")
    for one in metrics.METRICS.values():
        direction = "" if one.direction == "neither" else one.direction
        assert f"| `{one.name}` | {one.unit} | {direction} |" in page


def test_the_experiments_page_names_every_experiment_and_claim():
    page = text_of("docs/reference/experiments.md")
    for file in experiment.EXPERIMENTS.glob("*.toml"):
        assert f"\n## {file.stem}\n" in page
        for claim in experiment.read(file).claim:
            assert f"\n| {claim.id} | " in page


def test_the_servers_page_names_every_variant():
    page = text_of("docs/reference/servers.md")
    for one in catalogue.read(ROOT / "servers"):
        assert f"\n## {one.server}\n" in page
        assert f"\n| `{one.variant}`" in page


def test_every_page_of_the_site_is_in_its_navigation():
    written = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    for name, _ in docs.pages():
        page = docs.place_of(name)
        assert f'"{page}"' in written or page.startswith(("project/notes/", "project/tables/")), page


# ---- commands and paths --------------------------------------------------------------------------------------------------

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
#: Made by a run, in no commit.
MADE = {"engine/fuzz/artifacts"}
#: Texts about the past name what was there.
OF_THE_PAST = {"CHANGELOG.md"}
PRESENT = [name for name in MARKDOWN if name not in OF_THE_PAST and not name.startswith("results/")]
FENCE = re.compile(r"^```(?:sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def options_of(command: str) -> set[str]:
    top = arguments.parser([command])
    commands = next(one for one in top._actions if isinstance(one, argparse._SubParsersAction))
    return {option for action in commands.choices[command]._actions for option in action.option_strings}


def typed(text: str) -> Iterator[list[str]]:
    """The words behind `wsbench` in every command line of a page's blocks, comments and output apart."""
    for block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.match(r"(?:\$ |\S+ -c \d )*(?:\.venv/bin/)?wsbench ([a-z].*)", line):
                yield shlex.split(found[1], comments=True)


def test_every_command_line_has_a_command_and_options_that_exist():
    wrong = []
    for name in PRESENT:
        for command, *words in typed(text_of(name)):
            long = {word.partition("=")[0] for word in words if word.startswith("--")}
            unknown = long - options_of(command) if command in arguments.COMMANDS else {command}
            wrong += [f"{name}: wsbench {command}: {word}" for word in sorted(unknown)]
    assert wrong == []


def test_every_make_target_exists():
    wrong = [
        f"{name}: make {target}"
        for name in PRESENT
        for target in re.findall(r"(?:`|^|&& )make ([a-z][a-z-]+)", text_of(name), re.MULTILINE)
        if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
    ]
    assert wrong == []


def test_every_path_of_the_repository_exists():
    wrong = [
        f"{name}: {path}"
        for name in PRESENT
        for path in re.findall(r"`((?:wsbench|scripts|studies|tests|engine|protocol|experiments)/[\w./-]+)`", text_of(name))
        if not (ROOT / path).exists() and path not in MADE
    ]
    assert wrong == []


# ---- what stands in two places -----------------------------------------------------------------------------------------


def test_the_table_of_packages_has_their_layers():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(one["layers"] for one in project["tool"]["importlinter"]["contracts"] if one["id"] == "layers")
    expected = [(str(number), name) for number, layer in enumerate(layers, 1) for name in layer.split(" | ")]
    assert re.findall(r"^\| (\d+) \| `(\w+)` \|", text_of("ARCHITECTURE.md"), re.MULTILINE) == expected


def test_the_citation_names_the_version():
    version = re.search(r'^version = "([^"]+)"', (ROOT / "engine" / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")

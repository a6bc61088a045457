"""The documentation: links lead somewhere, generated pages name everything, lines fit, and avoided words are absent.

The list of avoided words is the table in CONTRIBUTING.md, section "Words".
"""

import argparse
import ast
import importlib.util
import re
import shlex
import subprocess
import sys
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
docs_markdown, docs_tables, docs_sentences = (sys.modules[name] for name in ("docs_markdown", "docs_tables", "docs_sentences"))

TRACKED = subprocess.run(
    ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
    capture_output=True,
    text=True,
    check=True,
).stdout.split("\0")
FILES = [Path(name) for name in TRACKED if (ROOT / name).exists()]
THERE = {str(path) for file in FILES for path in (file, *file.parents)}  # what a fresh clone has: nothing drawn or built here
MARKDOWN = sorted(name for name in TRACKED if name.endswith(".md") and (ROOT / name).exists())
EXPERIMENTS = sorted(name for name in TRACKED if re.fullmatch(r"experiments/[^/]+\.toml", name))
PYTHON = sorted(name for name in TRACKED if name.startswith("wsbench/") and name.endswith(".py") and (ROOT / name).exists())
LONGEST, LONGEST_TABLE = 100, 120
INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
ADDRESS = re.compile(r"\]\([^()\s]+\)|https?://\S+")


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


@pytest.mark.parametrize("name", MARKDOWN)
def test_every_link_leads_somewhere(name):
    assert broken(name) == []


@pytest.mark.parametrize("name", docs.GENERATED)
def test_every_link_of_a_generated_page_leads_somewhere(name):
    assert broken(name) == []


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


# ---- tables of published campaigns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", docs_tables.files(), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_tables_and_sentences_have_the_numbers_of_their_campaigns(file):
    """`python scripts/docs.py --tables` makes them again."""
    text = file.read_text(encoding="utf-8")
    assert docs.from_campaigns(text, file.relative_to(ROOT).as_posix()) == text


def test_a_sentence_that_says_something_else_is_seen():
    asked = "2026-11-22-idle-memory | interval server_rss_bytes_max MiB | connections = 10000 | netty@4.2"
    one = docs_sentences.Sentence("README.md", "Netty takes {} MiB.", (asked,))
    made = docs_sentences.rewritten("Here Netty\ntakes 1 (0–2) MiB.", one)
    assert re.fullmatch(r"Here Netty\ntakes [\d.]+ \([\d.]+–[\d.]+\) MiB\.", made)
    assert "1 (0–2)" not in made
    assert docs_sentences.rewritten(made, one) == made
    with pytest.raises(docs_tables.Wrong, match="has 0 sentences"):
        docs_sentences.rewritten("Netty takes nothing.", one)
    apart = "2026-11-27-quick | ratio server_cpu_us_per_message | | bun@1.4.5, uwebsockets@20"
    with pytest.raises(docs_tables.Wrong, match="no number"):
        docs_sentences.rewritten("Bun takes 2 times.", docs_sentences.Sentence("README.md", "Bun takes {} times.", (apart,)))
    for wrong in (
        "nothing | trials",
        asked.replace("_max", "_most"),
        asked.replace("interval", "median"),
        asked.replace("MiB", "µs"),
        "2026-11-25-capacity | orders capacity_per_s, nothing",
        "2026-11-25-capacity | orders capacity_per_s | connections = 50",
    ):
        with pytest.raises(docs_tables.Wrong):
            docs_sentences.value_of(wrong)


def test_what_a_campaign_decides_is_counted_over_cells_and_metrics():
    """Six servers: 15 pairs in each of two cells."""
    one, two = "capacity_per_s", "capacity_per_s, capacity_2_per_s"

    def count(what, metrics):
        return int(docs_sentences.value_of(f"2026-11-25-capacity | {what} {metrics}"))

    assert (count("pairs", one), count("pairs", two)) == (30, 60)
    assert 0 < count("orders", two) < count("pairs", two)
    assert 0 < count("intervals", two) < count("answers", two) == 24


def test_a_table_that_says_something_else_is_seen():
    asked = "2026-11-22-idle-memory | server_rss_bytes_max | connections = 10000 | netty@4.2"
    made = docs_tables.made(f"<!-- table: {asked} -->\n| 1 |\n<!-- /table -->", "README.md")
    assert "| netty |" in made
    assert "| 1 |" not in made
    for wrong in ("nothing | server_rss_bytes_max", asked.replace("_max", "_most"), asked.replace("10000", "7"), asked + "9"):
        with pytest.raises(docs_tables.Wrong):
            docs_tables.made(f"<!-- table: {wrong} -->\n<!-- /table -->", "README.md")


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
        assert f'"{page}"' in written or page.startswith("project/notes/"), page


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


@pytest.mark.parametrize("name", PRESENT)
def test_every_command_line_has_a_command_and_options_that_exist(name):
    for command, *words in typed(text_of(name)):
        assert command in arguments.COMMANDS, command
        long = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert long <= options_of(command), f"{command}: {long - options_of(command)}"


@pytest.mark.parametrize("name", PRESENT)
def test_every_make_target_exists(name):
    for target in re.findall(r"(?:`|^|&& )make ([a-z][a-z-]+)", text_of(name), re.MULTILINE):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


@pytest.mark.parametrize("name", PRESENT)
def test_every_path_of_the_repository_exists(name):
    paths = re.findall(r"`((?:wsbench|scripts|tests|engine|protocol|experiments)/[\w./-]+)`", text_of(name))
    assert [path for path in paths if not (ROOT / path).exists() and path not in MADE] == []


# ---- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MARKDOWN)
def test_lines_fit(name):
    text = text_of(name)
    prose = {
        number for number, line in docs_markdown.lines_outside_code(text) if not re.match(r"\s*\||\[[^\]]+\]: |<!-- table: ", line)
    }
    too_long = [
        f"{name}:{number}: {len(line)}"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > (LONGEST if number in prose else LONGEST_TABLE) and not re.match(r"\[[^\]]+\]: https?://", line)
    ]
    assert too_long == []


# ---- words -----------------------------------------------------------------------------------------------------------


def avoided() -> list[str]:
    """The words in code font in the first column of the table in CONTRIBUTING.md, section "Words"."""
    section = text_of("CONTRIBUTING.md").partition("\n## Words\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def pattern() -> re.Pattern:
    """The words as whole words in any case; a line break between two of them is a space."""
    words = [r"\s+".join(map(re.escape, word.split())) for word in avoided()]
    return re.compile(rf"(?<![\w`])(?:{'|'.join(words)})(?![\w`])", re.IGNORECASE)


def prose_of_markdown(text: str) -> list[tuple[int, str]]:
    """One piece: the lines outside fenced blocks, each in its place, without inline code and addresses."""
    lines = [""] * len(text.splitlines())
    for number, line in docs_markdown.lines_outside_code(text):
        lines[number - 1] = line
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])  # noqa: E731
    return [(1, ADDRESS.sub(blank, INLINE_CODE.sub(blank, "\n".join(lines))))]


def prose_of_python(text: str) -> list[tuple[int, str]]:
    """Docstrings, and string literals of more than one word."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            found.append((node.lineno, INLINE_CODE.sub(" ", node.value)))
    return found


def prose_of_experiment(text: str) -> list[tuple[int, str]]:
    return [(1, text)]


def found_in(name: str) -> list[str]:
    reader = {".md": prose_of_markdown, ".py": prose_of_python, ".toml": prose_of_experiment}[Path(name).suffix]
    return [
        f"{name}:{line + prose.count(chr(10), 0, hit.start())}: {' '.join(hit[0].split())}"
        for line, prose in reader(text_of(name))
        for hit in pattern().finditer(prose)
    ]


@pytest.mark.parametrize("name", [*MARKDOWN, *EXPERIMENTS, *PYTHON])
def test_no_avoided_word(name):
    assert found_in(name) == []


def test_avoided_words_are_seen_in_prose_alone():
    assert {"whoever", "beside", "once more"} <= set(avoided())
    assert not {"the floor", "gone"} & set(avoided())
    text = "It runs once\nmore. `beside`\n\n```\nwhoever\n```\n[x](beside.md) Besides, MENDED.\n"
    ((_, prose),) = prose_of_markdown(text)
    assert [" ".join(hit[0].split()) for hit in pattern().finditer(prose)] == ["once more", "MENDED"]


def test_the_table_of_packages_is_that_of_the_layers():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert docs.PACKAGES.search(text)[0] == docs.packages(), "python scripts/docs.py --packages"


def test_the_citation_names_the_version():
    version = re.search(r'^version = "([^"]+)"', (ROOT / "engine" / "Cargo.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")

#!/usr/bin/env python3
"""Builds the documentation site: `make docs`, or `python scripts/docs.py [--source-only]`.

Assembles a source tree in build/docs from docs/, the Markdown files at the root and in a few other folders, and reference
pages generated from the code; rewrites relative links for the site; then runs Zensical, which writes build/site.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

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
    "results/instrument.md": "rationale/instrument.md",
    "engine/benches/RESULTS.md": "rationale/engine-benchmarks.md",
    "docs/studies.md": "rationale/studies.md",
    "docs/cluster.md": "rationale/cluster.md",
    "docs/sizing.md": "reference/sizing.md",
    "docs/faults.md": "reference/faults.md",
    "servers": "reference/servers.md",
    "experiments": "reference/experiments.md",
}
#: A campaign's notes, which stand next to its results.
NOTES = re.compile(r"results/(?P<campaign>[^/]+)/NOTES\.md")
IMAGES = {".png", ".svg", ".jpg", ".webp"}

CODE = r"(?P<fence>^(?P<ticks>```+|~~~+)[^\n]*\n.*?^(?P=ticks)[ \t]*$)|(?P<code>(?P<run>`+)(?!`).+?(?<!`)(?P=run)(?!`))"
TEXT = r"(?:[^\[\]]|\[[^\[\]]*\](?:\([^()]*\))?)*"
LINK = rf"(?P<inline>(?P<mark>!?)\[(?P<text>{TEXT})\]\((?P<target>[^()\s]+)(?P<title>\s+\"[^\"]*\")?\))"
DEFINITION = r"(?P<definition>^\[(?P<name>[^\]\n]+)\]:[ \t]+(?P<where>\S+)[ \t]*$)"
REFERENCE = r"(?P<reference>\[(?P<words>[^\[\]]+)\](?:\[(?P<label>[^\[\]]*)\])?(?![(:]))"
MARKDOWN = re.compile("|".join((CODE, DEFINITION, LINK, REFERENCE)), re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6})[ \t]+(.+?)[ \t]*#*$")


#: Between these stands the table of packages in ARCHITECTURE.md.
PACKAGES = re.compile(r"(?<=<!-- packages -->\n).*?(?=<!-- /packages -->)", re.DOTALL)

# ---- Markdown --------------------------------------------------------------------------------------------------------


def links(text: str) -> Iterator[str]:
    """The target of every link, image and reference definition outside code."""
    for found in MARKDOWN.finditer(text):
        if target := found["target"] or found["where"]:
            yield target
        if found["inline"] and "](" in found["text"]:
            yield from links(found["text"])


def lines_outside_code(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that are in no fenced block."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        ticks = re.match(r"\s*(```+|~~~+)", line)
        if ticks and fence is None:
            fence = ticks[1]
        elif ticks and line.strip() == fence:
            fence = None
        elif fence is None:
            yield number, line


def slug(heading: str) -> str:
    """The anchor of a heading, as forges and the site make it."""
    plain = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", heading)
    plain = re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", plain)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Every anchor of a page; that of a repeated heading has a number behind it."""
    found: dict[str, int] = {}
    for _, line in lines_outside_code(text):
        if heading := HEADING.match(line):
            one = slug(heading[2])
            number = found.get(one, -1) + 1
            found[one] = number
            if number:
                found[f"{one}-{number}"] = 0
    return set(found)


def place_of(file: str) -> str | None:
    """The site's page of a file of the repository; None where it has none."""
    if file in PLACES:
        return PLACES[file]
    if notes := NOTES.fullmatch(file):
        return f"project/notes/{notes['campaign']}.md"
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


def anchored(text: str) -> str:
    """The site takes `<name>` in a heading for a tag: such a heading gets its anchor explicitly."""
    lines = text.splitlines()
    for number, line in lines_outside_code(text):
        if (heading := HEADING.match(line)) and "<" in line:
            lines[number - 1] = f"{line} {{#{slug(heading[2])}}}"
    return "\n".join(lines) + "\n"


def relinked(text: str, before: str, after: str) -> str:
    """The text with its relative links as they are from another folder."""

    def replaced(found: re.Match) -> str:
        target = found["target"]
        if not target or re.match(r"[a-z]+:|#", target):
            return found[0]
        moved = posixpath.relpath(posixpath.join(before, target), after)
        return f"{found['mark']}[{found['text']}]({moved}{found['title'] or ''})"

    return MARKDOWN.sub(replaced, text)


def plain(words: str, path: str) -> str:
    return f"`{path}`" if words.strip("`") in (path, posixpath.basename(path)) else f"{words} (`{path}`)"


# ---- generated pages -------------------------------------------------------------------------------------------------


def cell(text: str) -> str:
    """Text for a table's cell: one line; only code keeps its signs."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(part.replace("|", "\\|") if part.startswith("`") else re.sub(r"([*_<>\[\]|])", r"\\\1", part) for part in parts)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]] + [""]


def generated(why: str, command: str) -> list[str]:
    return [f"{why} In a terminal: {command}.", ""]


EXIT_CODES = [
    ["0", "The command did what it was asked."],
    ["1", "A check, build or load failed, or this machine lacks a resource."],
    ["2", "Invalid input; one line says what was found and what is allowed."],
    ["3", "A threshold of `--fail-if` was exceeded (`load`, `compare`)."],
    ["4", "The measurement (`load`) or every trial (`run`) is INVALID or failed."],
    ["130", "Interrupted by Ctrl-C; finished trials are kept."],
]


def cli_page() -> str:
    from wsbench.cli import arguments

    top = arguments.parser([])
    commands = next(one for one in top._actions if isinstance(one, argparse._SubParsersAction))
    names = commands.choices
    lines = ["# Command line", ""]
    lines += generated("Every command with its arguments.", "`wsbench COMMAND --help`")
    lines += ["```text", usage(top), "```", ""]
    lines += ["`wsbench --version` prints the versions of harness, engine and catalogue.", ""]
    lines += table(
        ["command", "purpose"],
        [[f"[`{one.dest}`](#wsbench-{one.dest})", cell(sentence(one.help))] for one in commands._choices_actions],
    )
    lines += ["## Exit codes", "", *table(["code", "meaning"], EXIT_CODES)]
    for name in names:
        made = next(one for one in arguments.parser([name])._actions if isinstance(one, argparse._SubParsersAction)).choices[name]
        lines += [f"## wsbench {name}", "", sentence(made.description or ""), "", "```text", usage(made), "```", ""]
        for group in made._action_groups:
            rows = [argument_row(one) for one in group._group_actions if not isinstance(one, argparse._HelpAction)]
            if rows:
                title = {"positional arguments": "argument", "options": "option"}.get(group.title or "", group.title)
                lines += table([title, "meaning"], rows)
    return "\n".join(lines)


def usage(made: argparse.ArgumentParser) -> str:
    made.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=88)
    return made.format_usage().removeprefix("usage: ").rstrip()


def argument_row(action: argparse.Action) -> list[str]:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else None
    value = action.metavar or choices or action.dest.upper()
    if not action.option_strings:
        shown = action.metavar or choices or action.dest
    else:
        shown = ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")
    default = action.default if isinstance(action.default, int | float | str) else None
    help_text = (action.help or "") % {"default": default, "prog": "wsbench"} if action.help else ""
    return [f"`{shown}`", cell(sentence(help_text)) if help_text else ""]


def sentence(text: str) -> str:
    """A help text as a sentence: argparse's begin in lower case and end without a stop."""
    text = text.strip()
    if not text:
        return text
    first = text if re.match(r"[a-z]+://|`", text) else text[0].upper() + text[1:]
    return first if first[-1] in ".?!" else first + "."


METRIC_GROUPS = {
    "rates": "Throughput and schedule",
    "latencies": "Latency",
    "failures": "Errors",
    "connections": "Connections",
    "broadcasts": "Broadcasts",
    "resources": "CPU and memory over the measured window",
    "stretches": "CPU and memory by span",
    "runtimes": "Runtimes",
}


def metrics_page() -> str:
    from wsbench import metrics

    lines = ["# Metrics", ""]
    lines += generated("Every number that wsbench computes from a trial.", "`wsbench list metrics`")
    lines += [
        "A metric that does not apply, or that was not measured, has no value but a reason; it is never zero.",
        "[Methodology](../../METHODOLOGY.md) defines the quantities, [the glossary](glossary.md) the terms.",
        "*Better* is the direction in which `compare`, `history` and the report call a change an improvement.",
        "",
    ]
    groups: dict[str, list] = {}
    for one in metrics.METRICS.values():
        groups.setdefault(one.compute.__module__.rpartition(".")[2], []).append(one)
    for group in sorted(groups, key=lambda name: [*METRIC_GROUPS, name].index(name)):
        rows = [
            [
                f"`{one.name}`",
                one.unit,
                "" if one.direction == "neither" else one.direction,
                cell(inspect.cleandoc(one.text)),
            ]
            for one in groups[group]
        ]
        lines += [f"## {METRIC_GROUPS.get(group, group.capitalize())}", ""]
        lines += table(["metric", "unit", "better", "meaning"], rows)
    return "\n".join(lines)


def experiments_page() -> str:
    from wsbench.experiments import experiment

    lines = ["# Experiments", ""]
    lines += generated("Every experiment of the repository.", "`wsbench list experiments`, `wsbench plan EXPERIMENT`")
    lines += [
        "Durations are the estimates of `wsbench plan` for all servers of the experiment; builds come on top.",
        "[Add an experiment](../how-to/add-an-experiment.md) describes the file format.",
        "",
    ]
    files = sorted(experiment.EXPERIMENTS.glob("*.toml"))
    asked = {file.stem: experiment.read(file) for file in files}
    lines += table(
        ["experiment", "question"],
        [[f"[`{name}`](#{slug(name)})", cell(one.question)] for name, one in asked.items()],
    )
    for name, one in asked.items():
        lines += [f"## {name}", "", f"**{one.question}**", "", paragraphs(one.reading), ""]
        lines += table(["setting", "value"], experiment_rows(name, one))
        if one.claim:
            lines += table(["claim", "statement"], [[claim.id, cell(claim.says)] for claim in one.claim])
    return "\n".join(lines)


def paragraphs(text: str) -> str:
    """An experiment's text as Markdown: a list or a departure keeps its line."""
    return re.sub(r"(?m)^(?=[A-Z][a-z]+s?:\s)", "\n", inspect.cleandoc(text)).strip()


def experiment_rows(name: str, one) -> list[list[str]]:
    from wsbench.cli.terminal import duration
    from wsbench.run import campaign

    asked = campaign.request(name, f"wsbench run {name}")
    out = campaign.left_out(asked)
    served = [variant for variant in asked.variants if variant.name not in out]
    order = campaign.order_of(asked.experiment, served, 0, campaign.control_of(asked, served))
    sweep = "; ".join(f"`{key}` = {', '.join(map(shown, values))}" for key, values in one.sweep.items())
    timing = one.timing
    ends = f"{one.load.messages:,} messages" if one.load.messages else f"{one.measure_s:g} s"
    return [
        ["servers", ", ".join(f"`{variant.name}`" for variant in served)],
        ["scenario, loop", f"`{one.scenario}`, `{one.loop}`"],
        ["headline metric", f"`{one.headline}`"],
        ["sweep", sweep or "none"],
        ["warm-up; measurement", f"{timing.warmup_s:g} s; {ends}"],
        ["rounds", str(timing.rounds)],
        ["`--scale` shrinks", ", ".join(one.scales) or "nothing"],
        ["trials, duration", f"{len(order):,}, about {duration(campaign.estimate_s(asked.experiment, len(order)))}"],
    ]


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else f"{value}"


def servers_page() -> str:
    from wsbench.servers import catalogue

    servers: dict[str, list] = {}
    for variant in catalogue.read(ROOT / "servers"):
        servers.setdefault(variant.server, []).append(variant)
    lines = ["# Servers", ""]
    lines += generated("Every server of the catalogue.", "`wsbench list servers`")
    lines += [
        "A variant is a server in one version with one set of options; its name is `SERVER@VARIANT`.",
        "A bare server name means the default variant. [Add a server](../how-to/add-a-server.md) describes the",
        "manifest; the [server contract](../../protocol/README.md#4-the-server-contract) describes the scenarios.",
        "",
    ]
    rows = [
        [f"[`{name}`](#{name})", cell(of[0].manifest.language), cell(of[0].manifest.library), str(len(of))]
        for name, of in servers.items()
    ]
    lines += table(["server", "language", "library", "variants"], rows)
    for name, of in servers.items():
        about = (ROOT / "servers" / name / "README.md").read_text(encoding="utf-8")
        first, manifest = about.split("\n\n")[1], of[0].manifest
        lines += [f"## {name}", "", relinked(first, f"servers/{name}", "docs/reference"), ""]
        lines += [f"{manifest.language}, <{manifest.homepage}>, source in [servers/{name}](../../servers/{name}).", ""]
        lines += table(
            ["variant", "library version", "scenarios", "tags", "differs from the defaults"],
            [
                [
                    f"`{one.variant}`" + (" (default)" if one.is_default else ""),
                    cell(one.table.library_version),
                    " ".join(f"`{scenario}`" for scenario in one.scenarios),
                    cell(", ".join(one.tags)),
                    cell(
                        f"cannot run: {one.table.unavailable}"
                        if one.table.unavailable
                        else "; ".join(one.manifest.departures + one.table.departures)
                    ),
                ]
                for one in of
            ],
        )
    return "\n".join(lines)


#: Pages of docs/ that exist on the site alone, by their path in the repository.
GENERATED: dict[str, Callable[[], str]] = {
    "docs/reference/cli.md": cli_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/experiments.md": experiments_page,
    "docs/reference/servers.md": servers_page,
}


# ---- the site --------------------------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[str, str]]:
    """Every page of the site: its path in the repository and its text."""
    for file in sorted((ROOT / "docs").rglob("*.md")):
        yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    for name in PLACES:
        if name.endswith(".md") and not name.startswith("docs/") and name != "README.md":
            yield name, (ROOT / name).read_text(encoding="utf-8")
    for file in sorted((ROOT / "results").glob("*/NOTES.md")):
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


def packages() -> str:
    """The table of packages: the layers of pyproject.toml, and what each package's docstring says first."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(one["layers"] for one in project["tool"]["importlinter"]["contracts"] if one["id"] == "layers")
    rows = []
    for number, layer in enumerate(layers, 1):
        for name in layer.split(" | "):
            text = ast.get_docstring(ast.parse((ROOT / "wsbench" / name / "__init__.py").read_text(encoding="utf-8")))
            rows.append([str(number), f"`{name}`", " ".join(text.split("\n\n")[0].split())])
    return "\n".join(table(["layer", "package", "task"], rows))


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--packages", action="store_true", help="only write the table of packages in ARCHITECTURE.md")
    asked.add_argument("--source-only", action="store_true", help="write build/docs, do not run Zensical")
    options = asked.parse_args()
    if options.packages:
        file = ROOT / "ARCHITECTURE.md"
        write(file, PACKAGES.sub(lambda _: packages(), file.read_text(encoding="utf-8")))
        return 0
    assemble()
    if options.source_only:
        return 0
    zensical = Path(sys.executable).parent / "zensical"
    if not zensical.exists():
        print("Zensical is not installed: run `make docs`, or pip install 'wsbench[docs]'", file=sys.stderr)
        return 2
    return subprocess.run([zensical, "build", "--clean", "--strict"], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Reference pages of the documentation, generated from the command line, the metrics, the experiments and the manifests."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable
from pathlib import Path

from docs_markdown import relinked, slug

ROOT = Path(__file__).resolve().parents[1]


def cell(text: str) -> str:
    """Text for a table's cell: one line; only code keeps its signs."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(part.replace("|", "\\|") if part.startswith("`") else re.sub(r"([*_<>\[\]|])", r"\\\1", part) for part in parts)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]] + [""]


def generated(why: str, command: str) -> list[str]:
    return [f"{why} In a terminal: {command}.", ""]


def exit_codes() -> list[str]:
    """The table of all commands, and what the codes mean that only some commands have."""
    from wsbench.cli import exits

    lines = ["## Exit codes", "", *table(["code", "meaning"], [[str(code), cell(sentence(text))] for code, text in exits.table()])]
    rows = [
        [f"[`{name}`](#wsbench-{name})", str(code), cell(sentence(text))]
        for name, of in exits.OF_COMMAND.items()
        for code, text in of.items()
    ]
    return [
        *lines,
        "What single commands mean by them; no other command ends with 3 or 4:",
        "",
        *table(["command", "code", "meaning"], rows),
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
    lines += exit_codes()
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
    from wsbench.metrics.findings import FAMILIES

    lines = ["# Metrics", ""]
    lines += generated("Every number that wsbench computes from a trial.", "`wsbench list metrics`")
    lines += [
        "A metric that does not apply, or that was not measured, has no value but a reason; it is never zero.",
        "[Methodology](../../METHODOLOGY.md) defines the quantities, [the glossary](glossary.md) the terms.",
        "*Better* is the direction in which `compare`, `history` and the report call a change an improvement.",
        "*Family* decides which [findings of a verdict](../../METHODOLOGY.md#the-verdict) affect a metric.",
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
                FAMILIES[one.family],
                cell(inspect.cleandoc(one.text)),
            ]
            for one in groups[group]
        ]
        lines += [f"## {METRIC_GROUPS.get(group, group.capitalize())}", ""]
        lines += table(["metric", "unit", "better", "family", "meaning"], rows)
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
    from wsbench.experiments.duration import estimate_s
    from wsbench.run import ordering, request

    asked = request.request(name, f"wsbench run {name}")
    out = request.left_out(asked)
    served = [variant for variant in asked.variants if variant.name not in out]
    order = ordering.order_of(asked.experiment, served, 0, ordering.control_of(asked.experiment.timing.rounds, served))
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
        ["trials, duration", f"{len(order):,}, about {duration(estimate_s(asked.experiment, len(order)))}"],
    ]


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else f"{value}"


def servers_page() -> str:
    from wsbench.servers import catalogue
    from wsbench.servers.manifest import Unavailable

    servers: dict[str, list] = {}
    for variant in catalogue.read(ROOT / "servers"):
        servers.setdefault(variant.server, []).append(variant)
    lines = ["# Servers", ""]
    lines += generated("Every server of the catalogue.", "`wsbench list servers`")
    lines += [
        "A variant is a server in one version with one set of options; its name is `SERVER@VARIANT`.",
        "A bare server name means the default variant. [Add a server](../how-to/add-a-server.md) describes the",
        "manifest; the [server contract](../../protocol/README.md#4-the-server-contract) describes what it serves.",
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
            ["variant", "library version", "serves", "tags", "differs from the defaults"],
            [
                [
                    f"`{one.variant}`" + (" (default)" if one.is_default else ""),
                    cell(one.table.library_version),
                    " ".join(f"`{what}`" for what in [*one.serves, *one.offers]),
                    cell(", ".join(one.tags)),
                    cell(
                        f"cannot run: {one.table.unavailable}"
                        if isinstance(one.table, Unavailable)
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

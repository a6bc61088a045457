"""The catalogue: every folder in `servers/` with a manifest, as frozen values. Servers are discovered by folder and selected by
name, glob or tag, with optional runtime settings. There is no central list. Nothing is started or built here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from wsbench.host import installation, toolchains
from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen, read_toml
from wsbench.servers import sources
from wsbench.servers.settings import (
    CHOSEN_ELSEWHERE,
    Jdk,
    RuntimeName,
    RuntimeTable,
    Settings,
    departures,
    options,
    parse,
)

SHIPPED = installation.ROOT / "servers"
#: The folder of the servers. WSBENCH_SERVERS replaces it with your own.
SERVERS = Path(os.environ.get("WSBENCH_SERVERS") or SHIPPED)

ScenarioName = Literal["doc", "echo", "ping", "push"]
TransportName = Literal["websocket", "tcp"]


class Need(Frozen):
    """A tool that is not in toolchains.toml: the command that prints its version, and how to install it."""

    run: list[str]
    at_least: str
    install: str


class VariantTable(Frozen):
    library_version: str
    #: Why this version can no longer be run. Such a variant is listed, but never built or measured.
    unavailable: str | None = None
    build: list[list[str]] = []
    run: list[str] = []
    version: list[str] = []
    artefacts: list[str] = []
    env: dict[str, str] = {}
    scenarios: list[ScenarioName] | None = None
    transport: TransportName | None = None
    needs: dict[str, str | Need] | None = None
    #: The oldest JDK that builds and runs it. None: the one on the PATH.
    jdk: Jdk | None = None
    tags: list[str] = []
    departures: list[str] = []


class Manifest(Frozen):
    language: str
    library: str
    homepage: str
    scenarios: list[ScenarioName]
    transport: TransportName = "websocket"
    #: The runtime, if a JDK, a collector or a heap can be chosen for it.
    runtime: RuntimeName | None = None
    tags: list[str] = []
    default: str
    #: Required tools: the minimum version of a tool in toolchains.toml, or a table for another tool.
    needs: dict[str, str | Need] = {}
    departures: list[str] = []
    variants: dict[str, VariantTable]


@dataclass(frozen=True)
class Variant:
    """One version of a server with one start command: the manifest's server table and variant table combined, plus the chosen
    runtime settings. `row` is the variant's name in the manifest."""

    server: str
    row: str
    is_default: bool
    #: The folder of its sources, and the folder in which it is built and run.
    sources: Path
    folder: Path
    manifest: Manifest
    table: VariantTable
    settings: Settings = field(default_factory=Settings)

    @property
    def variant(self) -> str:
        return self.row + self.settings.suffix

    @property
    def name(self) -> str:
        return f"{self.server}@{self.variant}"

    @property
    def builder(self) -> str:
        """The first of the server's variants with the same build commands. All of them use its build."""
        return next(name for name, table in self.manifest.variants.items() if table.build == self.table.build)

    @property
    def runtime(self) -> RuntimeName | None:
        return self.manifest.runtime

    @property
    def env(self) -> dict[str, str]:
        """The environment of its processes, without the JDK's location, which depends on the machine."""
        return {**options(self.runtime, self.settings), **self.table.env}

    @property
    def scenarios(self) -> list[ScenarioName]:
        return self.manifest.scenarios if self.table.scenarios is None else self.table.scenarios

    @property
    def transport(self) -> TransportName:
        return self.table.transport or self.manifest.transport

    @property
    def needs(self) -> dict[str, str | Need]:
        return self.manifest.needs if self.table.needs is None else self.table.needs

    @property
    def tags(self) -> list[str]:
        return self.manifest.tags + self.table.tags

    @property
    def departures(self) -> list[str]:
        chosen = departures(self.runtime, self.settings)
        return chosen + self.manifest.departures + self.table.departures


def read(folder: Path = SERVERS) -> list[Variant]:
    """Every variant of every server, by name. UserError for an invalid manifest: path, key, what was found."""
    variants = []
    for file in sorted(folder.glob("*/server.toml")):
        manifest = read_toml(Manifest, file)
        if manifest.default not in manifest.variants:
            allowed = ", ".join(manifest.variants)
            raise UserError(f"{file}: 'default': found {manifest.default!r}, allowed: {allowed}")
        workplace = _workplace(file.parent)
        for name, table in manifest.variants.items():
            _require_sound(file, name, table, manifest)
            is_default = name == manifest.default
            variants.append(Variant(file.parent.name, name, is_default, file.parent, workplace, manifest, table))
    return variants


def _workplace(folder: Path) -> Path:
    """Where a server is built: its own folder or, for a server shipped in a wheel, the user's cache. That folder stays the same
    while the sources do, also across releases."""
    if installation.IS_CHECKOUT or folder.parent != SHIPPED:
        return folder
    return installation.cache_folder() / "servers" / f"{folder.name}-{sources.digest(folder)[:12]}"


def _require_sound(file: Path, name: str, table: VariantTable, manifest: Manifest) -> None:
    """Checks a variant: an available one needs commands, an unavailable one has none and is no default. Settings are not fixed."""
    default = manifest.default
    if "+" in name:
        raise UserError(f"{file}: 'variants.{name}': a variant's name contains no '+', which introduces runtime settings")
    plain = [key for key, need in {**manifest.needs, **(table.needs or {})}.items() if isinstance(need, str)]
    if unknown := sorted(set(plain) - set(toolchains.table())):
        known = ", ".join(toolchains.table())
        raise UserError(f"{file}: 'needs': found {unknown[0]!r}, allowed: {known}, or a table with run, at_least, install")
    fixed = [flag for flag in table.run if manifest.runtime is not None and CHOSEN_ELSEWHERE.fullmatch(flag)]
    if fixed:
        raise UserError(
            f"{file}: 'variants.{name}.run': found {fixed[0]!r}: choose heap and collector by name or in the experiment"
        )
    if table.jdk is not None and manifest.runtime != "jvm":
        raise UserError(f"{file}: 'variants.{name}.jdk': only servers with runtime 'jvm' have a JDK")
    commands = {"build", "run", "version"}
    given = commands & table.model_fields_set
    if table.unavailable is None and (missing := sorted(commands - given)):
        raise UserError(f"{file}: missing key 'variants.{name}.{missing[0]}'")
    if table.unavailable is not None and given:
        raise UserError(f"{file}: 'variants.{name}.{min(given)}': an unavailable variant has no commands")
    if table.unavailable is not None and name == default:
        raise UserError(f"{file}: 'default': found {default!r}, which is unavailable")


def select(patterns: list[str], variants: list[Variant]) -> list[Variant]:
    """The variants that match the patterns, in the catalogue's order.

    `netty` selects its default variant, `netty@4.1.19` that variant, `*` every default, `*@*` every variant, `tag:jvm` every
    variant with that tag. A leading `!` excludes. A suffix of any number of settings, such as `+jdk25+ZGC+heap4g`, chooses them
    and drops matches whose runtime does not take them. UserError for a pattern that matches nothing.
    """
    chosen: dict[str, Variant] = {}
    for pattern in patterns:
        leave_out, (bare, plus, suffix) = pattern.startswith("!"), pattern.removeprefix("!").partition("+")
        settings = parse(suffix) if plus else Settings()
        named = [variant for variant in variants if _matches(bare, variant, leave_out)]
        if leave_out:
            rows = {(variant.server, variant.row) for variant in named}
            chosen = {
                name: variant
                for name, variant in chosen.items()
                if (variant.server, variant.row) not in rows or (suffix and variant.settings != settings)
            }
            continue
        if not named:
            known = ", ".join(sorted({variant.server for variant in variants}))
            raise UserError(f"no server matches {bare!r}; known servers: {known} (see `wsbench list servers`)")
        found = [replace(variant, settings=settings) for variant in named if settings.taken_by(variant.runtime)]
        if not found:
            raise UserError(f"{pattern!r}: +{suffix} does not apply to {', '.join(variant.name for variant in named)}")
        chosen |= {variant.name: variant for variant in found}
    rank = {(variant.server, variant.row): index for index, variant in enumerate(variants)}
    return sorted(chosen.values(), key=lambda variant: rank[variant.server, variant.row])


def chosen_for(table: RuntimeTable, variants: list[Variant]) -> list[Variant]:
    """The variants that an experiment's `[runtime]` makes of the selected ones."""
    made = [
        replace(variant, settings=settings)
        for variant in variants
        for settings in ([variant.settings] if variant.table.unavailable else table.choices(variant.runtime, variant.settings))
    ]
    return list({variant.name: variant for variant in made}.values())


def untaken(table: RuntimeTable, made: list[Variant]) -> list[str]:
    """The keys of `[runtime]` that apply to none of the variants."""
    return sorted(table.keys - {key for variant in made for key in variant.settings.keys})


def named(name: str, variants: list[Variant], table: RuntimeTable) -> Variant | None:
    """The variant of this name in a campaign, with the experiment's flags. None if it no longer exists."""
    full, _, suffix = name.partition("+")
    for variant in variants:
        if variant.name == full:
            chosen = table.flagged(variant.runtime, parse(suffix) if suffix else Settings())
            return replace(variant, settings=chosen)
    return None


def _matches(pattern: str, variant: Variant, leave_out: bool) -> bool:
    if pattern.startswith("tag:"):
        return pattern.removeprefix("tag:") in variant.tags
    if "@" in pattern:
        return fnmatchcase(variant.name, pattern)
    # Exclusion covers all variants of a server; selection by server name means the default variant.
    return fnmatchcase(variant.server, pattern) and (leave_out or variant.is_default)

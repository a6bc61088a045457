"""The catalogue: every folder with a manifest in the catalogue's folders, as frozen values. Servers are discovered by folder and
selected by name, glob or tag, with optional runtime settings. There is no central list. Nothing is started or built here.

What a manifest may say is in `manifest`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from wsbench.host import installation
from wsbench.records.errors import Faults, UserError, nearest
from wsbench.records.rundir import RoleName, RoleRow
from wsbench.servers import manifest, sources
from wsbench.servers.manifest import (
    PATHS,
    WEBSOCKET_SCENARIOS,
    Limits,
    Manifest,
    Need,
    Offer,
    Running,
    ScenarioName,
    Started,
    TransportName,
    Unavailable,
    address,
)
from wsbench.servers.settings import RuntimeName, RuntimeTable, Settings, departures, options, parse

SHIPPED = installation.ROOT / "servers"
#: Folders of your own servers, separated as in PATH. The catalogue consists of them and the shipped servers.
VARIABLE = "WSBENCH_SERVERS"


@dataclass(frozen=True)
class Variant:
    """One version of a server: the manifest's server table and variant table combined, plus the chosen runtime settings. `row` is
    the variant's name in the manifest."""

    server: str
    row: str
    is_default: bool
    #: The folder of its sources, and the folder in which it is built and run.
    sources: Path
    folder: Path
    manifest: Manifest
    table: Started | Running | Unavailable
    settings: Settings = field(default_factory=Settings)

    @property
    def variant(self) -> str:
        return self.row + self.settings.suffix

    @property
    def name(self) -> str:
        return f"{self.server}@{self.variant}"

    @property
    def builder(self) -> str:
        """The first of the server's variants with the same build commands. All use its build. Its own row if it has none."""
        if not isinstance(self.table, Started):
            return self.row
        commands = {name: table.build for name, table in self.manifest.variants.items() if isinstance(table, Started)}
        return next(name for name, build in commands.items() if build == self.table.build)

    @property
    def runtime(self) -> RuntimeName | None:
        """The runtime whose settings can be chosen. None for a server that wsbench does not start."""
        return self.manifest.runtime if isinstance(self.table, Started) else None

    @property
    def jdk(self) -> int | None:
        """The oldest JDK that builds and runs it. None: any, or the variant is not started."""
        return self.table.jdk if isinstance(self.table, Started) else None

    @property
    def env(self) -> dict[str, str]:
        """The environment of its processes, without the JDK's location, which depends on the machine."""
        return {**options(self.runtime, self.settings), **self.table.env} if isinstance(self.table, Started) else {}

    @property
    def scenarios(self) -> list[ScenarioName]:
        """What it serves of the contract."""
        return self.manifest.scenarios if self.table.scenarios is None else self.table.scenarios

    @property
    def roles(self) -> dict[RoleName, RoleRow]:
        """What it serves in a protocol of its own."""
        return self.manifest.sessions | self.table.sessions

    @property
    def serves(self) -> list[str]:
        """Its scenarios and its roles."""
        return [*self.scenarios, *self.roles]

    @property
    def transport(self) -> TransportName:
        if isinstance(self.table, Running):
            return address(self.table.url).transport
        chosen = self.table.transport if isinstance(self.table, Started) else None
        return chosen or self.manifest.transport

    @property
    def paths(self) -> dict[ScenarioName, str]:
        """The path of every scenario. The path of a running server's URL is that of its WebSocket scenarios."""
        found = {**PATHS}
        if isinstance(self.table, Running) and (path := address(self.table.url).path):
            found |= dict.fromkeys(WEBSOCKET_SCENARIOS, path)
        return found | self.manifest.paths | self.table.paths

    @property
    def limits(self) -> Limits:
        return self.manifest.limits if self.table.limits is None else self.table.limits

    @property
    def offers(self) -> list[Offer]:
        """What can be switched on. A server that runs already speaks as its address says."""
        if isinstance(self.table, Running):
            return []
        return self.manifest.offers if self.table.offers is None else self.table.offers

    @property
    def needs(self) -> dict[str, str | Need]:
        if not isinstance(self.table, Started):
            return {}
        return self.manifest.needs if self.table.needs is None else self.table.needs

    @property
    def tags(self) -> list[str]:
        return self.manifest.tags + self.table.tags

    @property
    def departures(self) -> list[str]:
        chosen = departures(self.runtime, self.settings)
        return chosen + self.manifest.departures + self.table.departures


def own() -> tuple[Path, ...]:
    """The folders that the environment names."""
    return tuple(Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name)


def read(*folders: Path) -> list[Variant]:
    """Every variant of every server in these folders, by name. Without a folder: the shipped servers and those of `own`.

    UserError for a folder that does not exist or a name that two folders have; `Faults` for invalid manifests, one line each: path,
    key, what was found.
    """
    variants, wrong, places = [], [], {}
    for folder in _distinct(folders or (SHIPPED, *own())):
        for file in sorted(folder.glob("*/server.toml")):
            name = file.parent.name
            if name in places:
                raise UserError(f"two servers are named {name!r}: {places[name]} and {file.parent}; rename one of the folders")
            places[name] = file.parent
            try:
                variants += _variants(file)
            except UserError as error:
                wrong += error.lines
    if wrong:
        raise Faults(wrong)
    return sorted(variants, key=lambda variant: variant.server)


def with_own(folder: Path | None) -> list[Variant]:
    """The catalogue, and the servers of a campaign's own folder if it has one."""
    return read() if folder is None or not folder.is_dir() else read(SHIPPED, *own(), folder)


def _distinct(folders: tuple[Path, ...]) -> list[Path]:
    """The folders without repetition. UserError if one does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(
                f"{VARIABLE}: {folder} is not a folder; allowed: folders of server folders, separated by '{os.pathsep}'"
            )
    return list({folder.resolve(): folder for folder in folders}.values())


def _variants(file: Path) -> list[Variant]:
    found, workplace = manifest.read(file), _workplace(file.parent)
    return [
        Variant(file.parent.name, name, name == found.default, file.parent, workplace, found, table)
        for name, table in found.variants.items()
    ]


def _workplace(folder: Path) -> Path:
    """Where a server is built: its own folder or, for a server shipped in a wheel, the user's cache. That folder stays the same
    while the sources do, also across releases."""
    if installation.IS_CHECKOUT or folder.parent != SHIPPED:
        return folder
    return installation.cache_folder() / "servers" / f"{folder.name}-{sources.digest(folder)[:12]}"


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
            server, at, _ = bare.partition("@")
            known = {variant.name if at and variant.server == server else variant.server for variant in variants}
            raise UserError(f"no server matches {bare!r}{nearest(bare, sorted(known))} (see `wsbench list servers`)")
        found = [replace(variant, settings=settings) for variant in named if settings.taken_by(variant.runtime)]
        if not found:
            raise UserError(f"{pattern!r}: +{suffix} does not apply to {', '.join(variant.name for variant in named)}")
        chosen |= {variant.name: variant for variant in found}
    rank = {(variant.server, variant.row): index for index, variant in enumerate(variants)}
    return sorted(chosen.values(), key=lambda variant: rank[variant.server, variant.row])


def chosen_for(table: RuntimeTable, variants: list[Variant]) -> list[Variant]:
    """The variants that an experiment's `[runtime]` makes of the selected ones."""
    made = [
        replace(variant, settings=settings) for variant in variants for settings in table.choices(variant.runtime, variant.settings)
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

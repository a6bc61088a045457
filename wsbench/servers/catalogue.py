"""The catalogue: every folder with a manifest in the catalogue's folders, as frozen values. Servers are discovered by folder and
selected by name, glob or tag, with optional runtime settings. There is no central list. Nothing is started or built here.

A variant is one of three: `Started` (wsbench builds, starts and stops it), `Running` (it runs already), `Unavailable`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag

from wsbench.host import installation, toolchains
from wsbench.records.errors import Faults, UserError
from wsbench.records.files import read_text
from wsbench.records.frozen import Frozen, faults_of, toml_of
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
#: Folders of your own servers, separated as in PATH. The catalogue consists of them and the shipped servers.
VARIABLE = "WSBENCH_SERVERS"
OWN = tuple(Path(one) for one in os.environ.get(VARIABLE, "").split(os.pathsep) if one)

ScenarioName = Literal["doc", "echo", "ping", "push"]
TransportName = Literal["websocket", "tcp"]
#: The contract's path of each scenario. A manifest may name others.
PATHS: dict[ScenarioName, str] = {"doc": "/doc", "echo": "/echo", "ping": "/ping", "push": "/push"}
WEBSOCKET_SCENARIOS: tuple[ScenarioName, ...] = ("echo", "ping", "push")
RequestTarget = Annotated[str, Field(pattern=r"^/[!-\"$-~]*$")]
#: Scheme of a running server: its transport and default port.
SCHEMES: dict[str, tuple[TransportName, int | None]] = {"ws": ("websocket", 80), "http": ("websocket", 80), "tcp": ("tcp", None)}
#: PID_MAX_LIMIT of 64-bit kernels.
LAST_PID = 1 << 22


class Need(Frozen):
    """A tool that is not in toolchains.toml: the command that prints its version, and how to install it."""

    run: list[str]
    at_least: str
    install: str


class Limits(Frozen):
    """The most that a server takes. None: as much as the contract asks."""

    message_bytes: Annotated[int, Field(ge=0)] | None = None
    connections: Annotated[int, Field(ge=1)] | None = None

    def exceeded(self, message_bytes: int, connections: int) -> str | None:
        """Which limit this load exceeds, in words; None if it fits."""
        if self.message_bytes is not None and message_bytes > self.message_bytes:
            return f"takes messages of at most {self.message_bytes:,} bytes"
        if self.connections is not None and connections > self.connections:
            return f"takes at most {self.connections:,} connections"
        return None


@dataclass(frozen=True)
class Address:
    """Where a running server listens. `path` is empty if the URL has none; `name` is its Host header."""

    transport: TransportName
    host: str
    port: int
    path: str
    name: str


def address(text: str) -> Address:
    """The parts of a running server's URL. ValueError if it is not one."""
    wrong = ValueError(f"found {text!r}, allowed: ws://HOST:PORT/PATH, http://HOST:PORT or tcp://HOST:PORT")
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise wrong from error
    if url.scheme not in SCHEMES or not url.hostname or "@" in url.netloc or "#" in text or not text.isprintable() or " " in text:
        raise wrong
    transport, usual = SCHEMES[url.scheme]
    if (port or usual) is None or (transport == "tcp" and url.path not in ("", "/")):
        raise wrong
    path = url.path + (f"?{url.query}" if url.query else "")
    return Address(transport, url.hostname, port or usual, path, url.netloc)


def _is_address(text: str) -> str:
    address(text)
    return text


class VariantTable(Frozen):
    """What every variant may say. What it leaves out is that of the manifest."""

    library_version: str
    scenarios: list[ScenarioName] | None = None
    paths: dict[ScenarioName, RequestTarget] = {}
    limits: Limits | None = None
    tags: list[str] = []
    departures: list[str] = []


class Started(VariantTable):
    """A variant that wsbench builds, starts and stops."""

    build: list[list[str]]
    run: Annotated[list[str], Field(min_length=1)]
    version: Annotated[list[str], Field(min_length=1)]
    artefacts: list[str] = []
    env: dict[str, str] = {}
    transport: TransportName | None = None
    needs: dict[str, str | Need] | None = None
    #: The oldest JDK that builds and runs it. None: the one on the PATH.
    jdk: Jdk | None = None


class Running(VariantTable):
    """A variant that runs already. wsbench never starts, stops or kills it. Naming its address declares it as the user's own."""

    library_version: str = "unknown"
    url: Annotated[str, AfterValidator(_is_address)]
    #: The first process of its tree. None: its CPU and memory are not sampled.
    pid: Annotated[int, Field(ge=1, le=LAST_PID)] | None = None
    #: Whether the process is kept on the server's CPUs while it is loaded.
    pin: bool = True


class Unavailable(VariantTable):
    """A version that can no longer be run. It is listed, but never built or measured."""

    unavailable: str


def _kind(table) -> str:
    """The tag of a variant's type; in parentheses, because it is no key of the file (`frozen.every_line`)."""
    given = table if isinstance(table, dict) else getattr(table, "model_fields_set", ())
    return "(unavailable)" if "unavailable" in given else "(running)" if "url" in given else "(started)"


AnyTable = Annotated[
    Annotated[Started, Tag("(started)")] | Annotated[Running, Tag("(running)")] | Annotated[Unavailable, Tag("(unavailable)")],
    Discriminator(_kind),
]


class Manifest(Frozen):
    language: str
    library: str
    homepage: str = ""
    scenarios: Annotated[list[ScenarioName], Field(min_length=1)]
    transport: TransportName = "websocket"
    #: The runtime, if a JDK, a collector or a heap can be chosen for it.
    runtime: RuntimeName | None = None
    paths: dict[ScenarioName, RequestTarget] = {}
    limits: Limits = Limits()
    tags: list[str] = []
    default: str
    #: Required tools: the minimum version of a tool in toolchains.toml, or a table for another tool.
    needs: dict[str, str | Need] = {}
    departures: list[str] = []
    variants: dict[str, AnyTable]


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
        return self.manifest.scenarios if self.table.scenarios is None else self.table.scenarios

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


def read(*folders: Path) -> list[Variant]:
    """Every variant of every server in these folders, by name. Without a folder: the shipped servers and those of `OWN`.

    UserError for a folder that does not exist or a name that two folders have; `Faults` for invalid manifests, one line each: path,
    key, what was found.
    """
    variants, wrong, places = [], [], {}
    for folder in _distinct(folders or (SHIPPED, *OWN)):
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


def _distinct(folders: tuple[Path, ...]) -> list[Path]:
    """The folders without repetition. UserError if one does not exist."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError(
                f"{VARIABLE}: {folder} is not a folder; allowed: folders of server folders, separated by '{os.pathsep}'"
            )
    return list({folder.resolve(): folder for folder in folders}.values())


def _variants(file: Path) -> list[Variant]:
    raw = toml_of(read_text(file, links=True), file)
    manifest, wrong = faults_of(Manifest, raw)
    wrong += _contradictions(raw)
    if wrong:
        raise Faults([f"{file}: {line}" for line in wrong])
    workplace = _workplace(file.parent)
    return [
        Variant(file.parent.name, name, name == manifest.default, file.parent, workplace, manifest, table)
        for name, table in manifest.variants.items()
    ]


def _workplace(folder: Path) -> Path:
    """Where a server is built: its own folder or, for a server shipped in a wheel, the user's cache. That folder stays the same
    while the sources do, also across releases."""
    if installation.IS_CHECKOUT or folder.parent != SHIPPED:
        return folder
    return installation.cache_folder() / "servers" / f"{folder.name}-{sources.digest(folder)[:12]}"


def _contradictions(raw: dict) -> Iterator[str]:
    """Faults between the keys of a manifest, as parsed, so that they are reported together with those of single keys."""
    yield from _unknown_tools("needs", raw.get("needs"))
    variants = raw.get("variants")
    tables = {name: table for name, table in variants.items() if isinstance(table, dict)} if isinstance(variants, dict) else {}
    default = raw.get("default")
    if isinstance(default, str) and tables and default not in tables:
        yield f"'default': found {default!r}, allowed: {', '.join(tables)}"
    if isinstance(default, str) and "unavailable" in tables.get(default, {}):
        yield f"'default': found {default!r}, which is unavailable"
    for name, table in tables.items():
        key = f"variants.{name}"
        if "+" in name:
            yield f"'{key}': a variant's name contains no '+', which introduces runtime settings"
        yield from _unknown_tools(f"{key}.needs", table.get("needs"))
        run = table.get("run")
        fixed = (
            [flag for flag in run if isinstance(flag, str) and CHOSEN_ELSEWHERE.fullmatch(flag)] if isinstance(run, list) else []
        )
        if fixed and raw.get("runtime") is not None:
            yield f"'{key}.run': found {fixed[0]!r}: choose heap and collector by name or in the experiment"
        if "jdk" in table and raw.get("runtime") != "jvm":
            yield f"'{key}.jdk': only servers with runtime 'jvm' have a JDK"


def _unknown_tools(key: str, needs) -> Iterator[str]:
    plain = {tool for tool, need in needs.items() if isinstance(need, str)} if isinstance(needs, dict) else set()
    if unknown := sorted(plain - set(toolchains.table())):
        known = ", ".join(toolchains.table())
        yield f"'{key}': found {unknown[0]!r}, allowed: {known}, or a table with run, at_least, install"


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

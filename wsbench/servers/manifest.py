"""A manifest: the file `server.toml` of a server's folder, as frozen values, and everything that is wrong with one.

A variant is one of three: `Started` (wsbench builds, starts and stops it), `Running` (it runs already), `Unavailable`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag

from wsbench.host import toolchains
from wsbench.records.errors import Faults
from wsbench.records.files import read_text
from wsbench.records.frozen import Frozen, faults_of, toml_of
from wsbench.records.rundir import RoleName, RoleRow
from wsbench.servers.settings import CHOSEN_ELSEWHERE, Jdk, RuntimeName

ScenarioName = Literal["doc", "echo", "ping", "push"]
TransportName = Literal["websocket", "tcp"]
#: What a server may have switched on by its environment (`serving.Order.asks`).
Offer = Literal["tls", "deflate"]
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
    offers: list[Offer] | None = None
    tags: list[str] = []
    departures: list[str] = []
    sessions: dict[RoleName, RoleRow] = {}


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
    #: What it serves of the contract.
    scenarios: list[ScenarioName] = []
    #: What it serves in a protocol of its own.
    sessions: dict[RoleName, RoleRow] = {}
    transport: TransportName = "websocket"
    #: The runtime, if a JDK, a collector or a heap can be chosen for it.
    runtime: RuntimeName | None = None
    paths: dict[ScenarioName, RequestTarget] = {}
    limits: Limits = Limits()
    #: What it offers beyond plain WebSocket, to loads that ask for it.
    offers: list[Offer] = []
    tags: list[str] = []
    default: str
    #: Required tools: the minimum version of a tool in toolchains.toml, or a table for another tool.
    needs: dict[str, str | Need] = {}
    departures: list[str] = []
    variants: dict[str, AnyTable]


def read(file: Path) -> Manifest:
    """`Faults` with everything that is wrong, one line each: path, key, what was found."""
    raw = toml_of(read_text(file, links=True), file)
    manifest, wrong = faults_of(Manifest, raw)
    wrong += _contradictions(raw)
    if wrong:
        raise Faults([f"{file}: {line}" for line in wrong])
    return manifest


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
    serves = ("scenarios", "sessions")
    for name, table in tables.items():
        key = f"variants.{name}"
        if not any(place.get(one) for place in (raw, table) for one in serves):
            yield f"'{key}': it serves nothing: give 'scenarios' or 'sessions'"
        offers, scenarios = (table.get(one, raw.get(one)) for one in ("offers", "scenarios"))
        if offers and "echo" not in (scenarios if isinstance(scenarios, list) else []):
            yield f"'{key}': what it offers is checked by an echo: it needs scenario 'echo'"
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

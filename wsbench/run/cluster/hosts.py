"""cluster.toml: the hosts, their roles and how to reach them. Imports no other module of the package. Errors fit on one line."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from wsbench.records.errors import UserError
from wsbench.records.frozen import Frozen, read_toml


def _address(text: str) -> str:
    try:
        found = str(ipaddress.ip_address(text))
    except ValueError as error:
        raise ValueError(f"an IP address, found {text!r}") from error
    if found in ("127.0.0.1", "::1"):
        raise ValueError("Ray replaces it with another address; if all hosts are this machine, use 127.0.0.2")
    return found


Address = Annotated[str, AfterValidator(_address)]
Port = Annotated[int, Field(ge=1024, le=65_000)]
Count = Annotated[int, Field(ge=1, le=4096)]


class Host(Frozen):
    """A host. `netns` is a network namespace of this machine that acts as a host. A machine with both roles is two hosts with
    the same address."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    address: Address
    #: Role in a campaign. For a server that wsbench does not start (`wsbench load`), only hosts that load take part.
    role: Literal["serve", "load"] = "load"
    #: The CPUs of its server or engines: a list, or the number to take from the first on.
    cpus: Count | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    netns: str | None = None
    #: `wsbench cluster up` starts Ray there by ssh, e.g. user@host; wsbench must be in the same folder there as here.
    ssh: str | None = None
    #: Path of this host's engine; None: next to its Python.
    engine: str | None = None

    def cpus_of(self, there: list[int]) -> list[int]:
        """The CPUs of this host's processes, out of those available there. UserError if they are not available."""
        wanted = there[: self.cpus] if isinstance(self.cpus, int) else self.cpus
        if not set(wanted) <= set(there) or (isinstance(self.cpus, int) and len(wanted) < self.cpus):
            raise UserError(f"{self.name}: cpus = {self.cpus}, but processes there may use {there}")
        return wanted


class Cluster(Frozen):
    """A cluster. wsbench runs on the first host, which is Ray's head. `port` is the first of the fixed ports. `ray` is the
    address of a Ray head that wsbench does not manage; that Ray keeps its settings, and the first host is one of its nodes."""

    ray: str | None = None
    token: Path = Path("~/.config/wsbench/cluster.token")
    port: Port = 26_379
    #: How long a campaign waits for a lost host.
    wait_s: Annotated[float, Field(ge=0, le=86_400)] = 120.0
    host: Annotated[list[Host], Field(min_length=1)]

    @property
    def head(self) -> str:
        return self.ray or f"{self.host[0].address}:{self.port}"

    @property
    def token_file(self) -> Path:
        return self.token.expanduser()

    @property
    def loads(self) -> list[Host]:
        return [host for host in self.host if host.role == "load"]

    @property
    def machines(self) -> list[Host]:
        """One host per address."""
        return list({host.address: host for host in reversed(self.host)}.values())[::-1]


def read(file: Path) -> Cluster:
    found = read_toml(Cluster, file)
    _require_once(file, [repr(host.name) for host in found.host], "name")
    _require_once(file, [f"{host.address!r} to {host.role}" for host in found.host], "address")
    return found


def serving(file: Path, cluster: Cluster) -> Host:
    """The host that serves in a campaign. UserError unless there is exactly one, and at least one that loads."""
    serves = [host for host in cluster.host if host.role == "serve"]
    if len(serves) != 1 or not cluster.loads:
        raise UserError(f'{file}: a campaign needs exactly one host with role = "serve" and at least one that loads')
    return serves[0]


def _require_once(file: Path, values: list[str], key: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{file}: two hosts have the {key} {value}")

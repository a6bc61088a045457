"""cluster.toml: the hosts, what each is to do, and how to reach them. A leaf; every mistake is one line."""

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
        raise ValueError("Ray replaces it by another; where all hosts are this machine, 127.0.0.2 will do")
    return found


Address = Annotated[str, AfterValidator(_address)]
Port = Annotated[int, Field(ge=1024, le=65_000)]
Count = Annotated[int, Field(ge=1, le=4096)]


class Host(Frozen):
    """`netns` names a network namespace of this machine that stands for a host. One machine that does both is a host twice, with
    the same address."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    address: Address
    #: What it does in a campaign; where the server is none of ours (`wsbench load`), only hosts that load take part.
    role: Literal["serve", "load"] = "load"
    #: The CPUs of its server or engines: these, or the first so many.
    cpus: Count | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    netns: str | None = None
    #: Where `wsbench cluster up` starts Ray by ssh, such as user@host; wsbench is in the same folder there as here.
    ssh: str | None = None
    #: Where this host's engine is; None: beside its Python.
    engine: str | None = None

    def cpus_of(self, there: list[int]) -> list[int]:
        """The CPUs that are meant, of those that are there."""
        wanted = there[: self.cpus] if isinstance(self.cpus, int) else self.cpus
        if not set(wanted) <= set(there) or (isinstance(self.cpus, int) and len(wanted) < self.cpus):
            raise UserError(f"{self.name}: cpus = {self.cpus}, but what runs there may use {there}")
        return wanted


class Cluster(Frozen):
    """The first host is Ray's head; wsbench runs there. `port` is the first of the fixed ports. `ray` is the head of a Ray that
    somebody else has started, with the settings of theirs; the first host is then one of its nodes."""

    ray: str | None = None
    token: Path = Path("~/.config/wsbench/cluster.token")
    port: Port = 26_379
    #: How long a campaign waits for a host that was lost.
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
        """One host of each address."""
        return list({host.address: host for host in reversed(self.host)}.values())[::-1]


def read(file: Path) -> Cluster:
    found = read_toml(Cluster, file)
    _require_once(file, [repr(host.name) for host in found.host], "name")
    _require_once(file, [f"{host.address!r} to {host.role}" for host in found.host], "address")
    return found


def serving(file: Path, cluster: Cluster) -> Host:
    """The host that serves in a campaign; UserError unless there is one, and one that loads."""
    serves = [host for host in cluster.host if host.role == "serve"]
    if len(serves) != 1 or not cluster.loads:
        raise UserError(f'{file}: a campaign needs one host with role = "serve" and others that load')
    return serves[0]


def _require_once(file: Path, values: list[str], key: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{file}: two hosts have the {key} {value}")

"""cluster.toml: the hosts that load, and how to reach them. A leaf; every mistake is one line."""

from __future__ import annotations

import ipaddress
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from wsbench.errors import UserError
from wsbench.frozen import Frozen, one_line


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise ValueError(f"an IP address, found {text!r}") from error


Address = Annotated[str, AfterValidator(_address)]
Port = Annotated[int, Field(ge=1024, le=65_000)]


class Host(Frozen):
    """`netns` names a network namespace of this machine that stands for a host."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    address: Address
    cpus: Annotated[int, Field(ge=1, le=4096)]
    netns: str | None = None
    #: Where this host's engine is; None: beside its Python.
    engine: str | None = None


class Cluster(Frozen):
    """The first host is Ray's head; wsbench runs there, or can reach it. `port` is the first of the fixed ports."""

    token: Path = Path("~/.config/wsbench/cluster.token")
    port: Port = 26_379
    host: Annotated[list[Host], Field(min_length=1)]

    @property
    def head(self) -> str:
        return f"{self.host[0].address}:{self.port}"

    @property
    def token_file(self) -> Path:
        return self.token.expanduser()


def read(file: Path) -> Cluster:
    try:
        found = Cluster.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise UserError(f"{file}: {one_line(error)}") from error
    for key in ("name", "address"):
        values = [getattr(host, key) for host in found.host]
        for value in values:
            if values.count(value) > 1:
                raise UserError(f"{file}: two hosts have the {key} {value!r}")
    return found

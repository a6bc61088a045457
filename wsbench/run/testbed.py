"""Where a campaign runs: this machine, or the hosts of a cluster, which answers to the same words (`wsbench.cluster`).

A place has CPUs for both sides, prepares servers, starts them, starts engines, and samples what a trial uses. It knows no
experiment and no outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wsbench.engine import shards
from wsbench.host import machine
from wsbench.monitoring.sampler import Sampler
from wsbench.records.rundir import HostKey, HostRow, MachineRecord, ServerRow
from wsbench.run import preparing
from wsbench.servers import serving
from wsbench.servers.catalogue import Variant
from wsbench.servers.settings import RuntimeTable


class Server(Protocol):
    """What `serving.Serving` is to a trial. TrialFailed where its host is lost."""

    ready: serving.Ready

    def look(self) -> None: ...
    def ended(self) -> bool: ...
    def stop(self) -> str: ...


class Samples(Protocol):
    """What `sampler.Sampler` is to a trial."""

    def watch_engine(self, events: Path, quiet_s: float, *pids: int) -> None: ...


class Testbed(Protocol):
    server_address: str
    server_cpus: list[int]
    engine_cpus: list[int]
    #: Whether the engine has its CPUs for itself.
    apart: bool
    #: How many files a process of the server may open; None: as many as it likes.
    server_files: int | None
    engines: shards.Hosts
    #: The hosts, by what must be the same where a campaign is resumed.
    roster: list[HostKey]

    def prepare(
        self,
        variants: list[Variant],
        table: RuntimeTable,
        served: str,
        port: int | None,
        say: Callable[[str], None],
    ) -> list[ServerRow]: ...

    def machines(self) -> tuple[MachineRecord, list[HostRow]]:
        """The one that serves, read now, and all hosts with theirs; no host where there is only this machine."""

    def be_whole(self, say: Callable[[str], None]) -> None:
        """Before a trial: waits for hosts that were lost. UserError where one does not come back."""

    def serving(
        self, variant: Variant, table: RuntimeTable, order: serving.Order, folder: Path
    ) -> AbstractContextManager[Server]: ...

    def sampling(self, server: Server, folder: Path) -> AbstractContextManager[Samples]: ...


@dataclass(frozen=True)
class ThisHost:
    """This machine, its CPUs shared between both sides."""

    binary: Path
    placement: machine.Placement

    @property
    def server_address(self) -> str:
        return serving.HOST

    @property
    def server_cpus(self) -> list[int]:
        return self.placement.server

    @property
    def engine_cpus(self) -> list[int]:
        return self.placement.engine

    @property
    def apart(self) -> bool:
        return self.placement.apart

    @property
    def server_files(self) -> int | None:
        return machine.file_limit()

    @property
    def engines(self) -> shards.ThisHost:
        return shards.ThisHost(self.binary)

    def prepare(self, variants, table, served, port, say) -> list[ServerRow]:
        return preparing.rows(variants, served, self.server_cpus, port, say)

    @property
    def roster(self) -> list[HostKey]:
        return []

    def machines(self) -> tuple[MachineRecord, list[HostRow]]:
        return machine.read(), []

    def be_whole(self, say) -> None:
        pass

    def serving(self, variant, table, order, folder) -> serving.Serving:
        return serving.Serving(variant, order, folder)

    def sampling(self, server: serving.Serving, folder: Path) -> Sampler:
        return Sampler(folder / "resources.jsonl", *server.pids)

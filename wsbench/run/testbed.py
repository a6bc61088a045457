"""Where a campaign runs: this machine, or the hosts of a cluster, which have the same interface (`wsbench.run.cluster`).

A testbed has CPUs for both sides, prepares and starts servers, starts engines, and samples the resources of a trial. It
knows no experiment and no outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from wsbench.engine import program, shards
from wsbench.host import machine
from wsbench.monitoring.sampler import Sampler
from wsbench.records.hosts import HostKey, HostRow, MachineRecord
from wsbench.records.rundir import Artefacts, ServerRow
from wsbench.run import preparing
from wsbench.servers import build, serving
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Running
from wsbench.servers.settings import RuntimeTable


class Server(Protocol):
    """The part of `serving.Serving` that a trial uses. TrialFailed if its host is lost."""

    ready: serving.Ready

    def look(self) -> None: ...
    def ended(self) -> str | None: ...
    def stop(self) -> str: ...


class Samples(Protocol):
    """The part of `sampler.Sampler` that a trial uses."""

    def watch_engine(self, events: Path, quiet_s: float, *pids: int, longest_s: float = ...) -> None: ...


class Testbed(Protocol):
    server_address: str
    server_cpus: list[int]
    engine_cpus: list[int]
    #: True if the engine shares no CPU with the server.
    apart: bool
    #: Limit of open files per server process; None: unlimited.
    server_files: int | None
    engines: shards.Hosts
    #: The hosts, by the properties that must not change before a campaign is resumed.
    roster: list[HostKey]

    def prepare(
        self,
        wanted: list[preparing.Wanted],
        table: RuntimeTable,
        port: int | None,
        say: Callable[[str], None],
    ) -> list[ServerRow]: ...

    def machines(self) -> tuple[MachineRecord, list[HostRow]]:
        """The serving machine, read now, and a row per host; no rows without a cluster."""

    def programs(self) -> dict[str, str]:
        """Version and digest of the engine on each host that loads, by the name of the host; "" without a cluster."""

    def artefacts(self, variant: Variant, table: RuntimeTable, row: ServerRow | None = None) -> Artefacts | None:
        """What would be started of a variant now. `row`: the version report of a moment ago; None: it is asked for."""

    def be_whole(self, say: Callable[[str], None]) -> None:
        """Called before a trial: waits for lost hosts. UserError if a host does not come back."""

    def serving(
        self, variant: Variant, table: RuntimeTable, order: serving.Order, folder: Path
    ) -> AbstractContextManager[Server]: ...

    def sampling(self, server: Server, folder: Path, alone: bool = True) -> AbstractContextManager[Samples]: ...


@dataclass(frozen=True)
class ThisHost:
    """This machine: its CPUs serve both the server and the engine."""

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

    def prepare(self, wanted, table, port, say) -> list[ServerRow]:
        return preparing.rows(wanted, self.server_cpus, port, say)

    @property
    def roster(self) -> list[HostKey]:
        return []

    def machines(self) -> tuple[MachineRecord, list[HostRow]]:
        return machine.read(), []

    def programs(self) -> dict[str, str]:
        return {"": program.identity(self.binary)}

    def artefacts(self, variant, table, row=None) -> Artefacts | None:
        return build.artefacts(variant, self.server_cpus, row and build.reported(row))

    def be_whole(self, say) -> None:
        pass

    def serving(self, variant, table, order, folder) -> serving.Serving | serving.Attached:
        if isinstance(variant.table, Running):
            return serving.Attached(variant, order.cpus)
        return serving.Serving(variant, order, folder)

    def sampling(self, server: serving.Serving | serving.Attached, folder: Path, alone: bool = True) -> Sampler:
        cpus = [*self.server_cpus, *self.engine_cpus]
        return Sampler(folder / "resources.jsonl", *server.pids, cpus=cpus, server_cpus=self.server_cpus, alone=alone)

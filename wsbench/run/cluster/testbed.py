"""A cluster as a testbed: the interface of `run.testbed.Testbed`, carried out on the serving host and the loading hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.hosts import HostKey, HostRow, MachineRecord
from wsbench.records.rundir import Artefacts, ServerRow
from wsbench.run import preparing
from wsbench.run.cluster import hosts, remote
from wsbench.run.cluster.engines import OnCluster
from wsbench.run.cluster.hosts import Cluster
from wsbench.run.cluster.remotes import Calls, Remote, RemoteServer, Samples
from wsbench.run.preparing import Wanted
from wsbench.servers import serving
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Started
from wsbench.servers.settings import RuntimeTable

#: Checking a server takes about ten seconds; reading a machine runs several tools for their versions.
CHECK_S = 600.0


@contextlib.contextmanager
def reach(file: Path) -> Iterator[Elsewhere]:
    """A testbed on the hosts of cluster.toml. It disconnects when the context ends."""
    cluster = hosts.read(file)
    serves = hosts.serving(file, cluster)
    with remote.Connected(cluster, cluster.host) as connected:
        yield Elsewhere(cluster, serves.name, connected)


@contextlib.contextmanager
def loading(file: Path) -> Iterator[tuple[OnCluster, Callable[[Path], Samples]]]:
    """The loading hosts, for a server that wsbench does not start, and a function that samples them into a folder."""
    cluster = hosts.read(file)
    if not cluster.loads:
        raise UserError(f"{file}: no host loads")
    with remote.Connected(cluster, cluster.loads) as connected:
        loads = [_remote(host, connected) for host in cluster.loads]
        yield OnCluster(loads), lambda folder: Samples(None, loads, folder)


class Elsewhere:
    def __init__(self, cluster: Cluster, serves: str, calls: Calls):
        self._cluster, self._calls = cluster, calls
        self._hosts = [_remote(host, calls) for host in cluster.host]
        self._server = next(one for one in self._hosts if one.host.name == serves)
        self._loads = [one for one in self._hosts if one is not self._server]
        self.engines = OnCluster(self._loads)

    @property
    def server_address(self) -> str:
        return self._server.host.address

    @property
    def server_cpus(self) -> list[int]:
        return self._server.cpus

    @property
    def engine_cpus(self) -> list[int]:
        """CPUs of all hosts that load, host by host."""
        return [cpu for one in self._loads for cpu in one.cpus]

    @property
    def apart(self) -> bool:
        beside = [one for one in self._loads if one.host.address == self._server.host.address]
        return not any(set(one.cpus) & set(self._server.cpus) for one in beside)

    @property
    def server_files(self) -> int | None:
        return self._server.files

    @property
    def roster(self) -> list[HostKey]:
        return [one.key for one in self._hosts]

    def prepare(
        self,
        wanted: list[Wanted],
        table: RuntimeTable,
        port: int | None,
        say: Callable[[str], None],
    ) -> list[ServerRow]:
        return [self._row(one, table, port, say) for one in wanted]

    def _row(self, wanted: Wanted, table: RuntimeTable, port: int | None, say) -> ServerRow:
        """The server's row. UserError if the host's manifest of this variant differs from ours."""
        variant, name = wanted.variant, self._server.host.name
        if not isinstance(variant.table, Started):
            return preparing.left_out(variant, "it runs already, and the serving host of a cluster starts its servers")
        say(f"checking {variant.name} on {name}")
        asked = (variant.name, table.model_dump_json(), wanted.served, wanted.use.model_dump_json(), self.server_cpus, port)
        try:
            row = ServerRow.model_validate_json(self._server.call("prepare", *asked, timeout_s=CHECK_S))
        except TrialFailed as failure:
            raise UserError(f"{variant.name}: {failure}") from failure
        ours = variant.table
        if (row.library_version, row.build, row.run, row.env) != (
            *(ours.library_version, ours.build, ours.run),
            variant.env,
        ):
            raise UserError(f"{variant.name}: the manifest on {name} differs; install the same wsbench there")
        return row

    def machines(self) -> tuple[MachineRecord, list[HostRow]]:
        found = []
        for one in self._hosts:
            said = _answer(one, "machine")
            found.append(HostRow(key=one.key, machine=MachineRecord.model_validate_json(said)))
        serves = next(row.machine for row in found if row.key == self._server.key)
        return serves, found

    def programs(self) -> dict[str, str]:
        return {one.host.name: _answer(one, "program") for one in self._loads}

    def artefacts(self, variant: Variant, table: RuntimeTable, row: ServerRow | None = None) -> Artefacts | None:
        said = row and row.model_dump_json()
        asked = (variant.name, table.model_dump_json(), self.server_cpus, said)
        return Artefacts.model_validate_json(_answer(self._server, "artefacts", *asked))

    def be_whole(self, say: Callable[[str], None]) -> None:
        self._calls.restore(self._cluster.wait_s, say)

    def serving(self, variant: Variant, table: RuntimeTable, order: serving.Order, folder: Path) -> RemoteServer:
        ask = (variant.name, table.model_dump_json(), order.model_dump_json())
        return RemoteServer(self._server, ask, folder)

    def sampling(self, server: RemoteServer, folder: Path) -> Samples:
        server.samples = Samples(self._server, self._loads, folder)
        return server.samples


def _answer(one: Remote, method: str, *arguments) -> str:
    try:
        return one.call(method, *arguments, timeout_s=CHECK_S)
    except TrialFailed as failure:
        raise UserError(str(failure)) from failure


def _remote(host: hosts.Host, calls: Calls) -> Remote:
    try:
        return Remote(host, calls)
    except TrialFailed as failure:
        raise UserError(str(failure)) from failure

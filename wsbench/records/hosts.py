"""Records of a campaign's machine and of the hosts of a cluster: `machine.json`, `hosts.json`, a trial's `host.json`."""

from __future__ import annotations

from typing import Literal

from wsbench.records.frozen import Frozen


class Tool(Frozen):
    name: str
    version: str | None


class MachineRecord(Frozen):
    """The machine of a campaign. Unknown values are None. `cpu_id`: family, model and stepping, because a hypervisor may give
    different CPUs one name; null in older runs."""

    hostname: str
    kernel: str
    distribution: str | None
    cpu_model: str | None
    cpu_id: str | None = None
    cpus: int
    memory_bytes: int
    virtualisation: str | None
    governor: str | None
    clocksource: str | None
    file_limit: tuple[int, int]
    port_range: tuple[int, int] | None
    sysctls: dict[str, str]
    tools: list[Tool]
    git_revision: str | None

    def changes(self, after: MachineRecord) -> list[str]:
        """Properties that a later record of the machine has otherwise, kernel settings and tools among them."""
        was, is_ = self._flat(), after._flat()
        keys = [key for key in was | is_ if was.get(key) != is_.get(key)]
        return [f"{key}: {was.get(key, 'unknown')} → {is_.get(key, 'unknown')}" for key in keys]

    def _flat(self) -> dict[str, object]:
        plain = self.model_dump(exclude={"sysctls", "tools"})
        return plain | self.sysctls | {tool.name: tool.version for tool in self.tools}


class HostKey(Frozen):
    """A host of a cluster: its role in a campaign and the CPUs it uses."""

    name: str
    role: Literal["serve", "load"]
    address: str
    cpus: list[int]


class HostRow(Frozen):
    """A host in a campaign, and its machine in the format of machine.json."""

    key: HostKey
    machine: MachineRecord


class ClockRecord(Frozen):
    """Offset of a host's monotonic clock from ours, within ±`bound_ns`; `t_ns` is the time of the measurement on our clock."""

    t_ns: int
    offset_ns: int
    bound_ns: int


class HostRecord(Frozen):
    """A host in a trial. Its timestamps were moved to our clock by the first entry of `clocks`. The other entries were measured
    during the trial and, unless the host was lost, after it. `epoch_ns` is the host's wall clock minus its monotonic clock.
    `engines` lists the shards that ran on the host."""

    name: str
    role: Literal["serve", "load"]
    address: str
    engines: list[int]
    epoch_ns: int
    clocks: list[ClockRecord]
    lost: bool

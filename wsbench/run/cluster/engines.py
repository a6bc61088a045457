"""The engines of one trial on the hosts of a cluster, with the interface of local engines: start, tell, read, end.

An engine's files have times of its host's clock. They are converted to ours by one constant per host and trial (`remotes`),
so that merged files have one clock.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import time
from pathlib import Path

from wsbench.engine import shards
from wsbench.records.engine_files import Plan
from wsbench.records.errors import TrialFailed, UserError
from wsbench.run.cluster import instants
from wsbench.run.cluster.remotes import COLLECT_S, NEWS_S, Remote

TOLD = re.compile(r"^(connect|begin) (\d+)$")


class OnCluster:
    """The hosts that load, for `shards.Engines`. Shards are dealt out in turn: the hosts' shares differ by one at most."""

    def __init__(self, loads: list[Remote]):
        self._hosts = loads

    def least(self, connections: int, threads: int) -> int:
        """As many per host as the host with the smallest file limit needs, but no more than there are connections."""
        share = -(-connections // len(self._hosts))
        each = max(shards.needed_with(one.files, share, len(one.cpus)) for one in self._hosts)
        return min(connections, each * len(self._hosts))

    def count(self, asked: int | None, whole: Plan) -> int:
        least = self.least(whole.connections, whole.threads)
        if asked is not None and asked < least:
            raise UserError(
                f"{whole.connections:,} connections need {least} engine processes on {len(self._hosts)} hosts, "
                "give each at least one"
            )
        count = asked or least
        shards.require_shares(count, whole)
        self._require_ports(whole)
        return count

    def plans(self, whole: Plan, count: int) -> list[Plan]:
        found = []
        for number in range(count):
            at = self._of(number)
            beside = range(number % len(self._hosts), count, len(self._hosts))
            own = at.cpus[beside.index(number) :: len(beside)] or [at.cpus[beside.index(number) % len(at.cpus)]]
            apart = whole.busy_poll and len(beside) <= len(at.cpus)
            connections = whole.connections // count + (number < whole.connections % count)
            changed = {
                "shard": (number, count),
                "cpus": own,
                "source_addresses": shards.sources(whole, number, count),
                "gate_s": shards.patience_s(whole) if count > 1 else None,
                **shards.staff(at.files, connections, min(len(own), connections), apart),
            }
            found.append(whole.model_copy(update=changed))
        return shards.connecting(found)

    def start(self, number: int, folder: Path, log: Path) -> RemoteEngine:
        return RemoteEngine(self._of(number), number, folder, log)

    @property
    def words(self) -> str:
        names = [one.host.name for one in self._hosts]
        return f"{len(names)} host{'' if len(names) == 1 else 's'} ({', '.join(names)})"

    def _of(self, number: int) -> Remote:
        return self._hosts[number % len(self._hosts)]

    def _require_ports(self, whole: Plan) -> None:
        """UserError if a host has too few ports for its share. On loopback there are enough addresses."""
        target = ipaddress.ip_address(whole.target.address.rpartition(":")[0].strip("[]"))
        share, places = -(-whole.connections // len(self._hosts)), 1 + len(whole.target.replicas)
        if target.is_loopback or whole.source_addresses not in (["0.0.0.0"], ["::"]):
            return
        for one in self._hosts:
            if one.ports is not None and share > one.ports * places:
                raise UserError(f"{one.host.name} has {one.ports:,} local ports; its share is {share:,} connections to one address")


class RemoteEngine:
    """An engine on another host, with the interface of `process.Engine`. TrialFailed if its host is lost."""

    def __init__(self, remote: Remote, number: int, folder: Path, log: Path):
        self._remote, self._number, self._folder, self._log = remote, number, folder, log
        self._code: int | None = None
        self.pid = remote.call("start", number, (folder / "plan.json").read_text(encoding="utf-8"))
        remote.engines[number] = self
        remote.shards.append(number)

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(self, *_) -> None:
        """Ends the engine. One on an unreachable host ends by itself."""
        if self._code is None:
            with contextlib.suppress(TrialFailed):
                self._remote.call("end", self._number)
        self._remote.engines.pop(self._number, None)

    @property
    def exit_code(self) -> int | None:
        if self._code is None:
            self._remote.fetch()
        return self._code

    def hear(self, lines: bytes, code: int | None) -> None:
        if lines:
            with (self._folder / "events.jsonl").open("ab") as file:
                file.write(instants.of_lines(lines, self._remote.offset_ns))
        if code is None or self._code is not None:
            return
        for name, file in (("latency.hlog", self._folder / "latency.hlog"), ("engine.log", self._log)):
            content = self._remote.call("read", f"{self._number}/{name}", timeout_s=COLLECT_S)
            if content is not None:
                file.write_bytes(content)
        self._code = code

    def tell(self, line: str) -> None:
        """Sends a line to the engine, with its instant converted to the host's clock."""
        gate = TOLD.match(line)
        theirs = f"{gate[1]} {int(gate[2]) + self._remote.offset_ns}" if gate else line
        self._remote.call("tell", self._number, theirs)

    def interrupt(self) -> None:
        self._remote.call("interrupt", self._number)

    def wait(self, timeout_s: float) -> int | None:
        until = time.monotonic() + timeout_s
        while (code := self.exit_code) is None and time.monotonic() < until:
            time.sleep(NEWS_S / 2)
        return code

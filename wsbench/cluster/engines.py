"""The engines of one trial on the hosts of a cluster, as a trial on one host sees its own: started, told, read, ended.

What they write comes with their host's clock; it is moved into ours by one constant a host, which is measured before the first
gate and kept in `host.json` beside the events, with what was found after the end. So what is merged has one clock.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Protocol

from wsbench import shards
from wsbench.cluster import clocks
from wsbench.cluster.hosts import Cluster, Host
from wsbench.engine_files import Plan
from wsbench.errors import UserError
from wsbench.frozen import Frozen, write_json

EXCHANGES = 64
#: How often a host is asked for news.
NEWS_S = 0.1
#: The keys of an event that are instants of the clock of the host that wrote them (protocol, section 2).
INSTANTS = re.compile(rb'"(t_ns|entered_ns|first_ns|last_ns)":(\d+)')
TOLD = re.compile(r"^(connect|begin) (\d+)$")


class Calls(Protocol):
    def call(self, host: str, method: str, *arguments): ...


class HostRecord(Frozen):
    """Where a process ran. The host's clock is ours plus the offset, give or take the bound; `after` is None where it was lost."""

    name: str
    address: str
    pid: int
    offset_ns: int
    bound_ns: int
    after_offset_ns: int | None = None
    after_bound_ns: int | None = None


class OnCluster:
    """The hosts, for `shards.Engines`. Shards go round the hosts, so that any two hosts have as many as each other, or one more."""

    def __init__(self, cluster: Cluster, calls: Calls):
        self._hosts = [Remote(host, calls) for host in cluster.host]

    def count(self, asked: int | None, whole: Plan) -> int:
        """As many as were asked for, or as many on each host as the one with the smallest file limit needs."""
        share = -(-whole.connections // len(self._hosts))
        least = max(shards.needed_with(one.files, share, one.host.cpus) for one in self._hosts)
        if asked is not None and asked < least * len(self._hosts):
            raise UserError(
                f"{whole.connections:,} connections need {least} engine processes on each of {len(self._hosts)} hosts"
            )
        return asked or least * len(self._hosts)

    def plans(self, whole: Plan, count: int) -> list[Plan]:
        if count < len(self._hosts):
            raise UserError(f"{count} engine processes for {len(self._hosts)} hosts; give each at least one")
        found = []
        for number in range(count):
            host = self._of(number).host
            beside = len(range(number % len(self._hosts), count, len(self._hosts)))
            connections = whole.connections // count + (number < whole.connections % count)
            changed = {
                "shard": (number, count),
                "cpus": [],
                "threads": max(1, min(host.cpus // beside, connections)),
                "busy_poll": False,
                "gate_s": 120.0 + whole.connections / 500,
            }
            found.append(whole.model_copy(update=changed))
        return found

    def start(self, number: int, folder: Path, log: Path) -> RemoteEngine:
        return RemoteEngine(self._of(number), number, folder, log)

    @property
    def words(self) -> str:
        names = [one.host.name for one in self._hosts]
        return f"{len(names)} hosts ({', '.join(names)})"

    def _of(self, number: int) -> Remote:
        return self._hosts[number % len(self._hosts)]


class Remote:
    """A host, its clock, and its engines' news, which are fetched for all of them at once."""

    def __init__(self, host: Host, calls: Calls):
        self.host = host
        self._calls = calls
        self.files: int | None = self.call("describe")["files"]
        self.offset = self.clock()
        self.engines: dict[int, RemoteEngine] = {}
        self._asked = 0.0

    def call(self, method: str, *arguments):
        return self._calls.call(self.host.name, method, *arguments)

    def clock(self) -> clocks.Offset:
        return clocks.measure(lambda: self.call("time"), time.monotonic_ns, EXCHANGES)

    def fetch(self) -> None:
        if time.monotonic() - self._asked < NEWS_S:
            return
        for number, (lines, code) in self.call("news").items():
            if number in self.engines:
                self.engines[number].hear(lines, code)
        self._asked = time.monotonic()


class RemoteEngine:
    """An engine on another host, with the words of `process.Engine`. TrialFailed where its host is lost."""

    def __init__(self, remote: Remote, number: int, folder: Path, log: Path):
        self._remote, self._number, self._folder, self._log = remote, number, folder, log
        self._code: int | None = None
        self.pid = remote.call("start", number, (folder / "plan.json").read_text(encoding="utf-8"))
        remote.engines[number] = self
        self._keep(None)

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(self, *_) -> None:
        """The host ends it when the cluster is left; here nothing may fail."""
        self._remote.engines.pop(self._number, None)

    @property
    def exit_code(self) -> int | None:
        if self._code is None:
            self._remote.fetch()
        return self._code

    def hear(self, lines: bytes, code: int | None) -> None:
        if lines:
            with (self._folder / "events.jsonl").open("ab") as file:
                file.write(in_our_clock(lines, self._remote.offset.ns))
        if code is None or self._code is not None:
            return
        (self._folder / "latency.hlog").write_bytes(self._remote.call("file", self._number, "latency.hlog"))
        self._log.write_bytes(self._remote.call("file", self._number, "engine.log"))
        self._keep(self._remote.clock())
        self._code = code

    def tell(self, line: str) -> None:
        """An instant of our clock is told in the host's own."""
        gate = TOLD.match(line)
        theirs = f"{gate[1]} {int(gate[2]) + self._remote.offset.ns}" if gate else line
        self._remote.call("tell", self._number, theirs)

    def interrupt(self) -> None:
        self._remote.call("interrupt", self._number)

    def wait(self, timeout_s: float) -> int | None:
        until = time.monotonic() + timeout_s
        while (code := self.exit_code) is None and time.monotonic() < until:
            time.sleep(NEWS_S / 2)
        return code

    def _keep(self, after: clocks.Offset | None) -> None:
        host, offset = self._remote.host, self._remote.offset
        record = HostRecord(
            name=host.name,
            address=host.address,
            pid=self.pid,
            offset_ns=offset.ns,
            bound_ns=offset.bound_ns,
            after_offset_ns=None if after is None else after.ns,
            after_bound_ns=None if after is None else after.bound_ns,
        )
        write_json(self._folder / "host.json", record)


def in_our_clock(lines: bytes, offset_ns: int) -> bytes:
    return INSTANTS.sub(lambda found: b'"%b":%d' % (found[1], int(found[2]) - offset_ns), lines)

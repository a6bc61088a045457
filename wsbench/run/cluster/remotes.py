"""A host as a trial sees it from here: its resources, its clock offset, its output since the last query; and the samples of all
hosts of a trial.

Before a trial the host's clock is compared with ours, and leftovers of the last trial are removed. The comparison repeats every
few seconds during the trial and once after it. The first offset converts all instants; all comparisons are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from wsbench.monitoring.sampler import LONGEST_S
from wsbench.records.errors import TrialFailed
from wsbench.records.frozen import Tail, write_json
from wsbench.records.hosts import ClockRecord, HostKey, HostRecord
from wsbench.run.cluster import clocks, instants
from wsbench.run.cluster.hosts import Host
from wsbench.servers import serving

#: Exchanges per clock comparison before and after a trial, exchanges per comparison during it, and the interval of those.
EXCHANGES, FEW, FEW_AGAIN_S = 64, 8, 2.0
#: Interval of queries for news.
NEWS_S = 0.1
#: Timeout for large files, and for a server that is slow to end.
COLLECT_S = 30.0


class Calls(Protocol):
    """Calls to the hosts' actors. TrialFailed if a host is lost."""

    def call(self, host: str, method: str, *arguments, timeout_s: float = ...): ...
    def restore(self, wait_s: float, say: Callable[[str], None]) -> None: ...


class Heard(Protocol):
    def hear(self, lines: bytes, code: int | None) -> None: ...


class Remote:
    def __init__(self, host: Host, calls: Calls):
        self.host = host
        self._calls = calls
        found = self.call("describe")
        self.files: int | None = found["files"]
        self.ports: int | None = found["ports"]
        self.cpus = host.cpus_of(found["cpus"])
        self.engines: dict[int, Heard] = {}
        self.shards: list[int] = []
        self._clocks: list[ClockRecord] = []
        self._epoch_ns = 0
        self._news_at = self._clock_at = 0.0

    @property
    def key(self) -> HostKey:
        host = self.host
        return HostKey(name=host.name, role=host.role, address=host.address, cpus=self.cpus)

    def call(self, method: str, *arguments, **options):
        return self._calls.call(self.host.name, method, *arguments, **options)

    @property
    def offset_ns(self) -> int:
        return self._clocks[0].offset_ns

    def begin(self) -> None:
        self.call("clear")
        self.engines.clear()
        self.shards.clear()
        self._epoch_ns = self.call("epoch")
        self._clocks = []
        self.compare_clocks(EXCHANGES)

    def compare_clocks(self, exchanges: int) -> None:
        found = clocks.measure(lambda: self.call("time"), time.monotonic_ns, exchanges)
        self._clocks.append(ClockRecord(t_ns=time.monotonic_ns(), offset_ns=found.ns, bound_ns=found.bound_ns))
        self._clock_at = time.monotonic()

    def run_on(self) -> None:
        """Compares the clocks if it is time to. Called continually during a trial."""
        if time.monotonic() - self._clock_at > FEW_AGAIN_S:
            self.compare_clocks(FEW)

    def fetch(self) -> None:
        """Fetches the news of all its engines in one call."""
        if time.monotonic() - self._news_at < NEWS_S:
            return
        for number, (lines, code) in self.call("news").items():
            if number in self.engines:
                self.engines[number].hear(lines, code)
        self._news_at = time.monotonic()
        self.run_on()

    def keep(self, folder: Path, lost: bool) -> None:
        own = folder / f"host-{self.host.name}"
        own.mkdir(exist_ok=True)
        record = HostRecord(
            name=self.host.name,
            role=self.host.role,
            address=self.host.address,
            engines=self.shards,
            epoch_ns=self._epoch_ns,
            clocks=self._clocks,
            lost=lost,
        )
        write_json(own / "host.json", record)


class Samples:
    """Samples all hosts of a trial, from before its engines start until after they end. Samples of the server's host go where
    those of a run on one machine go; the others go to one folder per host."""

    def __init__(self, server: Remote | None, loads: list[Remote], folder: Path):
        self._server, self._loads, self._folder = server, loads, folder
        self._phases: Tail | None = None

    @property
    def _hosts(self) -> list[Remote]:
        return [*([] if self._server is None else [self._server]), *self._loads]

    def __enter__(self) -> Samples:
        for one in self._loads:
            one.begin()
        for one in self._hosts:
            one.call("sample")
        return self

    def watch_engine(self, events: Path, quiet_s: float, *_: int, longest_s: float = LONGEST_S) -> None:
        for one in self._hosts:
            one.call("watch_engine", quiet_s, longest_s)
        self._phases = Tail(events)

    def pass_on(self) -> None:
        """Forwards the phases to the server's host, which has no engine to report them."""
        lines = [] if self._phases is None else [line for line in self._phases.new_lines() if '"event":"phase"' in line]
        if lines:
            text = "".join(f"{line}\n" for line in lines).encode()
            self._server.call("hear", instants.of_lines(text, -self._server.offset_ns))

    def __exit__(self, kind, *_) -> None:
        """Collects all samples, even of a failed trial. A failed trial raises no second error."""
        failure = None
        for one in self._hosts:
            lost = False
            try:
                self._collect(one)
            except TrialFailed as caught:
                failure, lost = caught, True
            one.keep(self._folder, lost)
        if failure is not None and kind is None:
            raise failure

    def _collect(self, one: Remote) -> None:
        own = self._folder if one is self._server else self._folder / f"host-{one.host.name}"
        own.mkdir(exist_ok=True)
        lines = one.call("samples", timeout_s=COLLECT_S)
        (own / "resources.jsonl").write_bytes(instants.of_lines(lines, one.offset_ns))
        one.compare_clocks(EXCHANGES)
        if one is not self._server:
            one.call("clear")


class RemoteServer:
    """The server of a trial on its host, with the interface of `serving.Serving`."""

    def __init__(self, remote: Remote, ask: tuple[str, str, str], folder: Path):
        self._remote, self._ask, self._folder = remote, ask, folder
        self.samples: Samples | None = None

    def __enter__(self) -> RemoteServer:
        self._remote.begin()
        try:
            said = self._remote.call("serve", *self._ask, timeout_s=serving.READY_S * 2)
        except TrialFailed as failure:
            self.__exit__(type(failure))
            raise
        ready = serving.Ready.model_validate_json(said)
        self.ready = ready.model_copy(update={"started_ns": ready.started_ns - self._remote.offset_ns})
        return self

    def __exit__(self, kind, *_) -> None:
        try:
            for name, moved in instants.LOGS.items():
                content = self._remote.call("read", f"server/{name}", timeout_s=COLLECT_S)
                if content is not None:
                    (self._folder / name).write_bytes(moved(content, self._remote.offset_ns))
            self._remote.call("clear", timeout_s=COLLECT_S)
        except TrialFailed:
            if kind is None:
                raise

    def look(self) -> None:
        self._remote.call("look")
        self._remote.run_on()
        if self.samples is not None:
            self.samples.pass_on()

    def ended(self) -> str | None:
        return self._remote.call("look")

    def stop(self) -> str:
        return self._remote.call("stop", timeout_s=COLLECT_S)

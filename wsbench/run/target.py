"""The server's side of `wsbench load`: a server that runs already, whose processes the user may have named, or one that the user's
command starts. It separates server and engine: each gets its own CPUs, for as long as the load lasts.

In: what the user said of the server. Out: its processes, and the CPUs of both sides.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from wsbench.host import machine, running
from wsbench.host.machine import Placement
from wsbench.host.process import Pinned, Server
from wsbench.records.engine_files import Plan
from wsbench.records.errors import TrialFailed, UserError
from wsbench.records.rundir import LOG_LINES, TrialFolder, TrialRecord
from wsbench.servers import serving

#: From this share of the window on, the user is told how to separate server and engine.
WAITED_PERCENT = 1.0


@dataclass(frozen=True)
class Asked:
    """What the user said of the server. `engine_cpus`: the CPUs that the user chose for the engine; empty if none."""

    host: str
    port: int
    name: str
    question: serving.Question
    headers: list[tuple[str, str]]
    pids: tuple[int, ...]
    start: tuple[str, ...] | None
    pin: bool
    engine_cpus: list[int]
    #: Whether the processes that listen are looked for, if none is named.
    finds: bool = True

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback


def side_of(asked: Asked, folder: TrialFolder) -> Side:
    """The side of this server. UserError if a named process does not exist, or a command cannot be started for this address."""
    return Side(asked, folder) if asked.start is None else StartedSide(asked, folder)


class Side:
    """A server that runs already, from entry to exit of the context. It is never stopped. `notes`: lines for the user.

    If its processes are not named, those that listen on this machine are it."""

    ready_s: float | None = None
    exit_words: str | None = None
    env: dict[str, str] | None = None

    def __init__(self, asked: Asked, folder: TrialFolder):
        self._asked, self._folder = asked, folder
        self._stack = contextlib.ExitStack()
        self.pids = list(asked.pids)
        self.notes: list[str] = []
        self.server_cpus = sorted(running.cpus_of(self.pids))
        #: None: the engine is not pinned, unless the user says where.
        self.engine_cpus: list[int] | None = None

    def __enter__(self) -> Side:
        asked, server = self._asked, "server"
        if asked.finds and asked.is_loopback and not self.pids:
            self.pids = running.serving(asked.host, asked.port)
            self.server_cpus = sorted(running.cpus_of(self.pids))
            server = f"server, {' and '.join(f'{running.name(pid)} (process {pid})' for pid in self.pids)},"
        elif self.pids and running.listens(self.pids, asked.port) is False:
            self.notes.append(f"{_processes(self.pids)} does not listen at port {asked.port}: is it the server?")
        if not self.pids or not asked.pin or not asked.is_loopback:
            return self
        place = self._placed(set(self.server_cpus))
        if place is None:
            return self
        if place.server != self.server_cpus:
            self._stack.enter_context(Pinned(self.pids, place.server))
        self.server_cpus, self.engine_cpus = place.server, place.engine
        self.notes.append(f"during the load: {server} on {_list(place.server)}, engine on {_list(place.engine)}")
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def _placed(self, now: set[int]) -> Placement | None:
        place = running.parted(machine.placement(), self._asked.engine_cpus, now)
        if place is None:
            self.notes.append("too few CPUs to separate server and engine: they compete")
        return place

    def look(self) -> None:
        """TrialFailed if this host is short of memory, or the log of a started server is too large."""
        serving.require_memory()

    @property
    def is_alive(self) -> bool:
        """False if a process of the server is known, and has ended."""
        return all(map(running.is_alive, self.pids))

    def require_alive(self) -> None:
        """TrialFailed if the server ended during the load."""
        if gone := [pid for pid in self.pids if not running.is_alive(pid)]:
            raise TrialFailed(f"the server ended during the load ({_processes(gone)})")

    def log_tail(self) -> list[str]:
        """The last lines that the server wrote, if its output is known."""
        return []


class StartedSide(Side):
    """A server that the user's command starts, on CPUs of its own, and that is stopped at the end."""

    def __init__(self, asked: Asked, folder: TrialFolder):
        super().__init__(asked, folder)
        if not asked.is_loopback:
            raise UserError(f"--start starts a server on this machine, and {asked.name} is not a loopback address")
        if machine.port_in_use(asked.host, asked.port):
            raise UserError(f"port {asked.port} is in use; stop its listener, or load it with --pid in place of --start")
        self._log = folder.path / serving.LOG
        self._server: Server | None = None

    def __enter__(self) -> StartedSide:
        asked = self._asked
        every = machine.placement()
        place = self._placed(set()) if asked.pin else None
        cpus = place.server if place is not None else sorted({*every.server, *every.engine})
        self.server_cpus, self.engine_cpus = cpus, None if place is None else place.engine
        self.env = {"HOST": asked.host, "PORT": str(asked.port), "THREADS": str(len(cpus))}
        self._log.parent.mkdir(parents=True, exist_ok=True)
        clock = time.monotonic()
        try:
            # The user's own command gets the user's own environment.
            server = Server(list(asked.start), Path.cwd(), {**os.environ, **self.env}, cpus, self._log)
            self._server = self._stack.enter_context(server)
            self.pids = [server.pid]
            serving.await_ready(server, asked.host, asked.port, asked.question, name=asked.name, headers=asked.headers)
        except BaseException:
            self.__exit__()
            raise
        self.ready_s = time.monotonic() - clock
        where = "" if self.engine_cpus is None else f" on {_list(cpus)}, engine on {_list(self.engine_cpus)}"
        self.notes.append(f"started `{shlex.join(asked.start)}`{where}")
        return self

    def __exit__(self, *_) -> None:
        if self._server is not None and self.exit_words is None:
            self.exit_words = self._server.stop()
        self._stack.close()

    def look(self) -> None:
        super().look()
        serving.require_small(self._log)

    def require_alive(self) -> None:
        if self._server.exit_code is not None:
            raise TrialFailed(f"the server ended during the load, with {self._server.exit_words}")

    def log_tail(self) -> list[str]:
        return serving.last_lines(self._log)[-LOG_LINES:]


def hint(plan: Plan | None, record: TrialRecord, wait_percent: float | None) -> str | None:
    """What to type if the engine waited for a CPU and nothing keeps a server on this machine off the engine's CPUs; else None."""
    if plan is None or record.server_cpus or wait_percent is None or wait_percent < WAITED_PERCENT:
        return None
    if not ipaddress.ip_address(plan.target.address.rpartition(":")[0].strip("[]")).is_loopback:
        return None
    return (
        f"the engine waited for a CPU in {wait_percent:.0f} % of the window, because the server may use the same CPUs; to "
        "separate them, add --start 'COMMAND' or --pid PID"
    )


def _processes(pids: list[int]) -> str:
    return f"process{'' if len(pids) == 1 else 'es'} {', '.join(map(str, pids))}"


def _list(cpus: list[int]) -> str:
    return f"CPU{'' if len(cpus) == 1 else 's'} {', '.join(map(str, cpus))}"

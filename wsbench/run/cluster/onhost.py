"""The processes of a trial on one host: the server or the engines, and the sampler, all the same as in a run on one machine.
Also the host's time, and bytes written since the last query.

It is a Ray actor without Ray code (`remote`): arguments and results are plain data. When it ends for whatever reason, the
pipes to its processes close, and they end.
"""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from wsbench import __version__
from wsbench.checks.use import Use
from wsbench.engine import program
from wsbench.host import installation, machine
from wsbench.host.process import INHERITED, Engine
from wsbench.monitoring.sampler import Sampler
from wsbench.records.errors import TrialFailed
from wsbench.records.frozen import Tail
from wsbench.records.rundir import ServerRow
from wsbench.run import preparing
from wsbench.servers import build, catalogue, serving
from wsbench.servers.catalogue import Variant
from wsbench.servers.settings import RuntimeTable

PLACES = "wsbench-host-"  # prefix in the host's folder for temporary files


class OnHost:
    def __init__(self, engine: str | None):
        self._binary = Path(engine) if engine else Path(sys.executable).parent / "wsbench-engine"
        self._place, self._lock = _own_place()
        self._folder = self._place / "trial"
        self._folder.mkdir()
        self._serving: serving.Serving | None = None
        self._sampler: Sampler | None = None
        self._engines: dict[int, Engine] = {}
        self._events: dict[int, Tail] = {}

    def describe(self) -> dict:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return {
            "engine": self._binary.exists(),
            "binary": str(self._binary),
            "wsbench": installed(),
            "files": None if limit == resource.RLIM_INFINITY else limit,
            "ports": machine.local_ports(),
            "cpus": sorted(os.sched_getaffinity(0)),
            "nice": os.nice(0),
            "oom": int(Path("/proc/self/oom_score_adj").read_text()),
        }

    def machine(self) -> str:
        return machine.read().model_dump_json()

    def program(self) -> str:
        return program.identity(self._binary)

    def time(self) -> tuple[int, int]:
        heard = time.monotonic_ns()
        return heard, time.monotonic_ns()

    def epoch(self) -> int:
        """The wall clock minus the monotonic clock, in ns, from the fastest of nine readings."""
        readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(9)]
        before, wall, after = min(readings, key=lambda one: one[2] - one[0])
        return wall - (before + after) // 2

    # ---- the server --------------------------------------------------------------------------------------------------

    def prepare(self, name: str, table: str, served: str, use: str, cpus: list[int], port: int | None) -> str:
        """The server's row in a campaign, as JSON. The server must already be built here."""
        wanted = preparing.Wanted(_variant(name, table), served, Use.model_validate_json(use))
        return preparing.row_of_built(wanted, cpus, port).model_dump_json()

    def artefacts(self, name: str, table: str, cpus: list[int], row: str | None) -> str:
        """What would be started of the variant here, as JSON."""
        said = None if row is None else build.reported(ServerRow.model_validate_json(row))
        return build.artefacts(_variant(name, table), cpus, said).model_dump_json()

    def serve(self, name: str, table: str, order: str) -> str:
        own = self._folder / "server"
        own.mkdir()
        asked = serving.Order.model_validate_json(order)
        self._serving = serving.Serving(_variant(name, table), asked, own)
        try:
            return self._serving.__enter__().ready.model_dump_json()
        except BaseException:
            self._serving = None
            raise

    def look(self) -> str | None:
        """What ended, if a process of the server has. TrialFailed if this host is out of memory."""
        self._serving.look()
        return self._serving.ended()

    def stop(self) -> str:
        return self._serving.stop()

    # ---- samples -----------------------------------------------------------------------------------------------------

    def sample(self) -> None:
        pids = [] if self._serving is None else self._serving.pids
        self._sampler = Sampler(self._folder / "resources.jsonl", *pids)
        self._sampler.__enter__()

    def watch_engine(self, quiet_s: float, longest_s: float) -> None:
        """Samples the engines. Without an engine here, phases begin when `hear` receives them."""
        first = min(self._engines, default=None)
        events = self._folder / "heard.jsonl" if first is None else self._folder / str(first) / "events.jsonl"
        pids = [engine.pid for engine in self._engines.values()]
        self._sampler.watch_engine(events, quiet_s, *pids, longest_s=longest_s)

    def hear(self, lines: bytes) -> None:
        with (self._folder / "heard.jsonl").open("ab") as file:
            file.write(lines)

    def samples(self) -> bytes:
        """All samples so far, as JSON lines; stops sampling."""
        self._sampler.__exit__()
        self._sampler = None
        return (self._folder / "resources.jsonl").read_bytes()

    # ---- engines -----------------------------------------------------------------------------------------------------

    def start(self, number: int, plan: str) -> int:
        own = self._folder / str(number)
        own.mkdir()
        (own / "plan.json").write_text(plan, encoding="utf-8")
        # Ray's workers have variables in their environment that a user's shell does not have.
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        self._engines[number] = Engine(self._binary, own / "plan.json", own, own / "engine.log", env)
        self._events[number] = Tail(own / "events.jsonl")
        return self._engines[number].pid

    def news(self) -> dict[int, tuple[bytes, int | None]]:
        """Per engine: whole lines written since the last call, and the exit code, which is read first. TrialFailed if this host
        is out of memory."""
        serving.require_memory()
        found = {}
        for number, engine in self._engines.items():
            code = engine.exit_code
            found[number] = (self._events[number].new_bytes(), code)
        return found

    def tell(self, number: int, line: str) -> None:
        self._engines[number].tell(line)

    def interrupt(self, number: int) -> None:
        self._engines[number].interrupt()

    def end(self, number: int) -> None:
        self._engines[number].__exit__()

    # ---- the folder --------------------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """The file's content; None if it does not exist."""
        file = self._folder / name
        return file.read_bytes() if file.exists() else None

    def clear(self) -> None:
        """Ends all processes and removes all files, ready for the next trial."""
        if self._sampler is not None:
            self._sampler.__exit__()
        for engine in self._engines.values():
            engine.__exit__()
        if self._serving is not None:
            self._serving.__exit__()
        self._sampler = self._serving = None
        self._engines.clear()
        self._events.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def leave(self) -> None:
        self.clear()
        shutil.rmtree(self._place)
        self._lock.close()


def _own_place() -> tuple[Path, IO]:
    """A new folder and a lock on it that lives as long as this process. Removes folders whose processes were killed."""
    for old in Path(tempfile.gettempdir()).glob(f"{PLACES}*"):
        with suppress(OSError), (old / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old)
    place = Path(tempfile.mkdtemp(prefix=PLACES))
    lock = (place / "locking").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (place / "locking").rename(place / "lock")
    return place, lock


def _variant(name: str, table: str) -> Variant:
    found = catalogue.named(name, catalogue.read(), RuntimeTable.model_validate_json(table))
    if found is None:
        raise TrialFailed(f"the catalogue on that host has no {name}")
    return found


def installed() -> str:
    """The installed wsbench: release and commit."""
    revision = installation.revision()
    return __version__ if revision is None else f"{__version__}, revision {revision}"

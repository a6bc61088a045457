"""`wsbench selftest`: does the engine measure correctly on this machine, now? Every check has a numeric band with a reason.

It runs the engine against a test server (`server.py`) and compares the engine's results with the server's log. The
judgements are pure functions, in `judgements`. A check that fails while the engine or the server waited for a CPU is
undecided, not passed, and runs again, up to three times in all.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from wsbench.checks.selftest.judgements import (
    DELAYS,
    FAULTS,
    STALL,
    Row,
    Truth,
    judge_added_delay,
    judge_arrivals,
    judge_begin,
    judge_closed_stall,
    judge_delays,
    judge_fault,
    judge_ledger,
    judge_little,
    judge_open_stall,
    judge_pacing,
    judge_same,
    judge_stamps,
)
from wsbench.engine import program
from wsbench.host import machine
from wsbench.host.process import Engine, Server, output_of
from wsbench.metrics.trial_data import TrialData
from wsbench.records.engine_files import Closed, Echo, Loop, Messages, Open, Seconds, Segment, Target
from wsbench.records.errors import TrialFailed
from wsbench.records.frozen import write_json
from wsbench.records.rundir import TrialFolder, TrialRecord

HOST = "127.0.0.1"
SERVER = Path(__file__).with_name("server.py")
WAKEUPS = Path(__file__).with_name("wakeups.py")
PAYLOAD_BYTES = 128
SEED = 20_251
RATE = 1_000.0
POISSON_PER_S, WORKERS = 800.0, 2
REPEATS = 5
ATTEMPTS = 3
LATE_US = 50.0
FAULT_MESSAGES, FAULT_EVERY = 10_000, 997  # the last fault comes well before the end: a later reply reveals it
READY_S = 10.0


@dataclass(frozen=True)
class Bench:
    """What every self-test uses: a folder, the engine's binary, the CPUs of both sides."""

    folder: Path
    binary: Path
    placement: machine.Placement

    @contextlib.contextmanager
    def server(self, name: str, conduct: dict) -> Iterator[Running]:
        """A fresh server with this behaviour. It writes its log when the context ends."""
        log = self.folder / f"{name}.server.json"
        argv = [sys.executable, "-I", "-S", str(SERVER), json.dumps({"seed": SEED, **conduct}), str(log)]
        with machine.held_port(HOST, None, 7_000) as port:
            env = {"HOST": HOST, "PORT": str(port)}
            with Server(argv, self.folder, env, self.placement.server[:1], self.folder / f"{name}.log") as started:
                _await_ready(started, port)
                yield Running(self, name, port, log)
                started.stop()


@dataclass(frozen=True)
class Running:
    bench: Bench
    name: str
    port: int
    log: Path

    @property
    def truth(self) -> Truth:
        """The server's log. It exists only after the server has ended."""
        return Truth(**json.loads(self.log.read_text()))

    def load(
        self,
        loop: Loop,
        connections: int,
        measure: Seconds | Messages,
        path: str = "/echo",
        stamped: bool = False,
        workers: int = 1,
    ) -> TrialData:
        """One engine run without a warm-up, so that the server's log and the ledger count the same messages. With several
        workers, each has its own source address."""
        number = sum(1 for _ in self.bench.folder.glob(f"{self.name}.*.run"))
        folder = TrialFolder(self.bench.folder / f"{self.name}.{number}.run")
        folder.path.mkdir()
        address = f"{HOST}:{self.port}"
        plan = program.plan(
            scenario=Echo(opcode="text", bytes=PAYLOAD_BYTES),
            transport="websocket",
            target=Target(address=address, host=address, path=path),
            connections=connections,
            warmup=None,
            measure=measure,
            seed=SEED + number,
            cpus=self.bench.placement.engine[:1],
            # As in a campaign.
            busy_poll=isinstance(loop, Open) and self.bench.placement.apart and workers == 1,
        ).model_copy(update={"loop": loop, "receive_stamps": 1 if stamped else None})
        if workers > 1:
            addresses = [f"127.0.0.{number}" for number in range(1, workers + 1)]
            plan = plan.model_copy(update={"threads": workers, "source_addresses": addresses})
        write_json(folder.path / "plan.json", plan)
        began = time.time()
        with Engine(self.bench.binary, folder.path / "plan.json", folder.path, folder.path / "engine.log") as running:
            code = running.wait(plan.limits.deadline_s + 10)
        program.check_exit(code, folder.path / "engine.log")
        return TrialData(folder, self._record(plan.cpus, began))

    def _record(self, cpus: list[int], began: float) -> TrialRecord:
        return TrialRecord.alone(
            server="selftest",
            started_unix_s=began,
            duration_s=time.time() - began,
            server_cpus=self.bench.placement.server[:1],
            engine_cpus=cpus,
        )


def _await_ready(server: Server, port: int) -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until and server.exit_code is None:
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, port), 1).close()
            return
        time.sleep(0.02)
    raise TrialFailed("the self-test's server did not start")


# ---- the checks ------------------------------------------------------------------------------------------------------


def known_delays(kind: str, bench: Bench) -> list[Row]:
    """Delays of one distribution. The same run checks the ledger; the constant one Little's law and the receive stamps."""
    with bench.server(kind, {"delay": DELAYS[kind]}) as server:
        trial = server.load(Closed(), 8, Seconds(seconds=3), stamped=kind == "constant")
    rows = judge_delays(kind, trial, server.truth)
    rows += judge_ledger(f"{kind} delays", trial, server.truth)
    if kind == "constant":
        rows += judge_little(trial, server.truth)
        wakeups = wakeups_ns(bench)
        rows += judge_stamps(trial, server.truth, wakeups)
        rows += judge_begin(server.truth, trial, wakeups)
    return rows


def wakeups_ns(bench: Bench) -> list[int]:
    """Wake-up delays of a plain reader on the engine's CPU, one per message, in ns."""
    cpus = [bench.placement.server[0], bench.placement.engine[0]]
    done = output_of([sys.executable, "-I", "-S", str(WAKEUPS), *map(str, cpus)])
    if done.code != 0:
        raise TrialFailed(f"the plain reader of kernel stamps failed: {done.text.strip().splitlines()[-1:]}")
    return json.loads(done.text)


FREEZE = {"freeze": {"after_s": STALL.after_s, "for_s": STALL.for_s}}


def open_stall(bench: Bench) -> list[Row]:
    """A server stall in an open loop."""
    with bench.server("stall-open", FREEZE) as server:
        opened = server.load(open_loop(STALL.rate_per_s), 8, Seconds(seconds=STALL.seconds))
    return judge_open_stall(opened, server.truth)


def closed_stall(bench: Bench) -> list[Row]:
    """The same stall in a closed loop, which does not show it."""
    with bench.server("stall-closed", FREEZE) as server:
        closed = server.load(Closed(), STALL.connections, Seconds(seconds=STALL.after_s + STALL.for_s + 0.5))
    return judge_closed_stall(closed, server.truth)


def pacing(bench: Bench) -> list[Row]:
    with bench.server("pacing", {}) as server:
        trial = server.load(open_loop(RATE), 8, Seconds(seconds=3))
    return judge_pacing(trial, server.truth) + judge_ledger("open loop", trial, server.truth)


def arrivals(bench: Bench) -> list[Row]:
    """A Poisson process, drawn by two independent workers."""
    loop = open_loop(POISSON_PER_S).model_copy(update={"arrivals": "poisson"})
    with bench.server("arrivals", {}) as server:
        trial = server.load(loop, 8, Seconds(seconds=6), workers=WORKERS)
    return judge_arrivals(trial, server.truth, POISSON_PER_S, WORKERS) + judge_ledger("Poisson", trial, server.truth)


def differences(bench: Bench) -> list[Row]:
    """One server, three paths in turn: plain, plain again, and with 50 µs more delay."""
    paths = {"a": "/echo", "again": "/again", "late": "/late"}
    found: dict[str, list[TrialData]] = {name: [] for name in paths}
    with bench.server("differences", {"late_us": LATE_US}) as server:
        for _ in range(REPEATS):
            for name, path in paths.items():
                found[name].append(server.load(Closed(), 1, Seconds(seconds=0.4), path))
    return judge_same(found["a"], found["again"], server.truth) + judge_added_delay(found["a"], found["late"], server.truth)


def faults(bench: Bench) -> list[Row]:
    rows = []
    for kind in FAULTS:
        with bench.server(kind, {"fault": {"kind": kind, "every": FAULT_EVERY}}) as server:
            trial = server.load(Closed(depth=4), 4, Messages(messages=FAULT_MESSAGES))
        rows += judge_fault(kind, trial, server.truth)
    return rows


def open_loop(per_s: float) -> Open:
    return Open(rate=[Segment(from_per_s=per_s, to_per_s=per_s, for_s=0)])


Check = Callable[[Bench], list[Row]]
CHECKS: dict[str, list[Check]] = {
    "delays": [partial(known_delays, kind) for kind in DELAYS],
    "stall": [open_stall, closed_stall],
    "pacing": [pacing],
    "arrivals": [arrivals],
    "faults": [faults],
    "differences": [differences],
}


def run(names: list[str], say: Callable[[str], None]) -> list[Row]:
    """Runs the named checks, or all if none is named. One row per quantity."""
    binary, rows = program.require_binary(), []
    with tempfile.TemporaryDirectory(prefix="wsbench-selftest-") as folder:
        bench = Bench(Path(folder), binary, machine.placement())
        for name in names or CHECKS:
            say(f"{name} …")
            try:
                for check in CHECKS[name]:
                    rows += decided(check, bench)
            except TrialFailed as failure:
                rows.append(Row(name, "carried out", "a run", str(failure), "FAILS"))
    return rows


def decided(check: Check, bench: Bench) -> list[Row]:
    """The rows of a check. An undecided check runs again, up to `ATTEMPTS` times; a failed one does not."""
    rows = check(bench)
    for attempt in range(2, ATTEMPTS + 1):
        found = {row.result for row in rows}
        if "FAILS" in found or "undecided" not in found:
            break
        rows = [replace(row, check=f"{row.check} ({attempt} attempts)") for row in check(bench)]
    return rows

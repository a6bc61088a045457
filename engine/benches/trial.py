"""One run: a fresh reference server on one core, a contender on another, and the CPU that the kernel charged each of them."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from contenders import NoNumber, Run, Said, Setting

from wsbench.host import machine
from wsbench.host.installation import ROOT
from wsbench.host.process import Server, output_of
from wsbench.records.errors import UserError
from wsbench.servers import build, catalogue

HOST = "127.0.0.1"
WRAPPED_SERVER = Path(__file__).with_name("wrapped_server.py")
READY_S = 10.0
#: A contender that exceeds its requested duration by this much is killed.
GRACE_S = 60.0


@dataclass(frozen=True)
class Cost:
    """The CPU time of a contender's whole process, including set-up. The load of the server, and of all
    other processes of the machine together, in CPUs."""

    user_ns: float
    system_ns: float
    server_busy: float
    others_busy: float


@dataclass(frozen=True)
class Measured:
    """A contender's run: its own report, and its cost according to the kernel."""

    said: Said
    cost: Cost

    @property
    def cpu_ns_per_message(self) -> float:
        return (self.cost.user_ns + self.cost.system_ns) / self.said.messages

    @property
    def user_ns_per_message(self) -> float:
        return self.cost.user_ns / self.said.messages

    @property
    def window_cpu_ns_per_message(self) -> float | None:
        if not self.said.window_messages:
            return None
        return self.said.window_cpu_ns / self.said.window_messages


class Bench:
    """The server's and the contender's place, and a port that no earlier run has used."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.placement = machine.placement()
        self.reference = next(v for v in catalogue.read(catalogue.SHIPPED) if v.name == "reference@websocket")
        self._port = int(time.time())
        self._runs = 0
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        built = build.build(self.reference, sorted(os.sched_getaffinity(0)))
        if built.receipt is None:
            raise UserError(f"the reference server cannot be built: {built.problem}")

    def run(self, setting: Setting, seconds: float) -> Run:
        self._runs += 1
        folder = self.folder / str(self._runs)
        folder.mkdir()
        return Run(setting, self._free_port(), seconds, self.placement.engine[0], folder)

    def _free_port(self) -> int:
        """Avoids the last port: its closed connections still hold their local ports, and slow new ones down."""
        self._port = machine.free_port(HOST, None, self._port + 1)
        return self._port

    @contextlib.contextmanager
    def server(self, run: Run) -> Iterator[Server]:
        command, folder = self.reference.table.run, self.reference.folder
        if run.setting.wrapping:
            command, folder = [sys.executable, str(WRAPPED_SERVER), run.setting.wrapping], run.folder
        env = {"HOST": HOST, "PORT": str(run.port), "THREADS": "1"}
        with Server(command, folder, env, self.placement.server[:1], run.folder / "server.log") as server:
            await_port(run.port)
            yield server

    def measure(self, contender, run: Run) -> Measured:
        """Raises NoNumber with the reason if the contender cannot, or did not, do what the setting requests."""
        with self.server(run) as server:
            output, cost = observe(contender.command(run), run, server)
        said = contender.read(run, output)
        if said.messages < 1:
            raise NoNumber("not one message was answered")
        return Measured(said, cost)


def observe(command: list[str], run: Run, server: Server) -> tuple[str, Cost]:
    """A contender's standard output, and its cost."""
    process = psutil.Process(server.pid)
    server_s, machine_s, began = _cpu_s(process), _machine_cpu_s(), time.monotonic()
    output, user_s, system_s = _carry_out(command, run)
    server_s, machine_s = _cpu_s(process) - server_s, _machine_cpu_s() - machine_s
    wall_s = time.monotonic() - began
    others_s = max(0.0, machine_s - server_s - user_s - system_s)
    return output, Cost(user_s * 1e9, system_s * 1e9, server_s / wall_s, others_s / wall_s)


def _carry_out(command: list[str], run: Run) -> tuple[str, float, float]:
    """A contender's standard output, and the user and system CPU of its process and all its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=run.seconds + GRACE_S,
            text=True,
            errors="replace",
            preexec_fn=lambda: os.sched_setaffinity(0, {run.cpu}),
        )
    except subprocess.TimeoutExpired:
        raise NoNumber("it did not end") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no word").splitlines()[-1]
        word = "refused" if done.returncode == 2 else f"exit code {done.returncode}"
        raise NoNumber(f"{word}: {last.replace(str(run.folder) + '/', '')}")
    return done.stdout, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def build_floor() -> Path:
    """Builds the kernel floor with the engine's own profile; returns its path."""
    manifest = str(ROOT / "engine/Cargo.toml")
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", manifest, "--bench", "floor"]
    output = output_of([*command, "--message-format=json"], timeout_s=900)
    for line in output.text.splitlines():
        made = json.loads(line) if line.startswith("{") else {}
        if made.get("executable") and made["target"]["name"] == "floor":
            return Path(made["executable"])
    raise UserError(f"the floor cannot be built: `{' '.join(command)}` ended with {output.code}")


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _machine_cpu_s() -> float:
    """CPU time of all processes together; interrupts belong to none of them."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.steal


def await_port(port: int) -> None:
    until = time.monotonic() + READY_S
    while True:
        try:
            return socket.create_connection((HOST, port), 1).close()
        except OSError:
            if time.monotonic() > until:
                raise UserError("the reference server does not accept connections") from None
            time.sleep(0.01)

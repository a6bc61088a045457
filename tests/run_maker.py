"""Writes synthetic run directories that keep the contract, of the trials that `trial_maker` makes."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from pathlib import Path

from trial_maker import (
    DRAIN_S,
    HOSTILE,
    HOUR_NS,
    SECOND,
    START_NS,
    UNIX_NS,
    WARMUP_S,
    Trial,
    at_rate,
    failed,
    pushing,
    spoiled,
    write_trial,
)

from wsbench.analysis.reading import load
from wsbench.analysis.tables import TRIALS, write
from wsbench.records import frozen, hosts, rundir

__all__ = [
    "DRAIN_S",
    "EXPERIMENT",
    "HOSTILE",
    "HOUR_NS",
    "SECOND",
    "SERVERS",
    "START_NS",
    "WARMUP_S",
    "Server",
    "Trial",
    "at_rate",
    "failed",
    "make_run",
    "pushing",
    "spoil_some",
    "spoiled",
    "without_sums",
    "write_table",
    "write_trial",
]


@dataclass(frozen=True)
class Server:
    """A server in a synthetic campaign."""

    name: str
    language: str = "C"
    rate: float = 20_000.0
    rss_mib: float = 80.0
    variant: str = "1.0"
    departures: tuple[str, ...] = ()
    advisory_failed: bool = False
    skipped: str | None = None


SERVERS = (
    Server("reference", "Rust", 30_000, 6),
    Server("netty", "Java", 26_000, 210, "4.2", ("the largest message is raised from 64 KiB to 16 MiB",)),
    Server("ws", "JavaScript", 14_000, 70, "8.18", (), True),
    Server("o\"quote's & <b>", "Python", 6_000, 40),
)


def spoil_some(trial, order):
    """For `change`: trial 5 fails, trial 9 is INVALID, and the engine limits the reference at 256 connections."""
    if order.number == 5:
        return failed()
    if order.number == 9:
        return spoiled(trial)
    if order.server == "reference" and order.cell["connections"] == 256:
        return replace(trial, engine_busy=0.985, server_busy=0.7)
    return trial


def make_run(
    path: Path,
    servers=SERVERS,
    cells=({"connections": 16}, {"connections": 64}, {"connections": 256}),
    rounds: int = 3,
    seed: int = 7,
    change=lambda trial, order: trial,
    experiment: str | None = None,
    unfinished: int = 0,
    departures: tuple[str, ...] = (),
    control: str | None = None,
) -> rundir.RunFolder:
    """A campaign. `change(trial, order)` may alter a trial before it is written; the last `unfinished` ones are not.

    The server whose name is `control` runs a second time in every round.
    """
    draw = random.Random(seed)
    path.mkdir(parents=True)
    running = [server for server in servers if server.skipped is None]
    order, number = [], 0
    for round_ in range(1, rounds + 1):
        block = [(server, cell, False) for cell in cells for server in running]
        block += [(server, cell, True) for server, cell, _ in block if server.name == control]
        draw.shuffle(block)
        for server, cell, again in block:
            number += 1
            row = {"number": number, "round": round_, "server": server.name, "variant": server.variant, "cell": cell}
            order.append(rundir.TrialOrder(**row, control=again))
    by_name = {(server.name, server.variant): server for server in servers}
    _write_campaign(path, servers, order, rounds, seed, experiment, departures)
    for planned in order[: len(order) - unfinished]:
        server = by_name[planned.server, planned.variant]
        connections = int(planned.cell.get("connections", 64))
        rate = server.rate * (1 - math.exp(-connections / 24)) * math.exp(draw.gauss(0, 0.02))
        trial = Trial(rate=rate, connections=connections, rss_mib=server.rss_mib + connections * 0.03)
        write_trial(path / f"{planned.number:04}", change(trial, planned), planned)
    return rundir.RunFolder.open(path)


EXPERIMENT = """
question = "How many small messages per second does each server echo, and how does it grow with connections?"
reading = "Compare servers inside one connection count. The reference is the least work a server can do."
scenario = "echo"
loop = "closed"
headline = "service_us_p99"
servers = ["*"]
[load]
payload_bytes = 128
[sweep]
connections = [16, 64, 256]
[timing]
warmup_s = 1
measure_s = 4
repeats = 3
"""


def _write_campaign(path: Path, servers, order, rounds: int, seed: int, experiment: str | None, departures) -> None:
    skipped = [f"{server.name}@{server.variant}" for server in servers if server.skipped]
    names = [f"{server.name}@{server.variant}" for server in servers if not server.skipped]
    campaign = rundir.CampaignRecord(
        wsbench="0.1.0",
        experiment="echo-connections",
        command="wsbench run echo-connections --seed 7",
        created_unix_s=UNIX_NS / SECOND,
        seed=seed,
        rounds=rounds,
        departures=list(departures),
        servers=names,
        skipped=skipped,
    )
    machine = hosts.MachineRecord(
        hostname="bench",
        kernel="Linux 6.1.0",
        distribution="Debian GNU/Linux 12",
        cpu_model="Fictional CPU at 3 GHz",
        cpus=2,
        memory_bytes=8 << 30,
        virtualisation="kvm",
        governor=None,
        clocksource="tsc",
        file_limit=(1024, 1_048_576),
        port_range=(32768, 60999),
        sysctls={"net.core.somaxconn": "4096"},
        tools=[hosts.Tool(name="rustc", version="1.90.0"), hosts.Tool(name="java", version=None)],
        git_revision="0123456789abcdef",
    )
    frozen.write_json(path / "campaign.json", campaign)
    frozen.write_json(path / "machine.json", machine)
    frozen.write_json(path / "servers.json", [_server_row(server) for server in servers])
    frozen.write_json(path / "order.json", order)
    (path / "experiment.toml").write_text(EXPERIMENT if experiment is None else experiment, encoding="utf-8")


def _server_row(server: Server) -> rundir.ServerRow:
    checks = [
        rundir.CheckResult(name="echo-text", section="RFC 6455 §5.6", required=True, passed=True, detail=""),
        rundir.CheckResult(
            name="bad-utf8",
            section="RFC 6455 §8.1",
            required=False,
            passed=not server.advisory_failed,
            detail="the connection stayed open after invalid UTF-8" if server.advisory_failed else "",
        ),
    ]
    return rundir.ServerRow(
        server=server.name,
        variant=server.variant,
        language=server.language,
        library=server.name.title(),
        homepage="https://example.org/",
        tags=[],
        transport="websocket",
        library_version=f"{server.variant}.3",
        receipt=None if server.skipped else f"{server.name} {server.variant}.3, runtime 17",
        build=[],
        run=["./server", "--port", "$PORT"],
        env={"THREADS": "1"},
        departures=list(server.departures),
        conformance=[] if server.skipped else checks,
        skipped=server.skipped,
    )


def without_sums(run: rundir.RunFolder) -> None:
    """Makes a campaign of one older than checksums, so that its files can be altered."""
    for file in run.path.rglob("SHA256SUMS"):
        file.unlink()


def write_table(run: rundir.RunFolder) -> Path:
    """A campaign's data set alone, without a report."""
    write(run, load(run).data)
    return run.path / TRIALS

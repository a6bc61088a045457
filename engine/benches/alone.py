"""Measurements of the engine that no other contender supports: the memory of a connection, and whether
an open loop sends on time.

For an engine that rejects a plan (exit code 2) the output is a line that says so, without a number.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import time
from pathlib import Path

from contenders import Engine, NoNumber, Setting, events_of
from trial import GRACE_S, Bench, observe

from wsbench.engine.histogram import merge, read_log

FEW, MANY = 4_000, 19_000
IDLE = {"scenario": {"kind": "idle"}, "loop": {"kind": "none"}}
RATES_PER_S = (10_000, 50_000)


def memory(bench: Bench, engine: Engine) -> list[str]:
    """A table of bytes for each connection: the slope of the engine's resident memory between two numbers of connections."""
    lines = [f"| connections that | bytes a connection ({FEW:,} to {MANY:,}) |", "|---|---|"]
    for what, load in (("are idle", IDLE), ("echo 16 B in a closed loop", {})):
        try:
            few, many = (resident_bytes(bench, engine, count, load) for count in (FEW, MANY))
            lines.append(f"| {what} | {(many - few) / (MANY - FEW):,.0f} |")
        except NoNumber as reason:
            lines.append(f"| {what} | {reason} |")
    return lines


def resident_bytes(bench: Bench, engine: Engine, connections: int, load: dict) -> int:
    """The engine's VmRSS a second into the measured phase, with all connections open."""
    run = bench.run(Setting("echo", connections, 16), seconds=3.0)
    # `connect` finds half of the local ports of one address quickly.
    addresses = {"source_addresses": ["127.0.0.1", "127.0.0.2"]}
    plan = engine.plan(run) | addresses | {"cpus": []} | load
    with bench.server(run), (run.folder / "engine.log").open("wb") as log:
        command = engine.carry_out(plan, run.folder)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            resident = _resident_when_measuring(process, run.folder)
            code = process.wait(GRACE_S)
        finally:
            process.kill()
            process.wait()
    if resident is None:
        last = (run.folder / "engine.log").read_text().strip().splitlines()[-1:]
        raise NoNumber(f"{'refused' if code == 2 else f'exit code {code}'}: {' '.join(last)}".replace(f"{run.folder}/", ""))
    end = events_of(run.folder)[-1]
    if end["errors"] or end["connections"]["established"] != connections:
        raise NoNumber(f"{end['connections']}, errors {end['errors']}")
    return resident


def _resident_when_measuring(process: subprocess.Popen, folder: Path) -> int | None:
    """None if it ends before it measures."""
    until = time.monotonic() + GRACE_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            if '"phase":"measure"' in (folder / "events.jsonl").read_text().replace(" ", ""):
                time.sleep(1.0)
                status = Path(f"/proc/{process.pid}/status").read_text()
                return int(status.split("VmRSS:")[1].split()[0]) * 1024
        time.sleep(0.1)
    return None


def pacing(bench: Bench, engine: Engine, seconds: float, repeats: int) -> list[str]:
    """A table of rates: the share that an open loop achieved, and the lag of its sends; median (range)."""
    columns = ("target, messages/s", "achieved / target", "p99 of send lag, µs", "other processes, of a CPU")
    lines = [f"| {' | '.join(columns)} |", "|---|---|---|---|"]
    for rate in RATES_PER_S:
        try:
            runs = [paced(bench, engine, rate, seconds) for _ in range(repeats)]
        except NoNumber as reason:
            lines.append(f"| {rate:,} | {reason} | | |")
            continue
        achieved, lag_us, others = zip(*runs, strict=True)
        lines.append(f"| {rate:,} | {_spread(achieved, '.4f')} | {_spread(lag_us, '.1f')} | {_spread(others, '.0%')} |")
    return lines


def paced(bench: Bench, engine: Engine, rate: int, seconds: float) -> tuple[float, float, float]:
    """One run of an open loop with a constant rate, polled as in a campaign: achieved over target, the p99 of actual send
    minus due time in µs, and how busy other processes were."""
    run = bench.run(Setting("echo", 100, 16), seconds)
    step = {"from_per_s": rate, "to_per_s": rate, "for_s": seconds}
    loop = {"kind": "open", "arrivals": "constant", "depth": None, "rate": [step]}
    with bench.server(run) as server:
        _, cost = observe(engine.carry_out(engine.plan(run) | {"loop": loop, "busy_poll": True}, run.folder), run, server)
    measured = events_of(run.folder)[-1]["measured"]
    lag = merge(read_log(run.folder / "latency.hlog")).get("send_lag")
    if lag is None or not lag.count:
        raise NoNumber("latency.hlog has no send_lag")
    return measured["sent"] / (measured["window_ns"] / 1e9 * rate), lag.quantile("0.99") / 1e3, cost.others_busy


def _spread(values: tuple[float, ...], form: str) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):{form}} ({low:{form}} to {high:{form}})"

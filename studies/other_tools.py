#!/usr/bin/env python3
"""The same calls by wsbench and Artillery, alternately, against one server of the catalogue.

    .venv/bin/python studies/other_tools.py socketio [--rounds 5] [--seconds 10] [--connections 50] [--rate 1000]

ARTILLERY names Artillery's program (default: found on the PATH; left out if it is not there). Each round runs both tools once, in
random order, on a CPU of their own. Printed for each: calls answered per second, CPU time per call of the tool and of the
server, and p50 and p99 as the tool tells them; medians over the rounds, with the range. CPU time is that of whole processes. The
time and the calls of a run of one second are subtracted: what a tool needs to start and to tell its result is left out.

Without --rate each connection has one call in flight. Artillery pauses from an answer to the next call, and its ws engine tells no
times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

WSBENCH = Path(sys.executable).with_name("wsbench")
CONTENT = "a" * 128
PATHS = {"socketio": "/socket.io/?EIO=4&transport=websocket", "json-rpc": "/"}
SETTINGS = {
    "socketio": ("socket.io", "event=echo", f'data="{CONTENT}"'),
    "json-rpc": ("json-rpc", "method=echo", f'params=["{CONTENT}"]'),
}
#: Calls of a connection that Artillery makes in a second, at most: it ends by a count.
ARTILLERY_PER_S = 60
SERVER_CPU, TOOL_CPU = "0", "1"


@dataclass(frozen=True)
class Asked:
    server: str
    address: str
    connections: int
    seconds: int
    rate: float | None


@dataclass(frozen=True)
class Said:
    """What one run told: calls answered, over how many seconds, p50 and p99 in ms (None: not told)."""

    answered: int
    seconds: float
    p50_ms: float | None
    p99_ms: float | None


def wsbench(asked: Asked, folder: Path) -> Said:
    session, *settings = SETTINGS[asked.server]
    sets = [word for setting in settings for word in ("--set", setting)]
    rate = [] if asked.rate is None else ["--rate", str(asked.rate)]
    command = [WSBENCH, "load", f"ws://{asked.address}", "--session", session, *sets, "-c", str(asked.connections)]
    command += ["-t", str(asked.seconds), "--warmup", "0", "--cpus", TOOL_CPU, "--json", *rate]
    told = json.loads(_output(command, folder, allowed=(0, 4)))
    times = told["times_ns"]["service" if asked.rate is None else "response"]
    return Said(told["ledger"]["answered"], asked.seconds, times["p50"] / 1e6, times["p99"] / 1e6)


def artillery(asked: Asked, folder: Path) -> Said:
    if asked.server == "socketio":
        call = {"emit": ["echo", CONTENT], "acknowledge": {"match": {"json": "$.0", "value": CONTENT}}}
    else:
        payload = {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": [CONTENT]}
        call = {"send": {"payload": payload, "capture": {"json": "$.id", "as": "id"}}}
    per_s = ARTILLERY_PER_S if asked.rate is None else asked.rate / asked.connections
    pause = [] if asked.rate is None else [{"think": f"{1000 * asked.connections / asked.rate:.0f}ms"}]
    loop = {"loop": [call, *pause], "count": round(asked.seconds * per_s)}
    script = {
        "config": {
            "target": f"{'http' if asked.server == 'socketio' else 'ws'}://{asked.address}",
            "phases": [{"duration": 1, "arrivalCount": asked.connections}],
        },
        "scenarios": [{"engine": "socketio" if asked.server == "socketio" else "ws", "flow": [loop]}],
    }
    (folder / "script.json").write_text(json.dumps(script))
    program = os.environ.get("ARTILLERY", "artillery")
    _output([program, "run", "--output", folder / "report.json", folder / "script.json"], folder)
    told = json.loads((folder / "report.json").read_text())["aggregate"]
    counts, times = told["counters"], told["summaries"].get("socketio.response_time", {})
    answered = counts.get("socketio.emit") or counts["websocket.messages_received"]
    lasted_s = told["summaries"]["vusers.session_length"]["max"] / 1000
    return Said(answered, lasted_s, times.get("p50"), times.get("p99"))


TOOLS = {"wsbench": wsbench, "artillery": artillery}


def _output(command: list, folder: Path, allowed: tuple[int, ...] = (0,)) -> str:
    environment = {**os.environ, "ARTILLERY_DISABLE_TELEMETRY": "true"}
    pinned = ["taskset", "-c", TOOL_CPU, *map(str, command)]
    if Path(str(command[0])) == WSBENCH:
        pinned = pinned[3:]  # it places its engine itself
    ended = subprocess.run(pinned, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    if ended.returncode not in allowed:
        raise SystemExit(f"{command[0]} ended with {ended.returncode}: {(ended.stderr or ended.stdout)[-500:]}")
    return ended.stdout


@contextmanager
def started(server: str):
    """The server's address and process."""
    with subprocess.Popen(
        ["taskset", "-c", f"{SERVER_CPU},{TOOL_CPU}", WSBENCH, "start", server], stdout=subprocess.PIPE, text=True
    ) as held:
        try:
            told = ""
            while " runs (process " not in told:
                line = held.stdout.readline()
                if not line:
                    raise SystemExit(f"{server} did not start: {told}")
                told += line
            yield re.search(r"ws://([\d.:]+)", told)[1], int(re.search(r"\(process (\d+)", told)[1])
        finally:
            held.terminate() if held.poll() is None else None


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def own_cpu_s() -> float:
    """CPU seconds of all programs that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(tool: str, asked: Asked, pid: int) -> list[float | None]:
    """Calls per second, µs of CPU per call of the tool and of the server, p50 and p99 in ms."""
    (short, *short_s), (said, *said_s) = (_run(tool, replace(asked, seconds=seconds), pid) for seconds in (1, asked.seconds))
    calls = said.answered - short.answered
    tool_us, server_us = (1e6 * (long - start) / calls for start, long in zip(short_s, said_s, strict=True))
    return [said.answered / said.seconds, tool_us, server_us, said.p50_ms, said.p99_ms]


def _run(tool: str, asked: Asked, pid: int) -> tuple[Said, float, float]:
    """What the tool told, and the CPU seconds of the tool and of the server."""
    server_s, tool_s = cpu_s(pid), own_cpu_s()
    with tempfile.TemporaryDirectory(prefix="wsbench-tools-") as folder:
        said = TOOLS[tool](asked, Path(folder))
    return said, own_cpu_s() - tool_s, cpu_s(pid) - server_s


def _cell(values: list[float | None]) -> str:
    if None in values:
        return "not told"
    return f"{statistics.median(values):,.4g} ({min(values):,.4g}–{max(values):,.4g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=SETTINGS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--rate", type=float, help="calls per second in all (default: one call in flight on each connection)")
    given = parser.parse_args()
    tools = [name for name in TOOLS if name == "wsbench" or shutil.which(os.environ.get(name.upper(), name))]
    rows: dict[str, list] = {tool: [] for tool in tools}
    with started(given.server) as (address, pid):
        asked = Asked(given.server, address, given.connections, given.seconds, given.rate)
        for number in range(given.rounds):
            for tool in random.Random(number).sample(tools, len(tools)):
                print(f"round {number + 1} of {given.rounds}: {tool}", file=sys.stderr, flush=True)
                rows[tool].append(measured(tool, asked, pid))
    print("| tool | calls/s | tool CPU µs/call | server CPU µs/call | p50 ms | p99 ms |\n|---|--:|--:|--:|--:|--:|")
    for tool, found in rows.items():
        print(f"| {tool} | {' | '.join(_cell(list(column)) for column in zip(*found, strict=True))} |")


if __name__ == "__main__":
    main()

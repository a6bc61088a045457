#!/usr/bin/env python3
"""The engine beside ApacheBench: the same servers at the same setting, in turns, and a Markdown table of what both say.

    .venv/bin/python studies/beside_ab.py [--experiment hoticn-2018-connection] [--repeats 5] [SERVER…]

The settings are the cells of an experiment that measures HTTP (`doc`) and ends by count: connections, requests, size, and whether
connections persist (`ab -k`). Every repeat is a fresh server on the server's CPUs; engine and ab, in random order, each get the
requests of the cell from the engine's CPUs. Rates are medians with the smallest and the largest; CPU is the client's, from
the kernel's account of the ended process.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from wsbench.engine import program
from wsbench.experiments import experiment
from wsbench.experiments.load import Load
from wsbench.host import machine
from wsbench.records.engine_files import Doc, End, Messages, Target, parse_event
from wsbench.records.frozen import write_json
from wsbench.servers import catalogue, manifest, serving

EXPERIMENT = "hoticn-2018-resource"
SERVERS = ["netty@4.2", "netty@4.1.19", "go-net-websocket", "node-nodejs-websocket", "reference"]
#: ab says HTTP/1.0; with keep-alive off the engine's `Connection: close` asks for the same.
AB_RATE = re.compile(r"Requests per second:\s+([\d.]+)")
AB_FAILED = re.compile(r"Failed requests:\s+(\d+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", default=SERVERS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--experiment", default=EXPERIMENT)
    asked = parser.parse_args()
    of, placement = experiment.read(experiment.path_of(asked.experiment)), machine.placement()
    loads = [of.load_of(cell) for cell in of.cells()]
    if of.scenario != "doc" or any(load.messages is None for load in loads):
        parser.error(f"{asked.experiment} is not an HTTP test that ends by count")
    print(f"{asked.experiment}, {asked.repeats} repeats\n")
    print(
        "| server | at once | bytes | connections | engine, requests/s | ab, requests/s "
        "| engine ÷ ab, pair by pair | engine, µs CPU/request | ab |"
    )
    print("|---|--:|--:|---|---|---|---|--:|--:|")
    for variant in catalogue.select(asked.servers, catalogue.read()):
        for load in loads:
            rows = [_pair(variant, placement, load, number) for number in range(asked.repeats)]
            print(_row(variant.name, load, rows), flush=True)


def _row(name: str, load: Load, rows: list[dict]) -> str:
    ratios = [row["engine"][0] / row["ab"][0] for row in rows]
    rates = {who: _spread([row[who][0] for row in rows]) for who in ("engine", "ab")}
    cpu = {who: statistics.median(row[who][1] for row in rows) for who in ("engine", "ab")}
    kept = "persistent" if load.persistent else "one a request"
    return (
        f"| {name} | {load.connections} | {load.payload_bytes} | {kept} | {rates['engine']} | {rates['ab']} "
        f"| {_spread(ratios, '.2f')} | {cpu['engine']:.1f} | {cpu['ab']:.1f} |"
    )


def _spread(numbers: list[float], form: str = ",.0f") -> str:
    return f"{statistics.median(numbers):{form}} ({min(numbers):{form}} to {max(numbers):{form}})"


def _pair(variant, placement, load: Load, number: int) -> dict[str, tuple[float, float]]:
    """Requests per second and the client's CPU µs per request, of each, one fresh server each."""
    found = {}
    for who in random.sample(["engine", "ab"], 2):
        with tempfile.TemporaryDirectory() as folder:
            order = serving.Order(port=None, number=number, cpus=placement.server)
            with serving.started(variant, order, Path(folder) / "server.log") as (_, port, _):
                run = _engine if who == "engine" else _ab
                found[who] = run(port, placement.engine, load, Path(folder))
    return found


def _engine(port: int, cpus: list[int], load: Load, folder: Path) -> tuple[float, float]:
    address = f"{serving.HOST}:{port}"
    scenario = Doc(persistent=load.persistent, bytes=load.payload_bytes)
    target = Target(address=address, host=address, path=serving.document(manifest.PATHS, scenario.bytes))
    plan = program.plan(scenario, "http", target, load.connections, None, Messages(messages=load.messages), seed=1, cpus=cpus)
    write_json(folder / "plan.json", plan)
    _, cpu_s = _run([str(program.require_binary()), str(folder / "plan.json"), str(folder / "out")], cpus)
    end = parse_event((folder / "out" / "events.jsonl").read_text().splitlines()[-1])
    assert isinstance(end, End)
    assert end.measured.answered == load.messages, end
    return end.measured.answered / end.measured.window_ns * 1e9, cpu_s * 1e6 / load.messages


def _ab(port: int, cpus: list[int], load: Load, folder: Path) -> tuple[float, float]:
    url = f"http://{serving.HOST}:{port}/doc?size={load.payload_bytes}"
    keep = ["-k"] if load.persistent else []
    said, cpu_s = _run(["ab", "-q", *keep, "-n", str(load.messages), "-c", str(load.connections), url], cpus)
    failed = AB_FAILED.search(said)
    assert failed, said
    assert failed.group(1) == "0", said
    return float(AB_RATE.search(said).group(1)), cpu_s * 1e6 / load.messages


def _run(argv: list[str], cpus: list[int]) -> tuple[str, float]:
    """Standard output, and the CPU seconds of the process."""
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{argv[0]} ended with {status}: {said}"
    return said, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()

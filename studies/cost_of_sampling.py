#!/usr/bin/env python3
"""What looking costs: the same server under the same load with nobody looking, sampled, and sampled with its runtime's probe.

    .venv/bin/python studies/cost_of_sampling.py [--repeats 7] [--connections 50] [--measure-s 3] [SERVER…]

Every repeat is four fresh servers in random order: nobody looks (twice, for the A/A pair), `samples`, `samples + probe`.
Messages a second of a closed loop, and the server's own CPU time a message from its CPU clock, which is read once at either end in
all four. Ratios are taken within a repeat; printed are their median and range. The sampler's CPU is that of its own thread.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import tempfile
from pathlib import Path

from wsbench.engine import program
from wsbench.host import machine
from wsbench.host.process import Engine
from wsbench.monitoring import kernel
from wsbench.monitoring.runtime_logs import probes
from wsbench.monitoring.sampler import Sampler
from wsbench.records.engine_files import Connect, Echo, Seconds, Target, Tick, parse_event
from wsbench.records.frozen import write_json
from wsbench.records.samples import SamplerCost, parse_sample
from wsbench.servers import catalogue, serving

SERVERS = ["netty", "node-ws", "go-net-websocket", "reference"]
WAYS = ("nobody", "nobody again", "samples", "samples + probe")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", default=SERVERS)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--measure-s", type=float, default=3.0)
    asked = parser.parse_args()
    print(f"echo of 128 bytes, {asked.connections:,} connections, {asked.repeats} repeats of {asked.measure_s:g} s\n")
    print("| server | ÷ nobody | messages/s | µs CPU/message | sampler, % of a core |")
    print("|---|---|--:|--:|--:|")
    for variant in catalogue.select(asked.servers, catalogue.read()):
        rows = [
            {way: _run(variant, way, asked, 4 * number + place) for place, way in enumerate(random.sample(WAYS, 4))}
            for number in range(asked.repeats)
        ]
        for way in WAYS[1:]:
            if way == WAYS[3] and probes.probe_of(variant.tags) is None:
                continue
            rates, costs = ([row[way][of] / row["nobody"][of] for row in rows] for of in (0, 1))
            looked = [row[way][2] for row in rows if row[way][2] is not None]
            share = _spread(looked, ".2f") if looked else ""
            print(f"| {variant.name} | {way} | {_spread(rates)} | {_spread(costs)} | {share} |", flush=True)


def _spread(numbers: list[float], form: str = ".3f") -> str:
    return f"{statistics.median(numbers):{form}} ({min(numbers):{form}} to {max(numbers):{form}})"


def _run(variant, way: str, asked, number: int) -> tuple[float, float, float | None]:
    """Messages a second, µs of the server's CPU a message, and the sampler's share of a core."""
    placement = machine.placement()
    probe = probes.probe_of(variant.tags) if way == WAYS[3] else None
    order = serving.Order(port=None, number=number, cpus=placement.server, probe=probe)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        server, port, _ = stack.enter_context(serving.started(variant, order, folder / "server.log"))
        write_json(folder / "plan.json", _plan(port, asked, placement.engine, number))
        used_ns = kernel.cpu_clock_ns(server.pid)
        with contextlib.ExitStack() as looking:
            if way.startswith("samples"):
                sampler = looking.enter_context(Sampler(folder / "resources.jsonl", server.pid))
            running = looking.enter_context(Engine(program.require_binary(), folder / "plan.json", folder, folder / "engine.log"))
            if way.startswith("samples"):
                sampler.watch_engine(folder / "events.jsonl", 0.0, running.pid)
            program.check_exit(running.wait(120), folder / "engine.log")
        used_ns = kernel.cpu_clock_ns(server.pid) - used_ns
        events = [parse_event(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
        answered = [event for event in events if isinstance(event, Tick)][-1].answered
        measured = events[-1].measured
        return (
            measured.replies_in_window / measured.window_ns * 1e9,
            used_ns / 1e3 / answered,
            _sampler_share(folder / "resources.jsonl"),
        )


def _plan(port: int, asked, cpus: list[int], seed: int):
    address = f"{serving.HOST}:{port}"
    return program.plan(
        Echo(opcode="text", bytes=128),
        "websocket",
        Target(address=address, host=address, path="/echo"),
        asked.connections,
        Seconds(seconds=1.0),
        Seconds(seconds=asked.measure_s),
        seed=seed,
        cpus=cpus,
        connect=Connect(at_once=500),
    )


def _sampler_share(file: Path) -> float | None:
    if not file.exists():
        return None
    costs = [one for one in map(parse_sample, file.read_bytes().splitlines()) if isinstance(one, SamplerCost)]
    return 100 * costs[-1].cpu_ns / (costs[-1].t_ns - costs[-1].began_ns)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How much of a response time is the engine's own at a low rate, and what it costs to know that.

    .venv/bin/python studies/engine_part.py [--repeats 7] [--connections 50] [--rate 1000] [--measure-s 4] [SERVER…]

An open loop with random arrivals on a server that is far from busy. Every repeat is one fresh server for each way, in random order:
the engine polls or sleeps, and the kernel stamps what arrives on every connection, on one in eight (as in campaigns), or on none.
Printed are medians over the repeats, with the range in brackets: the median response time, the engine's own part of the mean (mean
send lag and mean receive delay), and the engine's CPU time per message while it sleeps between messages.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from wsbench.engine import histogram, program
from wsbench.host import machine
from wsbench.host.process import Engine
from wsbench.records.engine_files import Connect, Echo, End, Open, Seconds, Segment, Target, parse_event
from wsbench.records.frozen import write_json
from wsbench.servers import catalogue, serving


@dataclass(frozen=True)
class Way:
    busy_poll: bool
    stamps: int | None

    @property
    def text(self) -> str:
        stamped = "none" if self.stamps is None else "every" if self.stamps == 1 else f"one in {self.stamps}"
        return f"{'polls' if self.busy_poll else 'sleeps'} | {stamped}"


WAYS = [Way(polls, stamps) for polls in (True, False) for stamps in (1, program.STAMPED, None)]


@dataclass(frozen=True)
class Found:
    """In µs; `own` is None where nothing was stamped, `cpu` where the engine polls."""

    p50: float
    own: float | None
    cpu: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", default=["reference", "netty"])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--measure-s", type=float, default=4.0)
    asked = parser.parse_args()
    print(f"{asked.rate:,.0f} echoes/s of 128 bytes, {asked.connections:,} connections, {asked.repeats} repeats\n")
    print("| server | engine | stamped connections | p50, µs | the engine's own part, µs | its CPU, µs/message |")
    print("|---|---|---|--:|--:|--:|")
    for variant in catalogue.select(asked.servers, catalogue.read()):
        rows: dict[Way, list[Found]] = {way: [] for way in WAYS}
        for number in range(asked.repeats):
            for way in random.sample(WAYS, len(WAYS)):
                rows[way].append(_run(variant, way, asked, number))
        for way, found in rows.items():
            columns = (_spread([getattr(one, of) for one in found]) for of in ("p50", "own", "cpu"))
            print(f"| {variant.name} | {way.text} | {' | '.join(columns)} |", flush=True)


def _spread(numbers: list[float | None]) -> str:
    known = [one for one in numbers if one is not None]
    return f"{statistics.median(known):.1f} ({min(known):.1f}–{max(known):.1f})" if known else "–"


def _run(variant, way: Way, asked, number: int) -> Found:
    placement = machine.placement()
    order = serving.Order(port=None, number=number, cpus=placement.server)
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        _, port, _ = stack.enter_context(serving.started(variant, order, folder / "server.log"))
        write_json(folder / "plan.json", _plan(port, way, asked, placement.engine, number))
        running = stack.enter_context(Engine(program.require_binary(), folder / "plan.json", folder, folder / "engine.log"))
        program.check_exit(running.wait(120), folder / "engine.log")
        times = histogram.read_merged(folder / "latency.hlog", without=("warmup-",))
        end = parse_event((folder / "events.jsonl").read_bytes().splitlines()[-1])
        assert isinstance(end, End)
        own = None
        if "receive_delay" in times:
            own = (times["send_lag"].mean + times["receive_delay"].mean) / 1e3
        cpu = None if way.busy_poll else sum(one.cpu_ns for one in end.threads) / 1e3 / end.measured.answered
        return Found(times["response"].quantile("0.5") / 1e3, own, cpu)


def _plan(port: int, way: Way, asked, cpus: list[int], seed: int):
    address = f"{serving.HOST}:{port}"
    steady = Segment(from_per_s=asked.rate, to_per_s=asked.rate, for_s=1)
    made = program.plan(
        Echo(opcode="text", bytes=128),
        "websocket",
        Target(address=address, host=address, path="/echo"),
        asked.connections,
        Seconds(seconds=2.0),
        Seconds(seconds=asked.measure_s),
        seed=seed,
        cpus=cpus,
        loop=Open(arrivals="poisson", rate=[steady], depth=None),
        connect=Connect(at_once=50),
        busy_poll=way.busy_poll,
    )
    return made.model_copy(update={"receive_stamps": way.stamps})


if __name__ == "__main__":
    main()

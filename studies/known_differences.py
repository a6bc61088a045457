#!/usr/bin/env python3
"""Duels of `reference` against itself, slowed by a known time per message.

    .venv/bin/python studies/known_differences.py FOLDER [--duels 20] [--spin 0 130 200 330] [--base 0] [--budget 60s] [--slo SLO]

With `--slo` their capacities are compared. The duels run in random order. FOLDER keeps the JSON document of each one; a duel that
is there is not run again. Printed for each metric and time: what the duels said, the median of their ratios, the share of intervals
that contain that median, and how long they took.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

from wsbench.servers import catalogue

SAYS = ("worse", "equal", "better", "undecided")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--duels", type=int, default=20)
    parser.add_argument("--spin", type=int, nargs="+", default=[0, 130, 200, 330], metavar="NS")
    parser.add_argument("--base", type=int, default=0, metavar="NS", help="time per message of the base")
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--slo", help="such as 'response.p99 < 20ms'")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    duels = [(spin, number) for spin in asked.spin for number in range(asked.duels)]
    random.Random(1).shuffle(duels)
    (variant,) = catalogue.select(["reference@websocket"], catalogue.read())
    program = variant.folder / "target/release/reference"
    for spin, number in duels:
        file = asked.folder / f"{spin}-{number}.json"
        if not file.exists():
            print(f"duel {number + 1} of {asked.duels} at {spin} ns", file=sys.stderr, flush=True)
            file.write_text(_duel(program, asked, spin, 1000 * spin + number))
    for metric in ("capacity_per_s",) if asked.slo else ("messages_per_s", "server_cpu_us_per_message"):
        print(f"\n| {metric} | {' | '.join(SAYS)} | median ratio | intervals with it | seconds |")
        print("|--:|" + "--:|" * (len(SAYS) + 3))
        for spin in asked.spin:
            print(_row(spin, [json.loads(file.read_bytes()) for file in sorted(asked.folder.glob(f"{spin}-*.json"))], metric))


def _duel(program: Path, asked: argparse.Namespace, spin: int, seed: int) -> str:
    sides = [str(program) if not one else f"{program} --spin {one}" for one in (asked.base, asked.base + spin)]
    command = [Path(sys.executable).with_name("wsbench"), "duel", *sides, "--budget", asked.budget, "--seed", str(seed), "--json"]
    command += ["--metric", "capacity", "--slo", asked.slo] if asked.slo else []
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return ended.stdout


def _row(spin: int, duels: list[dict], metric: str) -> str:
    told = [next(one for one in duel["metrics"] if one["metric"] == metric) for duel in duels]
    counts = [sum(one["says"] == says for one in told) for says in SAYS]
    assert sum(counts) == len(duels), f"another word than {SAYS}"
    ratio = statistics.median(one["ratio"] for one in told)
    covered = sum(one["low"] <= ratio <= one["high"] for one in told)
    spent = [duel["spent_s"] for duel in duels]
    times = f"{statistics.median(spent):.0f} ({min(spent):.0f}–{max(spent):.0f})"
    return f"| {spin} ns | {' | '.join(map(str, counts))} | {ratio:.3f} | {covered} of {len(duels)} | {times} |"


if __name__ == "__main__":
    main()

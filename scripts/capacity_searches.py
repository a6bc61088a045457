"""How many probes a search for a capacity takes, and whether its interval holds, if the capacity scatters from probe to probe."""

from __future__ import annotations

import math
import random
from statistics import fmean

from wsbench.analysis.capacity.search import Bounds, next_load, standing
from wsbench.analysis.stats.crossing import Probe

SEARCHES, MOST_PROBES, WITHIN = 20, 100, 0.05


def searched(seed: int, scatter: float) -> tuple[int, bool, bool]:
    """Number of probes, whether the precision was reached, and whether the interval holds the capacity."""
    chance = random.Random(seed)
    capacity = chance.uniform(3000, 60_000)
    bounds, probes = Bounds(WITHIN, start=1000, least=1, most=1e7), []
    while standing(probes, bounds).ended is None and len(probes) < MOST_PROBES:
        load = next_load(probes, bounds)
        probes.append(Probe(load, load <= capacity * math.exp(chance.gauss(0, scatter))))
    end = standing(probes, bounds)
    holds = (end.found.low or 0.0) <= capacity <= (end.found.high or math.inf)
    return len(probes), end.ended == "precision", holds


def main() -> None:
    print("| scatter | probes, mean | ended by precision | interval holds |\n|--:|--:|--:|--:|")
    for scatter in (0.0, 0.02, 0.04, 0.08):
        found = [searched(seed, scatter) for seed in range(SEARCHES)]
        numbers, ended, held = zip(*found, strict=True)
        print(f"| {scatter:.0%} | {fmean(numbers):.0f} | {sum(ended)} of {SEARCHES} | {sum(held)} of {SEARCHES} |", flush=True)


if __name__ == "__main__":
    main()

"""How many probes a search for a capacity takes, and whether its interval holds, if the capacity scatters from probe to probe.

First one promise, until the answer is known to 5 %. Then three promises that share one search of few probes, as in campaigns: how
many of them have an interval at the end, and how wide it is.
"""

from __future__ import annotations

import math
import random
from statistics import fmean, median

from wsbench.analysis.capacity.search import Bounds, near, next_load, standing
from wsbench.analysis.stats.crossing import Probe

SEARCHES, MOST_PROBES, WITHIN = 20, 100, 0.05
#: Of a search for three promises: probes, and the precision that is asked for.
FEW, LOOSE = 43, 0.1


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


def shared(seed: int, scatter: float) -> list[tuple[float | None, bool]]:
    """For each of three promises, each a fifth above the one before: the half width of its interval, and whether that holds."""
    chance = random.Random(seed)
    first = chance.uniform(20_000, 100_000)
    capacities = [first, first * 1.2, first * 1.44]
    bounds = Bounds(LOOSE, start=8000, least=1, most=1e7)
    probes: list[list[Probe]] = [[], [], []]

    def lacks(place: int) -> tuple:
        found = standing(probes[place], bounds).found
        return found.estimate is None, found.within is None, found.within or 0.0, -near(probes[place], bounds), -place

    for _ in range(FEW):
        open_ = [place for place in range(3) if standing(probes[place], bounds).ended is None]
        if not open_:
            break
        load, shift = next_load(probes[max(open_, key=lacks)], bounds), math.exp(chance.gauss(0, scatter))
        for made, capacity in zip(probes, capacities, strict=True):
            made.append(Probe(load, load <= capacity * shift))
    ends = [standing(made, bounds).found for made in probes]
    return [
        (end.within, (end.low or 0.0) <= capacity <= (end.high or math.inf)) for end, capacity in zip(ends, capacities, strict=True)
    ]


def main() -> None:
    print("| scatter | probes, mean | ended by precision | interval holds |\n|--:|--:|--:|--:|")
    for scatter in (0.0, 0.02, 0.04, 0.08):
        found = [searched(seed, scatter) for seed in range(SEARCHES)]
        numbers, ended, held = zip(*found, strict=True)
        print(f"| {scatter:.0%} | {fmean(numbers):.0f} | {sum(ended)} of {SEARCHES} | {sum(held)} of {SEARCHES} |", flush=True)
    print(f"\n{FEW} probes, three promises:\n")
    print("| scatter | promises with an interval | its half width, median | interval holds |\n|--:|--:|--:|--:|")
    for scatter in (0.02, 0.05, 0.1, 0.2):
        found = [one for seed in range(SEARCHES) for one in shared(seed, scatter)]
        widths = [width for width, _ in found if width is not None]
        middle = f"{median(widths):.0%}" if widths else "–"
        print(f"| {scatter:.0%} | {len(widths)} of {len(found)} | {middle} | {sum(held for _, held in found)} of {len(found)} |")


if __name__ == "__main__":
    main()

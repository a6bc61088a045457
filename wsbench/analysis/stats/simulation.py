"""The proof of `tiers`: campaigns whose truth is known, drawn at random, and how often what is said of them is false.

`python -m wsbench.analysis.stats.simulation [EXPERIMENTS]` prints the table of results/instrument.md; a test runs part of it. Every
row goes through `tiers` itself, with its thresholds.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from wsbench.analysis.stats.tiers import tiers

GAP = 0.08  # a difference that should be found
APART = 0.30  # and one that is always found: the servers of other pairs


@dataclass(frozen=True)
class World:
    """Campaigns of one kind. `truth`: `equal`, all servers are; `pairs`, two and two are, the rest far apart; `gap`, every
    other server is 8 % faster. `noise` is each server's coefficient of variation, taken in turn; `missing` the share of
    trials that failed.
    """

    servers: int
    rounds: int
    truth: str = "equal"
    noise: tuple[float, ...] = (0.01, 0.03, 0.08)
    drift: float = 0.05
    missing: float = 0.0

    def levels(self) -> np.ndarray:
        number = np.arange(self.servers)
        if self.truth == "pairs":
            return number // 2 * APART
        return number % 2 * np.log1p(GAP) if self.truth == "gap" else np.zeros(self.servers)

    def draw(self, source: np.random.Generator) -> dict[str, dict[int, float | None]]:
        """Server → round → value; each server has a noise of its own, every round a drift that all share."""
        own = np.resize(self.noise, self.servers)[:, None] * source.normal(size=(self.servers, self.rounds))
        shared = self.drift * source.normal(size=self.rounds)
        values = np.exp(self.levels()[:, None] + shared + own)
        failed = source.random(values.shape) < self.missing
        return {
            str(server): {at: None if failed[server, at] else float(values[server, at]) for at in range(self.rounds)}
            for server in range(self.servers)
        }


@dataclass(frozen=True)
class Outcome:
    """`false`: the share of experiments with at least one false claim; `power`: the share of 8 % gaps that were found, None where
    there is none; `error` is the Monte-Carlo standard error of `false`."""

    false: float
    power: float | None
    error: float


def simulate(world: World, experiments: int, seed: int = 1) -> Outcome:
    """Draws that many campaigns and judges what `tiers` says of each."""
    source = np.random.default_rng(seed)
    levels = world.levels()
    wrong, found, gaps = 0, 0, 0
    for _ in range(experiments):
        said = tiers(world.draw(source)).different
        # Said the wrong way round is as false as said of equals.
        wrong += any(levels[int(better)] <= levels[int(worse)] for better, worse in said)
        found += sum(levels[int(better)] > levels[int(worse)] for better, worse in said)
        gaps += sum(levels[one] != levels[other] for one, other in combinations(range(world.servers), 2))
    false = wrong / experiments
    has_gap = world.truth == "gap"
    return Outcome(false, float(found / gaps) if has_gap else None, float(np.sqrt(max(false, 0.01) * (1 - false) / experiments)))


WORLDS = [
    World(servers, rounds, truth, noise, missing=missing)
    for noise, missing in (((0.01, 0.03, 0.08), 0.0), ((0.03,), 0.0), ((0.01, 0.03, 0.08), 0.1))
    for truth in ("equal", "pairs", "gap")
    for servers in (2, 3, 5, 10, 20)
    for rounds in (5, 10)
]


def main(experiments: int) -> None:
    print(f"{experiments} experiments a row; drift 5 % between rounds; false: family-wise, target at most 0.05\n")
    print("| noise | failed | truth | servers | rounds | false | power for 8 % |\n|---|---|---|---|---|---|---|")
    for world in WORLDS:
        found = simulate(world, experiments)
        noise = "/".join(f"{cv:.0%}" for cv in world.noise)
        power = "" if found.power is None else f"{found.power:.2f}"
        place = f"| {noise} | {world.missing:.0%} | {world.truth} | {world.servers} | {world.rounds} "
        print(f"{place}| {found.false:.3f} ± {found.error:.3f} | {power} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)

"""The proof of `decision`: campaigns whose truth is known, drawn at random, and how often what is said of them is false.

`python -m wsbench.analysis.stats.simulation [EXPERIMENTS]` prints the tables of results/instrument.md; a test runs part of it.
Every row goes through `decide`, `holm` or `trend` as reports and claims do.

A statement is false if it says *better* or *worse* of equals, or the wrong way round; *relevant* of a difference within the margin;
or *equal* of servers that differ by the margin or more. So is a set of those that may be the best without one that is, and a trend
where there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wsbench.analysis.stats.cells import trend
from wsbench.analysis.stats.contrasts import Contrasts
from wsbench.analysis.stats.decision import Baseline, Best, Decided, Decision, Pairs, Rules, Two, decide, holm
from wsbench.analysis.stats.looks import Looks

APART = 0.30  # servers of other pairs
HEAT = 3  # contenders that are alive at once, besides the anchor
OUTLIER = 0.5  # of the value: a trial that was disturbed unnoticed
USUAL = Rules()
Shape = Literal["two", "best", "baseline", "pairs", "rows", "trend", "until"]


@dataclass(frozen=True)
class World:
    """Campaigns of one kind.

    `truth`: `equal`, all servers are; `pairs`, two and two are, the rest 30 % apart; `gap`, every other server is faster by `gap`.
    `noise` is each server's coefficient of variation between fresh processes, taken in turn; `drift` is common to a round;
    `outliers` and `missing` are shares of trials. `counts`: errors instead of rates, mostly none. `heats`: never more than four
    servers in one block, one of them in all.
    """

    shape: Shape
    servers: int = 2
    rounds: int = 5
    truth: Literal["equal", "pairs", "gap"] = "equal"
    noise: tuple[float, ...] = (0.01, 0.03, 0.08)
    gap: float = 0.1
    drift: float = 0.1
    outliers: float = 0.0
    missing: float = 0.0
    counts: bool = False
    heats: bool = False

    def levels(self) -> np.ndarray:
        number = np.arange(self.servers)
        if self.truth == "pairs":
            return number // 2 * APART
        return number % 2 * np.log1p(self.gap) if self.truth == "gap" else np.zeros(self.servers)

    def draw(self, source: np.random.Generator, rounds: int | None = None) -> dict[str, dict[int, float | None]]:
        """Server → block → value."""
        shape = self.servers, rounds or self.rounds
        if self.counts:
            values = source.poisson(source.gamma(0.3, 3.0 * np.exp(self.levels())[:, None], size=shape)).astype(float)
        else:
            own = np.resize(self.noise, self.servers)[:, None] * source.normal(size=shape)
            values = np.exp(self.levels()[:, None] + own)
            values *= np.where(source.random(shape) < self.outliers, OUTLIER, 1.0)
        failed = source.random(shape) < self.missing
        heats = -(-(self.servers - 1) // HEAT) if self.heats else 1
        shared = self.drift * source.normal(size=shape[1] * heats)
        made: dict[str, dict[int, float | None]] = {}
        for server in range(self.servers):
            heat = (server - 1) // HEAT if self.heats and server else 0
            made[str(server)] = {
                at * heats + heat: None
                if failed[server, at]
                else float(values[server, at]) * (1.0 if self.counts else float(np.exp(shared[at * heats + heat])))
                for at in range(shape[1])
            }
        if self.heats:  # the anchor ran in every heat
            extra = np.exp(self.noise[0] * source.normal(size=len(shared)) + shared)
            made["0"] = dict(enumerate(map(float, extra)))
        return made


@dataclass(frozen=True)
class Outcome:
    """`false`: the share of experiments with at least one false statement, `error` its Monte-Carlo standard error; `power`: of the
    real differences, the share that was found; `relevant`: the share that was called relevant; `equal`: of the equal ones, the
    share said to be equal; `rounds`: their mean number. None where there is none."""

    false: float
    error: float
    power: float | None
    relevant: float | None
    equal: float | None
    rounds: float


def simulate(world: World, experiments: int, seed: int = 1, rules: Rules = USUAL) -> Outcome:
    """Draws that many campaigns and judges what is said of each."""
    source = np.random.default_rng(seed)
    asked: Callable[[World, np.random.Generator, Rules], Said] = _ASKED[world.shape]
    wrong, found, relevant, real, alike, same, rounds = 0, 0, 0, 0, 0, 0, 0
    for _ in range(experiments):
        said = asked(world, source, rules)
        wrong += said.false or any(_false(one, size, rules) for one, size in said.decisions)
        for one, size in said.decisions:
            real, same = real + (size != 0), same + (size == 0)
            found += size != 0 and one.says == ("better" if size > 0 else "worse")
            relevant += size != 0 and one.relevant
            alike += size == 0 and one.says == "equal"
        rounds += said.rounds
    false = wrong / experiments
    error = float(np.sqrt(max(false, 0.01) * (1 - false) / experiments))
    powers = (found / real, relevant / real) if real else (None, None)
    return Outcome(false, error, *powers, alike / same if same else None, rounds / experiments)


def _false(one: Decision, size: float, rules: Rules) -> bool:
    """`size`: the true log ratio."""
    if one.says == "equal":
        return abs(size) >= rules.bound
    if one.relevant and abs(size) < rules.bound:
        return True
    return (one.says == "better" and size <= 0) or (one.says == "worse" and size >= 0)


@dataclass(frozen=True)
class Said:
    """Decisions, each with the true log ratio; `false` for a false statement that is no decision."""

    decisions: list[tuple[Decision, float]]
    rounds: int
    false: bool = False


def _against(world: World, found: Decided) -> list[tuple[Decision, float]]:
    levels = world.levels()
    return [(one, float(levels[int(one.one)] - levels[int(one.other)])) for one in found.decisions]


def _two(world: World, source, rules: Rules) -> Said:
    return Said(_against(world, decide(world.draw(source), Two("1", "0"), rules)), world.rounds)


def _baseline(world: World, source, rules: Rules) -> Said:
    return Said(_against(world, decide(world.draw(source), Baseline("0"), rules)), world.rounds)


def _pairs(world: World, source, rules: Rules) -> Said:
    return Said(_against(world, decide(world.draw(source), Pairs(), rules)), world.rounds)


def _best(world: World, source, rules: Rules) -> Said:
    found = decide(world.draw(source), Best(), rules)
    levels = world.levels()
    behind = [(one, float(levels[int(one.one)] - levels.max())) for one in found.decisions]
    return Said(behind, world.rounds, _lacks(found, levels))


def _lacks(found: Decided, levels: np.ndarray) -> bool:
    """A best server, of those that could be compared, is not among the first."""
    best = {str(name) for name in np.flatnonzero(levels == levels.max())} - set(found.left_out)
    return bool(found.decisions) and not best <= set(found.first)


def _rows(world: World, source, rules: Rules) -> Said:
    """Two campaigns without common rounds, as in `compare`: a row for each server, decided together."""
    sizes = world.levels()
    level = replace(world, truth="equal")
    base, new = level.draw(source), level.draw(source)
    rows = []
    for at, name in enumerate(base):
        both = {
            "base": base[name],
            "new": {block: value and value * float(np.exp(sizes[at])) for block, value in new[name].items()},
        }
        rows.append(("new", "base", Contrasts(both, paired=False).contrast("new", "base")))
    return Said(list(zip(holm(rows, rules), map(float, sizes), strict=True)), world.rounds)


def _trend(world: World, source, rules: Rules) -> Said:
    """The servers of the world are the cells of one server: a trend is `gap` from the first to the last."""
    rise = np.log1p(world.gap) if world.truth == "gap" else 0.0
    places = np.linspace(0.0, 1.0, world.servers)
    drawn = replace(world, truth="equal").draw(source)
    cells = [
        {at: value and value * float(np.exp(rise * place)) for at, value in found.items()}
        for place, found in zip(places, drawn.values(), strict=True)
    ]
    found = holm([("last", "first", trend(cells))], rules)
    return Said([(found[0], float(rise))], world.rounds)


def _until(world: World, source, rules: Rules) -> Said:
    """Rounds until everything that was asked is decided, or `world.rounds` are spent."""
    rules = replace(rules, looks=Looks(planned=world.rounds))
    drawn = world.draw(source)
    for rounds in range(rules.looks.first, world.rounds + 1):
        seen = {name: dict(list(found.items())[:rounds]) for name, found in drawn.items()}
        found = decide(seen, Best(), rules)
        if all(one.says != "undecided" for one in found.decisions) or rounds == world.rounds:
            break
    levels = world.levels()
    behind = [(one, float(levels[int(one.one)] - levels.max())) for one in found.decisions]
    return Said(behind, rounds, _lacks(found, levels))


_ASKED = {
    "two": _two,
    "best": _best,
    "baseline": _baseline,
    "pairs": _pairs,
    "rows": _rows,
    "trend": _trend,
    "until": _until,
}

TRIALS = (0.09, 0.11, 0.14)  # what the published campaigns have, in trials one after the other
PROCESSES = (0.005, 0.02, 0.04, 0.1)  # between fresh processes of a server, in slices
QUIET = (0.01,)
SERVERS: dict[Shape, tuple[int, ...]] = {
    "two": (2,),
    "best": (3, 8),
    "baseline": (3, 8),
    "pairs": (3, 8),
    "rows": (10,),
    "trend": (5,),
    "until": (2, 5),
}


def worlds_of_error() -> list[World]:
    """Worlds in which something false could be said."""
    made = []
    for shape, many in SERVERS.items():
        rounds = (12,) if shape == "until" else (3, 5, 10)
        made += [World(shape, servers, at, noise=noise) for servers in many for noise in (TRIALS, PROCESSES) for at in rounds]
        near = World(shape, many[-1], rounds[len(rounds) // 2], noise=PROCESSES)
        made += [replace(near, noise=QUIET), replace(near, outliers=0.05), replace(near, missing=0.1)]
        made += [replace(near, truth="gap", gap=0.03, noise=QUIET)]
        if shape != "trend":
            made += [replace(near, counts=True)]
            made += [replace(near, truth="gap", gap=0.02, noise=(noise,)) for noise in (0.01, 0.04)]
        if shape in ("best", "baseline", "pairs", "until"):
            made += [replace(near, truth="pairs"), replace(near, heats=True), replace(near, truth="pairs", heats=True)]
    return made


def worlds_of_power() -> list[World]:
    return [
        World(shape, 2 if shape == "two" else 6, rounds, "gap", noise, gap)
        for shape in ("two", "best", "rows", "trend")
        for noise in ((0.01,), PROCESSES, (0.12,))
        for rounds in (3, 5, 10, 20)
        for gap in (0.02, 0.03, 0.05, 0.1, 0.3)
    ]


def _row(world: World) -> str:
    noise = "/".join(f"{cv:.3g}" for cv in (100 * cv for cv in world.noise))
    more = [f"{world.outliers:.0%} outliers"] if world.outliers else []
    more += [f"{world.missing:.0%} missing"] if world.missing else []
    more += ["counts"] if world.counts else []
    more += ["heats"] if world.heats else []
    truth = f"{world.gap:.0%} apart" if world.truth == "gap" else world.truth
    return f"| {world.shape} | {'–' if world.counts else noise} | {truth} | {', '.join(more)} | {world.servers} | {world.rounds} "


def main(experiments: int) -> None:
    print(f"{experiments} experiments a row; drift of 10 % between rounds; false: of the family, target at most 0.05\n")
    print("| shape | noise, % | truth | with | servers | rounds | false | equal | taken |\n|---|---|---|---|--:|--:|--:|--:|--:|")
    for world in worlds_of_error():
        found = simulate(world, experiments)
        equal = "" if found.equal is None else f"{found.equal:.2f}"
        print(f"{_row(world)}| {found.false:.3f} ± {found.error:.3f} | {equal} | {found.rounds:.1f} |", flush=True)
    print("\n| shape | noise, % | servers | rounds | 2 % | 3 % | 5 % | 10 % | 30 % |\n|---|---|--:|--:|--:|--:|--:|--:|--:|")
    rows: dict[tuple, list[str]] = {}
    for world in worlds_of_power():
        found = simulate(world, max(50, experiments // 5))
        noise = "/".join(f"{100 * cv:.3g}" for cv in world.noise)
        rows.setdefault((world.shape, noise, world.servers, world.rounds), []).append(f"{found.power:.2f}")
    for key, power in rows.items():
        print("| " + " | ".join(map(str, [*key, *power])) + " |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)

"""Whether two campaigns put their servers in the same order: what a reader may carry over from another day or machine.

Results in, frozen counts out. Each campaign decides on its own which server of a pair is better. Means are not compared, so the
machines may differ.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from wsbench.analysis import stats
from wsbench.analysis.dataset import Cell
from wsbench.analysis.results import Results


@dataclass(frozen=True)
class Orders:
    """By one metric in one cell: how many pairs of servers are decided where, of `pairs` in all.

    `alike` and `reversed` are decided in both campaigns, `base` and `new` in one alone. Of a reversed pair, the first server is
    the better one in the base.
    """

    cell: Cell
    metric: str
    pairs: int
    alike: int
    reversed: tuple[tuple[str, str], ...]
    base: int
    new: int

    @property
    def neither(self) -> int:
        return self.pairs - self.alike - len(self.reversed) - self.base - self.new


def orders(base: Results, new: Results, metric: str) -> list[Orders]:
    """For each cell that both have; empty if they share fewer than two servers."""
    names = tuple(name for name in base.names if name in new.names)
    return [_orders(base, new, cell, metric, names) for cell in base.cells if cell in new.cells] if len(names) > 1 else []


def _orders(base: Results, new: Results, cell: Cell, metric: str, names: tuple[str, ...]) -> Orders:
    before, after = (_decided(results, cell, metric, names) for results in (base, new))
    turned = {(better, worse) for better, worse in before if (worse, better) in after}
    alike = before & after
    pairs = len(names) * (len(names) - 1) // 2
    alone = len(before) - len(alike) - len(turned), len(after) - len(alike) - len(turned)
    return Orders(cell, metric, pairs, len(alike), tuple(sorted(turned)), *alone)


def _decided(results: Results, cell: Cell, metric: str, names: tuple[str, ...]) -> set[tuple[str, str]]:
    """Pairs of which the first is shown to be better."""
    found = results.decide(cell, metric, stats.Pairs(names)).decisions
    better = {(one.one, one.other) for one in found if one.says == "better"}
    return better | {(one.other, one.one) for one in found if one.says == "worse"}


HEADERS = ["cell", "metric", "pairs of servers", "same order", "reversed", "base alone", "new alone", "undecided"]


def row(found: Orders, cell: str) -> list[str]:
    """Texts in the order of HEADERS."""
    counts = found.pairs, found.alike, len(found.reversed), found.base, found.new, found.neither
    return [cell, found.metric, *(f"{count:,}" for count in counts)]


def reversals(found: Orders, cell: str) -> list[str]:
    """A line for each reversed pair."""
    where = f" ({cell})" if cell else ""
    return [
        f"{found.metric}{where}: {one} is ahead of {other} in the base, and behind it in the new one"
        for one, other in found.reversed
    ]


def document(found: Orders) -> dict:
    """For programs."""
    return asdict(found) | {"cell": dict(found.cell), "neither": found.neither}

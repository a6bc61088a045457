"""Memory per connection: a straight line through all trials of a server, if only the number of connections is swept.

Results in, one `MemoryFit` per server out. The slope has a t interval, and so has the line at the connections of the
experiment's file, which may exceed the measured ones. The intercept is not the memory of an idle server.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsbench.analysis import stats
from wsbench.analysis.results import Results

METRIC = "server_rss_bytes_max"
FEWEST_TRIALS, FEWEST_SIZES = 4, 3  # two points always fit a line


@dataclass(frozen=True)
class MemoryFit:
    """Bytes = intercept + slope × connections, and `there` bytes at the connections asked about. `reason`: why there is no line."""

    name: str
    slope: float | None
    low: float | None
    high: float | None
    intercept: float | None
    r2: float | None
    smallest: int
    largest: int
    reason: str | None
    there: float | None = None
    there_low: float | None = None
    there_high: float | None = None


def memory_fits(results: Results) -> list[MemoryFit]:
    if results.swept != ["connections"]:
        return []
    there = asked_connections(results)
    return [found for name in results.names if (found := _fit(results, name, there)) is not None]


def asked_connections(results: Results) -> int:
    """The most connections in the experiment's file, before scaling, or the most measured."""
    sweep = results.experiment.keys.get("sweep", {}).get("connections", [])
    measured = [dict(cell)["connections"] for cell in results.cells]
    return max(number for number in [*sweep, *measured] if type(number) is int)


def _fit(results: Results, name: str, there: int) -> MemoryFit | None:
    counted = [trial for cell in results.cells for trial in results.counted(name, cell, METRIC) if trial.plan]
    found = [(trial.plan.connections, trial.value(METRIC)) for trial in counted]
    pairs = [(size, used) for size, used in found if used is not None]
    if not pairs:
        return None
    sizes = sorted({size for size, _ in pairs})
    nothing = MemoryFit(name, None, None, None, None, None, sizes[0], sizes[-1], None)
    if len(sizes) < FEWEST_SIZES or len(pairs) < FEWEST_TRIALS:
        reason = f"no line: {len(sizes)} sizes and {len(pairs)} trials, {FEWEST_SIZES} and {FEWEST_TRIALS} are needed"
        return MemoryFit(**{**vars(nothing), "reason": reason})
    fit = stats.line(*zip(*pairs, strict=True))
    value, low, high = fit.at(there)
    return MemoryFit(
        name,
        fit.slope,
        fit.low,
        fit.high,
        fit.intercept,
        fit.r2,
        sizes[0],
        sizes[-1],
        None,
        there=value,
        there_low=low,
        there_high=high,
    )

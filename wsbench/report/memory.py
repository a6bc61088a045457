"""Memory per connection: a straight line through all trials of a server where nothing but the connections is swept.

Results in, a `MemoryFit` a server out, or none where the campaign does not ask the question. The slope has a t interval; the
intercept is no measurement of an idle server, only where the line begins.
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy import stats as distributions

from wsbench import stats
from wsbench.report.results import Results

METRIC = "server_rss_bytes_max"
FEWEST_TRIALS, FEWEST_SIZES = 4, 3  # with two sizes any two points are a perfect line


@dataclass(frozen=True)
class MemoryFit:
    """Bytes = intercept + slope × connections. `reason` says why there is no line."""

    name: str
    slope: float | None
    low: float | None
    high: float | None
    intercept: float | None
    r2: float | None
    smallest: int
    largest: int
    reason: str | None


def memory_fits(results: Results) -> list[MemoryFit]:
    if results.swept != ["connections"]:
        return []
    return [found for name in results.names if (found := _fit(results, name)) is not None]


def _fit(results: Results, name: str) -> MemoryFit | None:
    counted = [trial for trial in results.trials if trial.record.name == name and trial.counts and trial.plan]
    pairs = [(trial.plan.connections, trial.values[METRIC]) for trial in counted if trial.values[METRIC] is not None]
    if not pairs:
        return None
    sizes = sorted({size for size, _ in pairs})
    nothing = MemoryFit(name, None, None, None, None, None, sizes[0], sizes[-1], None)
    if len(sizes) < FEWEST_SIZES or len(pairs) < FEWEST_TRIALS:
        reason = f"no line: {len(sizes)} sizes and {len(pairs)} trials, {FEWEST_SIZES} and {FEWEST_TRIALS} are needed"
        return MemoryFit(**{**vars(nothing), "reason": reason})
    line = distributions.linregress(*zip(*pairs, strict=True))
    half = float(line.stderr * distributions.t.ppf((1 + stats.LEVEL) / 2, len(pairs) - 2))
    found = {"slope": float(line.slope), "low": float(line.slope) - half, "high": float(line.slope) + half}
    return MemoryFit(**{**vars(nothing), **found, "intercept": float(line.intercept), "r2": float(line.rvalue**2)})

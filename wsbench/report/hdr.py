"""Exports latencies for HdrHistogram tools: the unchanged interval log, and the percentile distribution that they plot.

The distribution has the rows of the library's own `outputPercentileDistribution`, in milliseconds.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from wsbench.engine.histogram import Histogram
from wsbench.metrics.trial_data import TrialData
from wsbench.records.files import read_file, write_output

TICKS_PER_HALF = 5
NS_PER_MS = 1e6


def export(trial: TrialData, stem: Path) -> list[Path]:
    """Writes STEM.hlog, and STEM.hgrm with the times that describe the trial, if there are any. Returns the paths."""
    log, distribution = files(stem)
    write_output(log, read_file(trial.folder.latency_log))
    times = trial.reported_times
    if times is None or not times.count:
        return [log]
    write_output(distribution, percentile_distribution(times, NS_PER_MS).encode("ascii"))
    return [log, distribution]


def files(stem: Path) -> tuple[Path, Path]:
    """STEM.hlog and STEM.hgrm."""
    return stem.with_name(stem.name + ".hlog"), stem.with_name(stem.name + ".hgrm")


def percentile_distribution(of: Histogram, per_unit: float) -> str:
    """The text of a .hgrm file; values in ns are divided by `per_unit`."""
    digits = of.digits
    lines = [f"{'Value':>12} {'Percentile':>14} {'TotalCount':>10} {'1/(1-Percentile)':>14}", ""]
    for value, level, count in _levels(of):
        row = f"{value / per_unit:12.{digits}f} {level / 100:2.12f} {count:10d}"
        lines.append(row if level == 100 else f"{row} {1 / (1 - level / 100):14.2f}")
    used = np.flatnonzero(of.counts)
    midpoints = of.lower_bounds[used] + ((of.upper_bounds[used] - of.lower_bounds[used] + 1) >> 1)
    deviation = math.sqrt(float((of.counts[used] * (midpoints - of.mean) ** 2).sum()) / of.count)
    halves = 2 ** (max(math.ceil(math.log2(2 * 10**digits)), 1) - 1)
    buckets = of.buckets // halves - 1
    lines += [
        f"#[Mean    = {of.mean / per_unit:12.{digits}f}, StdDeviation   = {deviation / per_unit:12.{digits}f}]",
        f"#[Max     = {of.max / per_unit:12.{digits}f}, TotalCount     = {of.count:12.{digits}f}]",
        f"#[Buckets = {buckets:12d}, SubBuckets     = {2 * halves:12d}]",
    ]
    return "\n".join(lines) + "\n"


def _levels(of: Histogram) -> list[tuple[int, float, int]]:
    """(value, percentile, cumulative count): each level at the first bucket that reaches it, the last bucket once, then 100."""
    rows, level, total = [], 0.0, of.count
    used = np.flatnonzero(of.counts)
    reached = np.cumsum(of.counts[used])
    for place, bucket in enumerate(used):
        value, count = int(of.upper_bounds[bucket]), int(reached[place])
        while 100.0 * count / total >= level:
            rows.append((value, level, count))
            halvings = math.log(100 / (100.0 - level)) / math.log(2) + 1
            level += 100.0 / (TICKS_PER_HALF * math.pow(2, halvings))
            if count == total:
                break
    return [*rows, (of.max, 100.0, total)]

#!/usr/bin/env python3
"""What the percentiles of a sample of 1028 would have said of latencies that were all recorded: the reservoir of the Metrics
library (Coda Hale's, later Dropwizard's), which took the percentiles of the comparison of 2015.

    .venv/bin/python studies/sample_of_1028.py RUN [--tag push_stamp] [--times 1000]

For each server of the campaign, at its largest number of connections, the latencies of all rounds together; out of them 1028 are
drawn without replacement, again and again. A Markdown table: a percentile of all, and between which values 95 % of the samples
put it. Random by a fixed seed.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from wsbench.engine.histogram import Histogram, read_merged
from wsbench.records.rundir import RunFolder

SAMPLE = 1028
QUANTILES = ("0.5", "0.75", "0.95", "0.98", "0.99", "0.999")
SEED = 2015


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--tag", default="push_stamp", help="which latency (default: by the server's own stamp, as in 2015)")
    parser.add_argument("--times", type=int, default=1000)
    asked = parser.parse_args()
    print("| server | latencies | " + " | ".join(f"p{float(q) * 100:g}, ms" for q in QUANTILES) + " |")
    print("|---|--:|" + "--:|" * len(QUANTILES))
    for server, found in sorted(latencies(asked.run, asked.tag).items()):
        print(row(server, found, asked.times))


def latencies(run: Path, tag: str) -> dict[str, Histogram]:
    """By server; those who have fewer than the sample are left out."""
    found: dict[str, dict[int, list[Histogram]]] = defaultdict(lambda: defaultdict(list))
    for folder, record in RunFolder.open(run).finished():
        histogram = read_merged(folder.path / "latency.hlog").get(tag) if record.outcome == "ok" else None
        if histogram is not None and not record.control:
            found[f"{record.server}@{record.variant}"][record.cell.get("connections", 0)].append(histogram)
    whole = {server: reduce(add, counts[max(counts)]) for server, counts in found.items()}
    return {server: one for server, one in whole.items() if one.count >= SAMPLE}


def row(server: str, latency: Histogram, times: int) -> str:
    random = np.random.default_rng(SEED)
    drawn = random.multivariate_hypergeometric(latency.counts, SAMPLE, size=times, method="marginals")
    samples = [replace(latency, counts=counts) for counts in drawn]
    cells = []
    for quantile in QUANTILES:
        low, high = np.quantile([sample.quantile(quantile) for sample in samples], [0.025, 0.975]) / 1e6
        cells.append(f"{latency.quantile(quantile) / 1e6:,.3g} ({low:,.3g} to {high:,.3g})")
    return f"| {server} | {latency.count:,} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A breakpoint test beside a search: one ramp of the rate until a threshold breaks, as k6 and Artillery document it.

    .venv/bin/python studies/breakpoint_test.py go-gorilla --to 80k --bound 20ms [--seconds 60] [--rounds 5] [--connections 50]

The rate grows evenly from 0 to `--to`, whatever the server answers. Two readings of each ramp: the rate at which the p99 of all
messages since the start first exceeds the bound at one of the checks, which happen every two seconds (a threshold that aborts the
test); and the rate of the first second whose own p99 exceeds it. Printed: each ramp, then the median and the range. The engine of
wsbench makes the load, so the difference to `wsbench capacity SERVER --slo 'response.p99 < BOUND'` is that of the method alone.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from wsbench.cli import values
from wsbench.engine import histogram
from wsbench.records.rundir import RunFolder, TrialFolder

WSBENCH = Path(sys.executable).with_name("wsbench")
CHECKS_S = 2
EXPERIMENT = """
question = "At which rate of a ramp does a threshold break?"
reading  = "One process, one ramp."
servers  = ["{server}"]
scenario = "echo"
loop     = "open"
headline = "response_us_p99"

[load]
connections = {connections}
arrivals    = "poisson"
rate        = [{{ from_per_s = 0, to_per_s = {to}, for_s = {seconds} }}]

[timing]
measure_s = {seconds}
rounds    = {rounds}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("--to", type=values.above_zero, required=True)
    parser.add_argument("--bound", type=values.seconds_above_zero, required=True)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=50)
    asked = parser.parse_args()
    found = [readings(trial, asked) for trial in ramps(asked)]
    print(f"{'ramp':>8}  {'all so far':>12}  {'one second':>12}  [messages/s]")
    for number, pair in enumerate(found, 1):
        print(f"{number:>8}  {_text(pair[0]):>12}  {_text(pair[1]):>12}")
    for name, of in (("median", statistics.median), ("least", min), ("most", max)):
        columns = [[one for one in column if one is not None] for column in zip(*found, strict=True)]
        print(f"{name:>8}  " + "  ".join(f"{_text(of(column) if column else None):>12}" for column in columns))


def ramps(asked: argparse.Namespace) -> list[TrialFolder]:
    """Runs the campaign in ./runs."""
    with tempfile.TemporaryDirectory(prefix="wsbench-breakpoint-") as made:
        file = Path(made, "breakpoint.toml")
        file.write_text(EXPERIMENT.format(**vars(asked)), encoding="utf-8")
        before = set(Path("runs").glob("*")) if Path("runs").exists() else set()
        subprocess.run([WSBENCH, "run", file, "--no-report", "--no-control", "--again", "0"], check=True, stdout=sys.stderr)
    (run,) = set(Path("runs").glob("*-breakpoint")) - before
    return [folder for folder, _ in RunFolder(run).finished()]


def readings(trial: TrialFolder, asked: argparse.Namespace) -> tuple[float | None, float | None]:
    """The rate at which the threshold on all messages so far breaks, and that of the first second beyond the bound. None: never."""
    seconds = [one for one in histogram.read_log(trial.latency_log) if one.tag == "response" and one.histogram.count]
    first = seconds[0].start_s
    alone = next((one for one in seconds if _p99_s(one.histogram) > asked.bound), None)
    so_far, abort, check = None, None, CHECKS_S
    for one in seconds:
        so_far = one.histogram if so_far is None else so_far + one.histogram
        end_s = one.start_s + one.length_s - first
        if end_s >= check:
            check += CHECKS_S
            if _p99_s(so_far) > asked.bound:
                abort = end_s
                break
    return _rate(abort, asked), _rate(None if alone is None else alone.start_s + alone.length_s - first, asked)


def _p99_s(of: histogram.Histogram) -> float:
    return of.quantile("0.99") / 1e9


def _rate(at_s: float | None, asked: argparse.Namespace) -> float | None:
    return None if at_s is None else asked.to * min(1.0, at_s / asked.seconds)


def _text(rate: float | None) -> str:
    return "never" if rate is None else f"{rate:,.0f}"


if __name__ == "__main__":
    main()

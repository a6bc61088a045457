#!/usr/bin/env python3
"""What slices resolve, and whether their numbers are those of servers that run alone.

    .venv/bin/python studies/slices_and_trials.py FOLDER [--pairs 8] [--slice-s 0.05] [--lead-s 0.02]

Every pair is a campaign with slices and one with trials, of one round each, in random order, with the load of `quick`. Four servers
take part twice: as themselves, and as a copy of their folder under another name. FOLDER keeps copies and campaigns; a campaign that
is there is not run again.

First table: the ratio of the two equal servers by round. *Spread* is the standard deviation of its logarithm. *Found* is the
smallest difference that a t test finds with 80 % power after five minutes with six servers, from that spread alone. Second table:
the ratio slices ÷ trials of each server, pair by pair, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from scipy.stats import t as student

from wsbench.analysis import reading
from wsbench.analysis.dataset import TrialResult
from wsbench.records.rundir import RunFolder

WSBENCH = Path(sys.executable).with_name("wsbench")
TWICE = ["reference", "netty", "go-gorilla", "node-ws"]
ONCE = ["python-websockets"]
COPY = "-again"
METRICS = ("messages_per_s", "server_cpu_us_per_message")
#: Warm-up and measuring time by server. Trials: as `quick` had them before it used slices.
TIMES = {"slices": (3, 1.25), "trials": (5, 4)}
EXPERIMENT = """
question = "Slices or trials?"
reading  = "Equal servers twice."
servers  = {servers}
scenario = "echo"
loop     = "closed"
headline = "messages_per_s"
arrangement = "{arrangement}"

[load]
connections   = 50
payload_bytes = 128

[timing]
warmup_s  = {warmup_s}
measure_s = {measure_s}
slice_s   = {slice_s}
lead_s    = {lead_s}
rounds    = 1
"""
#: By server and metric: the value of a round.
Round = dict[tuple[str, str], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--slice-s", type=float, default=0.05)
    parser.add_argument("--lead-s", type=float, default=0.02)
    asked = parser.parse_args()
    environment = _copies(asked.folder.resolve() / "servers")
    rounds: dict[str, list[Round]] = {arrangement: [] for arrangement in TIMES}
    spent: dict[str, list[float]] = {arrangement: [] for arrangement in TIMES}
    for pair in range(asked.pairs):
        for arrangement in random.Random(pair).sample(sorted(TIMES), 2):
            folder = asked.folder.resolve() / f"{pair}-{arrangement}"
            print(f"pair {pair + 1} of {asked.pairs}: {arrangement}", file=sys.stderr, flush=True)
            if not (folder / "done").exists():
                _campaign(folder, arrangement, asked, environment)
            (run,) = (folder / "runs").iterdir()
            trials = reading.load(RunFolder(run)).trials
            rounds[arrangement].append(_round(trials))
            began = min(trial.record.started_unix_s for trial in trials)
            spent[arrangement].append(max(trial.record.started_unix_s + trial.record.duration_s for trial in trials) - began)
    for metric in METRICS:
        _resolving(metric, rounds, spent)
    _bias(rounds)


def _copies(folder: Path) -> dict[str, str]:
    """Builds the servers and their copies. Returns the environment in which both are known."""
    shipped = Path(__file__).resolve().parents[1] / "servers"
    for name in TWICE:
        if not (folder / (name + COPY)).exists():
            shutil.copytree(shipped / name, folder / (name + COPY), symlinks=True)
    environment = {**os.environ, "WSBENCH_SERVERS": str(folder)}
    names = [*TWICE, *(name + COPY for name in TWICE), *ONCE]
    subprocess.run([WSBENCH, "build", *names], env=environment, check=True, stdout=sys.stderr)
    return environment


def _campaign(folder: Path, arrangement: str, asked: argparse.Namespace, environment: dict[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    warmup_s, measure_s = TIMES[arrangement]
    servers = str([*TWICE, *(name + COPY for name in TWICE), *ONCE]).replace("'", '"')
    values = {"arrangement": arrangement, "warmup_s": warmup_s, "measure_s": measure_s, "servers": servers}
    text = EXPERIMENT.format(**values, slice_s=asked.slice_s, lead_s=asked.lead_s)
    (folder / "experiment.toml").write_text(text)
    command = [WSBENCH, "run", "experiment.toml", "--no-control", "--no-report", "--again", "0"]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=sys.stderr)
    (folder / "done").touch()


def _round(trials: list[TrialResult]) -> Round:
    counted = [(trial, metric) for trial in trials for metric in METRICS if trial.counts_for(metric)]
    found = {(trial.record.server, metric): trial.value(metric) for trial, metric in counted}
    return {key: value for key, value in found.items() if value is not None}


def _resolving(metric: str, rounds: dict[str, list[Round]], spent: dict[str, list[float]]) -> None:
    print(f"\n| {metric} | A/A, slices | spread | found | A/A, trials | spread | found |")
    print("|---|---|--:|--:|---|--:|--:|")
    for server in TWICE:
        cells = [server]
        for arrangement in TIMES:
            pairs = [(one.get((server, metric)), one.get((server + COPY, metric))) for one in rounds[arrangement]]
            logs = [math.log(a / b) for a, b in pairs if a is not None and b is not None]
            spread = statistics.stdev(logs)
            share = 6 / (2 * len(TWICE) + len(ONCE))
            possible = max(2, int(300 / (share * statistics.mean(spent[arrangement]))))
            power = student.ppf(0.975, possible - 1) + student.ppf(0.8, possible - 1)
            found = power * spread / math.sqrt(possible)
            cells += [_ratio(logs), f"{100 * spread:.2g} %", f"{100 * found:.2g} %"]
        print(f"| {' | '.join(cells)} |")
    print(f"\nSeconds of a round: { ({key: round(statistics.mean(times), 1) for key, times in spent.items()}) }")


def _ratio(logs: list[float]) -> str:
    half = student.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(statistics.mean(logs)):.3f} ± {100 * half:.2g} %"


def _bias(rounds: dict[str, list[Round]]) -> None:
    print(f"\n| slices ÷ trials | {' | '.join(METRICS)} |\n|---|---|---|")
    for server in [*TWICE, *ONCE]:
        cells = [server]
        for metric in METRICS:
            logs = []
            for slices, trials in zip(rounds["slices"], rounds["trials"], strict=True):
                same = [
                    (one[name, metric], other[name, metric])
                    for name in (server, server + COPY)
                    for one, other in [(slices, trials)]
                    if (name, metric) in one and (name, metric) in other
                ]
                if same:
                    logs.append(statistics.mean(math.log(one / other) for one, other in same))
            cells.append(_ratio(logs))
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

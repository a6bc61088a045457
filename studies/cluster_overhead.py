"""What a run over a cluster costs against a run on one machine, at the same plan: both on this machine, all roles on it.

    python studies/cluster_overhead.py EXPERIMENT [--pairs 5] [--servers reference] [--metric NAME …]

Each pair is one round here and one round over Ray, in turns who is first; Ray runs only during the latter. The ratio (cluster over
one machine) is paired by round, with its 95 % interval (`wsbench.analysis.stats.ratio`). INVALID numbers do not count.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wsbench.analysis import stats
from wsbench.analysis.reading import load
from wsbench.cli import terminal
from wsbench.host import machine
from wsbench.records.rundir import RunFolder

CLUSTER = """
token = "{folder}/token"
[[host]]
name = "serve"
role = "serve"
address = "127.0.0.2"
cpus = {server}
[[host]]
name = "load"
address = "127.0.0.2"
cpus = {engine}
"""
USUAL = ("messages_per_s", "service_us_p50", "service_us_p99", "response_us_p99", "server_cpu_us_per_message")
COMES_UP_S = 90


class Bench:
    """A folder to run in, with a cluster.toml."""

    def __init__(self, folder: Path, asked):
        placed = machine.placement()
        self.folder, self.asked = folder, asked
        text = CLUSTER.format(folder=folder, server=placed.server, engine=placed.engine)
        (folder / "cluster.toml").write_text(text)
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}

    def wsbench(self, *words: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "wsbench.cli", *words], cwd=self.folder, env=self.environment, check=False
        ).returncode

    def run(self, where: str, seed: int) -> RunFolder:
        before = set(self.folder.glob("runs/*"))
        words = ["run", self.asked.experiment, "--rounds", "1", "--no-control", "--no-report", "--seed", str(seed)]
        words += ["--servers", self.asked.servers, "--time-scale", str(self.asked.time_scale)]
        if where == "cluster":
            words += ["--cluster", "cluster.toml"]
        if self.wsbench(*words) != 0:
            sys.exit(f"the run on the {where} failed")
        (made,) = set(self.folder.glob("runs/*")) - before
        return RunFolder(made)

    def up(self) -> None:
        self.wsbench("cluster", "up", "cluster.toml")
        until = time.monotonic() + COMES_UP_S
        while self.wsbench("cluster", "status", "cluster.toml") != 0:
            if time.monotonic() > until:
                sys.exit("the cluster did not come up")
            time.sleep(1)

    def down(self) -> None:
        self.wsbench("cluster", "down", "cluster.toml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=lambda text: str(Path(text).resolve()) if text.endswith(".toml") else text)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--servers", default="reference")
    parser.add_argument("--time-scale", type=float, default=1.0)
    parser.add_argument("--metric", action="append", default=[])
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cluster-overhead-"))
    bench = Bench(folder, asked)
    runs = {"machine": [], "cluster": []}
    for pair in range(asked.pairs):
        for where in ("machine", "cluster") if pair % 2 == 0 else ("cluster", "machine"):
            try:
                if where == "cluster":
                    bench.up()
                runs[where].append(bench.run(where, 1000 + pair))
            finally:
                if where == "cluster":
                    bench.down()
    tell({where: [load(run) for run in found] for where, found in runs.items()}, asked.metric or USUAL)
    print(f"runs are kept in {folder}")


def tell(results: dict, wanted) -> None:
    rows = []
    first = results["machine"][0]
    for name in first.names:
        for cell in first.cells:
            for metric in wanted:
                here, there = (
                    {pair: one.by_round(name, cell, metric).get(1) for pair, one in enumerate(results[where])}
                    for where in ("machine", "cluster")
                )
                ratio = stats.ratio(there, here)
                between = ratio.reason if ratio.low is None else f"{ratio.low:.3f} to {ratio.high:.3f}"
                shown = [stats.estimate(list(values.values())).mean for values in (here, there)] + [ratio.mean]
                text = ["not measured" if value is None else f"{value:,.4g}" for value in shown]
                rows.append([name, terminal.cell_text(dict(cell)), metric, *text, between])
    terminal.table(None, ["server", "cell", "metric", "one machine", "cluster", "ratio", "95 %"], rows, right={3, 4, 5})


if __name__ == "__main__":
    main()

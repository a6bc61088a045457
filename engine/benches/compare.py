"""The engine against the kernel floor and other load generators: ratios in one run, never numbers across runs.

Every setting is repeated. A repeat runs each contender once, in a new random order, against a fresh
reference server on its own core. Ratios are computed within a repeat, so that drift of the machine
affects both sides. `make bench-engine` starts it; it prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import alone
import hostile
from contenders import ENGINE, K6, Ab, Autocannon, Engine, Floor, NoNumber, Session, Setting, Wrk, serves
from trial import Bench, Measured, build_floor

from wsbench.engine import program
from wsbench.host import machine
from wsbench.records.errors import UserError

SETTINGS = {
    "echo-50": Setting("echo", 50, 16),
    "echo-1000": Setting("echo", 1_000, 16),
    "echo-10000": Setting("echo", 10_000, 16),
    "depth-16": Setting("echo", 50, 16, depth=16),
    "session": Setting("echo", 50, Session.bytes),
    "session-16": Setting("echo", 50, Session.bytes, depth=16),
    "echo-16k": Setting("echo", 10, 16 << 10),
    "echo-1m": Setting("echo", 4, 1 << 20),
    "tls": Setting("echo", 50, 1 << 10, wrapping="tls"),
    "deflate": Setting("echo", 50, 1 << 10, wrapping="deflate"),
    "deflate-1000": Setting("echo", 1_000, 1 << 10, wrapping="deflate", context=False),
    "keep-alive": Setting("keep-alive", 50),
    "close": Setting("close", 50),
    # Fewer than half of the usual local ports: beyond that the measurement is the kernel's search for a free one.
    "connect": Setting("connect", 10_000, 16),
}
ALONE = ("memory", "pacing", "hostile")
REPEATS = 5
SECONDS, QUICK_SECONDS = 5.0, 1.0
#: CPUs that other processes may use during a run. Above it the repeat is rerun, as often as there are repeats.
DISTURBED = 0.15
COLUMNS = (
    "contender",
    "{unit}s/s",
    "CPU ns/{unit}, whole process",
    "× floor",
    "of it user",
    "CPU ns/{unit}, exchange alone",
    "× floor",
    "server busy",
)


def main() -> int:
    asked = arguments()
    print(heading(asked), flush=True)
    with tempfile.TemporaryDirectory(prefix="wsbench-bench-") as folder:
        bench = Bench(Path(folder))
        floor = asked.floor or build_floor()
        tested = engines(asked)
        contenders = [Floor(floor), *tested, *map(Session, tested), Wrk(), Ab(), Autocannon(), K6()]
        print("\n".join(versions(contenders)), flush=True)
        for key in asked.only or SETTINGS:
            if key in SETTINGS:
                print("\n".join(compare(bench, contenders, SETTINGS[key], asked)), flush=True)
        for tested in engines(asked):
            if wanted(asked, "memory"):
                print("\n".join([f"\n### {tested.name}: memory\n", *alone.memory(bench, tested)]), flush=True)
            if wanted(asked, "pacing"):
                lines = alone.pacing(bench, tested, asked.seconds, asked.repeats)
                print("\n".join([f"\n### {tested.name}: pacing of an open loop\n", *lines]), flush=True)
            if wanted(asked, "hostile"):
                lines = hostile.table(bench, tested, asked.seconds, asked.repeats)
                print("\n".join([f"\n### {tested.name}: servers that mean ill\n", *lines]), flush=True)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", action="append", type=Path, help="an engine's binary; more than one are compared")
    parser.add_argument("--floor", type=Path, help="the floor's binary, instead of building it")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SECONDS:g} s a run instead of {SECONDS:g} s")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--only", action="append", choices=[*SETTINGS, *ALONE], help="this setting; may be repeated")
    asked = parser.parse_args()
    asked.seconds = QUICK_SECONDS if asked.quick else SECONDS
    return asked


def wanted(asked: argparse.Namespace, part: str) -> bool:
    return not asked.only or part in asked.only


def engines(asked: argparse.Namespace) -> list[Engine]:
    if not asked.engine:
        return [Engine(program.require_binary())]
    return [Engine(path, ENGINE if at == 0 else f"engine {at + 1}") for at, path in enumerate(asked.engine)]


def heading(asked: argparse.Namespace) -> str:
    here = machine.read()
    where = f"{here.cpu_model}, {here.cpus} CPUs, {here.virtualisation or 'virtualisation not told'}, Linux {here.kernel}"
    load = f"{os.getloadavg()[0]:.2f} on average in the minute before"
    how = f"{asked.repeats} repeats of {asked.seconds:g} s, load {load}, revision {here.git_revision}"
    return f"## The engine against the floor\n\n{where}; {how}. Median (quartiles); × floor: median (range) within repeats.\n"


def versions(contenders: list) -> list[str]:
    return [f"- {c.name}: {c.version() or f'not installed: {c.install}'}" for c in contenders]


def compare(bench: Bench, contenders: list, setting: Setting, asked: argparse.Namespace) -> list[str]:
    """A table of one setting: one row for each contender, or the reason why it has none."""
    header = " | ".join(COLUMNS).format(unit=setting.unit)
    lines = [f"\n### {setting.name}\n", f"| {header} |", "|---|" + "--:|" * (len(COLUMNS) - 1)]
    asked_for = [contender for contender in contenders if serves(contender, setting)]
    able = [contender for contender in asked_for if contender.version() is not None]
    repeats, disturbed, problems = repeat(bench, able, setting, asked)
    for contender in asked_for:
        if contender not in able:
            lines.append(f"| {contender.name} | not installed: {contender.install} |")
        elif contender.name in problems:
            lines.append(f"| {contender.name} | no number: {problems[contender.name]} |")
        else:
            lines.append(row([(runs[contender.name], runs.get(Floor.name)) for runs in repeats], contender.name))
    for session in (one.name for one in able if isinstance(one, Session)):
        echo = session.removesuffix(", session")
        pairs = [(runs[session], runs[echo]) for runs in repeats if session in runs and echo in runs]
        if pairs:
            found = ratio([(one.window_cpu_ns_per_message, other.window_cpu_ns_per_message) for one, other in pairs])
            lines.append(f"\n{session}: a message costs {found} times the CPU time of an echo's.")
    if disturbed:
        taken = f"{disturbed} repeats were thrown away, for other processes took more than {DISTURBED:.0%} of a CPU"
        lines.append(f"\n{taken}; {len(repeats)} of {asked.repeats} are left.")
    return lines


def repeat(bench: Bench, contenders: list, setting: Setting, asked: argparse.Namespace):
    """Every contender's run by name, for each undisturbed repeat; the number of disturbed ones; and the
    reasons of contenders that gave no number, which ends their repeats."""
    repeats: list[dict[str, Measured]] = []
    disturbed = 0
    problems: dict[str, str] = {}
    while len(repeats) < asked.repeats and disturbed < asked.repeats:
        print(f"{setting.name}: repeat {len(repeats) + 1} of {asked.repeats}", file=sys.stderr)
        runs: dict[str, Measured] = {}
        for contender in random.sample(contenders, len(contenders)):
            if contender.name in problems:
                continue
            try:
                runs[contender.name] = bench.measure(contender, bench.run(setting, asked.seconds))
            except NoNumber as reason:
                problems[contender.name] = str(reason)
        if any(run.cost.others_busy > DISTURBED for run in runs.values()):
            disturbed += 1
        else:
            repeats.append(runs)
    return [runs for runs in repeats if runs], disturbed, problems


def row(pairs: list[tuple[Measured, Measured | None]], name: str) -> str:
    """A contender's cells, from its run and the floor's in every repeat."""
    if not pairs:
        return f"| {name} | no number: the machine was never quiet |"
    runs = [run for run, _ in pairs]
    cells = [
        name,
        quartiles([run.said.rate_per_s for run in runs]),
        quartiles([run.cpu_ns_per_message for run in runs]),
        ratio([(run.cpu_ns_per_message, floor and floor.cpu_ns_per_message) for run, floor in pairs]),
        quartiles([run.user_ns_per_message for run in runs]),
        quartiles([run.window_cpu_ns_per_message for run in runs]),
        ratio([(run.window_cpu_ns_per_message, floor and floor.window_cpu_ns_per_message) for run, floor in pairs]),
        f"{statistics.median(run.cost.server_busy for run in runs):.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def quartiles(values: list[float | None]) -> str:
    if None in values:
        return "–"
    if len(values) < 2:
        return f"{values[0]:,.0f}"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:,.0f} ({low:,.0f}–{high:,.0f})"


def ratio(pairs: list[tuple[float | None, float | None]]) -> str:
    """Median and range of value over floor, if every repeat has both."""
    if any(None in pair for pair in pairs):
        return "–"
    ratios = [value / floor for value, floor in pairs]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (UserError, subprocess.SubprocessError) as error:
        sys.exit(f"compare.py: {error}")

"""A load while it runs: the last minute of its rate and p99, the CPU use of both sides, and whether it is still valid.

It follows the files that the engine appends to, and asks the sampler once a second. What it says of the machine is what the verdict
would say by then. It starts nothing.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from rich.console import Group
from rich.text import Text

from wsbench.cli.terminal import COLOUR, Redrawn, console, duration, progress, shown
from wsbench.engine.histogram import Interval, parse_line
from wsbench.metrics import host_checks
from wsbench.metrics.findings import Finding, Kind, worst
from wsbench.metrics.limits import beyond
from wsbench.metrics.tracks import MachineTrace, by_tree, cpu_s
from wsbench.monitoring.sampler import Sampler
from wsbench.records.engine_files import Tick, parse_event, summed
from wsbench.records.frozen import Tail
from wsbench.records.plain import line, time_text
from wsbench.records.rundir import TrialFolder
from wsbench.records.samples import MachineSample, ProcessSample, Sample, SamplerCost

NS_PER_S = 1e9
#: Latencies: the first of these that the last second has is shown.
SHOWN = ("response", "push", "request", "service")
#: Seconds that are drawn, and the shortest stretch that is one of them.
MOST, SHORTEST_S = 60, 0.9
#: For a terminal with all characters, and for one with ASCII only.
LEVELS, LAMP = ("▁▂▃▄▅▆▇█", "_.-=+*#@"), ("●", "*")
#: Widths of a row's name and of its value.
NAME, VALUE = 10, 9


class LoadView(Redrawn):
    """Reads a running load several times a second. It draws on a terminal, writes one line a second elsewhere, or nothing if
    quiet. `plan_seconds`: of the measured window, if it is limited by time."""

    def __init__(self, plan_seconds: float | None, quiet: bool) -> None:
        super().__init__()
        self._seconds = plan_seconds
        self._quiet = quiet
        self._files: list[tuple[Tail, Tail]] = []
        self._at: dict[int, list[Tick]] = {}
        self._shown: Tick | None = None
        self._measure: Tick | None = None
        self._measure_ns: int | None = None
        self._latest: dict[str, Interval] = {}
        self._rates: deque[float] = deque(maxlen=MOST)
        self._tails: deque[float] = deque(maxlen=MOST)
        self._threads: int | None = None
        self._sides = Sides()

    def say(self, text: str) -> None:
        if not self._quiet:
            progress.print(shown(text))

    def look(self, folder: TrialFolder, sampler: Sampler) -> None:
        if self._quiet:
            return
        if not self._files:
            parts = folder.parts() or [folder]
            self._files = [(Tail(part.path / "events.jsonl"), Tail(part.latency_log)) for part in parts]
        if self._threads is None and (plan := folder.plan) is not None:
            self._threads = None if plan.busy_poll else plan.threads
        for events, log in self._files:
            # The engine writes a tick before its latencies: what is read in the other order belongs together.
            lines = events.new_lines()
            for text in log.new_lines():
                if (interval := parse_line(text)) is not None:
                    self._keep(interval)
            for text in lines:
                event = parse_event(text)
                if event.event == "phase" and event.phase == "measure":
                    self._measure_ns = event.t_ns
                if isinstance(event, Tick):
                    self._tick(event, sampler)

    def _keep(self, interval: Interval) -> None:
        """Adds it to what its tag has of this second."""
        known = self._latest.get(interval.tag)
        if known is not None:
            interval = replace(interval, histogram=known.histogram + interval.histogram)
        self._latest[interval.tag] = interval

    def _tick(self, tick: Tick, sampler: Sampler) -> None:
        """Shown once all processes have written their tick of that instant."""
        here = self._at.setdefault(tick.t_ns, [])
        here.append(tick)
        if len(here) < len(self._files):
            return
        self._at = {t_ns: ticks for t_ns, ticks in self._at.items() if t_ns > tick.t_ns}
        now, before = summed(tick.t_ns, here), self._shown
        seconds = 0.0 if before is None else (now.t_ns - before.t_ns) / NS_PER_S
        if before is not None and seconds < SHORTEST_S and now.phase == before.phase:
            return
        if before is None or now.phase != before.phase:
            self._sides.begin()
            self._measure = now
        self._shown = now
        self._sides.look(sampler)
        if before is not None and seconds >= SHORTEST_S:
            self._show(before, now, seconds, sampler)

    def _show(self, before: Tick, now: Tick, seconds: float, sampler: Sampler) -> None:
        rate = (now.answered - before.answered) / seconds
        times = self._times(now.phase)
        self._rates.append(rate)
        self._tails.append(times.get("p99", 0))
        head = {"open": f"{now.open:,}", "failed": f"{now.failed:,}", "left": self._left(now)}
        rest = {name: time_text(ns) for name, ns in times.items() if name != "p99"}
        cpu = {name: f"{share:.0%}" for name, share in self._sides.shares().items()}
        kind, why = self._lamp(now, sampler)
        if not sys.stdout.isatty():
            sent = {"sent/s": f"{(now.sent - before.sent) / seconds:,.0f}", "answered/s": f"{rate:,.0f}"}
            all_times = {name: time_text(ns) for name, ns in times.items()}
            cells = {"open": head.pop("open"), **sent, **all_times, **head, **cpu}
            told = [
                f"phase {now.phase}",
                *(f"{name} {text}" for name, text in cells.items() if text),
                *([f"{kind}: {why}"] if why else []),
            ]
            progress.print(shown(", ".join(told)))
            return
        self.show(
            Group(
                _words({"": now.phase, **head}, "red" if now.failed else ""),
                _spark("answered/s", f"{rate:,.0f}", self._rates),
                _spark("p99", time_text(times["p99"]) if times else "", self._tails),
                _words(rest | {f"{name} CPU": share for name, share in cpu.items()}),
                Text(line(f"{LAMP[console.options.ascii_only]} {kind} so far{f': {why}' if why else ''}"), COLOUR[kind]),
            )
        )

    def _times(self, phase: str) -> dict[str, int]:
        """p50, p99 and maximum of the last second in ns; nothing if it had none."""
        prefix = "warmup-" if phase == "warmup" else ""
        found = next((self._latest[prefix + tag] for tag in SHOWN if prefix + tag in self._latest), None)
        self._latest.clear()
        if found is None or not found.histogram.count:
            return {}
        of = found.histogram
        return {"p50": of.quantile("0.5"), "p99": of.quantile("0.99"), "max": of.max}

    def _left(self, tick: Tick) -> str:
        if self._measure_ns is None or self._seconds is None or tick.phase != "measure":
            return ""
        return duration(max(0.0, self._seconds - (tick.t_ns - self._measure_ns) / NS_PER_S))

    def _lamp(self, now: Tick, sampler: Sampler) -> tuple[Kind, str]:
        """The word so far in this phase, and what spoils it."""
        found: list[tuple[Kind, str]] = [(one.kind, one.seen) for one in self._sides.findings(sampler)]
        began, seconds = self._measure, (now.t_ns - self._measure.t_ns) / NS_PER_S
        if self._threads is not None and seconds > 0:
            busy = (now.cpu_ns - began.cpu_ns) / NS_PER_S / seconds / self._threads
            if beyond("engine_busy", busy):
                found.append(("SUSPECT", f"the engine is {busy:.0%} busy: what it measures is a lower bound"))
            if None not in (now.wait_ns, began.wait_ns):
                waits = (now.wait_ns - began.wait_ns) / NS_PER_S / seconds / self._threads
                if kind := beyond("wait_share", waits):
                    found.append((kind, f"the engine waits for a CPU {waits:.0%} of the time"))
        kind = worst(kind for kind, _ in found)
        return kind, next((why for of, why in found if of == kind), "")


class Sides:
    """CPU use of the server, of the engine and of other programs since a phase began."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []

    def begin(self) -> None:
        self._samples.clear()

    def look(self, sampler: Sampler) -> None:
        self._samples += sampler.now()

    def shares(self) -> dict[str, float]:
        """Of one CPU, in the last second, by side."""
        trees = by_tree([one for one in self._samples if isinstance(one, ProcessSample)])
        found = {}
        for side in ("server", "engine"):
            if len(last := trees[side][-2:]) == 2:
                before, after = last
                found[side] = (cpu_s(after) - cpu_s(before)) * NS_PER_S / (after.t_ns - before.t_ns)
        return found

    def findings(self, sampler: Sampler) -> list[Finding]:
        """What the verdict would say of the machine."""
        machine = [one for one in self._samples if isinstance(one, MachineSample)]
        trees = by_tree([one for one in self._samples if isinstance(one, ProcessSample)])
        costs = [one for one in self._samples if isinstance(one, SamplerCost)]
        if len(machine) < 2:
            return []
        trace = MachineTrace(machine, trees, costs, complete=bool(trees["server"] and trees["engine"]))
        found = list(host_checks.so_far(trace))
        if found:
            found = list(host_checks.so_far(replace(trace, programs=sampler.other_programs())))
        return found


def _row(text: str, style: str = "") -> Text:
    return Text(line(text), style, no_wrap=True, overflow="ellipsis")


def _words(cells: dict[str, str], style: str = "") -> Text:
    return _row("  ".join(f"{name} {text}".strip() for name, text in cells.items() if text), style)


def _spark(name: str, value: str, numbers: Iterable[float]) -> Text:
    """Name, value, and as many of the last numbers as the terminal has room for, from 0 to the largest."""
    levels = LEVELS[console.options.ascii_only]
    last = list(numbers)[-max(1, console.width - NAME - VALUE - 4) :]
    most = max(last) or 1
    drawn = "".join(levels[round(number / most * (len(levels) - 1))] for number in last)
    return _row(f"{name:{NAME}}  {value:>{VALUE}}  {drawn}")

"""A load while it runs: the last minute of its rate and p99, the CPU use of both sides, and whether it is still valid.

It follows the files that the engine appends to, and samples the machine once a second. What it says of the machine is what the
verdict would say by then.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from rich.console import Group
from rich.text import Text

from wsbench.cli.terminal import COLOUR, Redrawn, console, duration, is_drawn, progress, shown
from wsbench.engine import histogram
from wsbench.engine.histogram import Interval, parse_line
from wsbench.metrics import host_checks
from wsbench.metrics.findings import Finding, Kind, worst
from wsbench.metrics.limits import beyond
from wsbench.metrics.tracks import MachineTrace, by_tree, cpu_s
from wsbench.monitoring import kernel, programs
from wsbench.monitoring.sampler import Sampler, Tree
from wsbench.records.engine_files import Tick, parse_event, summed
from wsbench.records.frozen import Tail
from wsbench.records.plain import line, time_text
from wsbench.records.rundir import TrialFolder
from wsbench.records.samples import MachineSample, ProcessSample, ProgramsSample, Sample, SamplerCost

NS_PER_S = 1e9
#: Latencies: the first of these that the last second has is shown.
SHOWN = ("response", "push", "request", "service")
#: How often the files are read.
LOOK_S = 0.2
#: How long is waited for the view once the load has ended.
END_S = 5.0
#: The log has times to a millisecond, and processes begin one after another.
SLACK_S = 0.1
#: Seconds that are drawn, and the shortest stretch that is one of them.
MOST, SHORTEST_S = 60, 0.9
#: For a terminal with all characters, and for one with ASCII only.
LEVELS, LAMP = ("▁▂▃▄▅▆▇█", "_.-=+*#@"), ("●", "*")
#: Widths of a row's name and of its value.
NAME, VALUE = 10, 9


@dataclass(frozen=True)
class Told:
    """What the view of a load is told of it. `cpus`: those of server and engine; empty if either may use all."""

    folder: Path
    server: list[int]
    engine: list[int]
    cpus: list[int]


class LoadView:
    """Shows a running load in a process of its own, which gets a CPU only where nobody else wants one: what is measured comes
    first. Drawn by the harness itself, once a second, it raised p99 by half. On a terminal it draws, elsewhere it writes one line a
    second; nothing if `quiet`. `plan_seconds`: of the measured window, if it is limited by time."""

    def __init__(self, plan_seconds: float | None, quiet: bool) -> None:
        self._quiet, self._told = quiet, None
        forking = multiprocessing.get_context("fork")
        here, there = forking.Pipe()
        self._pipe, self._process = here, forking.Process(target=_show, args=(there, here, plan_seconds), daemon=True)

    def __enter__(self) -> LoadView:
        if not self._quiet:
            self._process.start()
        return self

    def __exit__(self, *_) -> None:
        if self._quiet:
            return
        self._pipe.close()
        with contextlib.suppress(OSError):  # not everybody may; a busy machine then ends it later
            os.sched_setscheduler(self._process.pid, os.SCHED_OTHER, os.sched_param(0))
        self._process.join(END_S)
        if self._process.exitcode is None:
            self._process.kill()
            console.show_cursor()

    def say(self, text: str) -> None:
        """A line before the load."""
        if not self._quiet:
            progress.print(shown(text))

    def look(self, folder: TrialFolder, sampler: Sampler) -> None:
        """Called from time to time. `sampler` knows the processes."""
        if self._quiet:
            return
        told = Told(folder.path, sampler.server_pids, sampler.engine_pids, sorted(sampler.cpus))
        if told != self._told:
            self._told = told
            sampler.run_beside(self._process.pid)
            with contextlib.suppress(OSError):  # a view that has ended ends no load
                self._pipe.send(told)


def _show(pipe: Connection, parents: Connection, plan_seconds: float | None) -> None:
    """The process of the view, until the load has ended or its process is gone."""
    parents.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with View(plan_seconds) as view:
        with contextlib.suppress(EOFError):
            while True:
                if pipe.poll(LOOK_S):
                    view.tell(pipe.recv())
                view.look()
        view.look()


class View(Redrawn):
    """Reads the files of a running load, and shows each second of it."""

    def __init__(self, plan_seconds: float | None) -> None:
        super().__init__()
        self._seconds = plan_seconds
        self._folder: TrialFolder | None = None
        self._files: list[tuple[Tail, Tail]] = []
        self._at: dict[int, list[Tick]] = {}
        self._shown: Tick | None = None
        self._begun: Tick | None = None
        self._begins: dict[str, int] = {}
        #: Intervals of the log that have not been shown.
        self._waiting: list[Interval] = []
        self._rates: deque[float] = deque(maxlen=MOST)
        self._tails: deque[float] = deque(maxlen=MOST)
        self._threads: int | None = None
        self._sides = Sides()

    def tell(self, told: Told) -> None:
        self._folder = TrialFolder(told.folder)
        self._sides.tell(told)

    def look(self) -> None:
        if self._folder is None:
            return
        if not self._files:
            parts = self._folder.parts() or [self._folder]
            self._files = [(Tail(part.path / "events.jsonl"), Tail(part.latency_log)) for part in parts]
            plan = self._folder.plan
            self._threads = None if plan is None or plan.busy_poll else plan.threads
        for events, log in self._files:
            # The engine writes a tick before its latencies: what is read in the other order belongs together.
            lines = events.new_lines()
            for text in log.new_lines():
                if (interval := parse_line(text)) is not None:
                    self._waiting.append(interval)
            for text in lines:
                event = parse_event(text)
                if event.event == "phase":
                    self._begins.setdefault(event.phase, event.t_ns)
                if isinstance(event, Tick):
                    self._tick(event)

    def _tick(self, tick: Tick) -> None:
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
            self._begun = now
        self._shown = now
        self._sides.look()
        if before is not None and seconds >= SHORTEST_S:
            self._show(before, now, seconds)

    def _show(self, before: Tick, now: Tick, seconds: float) -> None:
        rate = (now.answered - before.answered) / seconds
        times = self._times(now)
        self._rates.append(rate)
        self._tails.append(times.get("p99", 0))
        head = {"open": f"{now.open:,}", "failed": f"{now.failed:,}", "left": self._left(now)}
        rest = {name: time_text(ns) for name, ns in times.items() if name != "p99"}
        cpu = {name: f"{share:.0%}" for name, share in self._sides.shares().items()}
        kind, why = self._lamp(now)
        if not is_drawn():
            sent = {"sent/s": f"{(now.sent - before.sent) / seconds:,.0f}", "answered/s": f"{rate:,.0f}"}
            all_times = {name: time_text(ns) for name, ns in times.items()}
            cells = {"open": head.pop("open"), **sent, **all_times, **head, **cpu}
            told = [f"phase {now.phase}", *(f"{name} {text}" for name, text in cells.items() if text)]
            told += [f"{kind} so far: {why}"] if kind and why else []
            with contextlib.suppress(OSError):
                progress.print(shown(", ".join(told)))
            return
        lamp = LAMP[console.options.ascii_only]
        says = f"{lamp} {kind} so far{f': {why}' if why else ''}" if kind else f"{lamp} {why}"
        self.show(
            Group(
                # What a low terminal cuts off stands last.
                Text(line(says), COLOUR[kind] if kind else "dim"),
                _words({"": now.phase, **head}, "red" if now.failed else ""),
                _spark("answered/s", f"{rate:,.0f}", self._rates),
                _spark("p99", time_text(times["p99"]) if times else "", self._tails),
                _words(rest | {f"{name} CPU": share for name, share in cpu.items()}),
            )
        )

    def _times(self, now: Tick) -> dict[str, int]:
        """p50, p99 and maximum in ns of what was recorded since the last time and up to this tick; nothing if there was nothing."""
        until_s = (now.t_ns - min(self._begins.values(), default=0)) / NS_PER_S + SLACK_S
        due = [one for one in self._waiting if one.start_s + one.length_s <= until_s]
        self._waiting = [one for one in self._waiting if one.start_s + one.length_s > until_s]
        merged = histogram.merge(due)
        prefix = "warmup-" if now.phase == "warmup" else ""
        of = next((merged[prefix + tag] for tag in SHOWN if prefix + tag in merged), None)
        if of is None or not of.count:
            return {}
        return {"p50": of.quantile("0.5"), "p99": of.quantile("0.99"), "max": of.max}

    def _left(self, tick: Tick) -> str:
        if "measure" not in self._begins or self._seconds is None or tick.phase != "measure":
            return ""
        return duration(max(0.0, self._seconds - (tick.t_ns - self._begins["measure"]) / NS_PER_S))

    def _lamp(self, now: Tick) -> tuple[Kind | None, str]:
        """The word so far in this phase, and what spoils it."""
        found: list[tuple[Kind, str]] = [(one.kind, one.seen) for one in self._sides.findings()]
        began, seconds = self._begun, (now.t_ns - self._begun.t_ns) / NS_PER_S
        if self._threads is not None and seconds > 0:
            busy = (now.cpu_ns - began.cpu_ns) / NS_PER_S / seconds / self._threads
            if beyond("engine_busy", busy):
                found.append(("SUSPECT", f"the engine is {busy:.0%} busy: what it measures is a lower bound"))
            if None not in (now.wait_ns, began.wait_ns):
                waits = (now.wait_ns - began.wait_ns) / NS_PER_S / seconds / self._threads
                if kind := beyond("wait_share", waits):
                    found.append((kind, f"the engine waits for a CPU {waits:.0%} of the time"))
        if not found and self._sides.known_s < host_checks.SHORTEST_S:
            return None, "not yet known"
        kind = worst(kind for kind, _ in found)
        return kind, next((why for of, why in found if of == kind), "")


class Sides:
    """CPU use of the server, of the engine and of other programs since a phase began."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._trees: list[Tree] = []
        self._machine = kernel.Machine()
        self._began_ns = time.monotonic_ns()
        self._programs = programs.used()
        self._ours = {os.getpid(), os.getppid()}
        self._cost_before = self._cost_ns()
        self._last: list[Sample] = []

    def tell(self, told: Told) -> None:
        self._trees = [Tree(of, *pids) for of, pids in (("server", told.server), ("engine", told.engine)) if pids]
        self._machine = kernel.Machine(told.cpus)
        self._samples, self._last = [], []

    def begin(self) -> None:
        """A phase begins: with the last look."""
        self._samples = self._last

    def look(self) -> None:
        spent_ns = self._cost_ns() - self._cost_before
        cost = SamplerCost(t_ns=time.monotonic_ns(), of="sampler", began_ns=self._began_ns, cpu_ns=spent_ns)
        # The machine before and after: the trees are then known for the whole stretch between two looks.
        samples = [self._machine.sample(), *(tree.sample() for tree in self._trees), self._machine.sample()]
        self._last = [*filter(None, samples), cost]
        self._samples = [*self._samples, *self._last]

    def _cost_ns(self) -> int:
        """CPU time of wsbench itself so far."""
        return sum(kernel.cpu_clock_ns(pid) or 0 for pid in self._ours)

    @property
    def known_s(self) -> float:
        """How long the phase has been looked at."""
        engine = [one for one in self._samples if isinstance(one, ProcessSample) and one.of == "engine"]
        return (engine[-1].t_ns - engine[0].t_ns) / NS_PER_S if engine else 0.0

    def shares(self) -> dict[str, float]:
        """Of one CPU, in the last second, by side."""
        return shares(self._samples)

    def findings(self) -> list[Finding]:
        """What the verdict would say of the machine, with the programs that used most."""
        if not findings(self._samples):
            return []
        pids = {pid for tree in self._trees for pid in tree.pids}
        return findings(self._samples, programs.since(self._began_ns, self._programs, self._ours | pids))


def shares(samples: list[Sample]) -> dict[str, float]:
    trees = by_tree([one for one in samples if isinstance(one, ProcessSample)])
    found = {}
    for side in ("server", "engine"):
        if len(last := trees[side][-2:]) == 2:
            before, after = last
            found[side] = (cpu_s(after) - cpu_s(before)) * NS_PER_S / (after.t_ns - before.t_ns)
    return found


def findings(samples: list[Sample], used: ProgramsSample | None = None) -> list[Finding]:
    """What the verdict would say of the machine. `used`: what other programs have used, to be named."""
    machine = [one for one in samples if isinstance(one, MachineSample)]
    trees = by_tree([one for one in samples if isinstance(one, ProcessSample)])
    costs = [one for one in samples if isinstance(one, SamplerCost)]
    complete = bool(trees["server"] and trees["engine"])
    return list(host_checks.so_far(MachineTrace(machine, trees, costs, complete, used))) if len(machine) > 1 else []


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

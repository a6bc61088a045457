"""Reads a campaign into `Results`: every trial's files once, a server and cell at a time, on all CPUs where there are many.

A run directory in, frozen values out. Histograms are let go as soon as a server and cell is reduced, so that ten thousand
trials fit into memory. What is drawn over time is read again for the few trials that are drawn (`timelines`).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

from wsbench import metrics
from wsbench.analysis.results import Cell, Curve, Results, TrialResult, read_experiment
from wsbench.engine import histogram
from wsbench.metrics.timeline import Timeline, timeline
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records.errors import UserError
from wsbench.records.rundir import RunFolder, TrialFolder

WORTH_PROCESSES = 300  # trials; below it, starting processes takes longer than reading
CURVE_POINTS = 60
EVENLY = [Fraction(step, 20) for step in range(1, 18)]


@dataclass(frozen=True)
class Group:
    """The finished trials of a server in a cell. `kinds` are the (scenario, connection per request) of their plans."""

    trials: list[TrialResult]
    curve: Curve | None
    kinds: set[tuple[str, bool]]

    @property
    def control(self) -> bool:
        return any(trial.record.control for trial in self.trials)


def load(run: RunFolder) -> Results:
    """Reads a whole campaign, finished or not."""
    order = run.order
    if len({frozenset(planned.cell) for planned in order}) > 1:
        raise UserError(f"{run.path / 'order.json'}: its cells differ in what was swept")
    numbers: dict[tuple[str, Cell], list[int]] = {}
    for planned in order:
        numbers.setdefault((planned.name, tuple(planned.cell.items())), []).append(planned.number)
    tasks = [[run.trial(number) for number in of_one] for of_one in numbers.values()]
    groups = dict(zip(numbers, _groups(tasks, len(order)), strict=True))
    trials = sorted((trial for group in groups.values() for trial in group.trials), key=lambda one: one.record.number)
    kinds = set().union(*(group.kinds for group in groups.values()))
    return Results(
        folder=run,
        campaign=run.campaign,
        machine=run.machine if (run.path / "machine.json").exists() else None,
        machine_after=run.machine_after,
        hosts=run.hosts,
        servers=run.servers if (run.path / "servers.json").exists() else [],
        order=order,
        experiment=read_experiment(run),
        trials=[trial for trial in trials if not trial.record.control],
        control_trials=[trial for trial in trials if trial.record.control],
        curves={key: group.curve for key, group in groups.items() if group.curve is not None and not group.control},
        per_request=bool(kinds) and all(per_request for _, per_request in kinds),
        doc=bool(kinds) and all(kind == "doc" for kind, _ in kinds),
        push=bool(kinds) and all(kind == "push" for kind, _ in kinds),
    )


def timelines(results: Results, chosen: Iterable[TrialResult]) -> list[Timeline | None]:
    """What happened within these trials, in their order; None where a trial told nothing."""
    return [_read_timeline(results.folder.trial(trial.record.number)) for trial in chosen]


def _groups(tasks: list[list[TrialFolder]], trials: int) -> list[Group]:
    workers = len(os.sched_getaffinity(0))
    if trials < WORTH_PROCESSES or workers == 1:
        return [_read_group(task) for task in tasks]
    chunk = max(1, len(tasks) // (8 * workers))
    context = multiprocessing.get_context("fork")
    # What a worker was born with is never garbage, and what it reads has no circles: nobody need look for them again and again.
    with ProcessPoolExecutor(workers, context, initializer=gc.freeze) as pool, without_collections():
        return list(pool.map(_read_group, tasks, chunksize=chunk))


@contextmanager
def without_collections() -> Iterator[None]:
    """Nobody looks for circles of garbage meanwhile: what a report is made of has none, and looking through it takes seconds."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _read_group(folders: list[TrialFolder]) -> Group:
    trials, kinds, pooled = [], set(), None
    for folder in folders:
        if (record := folder.record) is None:
            continue
        data = TrialData(folder, record)
        if data.plan is not None:
            kinds.add((data.plan.scenario.kind, data.connection_per_request))
        found = metrics.measure(data)
        trial = TrialResult(record, found.values, found.reasons, verdict(data), data.plan)
        trials.append(trial)
        if trial.counts and data.times is not None:
            pooled = data.times if pooled is None else pooled + data.times
    if pooled is None or not pooled.count:
        return Group(trials, None, kinds)
    return Group(trials, Curve(pooled.count, curve_points(pooled), histogram.encode(pooled)), kinds)


def curve_points(found: histogram.Histogram, points: int = CURVE_POINTS) -> list[tuple[float, float]]:
    """(1/(1-q), ns), the x of an HdrHistogram chart, with as many below the median as a distribution needs besides.

    The largest value stands at x = n: there it becomes one.
    """
    even = zip(map(float, EVENLY), found.quantiles(EVENLY), strict=True)
    curve = sorted({*found.curve(points), *even})
    return [(1 / (1 - q) if q < 1 else max(2.0, float(found.count)), float(value)) for q, value in curve]


def _read_timeline(folder: TrialFolder) -> Timeline | None:
    record = folder.record
    return None if record is None else timeline(TrialData(folder, record))

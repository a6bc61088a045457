"""Computes a data set from raw trials: reads every file once, one server and cell at a time, on all CPUs if there are many trials.

In: a run folder. Out: a `DataSet`. Histograms are dropped once a server and cell is pooled, so that ten thousand trials fit into
memory.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from wsbench import metrics
from wsbench.analysis.dataset import DataSet, Key, Latencies, TrialResult, columns, of_histogram, reported_tag
from wsbench.engine import histogram
from wsbench.metrics import capacities, ladder
from wsbench.metrics.findings import Verdict
from wsbench.metrics.ladder import Step
from wsbench.metrics.timeline import Timeline, timeline
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.unmeasured import Unmeasured
from wsbench.metrics.verdict import verdict
from wsbench.records import contained
from wsbench.records.engine_files import Plan
from wsbench.records.rundir import RunFolder, TrialFolder, TrialRecord

#: Receives how many of how many trials have been read.
Tell = Callable[[int, int], None]
#: The folder in which the package lies.
WHERE = Path(__file__).resolve().parents[2]
#: `from wsbench.x import a, b` on one line or in parentheses. `ruff` (I001) keeps imports in this form.
IMPORT = re.compile(r"^ *from (wsbench[\w.]*) import (\([^)]*\)|[^\n]*)$", re.MULTILINE)
WORTH_PROCESSES = 300  # trials; below it, starting processes takes longer than reading


@dataclass(frozen=True)
class _Measured:
    record: TrialRecord
    plan: Plan | None
    numbers: metrics.Numbers
    verdict: Verdict
    ladder: list[Step] | None


def measured(run: RunFolder, numbers: Iterable[int], tags: frozenset[str], tell: Tell = lambda *_: None) -> DataSet:
    """The data set of these finished trials. `tags`: latencies to pool in addition to those that describe a trial."""
    wanted = set(numbers)
    groups: dict[tuple, list[TrialFolder]] = {}
    for planned in run.order:
        if planned.number in wanted:
            groups.setdefault((planned.name, tuple(planned.cell.items())), []).append(run.trial(planned.number))
    trials: list[_Measured] = []
    latencies: dict[Key, Latencies] = {}
    with without_collections():
        for key, (found, pooled) in zip(groups, _all(list(groups.values()), len(wanted), tags), strict=True):
            trials += found
            tell(len(trials), len(wanted))
            latencies |= {(*key, tag): one for tag, one in pooled.items()}
    return _data_set(trials, latencies)


def _data_set(trials: list[_Measured], latencies: dict[Key, Latencies]) -> DataSet:
    trials = sorted(trials, key=lambda one: one.record.number)
    whole = columns(one.numbers for one in trials)
    results = [TrialResult(one.record, one.verdict, one.plan, whole, row) for row, one in enumerate(trials)]
    ladders = {one.record.number: one.ladder for one in trials if one.ladder is not None}
    return DataSet(results, whole, latencies, {}, digest(), ladders=ladders)


class Growing:
    """A data set of a campaign that is under way. Each trial is measured once, when it has ended."""

    def __init__(self, data: DataSet, tags: frozenset[str]) -> None:
        self._data, self._tags = data, tags
        self._waiting: list[tuple[_Measured, dict[str, Latencies]]] = []

    def add(self, trial: TrialData) -> TrialResult:
        """Measures a trial that has just ended."""
        (one,), pooled = _measured([trial], self._tags)
        self._waiting.append((one, pooled))
        return TrialResult(one.record, one.verdict, one.plan, columns([one.numbers]), 0)

    @property
    def data(self) -> DataSet:
        """All trials so far."""
        if self._waiting:
            latencies: dict[Key, Latencies] = {}
            for one, pooled in self._waiting:
                for tag, found in pooled.items():
                    key = (one.record.name, tuple(one.record.cell.items()), tag)
                    latencies[key] = latencies[key] + found if key in latencies else found
            self._data += _data_set([one for one, _ in self._waiting], latencies)
            self._waiting.clear()
        return self._data


def timelines(run: RunFolder, numbers: Iterable[int]) -> dict[int, Timeline]:
    """Timelines of these trials; a trial without data is left out."""
    found = {}
    for number in numbers:
        folder = run.trial(number)
        if (record := folder.record) is None:
            continue
        trial = TrialData(folder, record)
        if (line := contained.part("timeline", lambda trial=trial: timeline(trial), lambda _: None)) is not None:
            found[number] = line
    return found


@cache
def digest() -> str:
    """Digest of the code that turns raw files into numbers: this module and all of wsbench that it imports, directly or not. A data
    set of other code is recomputed if all raw files exist."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in sorted(code()))).hexdigest()[:16]


def code() -> set[Path]:
    """The files of that code."""
    found, new = set(), [Path(__file__)]
    while new:
        file = new.pop()
        if file not in found:
            found.add(file)
            new += _imported(file.read_text(encoding="utf-8"))
    return found


def _imported(source: str) -> Iterator[Path]:
    """The files of wsbench that a module imports, wherever it does: modules, and packages by their `__init__.py`."""
    for package, names in IMPORT.findall(source):
        place = WHERE.joinpath(*package.split("."))
        for one in (place, *(place / name for name in re.findall(r"\w+", names))):
            yield from (file for file in (one.with_suffix(".py"), one / "__init__.py") if file.is_file())


def _all(tasks: list[list[TrialFolder]], trials: int, tags: frozenset[str]) -> Iterator[tuple]:
    workers = len(os.sched_getaffinity(0))
    of_one = partial(_group, tags=tags)
    if trials < WORTH_PROCESSES or workers == 1:
        yield from map(of_one, tasks)
        return
    chunk = max(1, len(tasks) // (8 * workers))
    context = multiprocessing.get_context("fork")
    # Inherited objects are never garbage, and objects read by a worker have no cycles.
    with ProcessPoolExecutor(workers, context, initializer=gc.freeze) as pool:
        yield from pool.map(of_one, tasks, chunksize=chunk)


@contextmanager
def without_collections() -> Iterator[None]:
    """Pauses the cycle collector: a report's objects have no cycles, and searching for them takes seconds."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _group(folders: list[TrialFolder], tags: frozenset[str]) -> tuple[list[_Measured], dict[str, Latencies]]:
    """The finished trials of a server in a cell, and the pooled latencies of the counted ones."""
    return _measured((TrialData(folder, record) for folder in folders if (record := folder.record) is not None), tags)


def _steps(data: TrialData) -> list[Step] | None:
    """The rungs of a ladder; None for any other trial, or without its times."""
    if data.record.ladder is None or data.record.outcome == "failed":
        return None
    try:
        return ladder.steps(data.rungs, data.record.ladder.slos)
    except Unmeasured:
        return None


def _measured(of: Iterable[TrialData], tags: frozenset[str]) -> tuple[list[_Measured], dict[str, Latencies]]:
    trials: list[_Measured] = []
    pooled: dict[str, histogram.Histogram] = {}
    for data in of:
        record = data.record
        one = _Measured(record, data.plan, capacities.without_mixtures(data, metrics.measure(data)), verdict(data), _steps(data))
        trials.append(one)
        # A pooled distribution is read at its tail, and is that of one load.
        mixed = record.ladder is not None or record.follow_up is not None
        if record.outcome == "failed" or one.verdict.of("tail") == "INVALID" or record.control or mixed:
            continue
        wanted = tags if data.plan is None else tags | {reported_tag(data.plan)}
        histograms = contained.part("pooled latencies", lambda data=data: data.histograms, lambda _: {})
        for tag in wanted & histograms.keys():
            found = histograms[tag]
            pooled[tag] = pooled[tag] + found if tag in pooled else found
    return trials, {tag: of_histogram(found) for tag, found in pooled.items() if found.count}

"""The campaigns of some folders: what each one asked, how far it has come, and what it found so far.

Folders in, `Campaign`s out; every number of one comes from its `Results`, so that all pages and the report agree. It knows no page.
"""

from __future__ import annotations

import fcntl
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from wsbench import metrics
from wsbench.analysis import stats, tables
from wsbench.analysis.dataset import Cell
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results, sortable
from wsbench.records.errors import UserError
from wsbench.records.files import is_plain
from wsbench.records.rundir import CampaignRecord, RunFolder

#: Shown beside the headline.
USUAL = (
    *("messages_per_s", "requests_per_s", "service_us_p50", "service_us_p99"),
    *("push_us_p50", "push_us_p99", "server_cpu_us_per_message"),
)
#: Files and addresses are called after an experiment, and a campaign may come from anybody.
IS_NAME = re.compile(r"[^./\x00][^/\x00]*")
#: Files that a campaign's results are made of.
READ = (*tables.FILES, "campaign.json", "order.json", "experiment.toml", "servers.json", "machine.json")
MOST_KEPT = 256


@dataclass(frozen=True)
class Line:
    """A server in a cell, over the trials that count."""

    server: str
    cell: Cell
    trials: int
    found: dict[str, stats.Estimate]

    @property
    def cell_text(self) -> str:
        return ", ".join(
            f"{key.replace('_', ' ')} {value:,}" if type(value) is int else f"{key} {value}" for key, value in self.cell
        )


@dataclass(frozen=True)
class Campaign:
    """One run directory. `id` is its folder's name under the name of the folder it was found in."""

    id: str
    run: RunFolder
    record: CampaignRecord
    planned: int

    @property
    def experiment(self) -> str:
        return self.record.experiment

    @property
    def created(self) -> str:
        return datetime.fromtimestamp(self.record.created_unix_s, UTC).strftime("%Y-%m-%d %H:%M")

    @cached_property
    def results(self) -> Results:
        return _results(self.run, self.running)

    @property
    def question(self) -> str | None:
        return self.results.experiment.question

    @property
    def reading(self) -> str | None:
        return self.results.experiment.reading

    @property
    def headline(self) -> str:
        return self.results.headline

    @property
    def report(self) -> Path | None:
        file = self.run.path / "report.html"
        return file if is_plain(file) else None

    @property
    def running(self) -> bool:
        """Whether a wsbench is at it now: it holds the lock."""
        lock = self.run.path / ".lock"
        if not is_plain(lock):
            return False
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    @cached_property
    def problem(self) -> str | None:
        """Why its numbers cannot be shown; None where they can."""
        try:
            _ = self.created, self.verdicts
        except UserError as error:
            return str(error)
        # Whatever a campaign from elsewhere holds, the others do not suffer from it.
        except Exception as error:
            return f"{self.run.path}: {type(error).__name__}: {error}"
        return None

    @property
    def trials(self) -> int:
        """Finished ones, the control's among them."""
        return len(self.results.every_trial)

    @cached_property
    def verdicts(self) -> Counter:
        """Of the trials that the report tells of: without the control's."""
        trials = self.results.trials
        return Counter("failed" if one.record.outcome == "failed" else one.verdict.kind for one in trials)

    def lines(self, names: list[str] | None = None) -> list[Line]:
        """Every server and cell that has a finished trial, with the metrics shown or those named; the best in the first first."""
        results, names = self.results, names or self.shown
        best = -1 if metrics.METRICS[names[0]].direction == "higher" else 1
        lines = [
            Line(server, cell, len(trials), {name: results.estimate(server, cell, name) for name in names})
            for cell in results.cells
            for server in results.names
            if (trials := results.group(server, cell))
        ]

        def place(line: Line) -> tuple:
            mean = line.found[names[0]].mean
            return [sortable(value) for _, value in line.cell], mean is None, best * (mean or 0)

        return sorted(lines, key=place)

    @property
    def shown(self) -> list[str]:
        """The metrics that its pages show, the headline first."""
        return list(dict.fromkeys([self.headline, *USUAL]))

    def columns(self) -> list[str]:
        """Of the metrics shown, those that some trial has."""
        results = self.results
        return [name for name in self.shown if not np.isnan(results.columns.of(name, results.rows)).all()]

    def now(self) -> str | None:
        """What the trial under way is doing, in words; None where nothing runs."""
        if not self.running:
            return None
        done = self.results.data.numbers
        for planned in self.run.order:
            if planned.number not in done:
                last = self.run.trial(planned.number).latest()
                cell = " ".join(f"{key}={value}" for key, value in planned.cell.items())
                said = "starting" if last is None else f"{last.phase}: {last.open:,} open, {last.answered:,} answered"
                return " · ".join(text for text in (f"trial {planned.number}", planned.name, cell, said) if text)
        return "writing the report"


_read: dict[Path, tuple[tuple, int, Results]] = {}


def _results(run: RunFolder, running: bool) -> Results:
    """The campaign as it is now. What was read before is read again only where its files have changed, and of a running campaign
    only the trials that have ended since."""
    state = tuple(file.stat().st_mtime_ns if is_plain(file) else 0 for file in map(run.path.joinpath, READ))
    kept = all(is_plain(run.path / name) for name in tables.FILES) and not running
    finished = 0 if kept or run.packed else len(run.finished_numbers())
    before, count, results = _read.get(run.path, ((), 0, None))
    if before != state or count != finished:
        results = load(run, known=results.data if before == state else None)
        _read.pop(run.path, None)
        _read[run.path] = state, finished, results
        if len(_read) > MOST_KEPT:
            _read.pop(next(iter(_read)))
    return results


def find(folders: list[Path]) -> list[Campaign]:
    """The campaigns under these folders that can be read, newest first."""
    return look(folders)[0]


def look(folders: list[Path]) -> tuple[list[Campaign], list[str]]:
    """The same, and a line for each that is broken and has no numbers to show."""
    found, broken = [], []
    for folder in folders:
        for file in sorted(folder.glob("*/campaign.json")):
            run = RunFolder(file.parent)
            try:
                one = Campaign(f"{folder.resolve().name}/{run.path.name}", run, run.campaign, len(run.order))
            except UserError as error:
                broken.append(str(error))
                continue
            if not IS_NAME.fullmatch(one.experiment):
                broken.append(f"{run.path}: its experiment is called {one.experiment!r}, which no file can be")
            elif one.problem is not None:
                broken.append(one.problem)
            else:
                found.append(one)
    return sorted(found, key=lambda one: one.record.created_unix_s, reverse=True), broken


def metrics_in_common(campaigns: list[Campaign]) -> list[str]:
    """What all of these campaigns have measured, the first one's headline first."""
    return [name for name in campaigns[0].columns() if all(name in other.columns() for other in campaigns[1:])]


def overlay(campaigns: list[Campaign], metric: str) -> list[tuple[Cell, str, list[tuple[Campaign, stats.Estimate]]]]:
    """(cell, server, what each campaign that has the metric there found)."""
    rows: dict[tuple[Cell, str], list[tuple[Campaign, stats.Estimate]]] = {}
    for campaign in campaigns:
        for line in campaign.lines():
            if line.found[metric].mean is not None:
                rows.setdefault((line.cell, line.server), []).append((campaign, line.found[metric]))
    return [(cell, server, found) for (cell, server), found in rows.items()]

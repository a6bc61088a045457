"""The campaigns in some folders: question, progress and results so far of each.

In: folders. Out: `Campaign`s. All their numbers come from `Results`, so all pages and the report agree. Knows no page.
"""

from __future__ import annotations

import errno
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from wsbench import metrics
from wsbench.analysis import stats, tables
from wsbench.analysis.dataset import Cell, sortable
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results
from wsbench.records import lock, plain
from wsbench.records.errors import UserError
from wsbench.records.files import is_plain, read_text
from wsbench.records.rundir import CampaignRecord, RunFolder, require_own, runs_in, why_left_out

#: Metrics shown next to the headline.
USUAL = (
    *("messages_per_s", "requests_per_s", "service_us_p50", "service_us_p99"),
    *("push_us_p50", "push_us_p99", "server_cpu_us_per_message"),
)
#: An experiment's name becomes part of file names and addresses, and a campaign may come from an untrusted source.
IS_NAME = re.compile(r"[^./\x00][^/\x00]*")
#: In bytes. A file's name has 255 at most, and a metric and a suffix may follow.
LONGEST_NAME = 150
T = TypeVar("T")
#: Files that a campaign's results are read from.
READ = (*tables.FILES, "campaign.json", "order.json", "experiment.toml", "servers.json", "machine.json")
#: Which campaigns of a folder are withdrawn (`withdrawn`).
WITHDRAWN = "campaigns.toml"
MOST_KEPT = 256


@dataclass(frozen=True)
class Line:
    """A server in a cell, over its counted trials. `found`: estimate by metric."""

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
    """One run folder. `id` is `PARENT/NAME`: the name of the folder it was found in, and its own. `withdrawn`: why it gives no
    answers any more; its numbers can still be read."""

    id: str
    run: RunFolder
    record: CampaignRecord
    planned: int
    withdrawn: str | None = None

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
        """True while a wsbench process runs it: that process holds the lock."""
        return lock.is_held(self.run.lock)

    @cached_property
    def problem(self) -> str | None:
        """The reason why its numbers cannot be shown; None if they can."""
        try:
            _ = self.created, self.verdicts
        except Exception as error:
            return why_left_out(self.run, error)
        return None

    @property
    def trials(self) -> int:
        """The number of finished trials without the control's, as in the report."""
        return len(self.results.trials)

    @cached_property
    def verdicts(self) -> Counter:
        """Trials per verdict kind, or `failed`, without the control's."""
        trials = self.results.trials
        return Counter("failed" if one.record.outcome == "failed" else one.verdict.kind for one in trials)

    def lines(self, names: list[str] | None = None) -> list[Line]:
        """Every server and cell with a finished trial, with the shown or the named metrics. Sorted by cell, then best first."""
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
        """The metrics on its pages, the headline first."""
        return list(dict.fromkeys([self.headline, *USUAL]))

    def columns(self) -> list[str]:
        """The shown metrics that at least one trial has."""
        results = self.results
        return [name for name in self.shown if not np.isnan(results.columns.of(name, results.rows)).all()]

    def now(self) -> str | None:
        """The current trial's state in words; None if no process runs the campaign."""
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
    """The campaign's current results, cached. They are read again only after their files have changed; of a running campaign only
    newly finished trials are read."""
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
    """The readable campaigns under these folders, newest first."""
    return look(folders)[0]


def of_readable(make: Callable[[list[Campaign]], T], campaigns: list[Campaign], broken: list[str]) -> T:
    """`make` of the campaigns. If it raises, those for which it raises alone are left out, with a line in `broken` each. A full
    disk is no campaign's fault, and is raised."""
    try:
        return make(campaigns)
    except Exception as error:
        _require_room(error)
        kept = []
        for one in campaigns:
            try:
                make([one])
            except Exception as error:
                _require_room(error)
                broken.append(why_left_out(one.run, error))
            else:
                kept.append(one)
        if len(kept) == len(campaigns):
            raise
        return make(kept)


def _require_room(error: Exception) -> None:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise error


def look(folders: list[Path]) -> tuple[list[Campaign], list[str]]:
    """The readable campaigns, newest first, and one line per broken campaign."""
    found, broken = [], []
    for label, folder in _labelled(folders).items():
        why, unknown = {}, None
        try:
            why = withdrawn(folder)
        except Exception as error:
            # Any of them may be withdrawn: none gives answers.
            unknown = plain.line(f"{folder / WITHDRAWN}: {error}")
            broken.append(unknown)
        for run in runs_in(folder):
            try:
                require_own(run)
                one = Campaign(f"{label}/{run.path.name}", run, run.campaign, _planned(run), why.get(run.path.name, unknown))
                _require_name(one)
            except Exception as error:
                broken.append(why_left_out(run, error))
                continue
            if one.problem is not None:
                broken.append(one.problem)
            else:
                found.append(one)
    return sorted(found, key=lambda one: one.record.created_unix_s, reverse=True), broken


def withdrawn(folder: Path) -> dict[str, str]:
    """Which campaigns of a folder give no answers any more, and why: the tables `[[withdrawn]]` of its `campaigns.toml`."""
    file = folder / WITHDRAWN
    rows = tomllib.loads(read_text(file)).get("withdrawn", []) if is_plain(file) else []
    return {str(name): str(row["because"]) for row in rows for name in row["campaigns"]}


def _labelled(folders: list[Path]) -> dict[str, Path]:
    """Each folder by its name, with a number where another one has that name too: it is part of addresses."""
    made: dict[str, Path] = {}
    for place, folder in {folder.resolve(): folder for folder in folders}.items():
        label, number = place.name, 1
        while label in made:
            number += 1
            label = f"{place.name}-{number}"
        made[label] = folder
    return made


def _require_name(one: Campaign) -> None:
    name = one.experiment
    if not IS_NAME.fullmatch(name) or len(name.encode(errors="replace")) > LONGEST_NAME:
        shown = name if len(name) < LONGEST_NAME else f"{name[:20]}…"
        raise UserError(f"{one.run.path}: its experiment's name {shown!r} cannot be a file name")


def _planned(run: RunFolder) -> int:
    return sum(not planned.control for planned in run.order)


def metrics_in_common(campaigns: list[Campaign]) -> list[str]:
    """Metrics that all of these campaigns have, the first one's headline first."""
    return [name for name in campaigns[0].columns() if all(name in other.columns() for other in campaigns[1:])]


def overlay(campaigns: list[Campaign], metric: str) -> list[tuple[Cell, str, list[tuple[Campaign, stats.Estimate]]]]:
    """(cell, server, estimates of the campaigns that have the metric there)."""
    rows: dict[tuple[Cell, str], list[tuple[Campaign, stats.Estimate]]] = {}
    for campaign in campaigns:
        for line in campaign.lines():
            if line.found[metric].mean is not None:
                rows.setdefault((line.cell, line.server), []).append((campaign, line.found[metric]))
    return [(cell, server, found) for (cell, server), found in rows.items()]

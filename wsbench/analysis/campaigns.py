"""The campaigns of some folders: what each one asked, how far it has come, and what it found so far.

A finished campaign is read from its table; of a running one, and of one without a table, the trials are read. It knows no page.
"""

from __future__ import annotations

import fcntl
import io
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from wsbench import metrics
from wsbench.analysis import stats
from wsbench.analysis.results import sortable
from wsbench.analysis.table import FILE as TABLE
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records.errors import UserError
from wsbench.records.files import is_plain, read_file, read_text
from wsbench.records.frozen import toml_of
from wsbench.records.rundir import CampaignRecord, CellValue, RunFolder

Cell = tuple[tuple[str, CellValue], ...]
#: Shown beside the headline.
USUAL = (
    *("messages_per_s", "requests_per_s", "service_us_p50", "service_us_p99"),
    *("push_us_p50", "push_us_p99", "server_cpu_us_per_message"),
)
#: Files and addresses are called after an experiment, and a campaign may come from anybody.
IS_NAME = re.compile(r"[^./\x00][^/\x00]*")


@dataclass(frozen=True)
class Trial:
    """A finished trial, as far as these pages need it."""

    number: int
    server: str
    cell: Cell
    outcome: str
    verdict: str
    values: dict[str, float | None]

    @property
    def counts(self) -> bool:
        return self.outcome == "ok" and self.verdict != "INVALID"


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
    def texts(self) -> dict[str, str]:
        """The experiment's question, reading and headline, as far as they can be read."""
        try:
            found = toml_of(read_text(self.run.experiment_toml), self.run.experiment_toml)
        except UserError:
            return {}
        return {
            key: found[key].strip() for key in ("question", "reading", "headline") if isinstance(found.get(key), str)
        }

    @property
    def headline(self) -> str:
        named = self.texts.get("headline")
        return named if named in metrics.METRICS else "service_us_p99"

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
            _ = self.created, self.trials
        except UserError as error:
            return str(error)
        # Whatever a campaign from elsewhere holds, the others do not suffer from it.
        except Exception as error:
            return f"{self.run.path}: {type(error).__name__}: {error}"
        return None

    @cached_property
    def shown(self) -> list[str]:
        """The metrics that its pages show, the headline first."""
        return list(dict.fromkeys([self.headline, *USUAL]))

    @cached_property
    def trials(self) -> list[Trial]:
        return self.read(self.shown)

    def read(self, names: list[str]) -> list[Trial]:
        """The finished trials with these metrics."""
        table = self.run.path / TABLE
        fresh = is_plain(table) and not self.running
        return _from_table(table, names) if fresh else _from_folders(self.run, names)

    @property
    def verdicts(self) -> Counter:
        return Counter("failed" if trial.outcome == "failed" else trial.verdict for trial in self.trials)

    def lines(self, names: list[str] | None = None) -> list[Line]:
        """Every server and cell that has a finished trial, with the metrics shown or those named; by the first of them."""
        names = names or self.shown
        groups: dict[tuple[Cell, str], list[Trial]] = {}
        for trial in self.trials if names == self.shown else self.read(names):
            groups.setdefault((trial.cell, trial.server), []).append(trial)
        lines = []
        for (cell, server), trials in groups.items():
            counted = [trial for trial in trials if trial.counts]
            found = {name: stats.estimate([trial.values.get(name) for trial in counted]) for name in names}
            lines.append(Line(server, cell, len(trials), found))
        return sorted(
            lines,
            key=lambda line: ([sortable(value) for _, value in line.cell], -(line.found[names[0]].mean or 0)),
        )

    def columns(self) -> list[str]:
        """Of the metrics shown, those that some trial has."""
        return [name for name in self.shown if any(trial.values.get(name) is not None for trial in self.trials)]

    def now(self) -> str | None:
        """What the trial under way is doing, in words; None where nothing runs."""
        if not self.running:
            return None
        done = {trial.number for trial in self.trials}
        for planned in self.run.order:
            if planned.number not in done:
                last = self.run.trial(planned.number).latest()
                cell = " ".join(f"{key}={value}" for key, value in planned.cell.items())
                said = "starting" if last is None else f"{last.phase}: {last.open:,} open, {last.answered:,} answered"
                return " · ".join(text for text in (f"trial {planned.number}", planned.name, cell, said) if text)
        return "writing the report"


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


def _from_table(file: Path, shown: list[str]) -> list[Trial]:
    return list(_read_table(file, file.stat().st_mtime_ns, tuple(shown)))


@lru_cache(maxsize=256)
def _read_table(file: Path, changed_ns: int, shown: tuple[str, ...]) -> tuple[Trial, ...]:
    trials: dict[int, Trial] = {}
    try:
        rows = pq.read_table(io.BytesIO(read_file(file)), filters=[("metric", "in", shown)]).to_pylist()
    except pa.ArrowException as error:
        raise UserError(f"{file}: {str(error).splitlines()[0]}") from error
    for row in rows:
        number = row["trial"]
        if number not in trials:
            cell = tuple((key.removeprefix("cell."), value) for key, value in row.items() if key.startswith("cell."))
            name = f"{row['server']}@{row['variant']}"
            trials[number] = Trial(number, name, cell, row["outcome"], row["verdict"], {})
        trials[number].values[row["metric"]] = row["value"]
    return tuple(trials.values())


def _from_folders(run: RunFolder, shown: list[str]) -> list[Trial]:
    return [_read_trial(run, record.number, tuple(shown)) for _, record in run.finished()]


@lru_cache(maxsize=20_000)
def _read_trial(run: RunFolder, number: int, shown: tuple[str, ...]) -> Trial:
    folder = run.trial(number)
    record = folder.record
    data = TrialData(folder, record)
    values = metrics.values(data, [name for name in shown])
    return Trial(number, record.name, tuple(record.cell.items()), record.outcome, verdict(data).kind, values)

"""A campaign on the terminal: a table that fills while it runs, and its summary. It starts nothing."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from wsbench import metrics
from wsbench.cli.terminal import COLOUR, Redrawn, console, duration, is_drawn, say, shown, table
from wsbench.metrics.findings import KINDS, Finding
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records import plain
from wsbench.records.rundir import TrialFolder, TrialOrder

if TYPE_CHECKING:
    from wsbench.analysis.until import Standing

#: Lines that a table leaves free on a terminal.
MARGIN = 6
#: How often a running trial is drawn.
AGAIN_S = 5.0


@dataclass
class Row:
    """What the trials of a server in a cell have given so far: the last rate, and how many have which verdict. `at`: how many
    trials of the campaign had ended when one of them last began."""

    at: int = 0
    last: str = ""
    kinds: Counter[str] = field(default_factory=Counter)


class CampaignView(Redrawn):
    """A table of servers and cells on a terminal, elsewhere one short line for each trial. What spoils trials is said once."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[tuple[str, str], Row] = {}
        self._said: set[tuple[str, str]] = set()
        self._done = self._total = 0
        self._head = self._left = self._now = ""
        self._drawn_s = 0.0

    def say(self, line: str) -> None:
        self.clear()
        say(line)
        self.draw()

    def trials_begin(self, orders: list[TrialOrder], done: int, total: int, left_s: float) -> None:
        self._done, self._total, self._left = done, total, f"about {duration(left_s)} left"
        what = orders[0].name if orders[0].heat is None else f"{len(orders)} servers at once"
        last = done + len(orders)
        number = f"{last}" if len(orders) == 1 else f"{done + 1}–{last}"
        self._head = f"[{number}/{total}] {what} {cell_text(orders[0].cell)}".rstrip()
        for one in orders:
            self._rows.setdefault((one.name, cell_text(one.cell)), Row()).at = done
        self._now = ""
        self.draw()

    def trial_runs(self, folder: TrialFolder) -> None:
        """Seldom drawn: drawing takes some ms of a CPU that the trial may want."""
        if not is_drawn() or time.monotonic() - self._drawn_s < AGAIN_S:
            return
        if (last := folder.latest()) is not None:
            self._now = f"{last.phase}: {last.open:,} open, {last.answered:,} answered, {last.failed:,} failed"
            self.draw()

    def trial_ends(self, trial: TrialData) -> None:
        record = trial.record
        self._done += 1
        found = verdict(trial)
        row = self._rows.setdefault((record.name, cell_text(record.cell)), Row())
        row.kinds[found.kind if record.outcome == "ok" else record.outcome] += 1
        if record.outcome == "ok":
            rate, unit, none = _told(trial)
            row.last = none if rate is None else f"{rate:,.0f}"
            said = f"{row.last}{'' if rate is None else f' {unit}'}  {_coloured(found.kind)}"
            telling = [one for one in (*found.instrument[:1], *found.outcomes) if one.kind != "VALID"]
        else:
            row.last, telling = record.outcome, []
            said = f"[{'red' if record.outcome == 'failed' else 'yellow'}]{record.outcome}: {shown(record.reason or '')}[/]"
        head = f"[{self._done}/{self._total}] {record.name} {cell_text(record.cell)}".rstrip()
        news = [one for one in telling if self._is_new(one)]
        if not is_drawn():
            console.print(f"{shown(head)}  {said}{''.join(f'  {shown(one.seen)}' for one in news)}")
        elif news or record.outcome != "ok":
            self.clear()
            console.print(f"{shown(head)}  {said}")
            for one in news:
                console.print(f"  {shown(one.seen)}. {shown(one.remedy)}", style=COLOUR[one.kind])
        self.draw()

    def round_ends(self, standing: Standing) -> None:
        self.say(standing.words)

    def _is_new(self, found: Finding) -> bool:
        """Whether nothing like it was said before; then it counts as said."""
        key = (found.name, found.kind)
        is_new = key not in self._said
        self._said.add(key)
        return is_new

    def draw(self) -> None:
        if not (is_drawn() and self._head):
            return
        self._drawn_s = time.monotonic()
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        kinds = [kind for kind in (*KINDS, "failed", "stopped") if any(row.kinds[kind] for row in self._rows.values())]
        in_cells = any(cell for _, cell in self._rows)
        for name in ("server", *(["cell"] if in_cells else [])):
            drawn.add_column(name, overflow="ellipsis", no_wrap=True)
        for name in ("last messages/s", *kinds):
            drawn.add_column(name, justify="right", no_wrap=True)
        latest = nlargest(max(1, console.height - MARGIN), self._rows.items(), key=lambda one: one[1].at)
        for (server, cell), row in sorted(latest, key=lambda one: one[0]):
            texts = [server, *([cell] if in_cells else []), row.last, *(str(row.kinds[kind] or "") for kind in kinds)]
            drawn.add_row(*(Text(plain.line(text)) for text in texts))
        line = "  ".join(filter(None, (self._head, self._now, self._left)))
        self.show(Group(drawn, Text(plain.line(line), no_wrap=True, overflow="ellipsis")))


def _told(trial: TrialData) -> tuple[float | None, str, str]:
    """The number that is told of a trial, its unit, and what is said if there is none."""
    climbed, follow_up = trial.record.ladder, trial.record.follow_up
    if climbed is None:
        rate = metrics.values(trial, ["messages_per_s"])["messages_per_s"]
        return rate, "messages/s" + (f", {follow_up.purpose}" if follow_up else ""), "no rate"
    name = "capacity_per_s" if climbed.connections is None else "capacity_connections"
    return metrics.values(trial, [name])[name], metrics.METRICS[name].unit, "coarse" if climbed.coarse else "beyond its ladder"


def cell_text(cell: dict) -> str:
    return " ".join(f"{key}={value}" for key, value in cell.items())


def _coloured(kind: str) -> str:
    return f"[{COLOUR[kind]}]{kind}[/]"


def summary(results) -> None:
    """The summary table of a campaign's `Results`, and its answer."""
    from wsbench.analysis.summary import columns, summary
    from wsbench.report.answer import answer

    metrics_shown = columns(results)
    rows = summary(results)
    units = {name: next((row.figure(name).unit for row in rows), "") for name in metrics_shown}
    # Headings wrap between words.
    titles = {name: name.replace("_us_", " ").replace("_", " ") for name in metrics_shown}
    where = ["cell"] if results.swept else []
    headers = [
        "server",
        *where,
        *[f"{titles[name]} [{units[name]}]" if units[name] else titles[name] for name in metrics_shown],
    ]
    headers += ["of reference", "verdict", "limit"]
    body = [
        [
            row.name,
            *([row.cell_text] if where else []),
            *[row.figure(name).with_interval if index == 0 else row.figure(name).text for index, name in enumerate(metrics_shown)],
            row.against_reference_text,
            row.verdict_text,
            row.bottleneck,
        ]
        for row in rows
    ]
    first = 1 + len(where)
    table(None, headers, body, right=set(range(first, first + len(metrics_shown))), keys=first)
    for row in rows:
        if row.note:
            say(f"{row.name}{f' ({row.cell_text})' if row.cell_text else ''}: {row.note}")
    found = answer(results, rows)
    for line in filter(None, [found.lead, found.control]):
        say(line)

"""Terminal output: progress while a campaign runs, and tables.

Piped output is plain lines without colour; rich respects NO_COLOR.
"""

from __future__ import annotations

import atexit
import sys
import time

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from wsbench import metrics
from wsbench.checks.selftest import judgements
from wsbench.cli import layout
from wsbench.cli.exits import BREACHED, DONE, NOTHING_USABLE, PIPE_CLOSED
from wsbench.metrics.findings import FAMILIES, Verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records import plain
from wsbench.records.rundir import TrialFolder, TrialOrder


class Terminal(Console):
    """Rich's console, with wsbench's exit code if the reader of the output closes it."""

    def on_broken_pipe(self) -> None:
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(PIPE_CLOSED) from None


console = Terminal(highlight=False, soft_wrap=not sys.stdout.isatty())
#: What is said while something runs: what a program reads of the output is the result alone.
progress = console if sys.stdout.isatty() else Terminal(highlight=False, soft_wrap=True, stderr=True)
#: Longer work is announced even without a terminal.
SILENT_S = 2
COLOUR = {"VALID": "green", "SUSPECT": "yellow", "INVALID": "red"}


def shown(text: str) -> str:
    """Text for the console, without control sequences and markup."""
    return escape(plain.line(text))


def say(text: str) -> None:
    """Prints one line."""
    console.print(shown(text))


class LiveLine:
    """A line that is redrawn in place below all other output. Without a terminal it prints nothing."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def show(self, content: str | RenderableType) -> None:
        if not sys.stdout.isatty():
            return
        if self._live is None:
            self._live = Live(console=console, transient=True, auto_refresh=False)
            self._live.start()
            atexit.register(self.clear)  # else the cursor stays hidden
        line = Text(plain.line(content), no_wrap=True, overflow="ellipsis") if isinstance(content, str) else content
        self._live.update(line, refresh=True)

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            atexit.unregister(self.clear)


def table(title: str | None, headers: list[str], rows: list[list[str]], right: set[int] = frozenset(), keys: int = 1) -> None:
    """A table of plain texts; columns in `right` are numbers, the first `keys` name the row. It fits a terminal; a pipe gets one
    line for each row."""
    cells = [[plain.line(text) for text in row] for row in rows]
    width = console.width if sys.stdout.isatty() else sys.maxsize
    if title is not None:
        say(title)
    for line in layout.laid_out([plain.line(text) for text in headers], cells, width, right, keys):
        console.print(escape(line.text), style="bold" if line.heading else None, soft_wrap=True)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def cell_text(cell: dict) -> str:
    return " ".join(f"{key}={value}" for key, value in cell.items())


class Progress:
    """Progress of a campaign: one line per trial, and a live line on a terminal."""

    def __init__(self) -> None:
        self._line = LiveLine()

    def say(self, line: str) -> None:
        say(line)

    def trials_begin(self, orders: list[TrialOrder], done: int, total: int, left_s: float) -> None:
        first, last = done + 1, done + len(orders)
        what = orders[0].name if orders[0].heat is None else f"{len(orders)} servers at once"
        self._total = total
        self._head = f"[{first if first == last else f'{first}–{last}'}/{total}] {what} {cell_text(orders[0].cell)}".rstrip()
        self._left = f"about {duration(left_s)} left"
        self._line.show(f"{self._head} … {self._left}")

    def trial_runs(self, folder: TrialFolder) -> None:
        if sys.stdout.isatty() and (last := folder.latest()) is not None:
            counts = f"{last.phase}: {last.open:,} open, {last.answered:,} answered, {last.failed:,} failed"
            self._line.show(f"{self._head}  {counts} … {self._left}")

    def trial_ends(self, trial: TrialData) -> None:
        self._line.clear()
        record = trial.record
        if record.search is not None and record.outcome == "ok":
            return  # the search says what it shows
        found = verdict(trial)
        if record.outcome == "failed":
            result = f"[red]failed: {shown(record.reason or '')}[/]"
        elif record.outcome == "stopped":
            result = f"[yellow]{shown(record.reason or '')}[/]"
        else:
            rate = metrics.values(trial, ["messages_per_s"])["messages_per_s"]
            rate_text = "no rate" if rate is None else f"{rate:,.0f} messages/s"
            result = f"{rate_text}  {verdict_line(found)}"
        head = f"[{record.number}/{self._total}] {record.name} {cell_text(record.cell)}".rstrip()
        console.print(f"{shown(head)}  {result}  {self._left}")


class FilesOfTrials:
    """Progress where the files of many trials are read or packed: a live line, or one line without a terminal."""

    def __init__(self, doing: str) -> None:
        self._doing, self._line, self._began, self._said = doing, LiveLine(), time.monotonic(), False

    def __enter__(self) -> FilesOfTrials:
        return self

    def __exit__(self, *_) -> None:
        self._line.clear()

    def tell(self, done: int, total: int) -> None:
        took_s = time.monotonic() - self._began
        left_s = took_s * (total - done) / max(1, done)
        what = f"{self._doing} the files of {total:,} trials"
        self._line.show(f"{what}: {done:,} … about {duration(left_s)} left")
        if not sys.stdout.isatty() and not self._said and took_s + left_s > SILENT_S:
            self._said = True
            say(f"{what}, about {duration(left_s)} left")


def verdict_line(found: Verdict) -> str:
    """The word, the families it is about, and what the worst check saw; then what the server did."""
    seen = "; ".join(one.seen for one in found.outcomes)
    worst = next(iter(found.instrument), None)
    if worst is None or worst.kind == "VALID":
        return f"[{COLOUR[found.kind]}]{found.kind}[/]" + (f"  server: {shown(seen)}" if seen else "")
    families = ", ".join(FAMILIES[family] for family, kind in worst.affects.items() if kind == worst.kind)
    of = "" if len(worst.affects) == len(FAMILIES) else f" for {families}"
    return f"[{COLOUR[worst.kind]}]{worst.kind}[/]{of} ({shown(worst.seen)})" + (f"  server: {shown(seen)}" if seen else "")


def campaign_summary(results) -> None:
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


def selftest_table(rows: list[judgements.Row]) -> int:
    """Prints a self-test; returns DONE only if every check holds."""
    table(
        None,
        ["check", "quantity", "allowed", "found", "result"],
        [[row.check, row.quantity, row.allowed, row.found, row.result] for row in rows],
    )
    for row in rows:
        if row.result != "holds":
            console.print(shown(f"{row.result}: {row.check}, {row.quantity}{': ' if row.why else ''}{row.why}"))
    counts = {result: sum(row.result == result for row in rows) for result in ("holds", "FAILS", "undecided")}
    console.print(", ".join(f"{count} {result}" for result, count in counts.items()))
    if judgements.passed(rows):
        return DONE
    return BREACHED if counts["FAILS"] else NOTHING_USABLE

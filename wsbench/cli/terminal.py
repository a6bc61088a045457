"""Terminal output: lines, tables, and what is redrawn in place.

Piped output is plain lines without colour; rich respects NO_COLOR.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from wsbench.checks.selftest import judgements
from wsbench.cli import layout
from wsbench.cli.exits import BREACHED, DONE, NOTHING_USABLE, PIPE_CLOSED
from wsbench.records import plain


class Terminal(Console):
    """Rich's console, with wsbench's exit code if the reader of the output closes it."""

    def on_broken_pipe(self) -> None:
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(PIPE_CLOSED) from None


def is_drawn() -> bool:
    """Whether the output is a terminal on which lines can be redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


console = Terminal(highlight=False, soft_wrap=not sys.stdout.isatty())
#: What is said while something runs: what a program reads of the output is the result alone.
progress = console if is_drawn() else Terminal(highlight=False, soft_wrap=True, stderr=True)
#: Longer work is announced even without a terminal.
SILENT_S = 2
COLOUR = {"VALID": "green", "SUSPECT": "yellow", "INVALID": "red"}


def shown(text: str) -> str:
    """Text for the console, without control sequences and markup."""
    return escape(plain.line(text))


def say(text: str) -> None:
    """Prints one line."""
    console.print(shown(text))


class Redrawn:
    """Lines that are redrawn in place below all other output. Without a terminal it prints nothing."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.clear()

    def show(self, content: str | RenderableType) -> None:
        if not is_drawn():
            return
        if self._live is None:
            self._live = Live(console=console, transient=True, auto_refresh=False)
            self._live.start()
            atexit.register(self.clear)  # else the cursor stays hidden
        if isinstance(content, str):
            lines = map(plain.line, content.splitlines())
            content = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
        self._live.update(content, refresh=True)

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


class FilesOfTrials(Redrawn):
    """Progress where the files of many trials are read or packed: redrawn, or one line without a terminal."""

    def __init__(self, doing: str) -> None:
        super().__init__()
        self._doing, self._began, self._said = doing, time.monotonic(), False

    def tell(self, done: int, total: int) -> None:
        took_s = time.monotonic() - self._began
        left_s = took_s * (total - done) / max(1, done)
        what = f"{self._doing} the files of {total:,} trials"
        self.show(f"{what}: {done:,} … about {duration(left_s)} left")
        if not is_drawn() and not self._said and took_s + left_s > SILENT_S:
            self._said = True
            say(f"{what}, about {duration(left_s)} left")


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

"""The layout of a table: headings and rows of plain texts in, lines that fit a width out. It prints nothing.

A table that is too wide gets narrower headings, then columns of prose that wrap between words. If that leaves too little room, it
stands below its row; and numbers, which are compared column by column, go into further tables that repeat the key columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

GAP, INDENT = 2, 4
#: A column of prose is not narrower than this.
PROSE = 28


@dataclass(frozen=True)
class Column:
    """A column and its width. `key`: it names the row, and stands in every part of the table."""

    heading: str
    cells: list[str]
    right: bool
    key: bool
    width: int

    @property
    def longest(self) -> int:
        return max(map(cell_len, self.cells), default=0)

    @property
    def longest_word(self) -> int:
        return max((cell_len(word) for cell in self.cells for word in cell.split()), default=0)

    @property
    def is_prose(self) -> bool:
        return not self.right and not self.key and self.longest > PROSE and any(" " in cell for cell in self.cells)


@dataclass(frozen=True)
class Line:
    text: str
    heading: bool = False


def laid_out(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, right: set[int], keys: int = 1) -> list[Line]:
    """The lines of a table. Columns in `right` are numbers; the first `keys` columns name the row."""
    columns = [
        Column(heading, [row[at] for row in rows], at in right, at < keys, cell_len(heading)) for at, heading in enumerate(headings)
    ]
    columns = [replace(one, width=max(one.width, one.longest)) for one in columns]
    if not _fits(columns, width):
        columns = [one for one in columns if one.key or any(one.cells)]
        columns = [replace(one, width=max(_longest_word(one.heading), one.longest)) for one in columns]
    if not _fits(columns, width):
        columns = _wrapped(columns, width)
    if _fits(columns, width):
        return [*_drawn(columns)]
    if any(one.is_prose for one in columns):
        return [*_prose_below(columns, width)]
    first, *others = (list(_drawn(part)) for part in _parts(columns, width))
    return [*first, *(line for part in others for line in [Line(""), *part])]


def _fits(columns: Sequence[Column], width: int) -> bool:
    return sum(one.width for one in columns) + GAP * (len(columns) - 1) <= width


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _wrapped(columns: list[Column], width: int) -> list[Column]:
    """With columns of prose that share the room that the others leave; unchanged if a column would get too little."""
    prose = sorted((one for one in columns if one.is_prose), key=lambda one: one.width)
    room = width - sum(one.width for one in columns if not one.is_prose) - GAP * (len(columns) - 1)
    widths = {}
    for left, one in zip(range(len(prose), 0, -1), prose, strict=True):
        widths[one.heading] = min(one.width, room // left)
        room -= widths[one.heading]
        if widths[one.heading] < max(PROSE, one.longest_word):
            return columns
    return [replace(one, width=widths.get(one.heading, one.width)) for one in columns]


def _prose_below(columns: list[Column], width: int) -> Iterator[Line]:
    """Each row in one line, and its prose below it. What else does not fit into the line stands between them."""
    beside, prose = [one for one in columns if not one.is_prose], [one for one in columns if one.is_prose]
    between: list[Column] = []
    while not _fits(beside, width) and not beside[-1].key:
        between.insert(0, beside.pop())
    drawn = list(_drawn(beside))
    yield from (line for line in drawn if line.heading)
    for at, line in enumerate(line for line in drawn if not line.heading):
        yield line
        said = ["; ".join(_named(one, at) for one in between if one.cells[at])]
        said += [_named(one, at) if between or len(prose) > 1 else one.cells[at] for one in prose if one.cells[at]]
        yield from (Line(" " * INDENT + part) for text in said if text for part in _folded(text, width - INDENT))


def _named(one: Column, at: int) -> str:
    return f"{one.heading}: {one.cells[at]}"


def _parts(columns: list[Column], width: int) -> Iterator[list[Column]]:
    """The columns in groups that fit, each with the keys."""
    keys = [one for one in columns if one.key]
    part = list(keys)
    for one in columns[len(keys) :]:
        if len(part) > len(keys) and not _fits([*part, one], width):
            yield part
            part = list(keys)
        part.append(one)
    yield part


def _drawn(columns: Sequence[Column]) -> Iterator[Line]:
    for text in _row(columns, [one.heading for one in columns], below=True):
        yield Line(text, heading=True)
    for at in range(len(columns[0].cells)):
        yield from map(Line, _row(columns, [one.cells[at] for one in columns]))


def _row(columns: Sequence[Column], texts: list[str], below: bool = False) -> Iterator[str]:
    """The lines of one row; shorter cells begin at its top, or end at its bottom if `below`."""
    cells = [_folded(text, one.width) for one, text in zip(columns, texts, strict=True)]
    height = max(map(len, cells))
    for cell in cells:
        cell[0 if below else len(cell) :] = [""] * (height - len(cell)) + (cell if below else [])
    for at in range(height):
        parts = []
        for one, cell in zip(columns, cells, strict=True):
            space = " " * (one.width - cell_len(cell[at]))
            parts.append(space + cell[at] if one.right else cell[at] + space)
        yield (" " * GAP).join(parts).rstrip()


def _folded(text: str, width: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]

"""Numbers as text: digits, units, intervals and missing values.

Numbers have three significant digits: repeats of one trial differ in the third. A column has one unit, so that values can be
compared at a glance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wsbench.analysis.stats import Decision, Estimate

DIGITS = 3
NONE = "–"

# unit of a metric → (unit shown, its size in the metric's unit, smallest typical value it is chosen for)
LADDERS = {
    "µs": (("s", 1e6, 1e6), ("ms", 1e3, 1e3), ("µs", 1.0, 0.0)),
    "ms": (("s", 1e3, 1e3), ("ms", 1.0, 1.0), ("µs", 1e-3, 0.0)),
    "bytes": (("GiB", 2.0**30, 2.0**30), ("MiB", 2.0**20, 2.0**19), ("KiB", 2.0**10, 0.0)),
    "bytes/s": (("MB/s", 1e6, 1e6), ("kB/s", 1e3, 0.0)),
}


@dataclass(frozen=True)
class Scale:
    """The unit of a column or an axis."""

    unit: str
    size: float

    def of(self, value: float | None) -> float | None:
        return value if value is None or self.size == 1 else value / self.size

    def text(self, value: float | None) -> str:
        return number(self.of(value))

    def with_unit(self, value: float | None) -> str:
        return NONE if value is None else f"{self.text(value)} {self.unit}"

    def mean(self, found: Estimate) -> str:
        """`17,200`; `≥ 17,200` if only a lower bound is known."""
        return self.text(found.mean) if found.bound is None else f"{found.bound[0]} {self.text(found.bound[1])}"

    def of_estimate(self, found: Estimate) -> str:
        """The mean with its unit."""
        return NONE if found.shown is None else f"{self.mean(found)} {self.unit}"

    def interval(self, found: Estimate) -> str:
        """`low–high`, or empty if there is no interval."""
        return "" if None in (found.low, found.high) else between(self.of(found.low), self.of(found.high))


def scale(unit: str, values: Iterable[float | None]) -> Scale:
    """The unit in which a typical value of these is easy to read."""
    if unit not in LADDERS:
        return Scale(unit, 1.0)
    found = np.array(values if isinstance(values, np.ndarray) else list(values), dtype=float)  # None is NaN
    if not (positive := found > 0).any():
        return Scale(unit, 1.0)
    typical = float(np.exp(np.log(found[positive]).mean()))
    shown, size, _ = next(step for step in LADDERS[unit] if typical >= step[2])
    return Scale(shown, size)


def number(value: float | None, digits: int = DIGITS) -> str:
    """Rounded to `digits` significant digits, in groups of three; integers below 10,000 keep all digits."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    if isinstance(value, int) and abs(value) < 10_000:
        return f"{value:,}"
    rounded = float(f"{value:.{digits}g}")
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, places)}f}"


def between(low: float, high: float) -> str:
    """An interval, with one more digit if that distinguishes its ends."""
    alike, told_apart = number(low) == number(high), number(low, DIGITS + 1) != number(high, DIGITS + 1)
    digits = DIGITS + 1 if alike and told_apart else DIGITS
    return f"{number(low, digits)}–{number(high, digits)}"


def decided(found: Decision) -> str:
    """The ratio of a decision with the interval that decided it; empty if there is no ratio."""
    return "" if found.ratio is None else _ratio(found.ratio, found.low, found.high)


def _ratio(mean: float, low: float | None, high: float | None) -> str:
    return f"{number(mean)}×" + ("" if low is None or high is None else f" ({between(low, high)})")


def count(number_: int, noun: str) -> str:
    return f"{number_:,} {noun}{'' if number_ == 1 else 's'}"


def lasting(seconds: float) -> str:
    """A duration: `0.4 s`, `48 s`, `6 min`, `1 h 10 min`."""
    if seconds < 60:
        return f"{round(seconds) if seconds >= 2 else number(round(seconds, 1), 2)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *rest, last = list(names)
    return f"{', '.join(rest)} and {last}" if rest else last


# ---- Markdown ------------------------------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """As text in Markdown: names, commands and paths are the user's."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").replace("`", "\\`")


def grid(headers: list[str], rows: list[list[str]]) -> str:
    """A table; its cells are escaped."""
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join(lines + ["| " + " | ".join(map(escaped, row)) + " |" for row in rows])

"""The registry of metrics: what a metric is, how one is registered, and how a trial is measured.

A metric is a function from one trial to one number, with a name, a unit, a direction and a docstring for users. Import the metrics
themselves from `metrics`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Literal

from wsbench.metrics.findings import Family
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.unmeasured import Unmeasured
from wsbench.records import contained
from wsbench.records.errors import UserError

Direction = Literal["higher", "lower", "neither"]
Number = float | int


@dataclass(frozen=True)
class Metric:
    """A named number computed from a trial. `family` decides which findings of a verdict affect it.

    `needs` is a prerequisite shared with other metrics. If it raises Unmeasured, none of them is computed.
    """

    name: str
    unit: str
    direction: Direction
    family: Family
    text: str
    compute: Callable[[TrialData], Number]
    needs: Callable[[TrialData], object] | None = None

    @property
    def better(self) -> Literal["higher", "lower"]:
        """The direction that counts as better; `lower` for a metric that has none."""
        return "higher" if self.direction == "higher" else "lower"

    @property
    def summary(self) -> str:
        return self.text.splitlines()[0]


METRICS: dict[str, Metric] = {}


def metric(unit: str, direction: Direction, family: Family, needs: Callable[[TrialData], object] | None = None):
    """Registers a function under its own name."""

    def register(compute):
        assert compute.__doc__, f"metric {compute.__name__} has no docstring"
        assert compute.__name__ not in METRICS
        METRICS[compute.__name__] = Metric(compute.__name__, unit, direction, family, compute.__doc__, compute, needs)

        @wraps(compute)
        def number(trial: TrialData) -> Number | None:
            try:
                return compute(trial)
            except Unmeasured:
                return None

        return number

    return register


@dataclass(frozen=True)
class Numbers:
    """Metrics of one trial by name, and the reason for each that is None."""

    values: dict[str, Number | None]
    reasons: dict[str, str]


def measure(trial: TrialData, names: Iterable[str] | None = None) -> Numbers:
    """The chosen metrics of one trial, or all. If the trial failed: only `ready_s`."""
    found = Numbers({}, {})
    failed = f"the trial failed: {trial.record.reason}" if trial.record.outcome == "failed" else None
    lacking: dict[Callable | None, str | None] = {None: None}
    for name in METRICS if names is None else names:
        one = METRICS[name]
        value, reason = None, failed if name != "ready_s" else None
        if reason is None and one.needs not in lacking:
            lacking[one.needs] = _of(trial, one.needs, name)[1]
        if reason is None and (reason := lacking[one.needs]) is None:
            value, reason = _of(trial, one.compute, name)
        found.values[name] = value
        if reason is not None:
            found.reasons[name] = reason
    return found


def _of(trial: TrialData, compute: Callable[[TrialData], Number], name: str) -> tuple[Number | None, str | None]:
    """The number, or the reason why there is none. Reasons are interned, so equal ones in many trials share one string."""

    def number() -> tuple[Number | None, str | None]:
        try:
            return compute(trial), None
        except Unmeasured as reason:
            return None, sys.intern(str(reason))

    return contained.part(f"metric {name}", number, lambda reason: (None, sys.intern(reason)))


def values(trial: TrialData, names: Iterable[str] | None = None) -> dict[str, Number | None]:
    return measure(trial, names).values


def plain(value: float) -> float | int | None:
    """A number as it is written: None for NaN, an int for a whole number."""
    if value != value:
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(value)


def require(names: Iterable[str], where: str = "", also: Iterable[str] = ()) -> None:
    """UserError for a name that is neither a metric nor one of `also`; `where` begins the message."""
    for name in names:
        if name not in METRICS and name not in also:
            near = difflib.get_close_matches(name, [*METRICS, *also], n=3, cutoff=0.5)
            nearest = f"the nearest are {', '.join(near)}" if near else "see `wsbench list metrics`"
            raise UserError(f"{where}unknown metric {name!r}; {nearest}")

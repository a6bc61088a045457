"""The registry of metrics: what a metric is, how one is registered, and how all of them are asked of a trial.

A metric is a function from one trial to one number, with a name, a unit, a direction and a docstring for people. The metrics
themselves are in `metrics`, which is where they are to be imported from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Literal

from wsbench.view import TrialView, Unmeasured

Direction = Literal["higher", "lower", "neither"]
Number = float | int


@dataclass(frozen=True)
class Metric:
    """A named number computed from a trial."""

    name: str
    unit: str
    direction: Direction
    text: str
    compute: Callable[[TrialView], Number]

    @property
    def summary(self) -> str:
        return self.text.splitlines()[0]


METRICS: dict[str, Metric] = {}


def metric(unit: str, direction: Direction):
    """Registers a function under its own name."""

    def register(compute):
        assert compute.__doc__, f"metric {compute.__name__} has no docstring"
        assert compute.__name__ not in METRICS
        METRICS[compute.__name__] = Metric(compute.__name__, unit, direction, compute.__doc__, compute)

        @wraps(compute)
        def number(view: TrialView) -> Number | None:
            try:
                return compute(view)
            except Unmeasured:
                return None

        return number

    return register


@dataclass(frozen=True)
class Numbers:
    """Metrics of one trial by name, and for each that is None the reason."""

    values: dict[str, Number | None]
    reasons: dict[str, str]


def measure(view: TrialView, names: Iterable[str] | None = None) -> Numbers:
    """The chosen metrics of one trial, or all; only `ready_s` where the trial failed."""
    found = Numbers({}, {})
    failed = view.record.outcome == "failed"
    for name in METRICS if names is None else names:
        try:
            if failed and name != "ready_s":
                raise Unmeasured(f"the trial failed: {view.record.reason}")
            found.values[name] = METRICS[name].compute(view)
        except Unmeasured as reason:
            # The same words in ten thousand trials are one text.
            found.values[name], found.reasons[name] = None, sys.intern(str(reason))
    return found


def values(view: TrialView, names: Iterable[str] | None = None) -> dict[str, Number | None]:
    return measure(view, names).values

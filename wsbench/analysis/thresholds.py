"""Thresholds for `--fail-if`: a condition over one metric that must not hold. NAME OP NUMBER, and nothing more.

Text in, frozen values out; a trial's view in, judgements out. A metric that is not known breaches its threshold: a gate that
could not be checked has not been passed.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

from wsbench import metrics
from wsbench.metrics.trial_data import TrialData
from wsbench.records.errors import UserError

OPERATORS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
FORM = re.compile(
    r"\s*(?P<name>\w+)\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<number>[-+]?[\d_]*\.?\d+(?:[eE][-+]?\d+)?)\s*"
)


@dataclass(frozen=True)
class Threshold:
    """`text` is what the user wrote."""

    name: str
    operator: str
    number: float
    text: str


@dataclass(frozen=True)
class Judged:
    """A threshold and what was found; `reason` says why there is no value."""

    threshold: Threshold
    value: float | None
    reason: str | None

    @property
    def breached(self) -> bool:
        return self.value is None or OPERATORS[self.threshold.operator](self.value, self.threshold.number)

    @property
    def words(self) -> str:
        if self.value is None:
            return f"--fail-if {self.threshold.text!r}: not known: {self.reason}"
        unit = metrics.METRICS[self.threshold.name].unit
        return f"--fail-if {self.threshold.text!r}: {'breached' if self.breached else 'held'}, {self.value:,.6g} {unit}"


def parse(text: str) -> Threshold:
    """UserError where the form is not kept, or no metric has that name."""
    found = FORM.fullmatch(text)
    if found is None:
        raise UserError(
            f"--fail-if: found {text!r}, allowed: NAME OP NUMBER, such as 'response_us_p99 > 5000'; "
            f"OP is one of {' '.join(OPERATORS)}"
        )
    name = found["name"]
    if name not in metrics.METRICS:
        near = difflib.get_close_matches(name, metrics.METRICS, n=3, cutoff=0.5)
        nearest = f"the nearest are {', '.join(near)}" if near else "see `wsbench list metrics`"
        raise UserError(f"--fail-if: no metric is called {name!r}; {nearest}")
    return Threshold(name, found["operator"], float(found["number"]), text.strip())


def judge(trial: TrialData, thresholds: list[Threshold]) -> list[Judged]:
    measured = metrics.measure(trial, [one.name for one in thresholds])
    return judge_values(measured.values, measured.reasons, thresholds)


def judge_values(
    values: Mapping[str, float | None], reasons: Mapping[str, str], thresholds: list[Threshold]
) -> list[Judged]:
    """Of metrics that are computed already: their values, and for each that is None the reason."""
    return [Judged(one, values[one.name], reasons.get(one.name)) for one in thresholds]

"""Gates of a duel: a change of one metric by more than so many percent that fails it, as NAME < -3 % or NAME > 5 %.

A gate is breached only if the change is proven (its interval excludes no change) and its estimate is beyond the gate. What is
undecided breaches nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from wsbench import metrics
from wsbench.analysis.stats import Decision
from wsbench.records.errors import UserError

FORM = re.compile(r"\s*(?P<name>\w+)\s*(?P<operator>[<>])\s*(?P<number>[-+−]?(\d+\.?\d*|\.\d+))\s*%\s*", re.ASCII)
ALLOWED = "NAME < -PERCENT% or NAME > PERCENT%, such as 'messages_per_s < -3 %'"


@dataclass(frozen=True)
class Gate:
    """`change` is a share: negative for `<`, positive for `>`. `text` is what the user wrote."""

    metric: str
    change: float
    falls: bool
    text: str

    def judge(self, found: Decision | None) -> Literal["breached", "held", "undecided"]:
        """The decision is about new over base."""
        if found is None:
            return "undecided"
        if found.ratio is None:
            if found.says not in ("better", "worse"):
                return "undecided"
            # It has no ratio because a side lost its rounds by its own fault.
            worse = "falls" if metrics.METRICS[self.metric].direction == "higher" else "rises"
            guarded = "falls" if self.falls else "rises"
            return "breached" if (worse == guarded) == (found.says == "worse") else "held"
        beyond = found.ratio < 1 + self.change if self.falls else found.ratio > 1 + self.change
        if found.leans is not None:
            return "breached" if beyond else "held"
        if found.says == "equal" and not beyond:
            return "held"
        inside = found.low is not None and (found.low > 1 + self.change if self.falls else found.high < 1 + self.change)
        return "held" if inside else "undecided"


def parse(text: str) -> Gate:
    """UserError for another form or an unknown metric."""
    found = FORM.fullmatch(text.replace("−", "-"))
    if found is None:
        raise UserError(f"--fail-if: found {text!r}, allowed: {ALLOWED}")
    change, falls = float(found["number"]) / 100, found["operator"] == "<"
    if change > 0 if falls else change < 0:
        raise UserError(f"--fail-if: found {text!r}, which holds without any change; allowed: {ALLOWED}")
    if change <= -1:
        raise UserError(f"--fail-if: found {text!r}, but nothing falls by 100 %; allowed: {ALLOWED}")
    metrics.require([found["name"]], "--fail-if: ")
    return Gate(found["name"], change, falls, text.strip())

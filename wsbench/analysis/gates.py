"""Gates of a duel: a change of one metric by more than so many percent that fails it, as NAME < -3 % or NAME > 5 %.

A gate is breached if the whole interval of the change lies beyond it, and held if the whole interval lies on its other side. In
between it is undecided, and breaches nothing.
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
        limit = 1 + self.change
        if found.sized and not (found.says in ("better", "worse") and self.change == 0):
            beyond, inside = found.most < limit, found.least > limit
            if not self.falls:
                beyond, inside = found.least > limit, found.most < limit
            return "breached" if beyond else "held" if inside else "undecided"
        if found.says not in ("better", "worse"):
            return "undecided"
        # Only the direction is known, because a side lost its rounds by its own fault or has none at all; or it is all that counts.
        worse = "falls" if metrics.METRICS[self.metric].better == "higher" else "rises"
        guarded = "falls" if self.falls else "rises"
        return "breached" if (worse == guarded) == (found.says == "worse") else "held"


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

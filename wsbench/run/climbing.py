"""Plans the ladders of a campaign: where each begins, by what the same server's last ladders have shown.

A capacity is that of one process under one ladder. Earlier ladders choose only the rates that are tried.
"""

from __future__ import annotations

import math
import random
from statistics import median

from wsbench import metrics
from wsbench.analysis.capacity import promises
from wsbench.experiments.experiment import GAP, RUNG_TICK_S, Experiment
from wsbench.metrics import ladder, verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.unmeasured import Unmeasured
from wsbench.records.rundir import Ladder, RunFolder, Slo, TrialOrder

#: A rung has at least so many messages, within LONGEST_S: the p99 of fewer is too low for a queue that is nearly full.
MESSAGES, LONGEST_S = 3_000, 20.0
#: After a coarse ladder the next one reaches further by this factor.
WIDER = 1.5
#: The light load between two rungs, as a share of the lowest rate.
RELIEF = 0.25
#: So many of the last ladders say where the next one begins.
LAST = 3
COARSE_S = 1.0
Key = tuple[str, str]


class Ladders:
    """What the ladders of a campaign have shown so far, by server and cell."""

    def __init__(self, run: RunFolder, experiment: Experiment, seed: int):
        self._asked, self._seed = experiment.ladder, seed
        self._rung_s = experiment.timing.measure_s
        self._slos = [_slo(text) for text in self._asked.slos]
        #: By server and cell the capacities of each ladder under the SLOs that it reached; and the rate at which to look next.
        self._found: dict[Key, list[list[float]]] = {}
        self._start: dict[Key, float] = {}
        for folder, record in run.finished():
            self.add(TrialData(folder, record))

    def add(self, trial: TrialData) -> None:
        """A trial that has ended. What the host disturbed shows nothing."""
        climbed = trial.record.ladder
        if climbed is not None and trial.record.outcome == "ok" and verdict.disturbed(trial) is None:
            self.note(trial.record, trial.rungs)

    def note(self, order: TrialOrder, rungs: list[ladder.Rung]) -> None:
        """What the rungs of a ladder have shown."""
        key, found = _key(order), []
        for slo in order.ladder.slos:
            try:
                found.append(ladder.capacity(rungs, slo).per_s)
            except ladder.Beyond as beyond:
                if order.ladder.coarse:  # another coarse one, next to it
                    below = not isinstance(beyond, ladder.Above)
                    self._start[key] = beyond.rate / 2 ** (len(order.ladder.rates) - 1) if below else beyond.rate
                else:
                    found.append(beyond.rate)
            except Unmeasured:
                continue
        if found:
            self._found.setdefault(key, []).append(found)

    def planned(self, order: TrialOrder) -> TrialOrder:
        """The trial with its ladder."""
        draw = random.Random(f"{self._seed} ladder {order.number}")
        return order.model_copy(update={"ladder": self._ladder(_key(order), draw)})

    def _ladder(self, key: Key, draw: random.Random) -> Ladder:
        known, asked = self._found.get(key, [])[-LAST:], self._asked
        if not known:
            start = self._start.get(key, asked.start)
            rates = [start * 2**place for place in range(asked.rungs)]
            return self._of(rates, COARSE_S, coarse=True)
        low, high = (median(pick(found) for found in known) for pick in (min, max))
        span = asked.span * (WIDER if len(self._found[key]) == 1 else 1.0)
        first, last = math.log(low) - span, math.log(high) + span
        rates = [math.exp(first + place * (last - first) / (asked.rungs - 1)) for place in range(asked.rungs)]
        draw.shuffle(rates)
        return self._of(rates, min(LONGEST_S, max(self._rung_s, MESSAGES / low)), coarse=False)

    def _of(self, rates: list[float], rung_s: float, coarse: bool) -> Ladder:
        # What is not answered by the end of its gap is over every bound.
        gap_s = max([GAP * rung_s, *(number / 1e6 for slo in self._slos for name, _, number in slo.conditions if "_us_" in name)])
        ticks, of_gap = math.ceil(rung_s / RUNG_TICK_S), math.ceil(gap_s / RUNG_TICK_S)
        return Ladder(
            slos=self._slos,
            rates=rates,
            relief_per_s=RELIEF * min(rates),
            rung_s=ticks * RUNG_TICK_S,
            gap_s=of_gap * RUNG_TICK_S,
            coarse=coarse,
        )


def _key(order: TrialOrder) -> Key:
    return order.variant_name, str(sorted(order.cell.items()))


def _slo(text: str) -> Slo:
    found = promises.parse(text)
    metrics.require([one.metric for one in found.conditions])
    return Slo(text=found.text, conditions=[(one.metric, one.operator, one.number) for one in found.conditions])

"""Plans the ladders of a campaign: where each begins, by what the same server's last ladders have shown.

A capacity is that of one process under one ladder. Earlier ladders choose only the loads that are tried.
"""

from __future__ import annotations

import math
import random
from statistics import median

from wsbench.analysis import ladders, reading, slo
from wsbench.experiments.experiment import GAP, RUNG_TICK_S, Experiment
from wsbench.metrics import ladder, verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.unmeasured import Unmeasured
from wsbench.records.rundir import Ladder, RunFolder, TrialOrder

#: A rung has at least so many messages, within LONGEST_S: the p99 of fewer is too low for a queue that is nearly full.
MESSAGES, LONGEST_S = 3_000, 20.0
#: After a coarse ladder the next one reaches further by this factor.
WIDER = 1.5
#: The light load between two rungs, as a share of the lowest rate.
RELIEF = 0.05
#: Rungs around each of two capacities that are far apart.
FEWEST = 5
#: So many of the last ladders say where the next one begins.
LAST = 3
COARSE_S = 1.0
#: No load is lower: a second has a thousand messages a minute, or one connection.
LEAST = {"rate": 1000 / 60, "connections": 1.0}
#: Connections are opened at this rate between two rungs, and take at least so long.
OPENED_PER_S, OPEN_S = 2_000, 0.4
Key = tuple[str, str]


class Ladders:
    """What the ladders of a campaign have shown so far, by server and cell."""

    def __init__(self, run: RunFolder, experiment: Experiment, seed: int):
        self._asked, self._seed = experiment.ladder, seed
        self._rung_s = experiment.timing.measure_s
        self._slos = [slo.parse(text) for text in self._asked.slos]
        #: By server and cell the capacities of each ladder under the SLOs that it reached; and the load at which to look next.
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
        key, found, passed = _key(order), [], []
        for one in order.ladder.slos:
            try:
                found.append(ladder.capacity(rungs, one, order.ladder.most).load)
            except ladder.Beyond as beyond:
                below = not isinstance(beyond, ladder.Above)
                if order.ladder.coarse and not (below and beyond.load <= LEAST[self._asked.over]):  # another coarse one, next to it
                    self._start[key] = beyond.load / 2 ** (len(order.ladder.rates) - 1) if below else beyond.load
                    passed.append(beyond.load)
                else:
                    found.append(beyond.load)
            except Unmeasured:
                continue
        if found:  # what lies beyond a coarse ladder is near its end, if it has shown something at all
            self._found.setdefault(key, []).append([*found, *passed])

    def planned(self, order: TrialOrder) -> TrialOrder:
        """The trial with its ladder."""
        if order.follow_up is not None:
            return order
        draw = random.Random(f"{self._seed} ladder {order.number}")
        return order.model_copy(update={"ladder": self._ladder(_key(order), draw)})

    def _ladder(self, key: Key, draw: random.Random) -> Ladder:
        known, asked = self._found.get(key, [])[-LAST:], self._asked
        if not known:
            first = max(LEAST[asked.over], self._start.get(key, asked.start))
            return self._of([first * 2**place for place in range(asked.rungs)], COARSE_S, coarse=True)
        low, high = (median(pick(found) for found in known) for pick in (min, max))
        span = asked.span * (WIDER if len(self._found[key]) == 1 else 1.0)
        edges = [(math.log(low) - span, math.log(low) + span), (math.log(high) - span, math.log(high) + span)]
        if edges[1][0] - edges[0][1] < span:
            edges = [(edges[0][0], edges[1][1])]
        of_each = asked.rungs if len(edges) == 1 else max(FEWEST, asked.rungs // 2)
        loads = [math.exp(first + place * (last - first) / (of_each - 1)) for first, last in edges for place in range(of_each)]
        draw.shuffle(loads)
        return self._of(loads, min(LONGEST_S, max(self._rung_s, MESSAGES / asked.per_s(low))), coarse=False)

    def _of(self, loads: list[float], rung_s: float, coarse: bool) -> Ladder:
        asked, connections, open_s = self._asked, None, 0.0
        loads = [max(LEAST[asked.over], load if asked.most is None else min(load, asked.most)) for load in loads]
        if asked.over == "connections":
            # They only grow: to close some would be another load.
            connections = loads = sorted(map(round, loads))
            open_s = max(OPEN_S, max(after - before for before, after in zip([0, *loads], loads, strict=False)) / OPENED_PER_S)
        rates = list(map(asked.per_s, loads))
        # What is not answered by the end of its gap is over every bound.
        gap_s = max([GAP * rung_s, *(number / 1e6 for one in self._slos for name, _, number in one.conditions if "_us_" in name)])
        ticks, of_gap, of_opening = (math.ceil(round(part / RUNG_TICK_S, 6)) for part in (rung_s, gap_s, open_s))
        return Ladder(
            slos=self._slos,
            rates=rates,
            relief_per_s=RELIEF * min(rates),
            rung_s=ticks * RUNG_TICK_S,
            gap_s=of_gap * RUNG_TICK_S,
            coarse=coarse,
            most=asked.most,
            connections=connections,
            open_s=of_opening * RUNG_TICK_S,
        )


def following(run: RunFolder, order: list[TrialOrder]) -> list[TrialOrder]:
    """The trials that follow the rounds, and that the order does not have yet: each for a server and cell of the last round."""
    results, planned = reading.load(run), list(order)
    for one in [one for one in order if one.round == max(one.round for one in order)]:
        if one.control or one.again_of is not None or one.follow_up is not None:
            continue
        asked_before = [other.follow_up for other in order if other.follow_up and _key(other) == _key(one)]
        had = {(before.purpose, before.slo.text) for before in asked_before}
        for asked in ladders.follow_ups(results, one.name, tuple(one.cell.items())):
            if (asked.purpose, asked.slo.text) not in had:
                number = max(other.number for other in planned) + 1
                planned.append(one.model_copy(update={"number": number, "ladder": None, "follow_up": asked}))
    return planned[len(order) :]


def _key(order: TrialOrder) -> Key:
    return order.variant_name, str(sorted(order.cell.items()))

"""Rounds until decided: the comparisons that a campaign is asked for, and which of them are decided.

Results in, frozen values out. The budget counts the wall time that the campaign's record has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from wsbench.analysis import ladders, stats, wording
from wsbench.analysis.dataset import Cell
from wsbench.analysis.gates import Gate, parse
from wsbench.analysis.results import Results
from wsbench.records.goals import Until
from wsbench.records.rundir import TrialRecord

#: A value is called precise after so many rounds at least.
FEWEST = 5
#: After so many rounds of which nothing counts, none follows.
UNUSABLE = 4
#: What helps where the host disturbs every turn.
AS_IT_IS = "Stop these programs or use a quieter machine; in a duel, --as-is compares on this host as it is"


@dataclass(frozen=True)
class Comparison:
    """One comparison that is asked for. `decision` None: nothing could be compared, for this `reason`. `hopeless`: a server has no
    such number in any trial, so more rounds do not help. `gates`: the limits of this metric, which are to be decided, too."""

    metric: str
    cell: Cell
    decision: stats.Decision | None
    reason: str | None = None
    hopeless: bool = False
    gates: tuple[Gate, ...] = ()

    @property
    def decided(self) -> bool:
        if self.decision is None or self.decision.says == "undecided":
            return False
        return all(gate.judge(self.decision) != "undecided" for gate in self.gates)


@dataclass(frozen=True)
class Precision:
    """A server's capacity under one SLO, which is to be known `wanted` precisely: a half width as a share."""

    found: ladders.Capacity
    wanted: float
    unit: str

    @property
    def decided(self) -> bool:
        """Whether it is precise enough, or known to be at least what the load generator can show."""
        estimate = self.found.estimate
        if estimate.repeats < FEWEST:
            return False
        return estimate.at_least or (self.found.within is not None and self.found.within <= self.wanted)

    @property
    def unusable(self) -> bool:
        """Whether no ladder so far counts."""
        return self.found.unusable

    @property
    def hopeless(self) -> bool:
        """Whether not even the lowest load is carried."""
        return self.found.lowest is not None

    @property
    def rounds_left(self) -> int | None:
        """About how many more rounds it takes; None if that is not foreseeable."""
        estimate = self.found.estimate
        if self.decided or self.hopeless or self.found.within is None:
            return None if not self.decided else 0
        needed = estimate.repeats * (math.log1p(self.found.within) / math.log1p(self.wanted)) ** 2
        return max(1, FEWEST - estimate.repeats, math.ceil(needed) - estimate.repeats)

    @property
    def words(self) -> str:
        """`go-gorilla carries 41,000–46,000 messages/s at response.p99 < 20ms`."""
        estimate, cell = self.found.estimate, ", ".join(f"{key} {value}" for key, value in self.found.cell)
        who = f"{self.found.server}{f' ({cell})' if cell else ''}"
        if self.hopeless:
            return f"{who} carries less than {wording.number(self.found.lowest)} {self.unit} at {self.found.slo.text}"
        if estimate.mean is None:
            return f"{who}: not known yet: {self.found.why}"
        if estimate.at_least:
            amount = f"at least {wording.number(estimate.mean)}"
        elif estimate.low is None:
            amount = f"about {wording.number(estimate.mean)}"
        else:
            amount = wording.between(estimate.low, estimate.high)
        return f"{who} carries {amount} {self.unit} at {self.found.slo.text}"


@dataclass(frozen=True)
class Standing:
    """A campaign after some rounds. `times_s`: the duration of each, without pauses between trials. `wall_s`: of all, with pauses;
    None if it is unknown."""

    until: Until
    rounds: int
    times_s: list[float]
    comparisons: list[Comparison] | list[Precision]
    wall_s: float | None = None
    #: What disturbed every turn so far, in words; None if a turn counts.
    disturbed: str | None = None
    #: Which server of a pair is gone, and how; None if both were loaded.
    gone: str | None = None

    @cached_property
    def decided(self) -> int:
        return sum(one.decided for one in self.comparisons)

    @property
    def spent_s(self) -> float:
        return sum(self.times_s) if self.wall_s is None else self.wall_s

    @property
    def round_s(self) -> float | None:
        """A round's mean duration; None before the first."""
        return self.spent_s / len(self.times_s) if self.times_s else None

    @property
    def ended(self) -> str | None:
        """Why no round follows, in words; None if one does."""
        if self.disturbed is not None:
            return f"the host disturbed every turn: {self.disturbed}"
        if self.gone is not None:
            return self.gone
        if self.until.within is not None and self.rounds >= UNUSABLE and all(one.unusable for one in self.comparisons):
            return f"no ladder counts: {self.comparisons[0].found.why}; --as-is counts what the host disturbed"
        if self.rounds >= self.first and all(one.decided or one.hopeless for one in self.comparisons):
            return "nothing is left to decide"
        if self.rounds >= self.until.planned:
            return f"all {self.until.planned:,} planned rounds have run"
        if self.spent_s + (self.round_s or 0.0) > self.until.budget_s:
            return f"the budget of {wording.lasting(self.until.budget_s)} does not hold another round"
        return None

    @property
    def first(self) -> int:
        """The round after which the first decision may be made."""
        if self.until.within is not None:
            return 1
        return stats.Looks(self.until.planned).first

    def campaign_of(self, rounds: int | None) -> str:
        """`a campaign of 18 rounds (12 min) decides it in 8 of 10 cases`; empty if that is not foreseeable."""
        if rounds is None or self.round_s is None:
            return ""
        return stats.rounds_text(rounds, wording.lasting(rounds * self.round_s))

    @property
    def words(self) -> str:
        """One line after a round."""
        if self.disturbed is not None:
            return f"round {self.rounds}: {self.disturbed}. {AS_IT_IS}"
        if self.gone is not None:
            return f"round {self.rounds}: {self.gone}"
        if self.until.within is not None:
            said = "; ".join(dict.fromkeys(one.words for one in self.comparisons))
            left = [one.rounds_left for one in self.comparisons if not one.hopeless]
            more = None if None in left else max(left, default=0)
            more_words = f"; about {wording.count(more, 'more round')}" if more else ""
            return f"round {self.rounds}: {said}{more_words}"
        if self.rounds < self.first:
            return f"round {self.rounds}: the first decision may be made after round {self.first}"
        return f"round {self.rounds}: {self.decided} of {len(self.comparisons)} decided"

    @property
    def closing(self) -> list[str]:
        """The lines at the end: how many are decided, then each that is not."""
        if self.until.within is not None:
            return self._closing_precisions()
        took = f"{wording.count(self.rounds, 'round')}, {wording.lasting(self.spent_s)}"
        why = "" if self.decided == len(self.comparisons) or self.ended is None else f"; {self.ended}"
        lines = [f"{self.decided} of {len(self.comparisons)} comparisons decided after {took}{why}"]
        for one in self.comparisons:
            if not one.decided:
                lines.append(f"undecided: {self._open(one)}")
        return lines

    def _closing_precisions(self) -> list[str]:
        still = [one for one in self.comparisons if not one.decided and not one.hopeless]
        if not still:
            return []
        within = f"±{100 * self.until.within:.3g} %"
        names = wording.listed(dict.fromkeys(one.found.server for one in still))
        return [f"{names}: not known to {within} yet, because {self.ended}"]

    def _open(self, one: Comparison) -> str:
        cell = f" ({', '.join(f'{key} {value}' for key, value in one.cell)})" if one.cell else ""
        if one.decision is None:
            return f"{one.metric}{cell}: {one.reason}"
        found = one.decision
        open_gates = [f"{gate.text!r} is open" for gate in one.gates if gate.judge(found) == "undecided"]
        parts = [part for part in (wording.decided(found), *open_gates, self.campaign_of(found.rounds) or found.reason) if part]
        return f"{found.one} against {found.other}, {one.metric}{cell}: {'; '.join(parts)}"


def standing(results: Results) -> Standing:
    """Of a campaign with `until`."""
    times = round_times(trial.record for trial in results.every_trial)
    begun = max((planned.round for planned in results.order), default=0)
    return Standing(
        results.campaign.until, begun, times, comparisons(results), results.campaign.spent_s, disturbed(results), gone(results)
    )


def disturbed(results: Results) -> str | None:
    """What disturbed every turn of slices so far, and which programs used most; None if a turn counts or none was taken."""
    left_out, every = results.turns
    if left_out < every or not every or any(planned.as_is for planned in results.order):
        return None
    found = (one.seen for trial in results.every_trial for one in trial.verdict.findings if one.name == "turns")
    return next(found, None)


def gone(results: Results) -> str | None:
    """Which server of the pair is away, or did not start twice in a row. Where precision is asked for: why all are gone."""
    until = results.campaign.until
    if until.within is None:
        return next(filter(None, (_gone(results, name) for name in until.pair)), None)
    reasons = [_gone(results, name) for name in results.names]
    return "; ".join(reasons) if reasons and all(reasons) else None


def _gone(results: Results, name: str) -> str | None:
    records = sorted((one.record for one in results.every_trial if one.record.name == name), key=lambda one: one.number)
    last = records[-2 if records[-1].restarted else -1 :] if records else []
    if last and all(one.never_loaded for one in last) and (len(last) == 2 or not last[-1].restarted):
        return f"{name}: {last[-1].reason}"
    return None


def comparisons(results: Results) -> list[Comparison] | list[Precision]:
    """Every comparison that the campaign is asked for: one pair, or in every cell the best server against the rest. If precision is
    asked for: every server under every SLO."""
    until, found = results.campaign.until, []
    if until.within is not None:
        places, unit = range(len(results.climb.slos)), ladders.UNITS[results.climb.over]
        return [
            Precision(ladders.of(results, name, cell, place), until.within, unit)
            for cell in results.cells
            for name in results.names
            for place in places
        ]
    for metric in until.metrics or [results.leading]:
        for cell in results.cells:
            if until.pair:
                base, new = until.pair
                decided = results.decide(cell, metric, stats.Two(new, base))
                gates = tuple(gate for gate in map(parse, until.gates) if gate.metric == metric)
            else:
                decided, gates = results.best(cell, metric), ()
            for one in decided.decisions:
                without = _without(results, one.one, cell, metric) or _without(results, one.other, cell, metric)
                found.append(Comparison(metric, cell, one, hopeless=without, gates=gates))
            if not decided.decisions:
                without = sum(not _without(results, name, cell, metric) for name in results.contenders) < 2
                found.append(Comparison(metric, cell, None, decided.reason, hopeless=without))
    return found


def _without(results: Results, name: str, cell: Cell, metric: str) -> bool:
    """Whether trials count for a metric that none of them has, such as the CPU time of a server whose process is unknown."""
    counted = results.counted(name, cell, metric)
    return bool(counted) and all(trial.value(metric) is None for trial in counted)


def round_times(records: Iterable[TrialRecord]) -> list[float]:
    """The duration of each round in s, without pauses between trials: a heat lasts from its first start to its last end."""
    spans: dict[tuple[int, object], list[tuple[float, float]]] = {}
    for one in records:
        if one.started_unix_s is not None and one.duration_s is not None:
            of = one.round, one.heat if one.heat is not None else f"trial {one.number}"
            spans.setdefault(of, []).append((one.started_unix_s, one.started_unix_s + one.duration_s))
    rounds: dict[int, float] = {}
    for (number, _), found in spans.items():
        lasted = max(end for _, end in found) - min(start for start, _ in found)
        rounds[number] = rounds.get(number, 0.0) + lasted
    return [rounds[number] for number in sorted(rounds)]

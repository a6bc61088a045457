"""The answers of a campaign that searches for capacities: of each search, and of all searches of a server in a cell together.

Trials in, frozen values out. A search is one server in one cell and round; its probes are trials. In `rows`, a search is one row,
as a trial is in other campaigns, so comparisons, tiers and claims are about searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from wsbench import metrics
from wsbench.analysis.capacity import promises, search
from wsbench.analysis.capacity.promises import Outcome, Promise
from wsbench.analysis.capacity.search import Bounds
from wsbench.analysis.dataset import Cell, DataSet, TrialResult, columns
from wsbench.analysis.stats.contrasts import Series
from wsbench.analysis.stats.crossing import Crossing, Evidence, Probe
from wsbench.analysis.stats.searched import Searched
from wsbench.experiments.experiment import Capacity
from wsbench.metrics import capacities
from wsbench.metrics.findings import Family, Finding, Kind, Verdict
from wsbench.records.engine_files import Plan
from wsbench.records.rundir import TrialOrder, TrialRecord

#: At the end of a search, a trial this many times as long as a probe must keep the promise at the lower end of the interval.
HOLDOUT = 3
#: So often the load of a holdout that fails is lowered, each time by the precision.
HOLDOUTS = 3
#: After so many probes at loads up to it that the load generator disturbed, no higher load is tried.
UNUSABLE = 3
#: A server that runs already is gone when it does not answer once; one that wsbench starts, when it does not start so many times.
STARTS = 2
#: A light load takes longer: a probe has at least so many messages, within a minute.
MESSAGES, LONGEST_S = 1000, 60.0
RECOVERY_S = 16.0
#: So many probes show how a server responds at half of the first promise's capacity.
HALVES = 3
#: Probes at half of a capacity, and of recovery, are about a load that differs by no more than this factor: when a search goes on,
#: its estimate moves.
ABOUT = 1.25
#: What these probes show, by the metric that has it.
AT_HALF = {"half_response_us_p50": "response_us_p50", "half_response_us_p99": "response_us_p99"}
#: The unit of a load, and why a search ended, in words.
UNITS = {"rate": "messages/s", "connections": "connections"}
ENDED = {
    "precision": "precise enough",
    "budget": "its time or its probes were spent",
    "most": "the highest load allowed was kept",
    "least": "the lowest load allowed was broken",
    "generator": "the load generator was the limit: a lower bound",
    "host": "the host disturbed every probe until the budget was spent",
    "unknown": "its trials have no such number",
    "gone": "its trials failed",
}
NOT_SHOWN = "its probes have not shown it"


@dataclass(frozen=True)
class Asked:
    """What a campaign searches for."""

    capacity: Capacity
    probe_s: float

    @cached_property
    def promises(self) -> tuple[Promise, ...]:
        return tuple(map(promises.parse, self.capacity.promises))

    @cached_property
    def places(self) -> dict[str, int]:
        """The metric of the capacity under each promise → the place of the promise."""
        return {capacities.name_of(self.capacity.over, place): place for place in range(len(self.promises))}

    @cached_property
    def bounds(self) -> Bounds:
        asked = self.capacity
        whole = asked.over == "connections"
        least = asked.least or (1.0 if whole else MESSAGES / LONGEST_S)
        return Bounds(asked.within, max(asked.start, least), least, asked.most or (1e6 if whole else 1e8), whole)

    def seconds(self, load: float) -> float:
        """The duration of a probe at this load."""
        each = self.capacity.each_per_s
        per_s = load if self.capacity.over == "rate" else None if each is None else each * load
        return self.probe_s if per_s is None else min(LONGEST_S, max(self.probe_s, MESSAGES / per_s))


@dataclass(frozen=True)
class Tried:
    """One probe and what it says of each promise."""

    trial: TrialResult
    outcomes: tuple[Outcome, ...]

    @property
    def purpose(self) -> str:
        return self.trial.record.search.purpose

    @property
    def load(self) -> float:
        return self.trial.record.search.load

    @property
    def disturbed(self) -> bool:
        """Whether the host made it say nothing of some promise."""
        return "host" in self.outcomes


@dataclass(frozen=True)
class Answer:
    """The capacity under one promise. `ended`: why the search for it is over, None while it goes on. `held`: the highest load that
    a longer trial confirmed. `generator`: the load from which the load generator was the limit, None if it never was."""

    promise: Promise
    found: Crossing
    ended: str | None
    held: float | None
    generator: float | None


@dataclass(frozen=True)
class Search:
    """The probes of one search, or of several of one server in one cell, in the order in which they ran."""

    asked: Asked
    tried: tuple[Tried, ...]

    def probes(self, place: int) -> list[Probe]:
        """What the probes say of the promise at this place. Those that the instrument disturbed are left out."""
        at = [(one.load, one.outcomes[place]) for one in self.tried if one.purpose == "search"]
        return [Probe(load, found == "kept") for load, found in at if found in ("kept", "broken")]

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        return tuple(self._answer(place, promise) for place, promise in enumerate(self.asked.promises))

    def _answer(self, place: int, promise: Promise) -> Answer:
        limit = self.generator(place)
        bounds = self.bounds(place)
        found = search.standing(self.probes(place), bounds)
        ended = found.ended
        if ended == "most" and limit is not None:
            ended = "generator"
        if ended is None and self._unknown(place):
            ended = "unknown"
        held = [one.load for one in self.tried if one.purpose == "holdout" and one.outcomes[place] == "kept"]
        return Answer(promise, found.found, ended, max(held, default=None), limit)

    def bounds(self, place: int) -> Bounds:
        """The loads that may be tried for a promise: none from the generator's limit on, and half of the way to it at a time."""
        bounds, limit = self.asked.bounds, self.generator(place)
        if limit is None:
            return bounds
        kept = max((one.load for one in self.probes(place) if one.kept and one.load < limit), default=None)
        return replace(bounds, most=limit if kept is None else search.below(limit, kept, bounds))

    def generator(self, place: int) -> float | None:
        """The load up to which the load generator was the limit of so many probes; None if it was not."""
        disturbed = sorted(one.load for one in self.tried if one.purpose == "search" and one.outcomes[place] == "generator")
        return disturbed[UNUSABLE - 1] if len(disturbed) >= UNUSABLE else None

    def ended(self, place: int) -> str:
        """Why no further probe was made for a promise: as the answer says, `gone`, `budget`, or `host` if it disturbed all."""
        return self.answers[place].ended or ("gone" if self.gone else "budget" if self.probes(place) else "host")

    @cached_property
    def gone(self) -> str | None:
        """Why further probes would show nothing, in the words of the last trial: its server is away or does not start, no load left
        it alive, or trial after trial failed for another reason. None if there is no such reason."""
        records = [one.trial.record for one in self.tried]
        if not records:
            return None
        last, few = records[-1], records[-UNUSABLE:]
        starts = records[-STARTS if last.restarted else -1 :]
        if len(starts) == (STARTS if last.restarted else 1) and all(one.never_loaded for one in starts):
            return last.reason
        if len(few) < UNUSABLE:
            return None
        without_server = all(one.outcome == "failed" and not one.failed_by_server for one in few)
        return last.reason if without_server or all(one.failed_by_server for one in records) else None

    def _unknown(self, place: int) -> bool:
        """Whether the first probes have no such number at all."""
        outcomes = [one.outcomes[place] for one in self.tried if one.purpose == "search"]
        return len(outcomes) >= UNUSABLE and set(outcomes) == {"unknown"}

    @property
    def capacity(self) -> float | None:
        """The estimate under the first promise, or what its probes have shown it to be at least."""
        found = self.answers[0].found
        return found.estimate or found.low

    @property
    def half(self) -> float | None:
        """Half of that, within the bounds."""
        return None if self.capacity is None else max(self.asked.bounds.least, self.capacity / 2)

    @property
    def halves(self) -> list[TrialResult]:
        """The probes at half of the capacity."""
        return self._about("half", self.half)

    @property
    def recovery(self) -> TrialResult | None:
        """The probe of recovery from an overload; None if none was made around the capacity."""
        return next(iter(self._about("recovery", self.capacity)), None)

    def _about(self, purpose: str, load: float | None) -> list[TrialResult]:
        of = [one for one in self.tried if one.purpose == purpose and load is not None]
        return [one.trial for one in of if load / ABOUT <= one.load <= load * ABOUT]

    def at_half(self, name: str) -> float | None:
        """The median of this metric over the probes at half of the capacity. None if in none of them it counts."""
        known = [value for one in self.halves if one.counts_for(name) and (value := one.value(name)) is not None]
        return median(known) if known else None

    @property
    def spent_s(self) -> float:
        return sum(one.trial.record.duration_s or 0.0 for one in self.tried)


def of_trials(trials: Iterable[TrialResult], asked: Asked) -> Search:
    """The probes among these trials."""
    found = sorted((one for one in trials if one.record.search is not None), key=lambda one: one.record.number)
    return Search(asked, tuple(tried(one, asked) for one in found))


def tried(trial: TrialResult, asked: Asked) -> Tried:
    as_is = asked.capacity.disturbed == "count"
    return Tried(trial, tuple(promises.judge(one, trial, as_is) for one in asked.promises))


def searches(data: DataSet, asked: Asked) -> dict[tuple, Search]:
    """By server (or its control), cell and round."""
    groups: dict[tuple, list[TrialResult]] = {}
    for trial in data.trials:
        groups.setdefault(key_of(trial.record), []).append(trial)
    return {key: of_trials(found, asked) for key, found in groups.items()}


def key_of(planned: TrialOrder) -> tuple:
    """The search of a probe: server (or its control), cell and round."""
    return planned.name, tuple(planned.cell.items()), planned.round


def rows(data: DataSet, order: Sequence[TrialOrder], asked: Asked) -> tuple[DataSet, list[TrialOrder]]:
    """The campaign with one row for each search: its answers and, for all else, the trial with the highest load that kept the first
    promise. The order has the first probe of each search."""
    found = searches(data, asked)
    first = {}
    for planned in order:
        first.setdefault(key_of(planned), planned)
    made = sorted((_row(one, first[key]) for key, one in found.items()), key=lambda one: one.record.number)
    numbers = columns(one.numbers for one in made)
    trials = [TrialResult(one.record, one.verdict, one.plan, numbers, row) for row, one in enumerate(made)]
    kept = replace(data, trials=trials, columns=numbers)
    return kept, [planned.model_copy(update={"search": None}) for planned in first.values()]


@dataclass(frozen=True)
class _Row:
    record: TrialRecord
    verdict: Verdict
    plan: Plan | None
    numbers: metrics.Numbers


def _row(one: Search, planned: TrialOrder) -> _Row:
    shown, asked = _shown(one), one.asked
    first = one.tried[0].trial
    values: dict[str, float | int | None] = dict.fromkeys(metrics.METRICS)
    reasons = dict.fromkeys(metrics.METRICS, "no probe kept the first promise")
    if shown is not None:
        values, reasons = dict(shown.values), dict(shown.reasons)
    for place, answer in enumerate(one.answers):
        of = {"": answer.found.estimate, "low": answer.found.low, "high": answer.found.high, "held": answer.held}
        for what, value in of.items():
            name = capacities.name_of(asked.capacity.over, place, what)
            values[name], reasons[name] = value, NOT_SHOWN
    for name, of in AT_HALF.items():
        values[name], reasons[name] = one.at_half(of), "no probe at half of the capacity counts"
    values["recovery_s"], reasons["recovery_s"] = (
        (None, "no probe of recovery has run") if one.recovery is None else _of(one.recovery, "recovery_s")
    )
    numbers = metrics.Numbers(values, {name: reasons[name] for name, value in values.items() if value is None})
    record = first.record.model_copy(
        update={"number": planned.number, "search": None, "outcome": "ok", "reason": None, "duration_s": one.spent_s}
    )
    # Which probes count is decided already: their findings say nothing of the answer.
    found = () if shown is None else tuple(replace(of, affects=_without_rate(of)) for of in shown.verdict.findings)
    return _Row(record, Verdict(found, "unknown" if shown is None else shown.verdict.bottleneck), (shown or first).plan, numbers)


def probed(data: DataSet, asked: Asked, name: str, cell: Cell) -> Search:
    """All probes of a server in a cell, of every round."""
    return of_trials((one for one in data.trials if one.record.name == name and one.cell == cell), asked)


def series(by_round: Series, data: DataSet, asked: Asked, name: str, cell: Cell, metric: str) -> Series:
    """A metric of a server by round; with what the probes show, if it is one of the capacities that are searched for."""
    place = asked.places.get(metric)
    if place is None:
        return by_round
    found = probed(data, asked, name, cell)
    return Searched(by_round, Evidence(tuple(found.probes(place))), found.answers[place].found.estimate)


def _of(trial: TrialResult, name: str) -> tuple[float | int | None, str | None]:
    return trial.value(name), trial.reason(name)


def _without_rate(found: Finding) -> dict[Family, Kind]:
    return {family: kind for family, kind in found.affects.items() if family != "throughput"}


def _shown(one: Search) -> TrialResult | None:
    """The trial with the highest load that kept the first promise, longer ones first."""
    kept = [tried for tried in one.tried if tried.purpose in ("search", "holdout") and tried.outcomes[0] == "kept"]
    return max(kept, key=lambda tried: (tried.purpose == "holdout", tried.load)).trial if kept else None

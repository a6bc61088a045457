"""Plans the probes of searches for capacities, one of each search at a time, so that servers that are compared are probed under the
same conditions of the machine.

A search is kept in memory and grows by one probe at a time: while servers are probed, nothing is computed twice. A campaign that is
resumed begins with what it has on disk.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from wsbench.analysis import reading, tables, thresholds
from wsbench.analysis.capacity import answers, search
from wsbench.analysis.capacity.answers import HALVES, HOLDOUT, HOLDOUTS, RECOVERY_S, Asked, Search, Tried
from wsbench.analysis.dataset import TrialResult
from wsbench.analysis.stats.crossing import ERROR
from wsbench.experiments.experiment import Experiment
from wsbench.metrics import METRICS
from wsbench.metrics.trial_data import TrialData
from wsbench.records.rundir import Probe, RunFolder, TrialOrder
from wsbench.run import ordering
from wsbench.servers.catalogue import Variant


def asked_of(experiment: Experiment) -> Asked:
    return Asked(experiment.capacity, experiment.timing.measure_s)


def first_round(experiment: Experiment, variants: list[Variant], seed: int) -> list[TrialOrder]:
    """The first probe of each search of the first round."""
    asked = asked_of(experiment)
    planned = ordering.round_of(1, 1, experiment, variants, seed)
    probe = _probe(asked, asked.bounds.start)
    return [one.model_copy(update={"search": probe}) for one in planned]


class Searches:
    """All searches of a campaign, of which each probe is added once, when it has ended. `seconds`: a clock."""

    def __init__(
        self, run: RunFolder, experiment: Experiment, say: Callable[[str], None], seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._asked, self._say, self._seconds = run, asked_of(experiment), say, seconds
        self._rounds, self._seed = run.campaign.rounds, run.campaign.seed
        self._growing = reading.growing(run)
        self._found = answers.searches(self._growing.data, self._asked)
        #: Of each search the wall time in s, what lies between trials included.
        self._spent_s = {key: sum(map(_lasted_s, one.tried)) for key, one in self._found.items()}
        self._last_s = seconds()
        #: Searches that end: their server is gone, as this process has seen it, or a probe could not be judged. When a campaign is
        #: resumed, the server may be back.
        self._gone: set[tuple] = set()
        #: A comparison of several servers needs ends that hold with more than 95 % (`stats.decision.of_ends`).
        self._error = ERROR / max(1, len({one.name for one in run.order if not one.control}))
        #: The most time that is left for searches, in s.
        self.left_s = 0.0

    def add(self, trial: TrialData) -> None:
        """A probe that has just ended."""
        key = answers.key_of(trial.record)
        # Until it is judged: a search whose probe cannot be judged ends, since it would be made again and again.
        self._gone.add(key)
        tried = answers.tried(self._growing.add(trial), self._asked)
        before = self._found.get(key)
        made = sorted((*(before.tried if before else ()), tried), key=lambda one: one.trial.record.number)
        self._found[key] = search = Search(self._asked, tuple(made))
        if not search.gone:
            self._gone.discard(key)
        self._tell(tried)
        now_s = self._seconds()
        if tried.purpose == "search":
            self._spent_s[key] = self._spent_s.get(key, 0.0) + now_s - self._last_s
        self._last_s = now_s

    def following(self, order: list[TrialOrder]) -> list[TrialOrder]:
        """The next probe of each search that has not ended; those of the next round when all have. Empty at the end,
        when the data set has been written."""
        now = max(one.round for one in order)
        of_round: dict[tuple, TrialOrder] = {}
        for one in order:
            if one.round == now and answers.key_of(one) in self._found:
                of_round.setdefault(answers.key_of(one), one)
        later = (self._rounds - now) * len(of_round) * self._asked.capacity.budget_s
        self.left_s = later + sum(self._left_s(key) for key in of_round if key not in self._gone)
        due = [
            (one, probe)
            for key, one in of_round.items()
            if key not in self._gone and (probe := next_probe(self._found[key], self._error, self._spent_s[key])) is not None
        ]
        if not due and now < self._rounds:
            start = _probe(self._asked, self._asked.bounds.start)
            due = [(one.model_copy(update={"round": now + 1}), start) for one in of_round.values()]
        if not due:
            tables.write(self._run, self._growing.data)  # so that nobody reads the raw files of all probes again
        random.Random(f"{self._seed} probes {len(order)}").shuffle(due)
        return [
            one.model_copy(update={"number": number, "search": probe}) for number, (one, probe) in enumerate(due, len(order) + 1)
        ]

    def _left_s(self, key: tuple) -> float:
        return _left_s(self._found[key], self._spent_s[key])

    def _tell(self, tried: Tried) -> None:
        record = tried.trial.record
        if record.outcome == "failed":
            return  # the progress of trials says why
        said = [_recovery_words(tried.trial)] if tried.purpose == "recovery" else []
        for promise, outcome in zip(self._asked.promises, tried.outcomes, strict=True) if not said else ():
            value = tried.trial.value(promise.leading.metric)
            number = "" if value is None else f" ({thresholds.in_units(value, METRICS[promise.leading.metric].unit)})"
            said.append(f"{promise.text} {WORDS[outcome]}{number}")
        unit = answers.UNITS[self._asked.capacity.over]
        cell = "".join(f" {key}={value}" for key, value in record.cell.items())
        purpose = "" if tried.purpose == "search" else f" ({tried.purpose})"
        self._say(f"[{record.number}] {record.name}{cell}  {tried.load:,.6g} {unit}{purpose}: {'; '.join(said)}")


def _lasted_s(tried: Tried) -> float:
    return (tried.trial.record.duration_s or 0.0) if tried.purpose == "search" else 0.0


def _recovery_words(trial: TrialResult) -> str:
    seconds = trial.value("recovery_s")
    return trial.reason("recovery_s") or "" if seconds is None else f"recovered within {seconds:.3g} s"


#: What is said of the outcome of a probe.
WORDS = {
    "kept": "kept",
    "broken": "broken",
    "host": "not judged: the host disturbed it",
    "generator": "not judged: the load generator was the limit",
    "unknown": "not known",
}


def next_probe(one: Search, error: float, spent_s: float) -> Probe | None:
    """The next probe of a search. None if it has ended. `error`: with which both ends of each interval come first. `spent_s`: wall
    time of the search so far."""
    asked = one.asked
    open_ = [place for place, answer in enumerate(one.answers) if answer.ended is None]
    if open_ and _left_s(one, spent_s) > 0:
        place = max(open_, key=lambda place: _lacks(one, place, error))
        return _probe(asked, search.next_load(one.probes(place), one.bounds(place), error))
    for place in range(len(one.answers)):
        if (load := _to_hold(one, place)) is not None:
            return Probe(purpose="holdout", load=load, seconds=HOLDOUT * asked.seconds(load))
    return _half(one) or _recovery(one)


def _left_s(one: Search, spent_s: float) -> float:
    """For how long a search may go on, by its time and by the number of its probes."""
    asked, made = one.asked.capacity, sum(tried.purpose == "search" for tried in one.tried)
    left_s = max(0.0, asked.budget_s - spent_s)
    if asked.probes is None or not made:
        return left_s
    return min(left_s, max(0, asked.probes - made) * spent_s / made)


def _lacks(one: Search, place: int, error: float) -> tuple:
    """How much is unknown under a promise: whether any load is too high or too low for it, how many ends of its interval are
    not shown, then how many are not shown with this error, then how wide the interval is, then how few probes are near its
    estimate."""
    found = one.answers[place].found
    few = -search.near(one.probes(place), one.bounds(place))
    unshown = len(search.missing(one.probes(place))), len(search.missing(one.probes(place), error))
    return found.estimate is None, unshown, found.within or 0.0, few, -place


def _probe(asked: Asked, load: float) -> Probe:
    return Probe(purpose="search", load=load, seconds=asked.seconds(load))


def _to_hold(one: Search, place: int) -> float | None:
    """The load of the next holdout for a promise; None if one has kept it, too many have not, or there is nothing to hold."""
    low = one.answers[place].found.low
    if low is None:
        return None
    step = 1 + one.asked.capacity.within
    near = [tried for tried in one.tried if tried.purpose == "holdout" and low / step**HOLDOUTS < tried.load <= low]
    if any(tried.outcomes[place] == "kept" for tried in near) or len(near) >= HOLDOUTS:
        return None
    return _rounded(one, low / step ** sum(tried.outcomes[place] == "broken" for tried in near))


def _half(one: Search) -> Probe | None:
    """A probe at half of the first promise's capacity; None if there are enough of them, or nothing is known of it."""
    if one.half is None or len(one.halves) >= HALVES:
        return None
    half = max(one.asked.bounds.least, _rounded(one, one.half))
    return Probe(purpose="half", load=half, seconds=one.asked.seconds(half))


def _recovery(one: Search) -> Probe | None:
    """The last probe: from an overload to a light load, around the first promise's capacity."""
    first, load = one.answers[0], one.capacity
    known = load is not None and first.promise.bound_s is not None and first.ended != "generator"
    if not known or one.recovery is not None:
        return None
    return Probe(purpose="recovery", load=_rounded(one, load), seconds=RECOVERY_S, bound_s=first.promise.bound_s)


def _rounded(one: Search, load: float) -> float:
    return float(round(load)) if one.asked.bounds.whole else float(f"{load:.4g}")

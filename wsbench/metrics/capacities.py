"""Metrics of a search for a capacity. A search has many trials, so its answers are computed from all of them (analysis.capacity);
here they have their names. What a single probe can show is computed here.
"""

from __future__ import annotations

from wsbench.metrics import ladder
from wsbench.metrics.parts import NO_PLAN
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import NO_WINDOW, NS_PER_S, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known

OF_A_SEARCH = "only a search for a capacity has it, not a single trial"
#: The promises of one search, in their order.
MOST_PROMISES = 3


def _answer(name: str, unit: str, text: str, place: int | None = None) -> None:
    def compute(trial: TrialData) -> float:
        if trial.record.ladder is None or place is None:
            raise Unmeasured(OF_A_SEARCH)
        return of_ladder(trial, place).per_s

    compute.__name__, compute.__doc__ = name, text
    metric(unit, "higher", "throughput")(compute)


def of_ladder(trial: TrialData, place: int) -> ladder.Capacity:
    """Under the SLO at this place. Unmeasured if the ladder has none, is coarse, or did not reach it."""
    climbed = known(trial.record.ladder, "only a ladder has the capacity of one process")
    if place >= len(climbed.slos):
        raise Unmeasured(f"the ladder has {len(climbed.slos)} SLOs")
    if climbed.coarse:
        raise Unmeasured(ladder.COARSE)
    return ladder.capacity(trial.rungs, climbed.slos[place])


def _is_bound(place: int) -> None:
    def compute(trial: TrialData) -> int:
        return int(of_ladder(trial, place).at_least)

    compute.__name__ = bound_of(name_of("rate", place))
    compute.__doc__ = (
        f"1 if the {name_of('rate', place)} of a ladder is a lower bound, because the load generator ended it; else 0."
    )
    metric("count", "neither", "throughput")(compute)


def bound_of(name: str) -> str:
    """The metric that says whether this capacity of a ladder is a lower bound."""
    return name.replace("_per_s", "_is_bound")


def name_of(over: str, place: int, what: str = "") -> str:
    """The metric of the promise at this place (from 0): `capacity_per_s`, `capacity_2_per_s`. `what`: `low`, `high` or `held`."""
    words = ["capacity", str(place + 1) if place else "", what, "per_s" if over == "rate" else "connections"]
    return "_".join(filter(None, words))


for _over, _unit, _load in (("rate", "messages/s", "rate of messages"), ("connections", "connections", "number of connections")):
    for _place, _which in enumerate(("first", "second", "third")[:MOST_PROMISES]):
        _of = f"of a search's {_which} promise"
        _text = f"Capacity: the highest {_load} that keeps the promise more often than not; {_of}."
        _answer(name_of(_over, _place), _unit, _text, _place if _over == "rate" else None)
        _answer(name_of(_over, _place, "low"), _unit, f"Lower end of the 95 % interval of the capacity {_of}.")
        _answer(name_of(_over, _place, "high"), _unit, f"Upper end of the 95 % interval of the capacity {_of}.")
        _answer(name_of(_over, _place, "held"), _unit, f"The {_load} that a longer trial at the end confirmed; {_of}.")

for _place in range(MOST_PROMISES):
    _is_bound(_place)


@metric("µs", "lower", "body")
def half_response_us_p50(trial):
    """Median response time at half of the capacity of a search's first promise; the median of its probes there."""
    raise Unmeasured(OF_A_SEARCH)


@metric("µs", "lower", "tail")
def half_response_us_p99(trial):
    """99th percentile of response times at half of the capacity of a search's first promise; the median of its probes there."""
    raise Unmeasured(OF_A_SEARCH)


@metric("s", "lower", "body")
def recovery_s(trial):
    """Time from the end of an overload until the server's backlog is gone for good, in steps of the engine's ticks (0.2 s).

    By Little's law: the messages that are unanswered are no more than the light load's rate times the promised time. Ticks at which
    the host was disturbed say nothing.
    """
    probe = trial.record.search
    if probe is None or probe.purpose != "recovery" or probe.bound_s is None:
        raise Unmeasured("only the last probe of a search overloads the server and lets it recover")
    plan, (begin_ns, end_ns) = known(trial.plan, NO_PLAN), known(trial.window, NO_WINDOW)
    began_ns = trial.begins.get("warmup", begin_ns)
    step_ns = began_ns + round(NS_PER_S * sum(segment.for_s for segment in plan.loop.rate[:-1]))
    most = plan.threads + max(1.0, plan.loop.rate[-1].to_per_s * probe.bound_s)

    def backlog(tick) -> float:
        """Of random arrivals only those that were sent are known: how many were due is not the mean."""
        constant = plan.loop.arrivals == "constant"
        due = plan.loop.due_before((tick.t_ns - began_ns) / NS_PER_S) if constant else tick.sent
        return due - tick.answered - tick.failed

    if plan.loop.depth is not None and plan.loop.arrivals == "poisson":
        raise Unmeasured("messages that await a free connection are not in the engine's ticks")
    quiet = None if trial.quiet is None else {end for _, end in trial.quiet}
    after = [tick for tick in trial.ticks if step_ns <= tick.t_ns <= end_ns and (quiet is None or tick.t_ns in quiet)]
    if after and (gone := plan.connections - after[-1].open) > 0:
        raise Unmeasured(f"not recovered: {gone:,} of {plan.connections:,} connections were lost")
    full = [place for place, tick in enumerate(after) if backlog(tick) > most]
    first = full[-1] + 1 if full else 0
    if first >= len(after):
        raise Unmeasured(f"not recovered within {(end_ns - step_ns) / NS_PER_S:.3g} s")
    return (after[first].t_ns - step_ns) / NS_PER_S

"""The capacity of one process, which carried a ladder of loads: the highest load at which it keeps an SLO."""

from __future__ import annotations

from wsbench.metrics import ladder
from wsbench.metrics.parts import NO_PLAN
from wsbench.metrics.registry import METRICS, Numbers, metric
from wsbench.metrics.trial_data import NO_WINDOW, NS_PER_S, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known

NO_LADDER = "only a ladder has the capacity of one process"
#: The SLOs of one ladder, in their order.
MOST_SLOS = 3
#: Metrics that mean nothing over all loads of a ladder together.
OF_ONE_LOAD = {"throughput", "body", "tail", "counts"}
MANY_LOADS = "a ladder has many loads: its curve says what holds at each"


def of_ladder(trial: TrialData, place: int) -> ladder.Capacity:
    """Under the SLO at this place. Unmeasured if the ladder has none, is coarse, or did not reach it."""
    climbed = known(trial.record.ladder, NO_LADDER)
    if place >= len(climbed.slos):
        raise Unmeasured(f"the ladder has {len(climbed.slos)} SLOs")
    if climbed.coarse:
        raise Unmeasured(ladder.COARSE)
    return ladder.capacity(trial.rungs, climbed.slos[place], climbed.most)


def name_of(over: str, place: int) -> str:
    """The metric of the SLO at this place (from 0): `capacity_per_s`, `capacity_2_per_s`, `capacity_connections`."""
    return "_".join(filter(None, ["capacity", str(place + 1) if place else "", "per_s" if over == "rate" else "connections"]))


def bound_of(name: str) -> str:
    """The metric that says whether this capacity is a lower bound."""
    return f"{name.removesuffix('_per_s').removesuffix('_connections')}_is_bound"


def _capacity(over: str, unit: str, load: str, place: int) -> None:
    def compute(trial: TrialData) -> float:
        climbed = known(trial.record.ladder, NO_LADDER)
        if (climbed.connections is None) != (over == "rate"):
            raise Unmeasured(f"this ladder is not over the {load}")
        return of_ladder(trial, place).load

    compute.__name__ = name_of(over, place)
    compute.__doc__ = f"Capacity: the highest {load} at which one process keeps the {WHICH[place]} SLO of its ladder."
    metric(unit, "higher", "throughput")(compute)


def _is_bound(place: int) -> None:
    def compute(trial: TrialData) -> int:
        return int(of_ladder(trial, place).at_least)

    compute.__name__ = bound_of(name_of("rate", place))
    compute.__doc__ = (
        f"1 if the capacity under the {WHICH[place]} SLO of a ladder is a lower bound: the load generator ended it; else 0."
    )
    metric("count", "neither", "throughput")(compute)


WHICH = ("first", "second", "third")[:MOST_SLOS]
for _over, _unit, _load in (("rate", "messages/s", "rate of messages"), ("connections", "connections", "number of connections")):
    for _place in range(MOST_SLOS):
        _capacity(_over, _unit, _load, _place)
for _place in range(MOST_SLOS):
    _is_bound(_place)


def without_mixtures(trial: TrialData, found: Numbers) -> Numbers:
    """The numbers of a trial; of a ladder only those that mean something over all of its loads."""
    if trial.record.ladder is None or trial.record.outcome == "failed":
        return found
    mixed = {name for name, one in METRICS.items() if one.family in OF_ONE_LOAD and not name.startswith("capacity_")}
    values = {name: None if name in mixed else value for name, value in found.values.items()}
    return Numbers(values, found.reasons | {name: MANY_LOADS for name in mixed if found.values[name] is not None})


@metric("s", "lower", "body")
def recovery_s(trial):
    """Time from the end of an overload until the server's backlog is gone for good, in steps of the engine's ticks (0.2 s).

    By Little's law: the messages that are unanswered are no more than the light load's rate times the bound. Ticks at which
    the host was disturbed say nothing.
    """
    asked = trial.record.follow_up
    bound_us = None if asked is None or asked.purpose != "recovery" else ladder.bound_us(asked.slo)
    bound_s = known(bound_us, "only the trial of recovery after a ladder overloads the server, and lets it recover") / 1e6
    plan, (begin_ns, end_ns) = known(trial.plan, NO_PLAN), known(trial.window, NO_WINDOW)
    began_ns = trial.begins.get("warmup", begin_ns)
    step_ns = began_ns + round(NS_PER_S * sum(segment.for_s for segment in plan.loop.rate[:-1]))
    most = plan.threads + max(1.0, plan.loop.rate[-1].to_per_s * bound_s)

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

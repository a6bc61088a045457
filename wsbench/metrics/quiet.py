"""The quiet stretches of a trial: those in which the hypervisor took no CPU time from it and it had caught up with what it took.

In: samples of machines, and the ticks of the engine. Out: stretches between two ticks. The host's counters alone choose them, and
no result of the server.
"""

from __future__ import annotations

from itertools import pairwise

from wsbench.metrics.tracks import of_trial
from wsbench.records.engine_files import Open, Plan, Push, Tick
from wsbench.records.samples import MachineSample

NS_PER_S = 1e9
#: After a stop of t, a server that is busy for a share b of the time has caught up after t·b/(1 - b): 4 t at 80 %.
CATCHING_UP = 4

Stretch = tuple[int, int]


def applies_to(plan: Plan) -> bool:
    """Whether the engine ticked so often that a trial can be judged by its quiet stretches. Only the times of an open loop can: its
    load is the same in all of them."""
    return plan.tick_s < 1 and isinstance(plan.loop, Open) and not isinstance(plan.scenario, Push) and plan.slices is None


def of(ticks: list[Tick], begin_ns: int, machines: list[list[MachineSample]]) -> list[Stretch] | None:
    """The stretches between two ticks, from `begin_ns` on, in which every machine was undisturbed. None if one was not sampled."""
    if not all(machines) or not machines:
        return None
    disturbed = [one for samples in machines for one in disturbances(samples)]
    sampled = max(samples[0].t_ns for samples in machines), min(samples[-1].t_ns for samples in machines)
    edges = [tick.t_ns for tick in ticks if tick.t_ns >= begin_ns]
    found = []
    for begin, end in pairwise(edges):
        inside = sampled[0] <= begin < end <= sampled[1]
        if inside and not any(since < end and begin < until for since, until in disturbed):
            found.append((begin, end))
    return found


def disturbances(samples: list[MachineSample]) -> list[Stretch]:
    """From when CPU time was taken until the server has caught up. What is taken meanwhile adds to it.

    A CPU counts what was taken only when it runs again, so it was taken before the sample that shows it, perhaps all at once.
    """
    found, until = [], 0
    for before, after in pairwise(samples):
        taken_s = of_trial(after, before).steal - of_trial(before, after).steal
        if taken_s > 0:
            until = max(until, after.t_ns) + round(CATCHING_UP * taken_s * NS_PER_S)
            found.append((min(before.t_ns, after.t_ns - round(taken_s * NS_PER_S)), until))
    return found


def holds(stretches: list[Stretch], at_ns: float) -> bool:
    return any(begin <= at_ns < end for begin, end in stretches)


def inside(stretches: list[Stretch], window: Stretch) -> list[Stretch]:
    """Those inside the window."""
    return [(begin, end) for begin, end in stretches if window[0] <= begin and end <= window[1]]


def seconds(stretches: list[Stretch]) -> float:
    return sum(end - begin for begin, end in stretches) / NS_PER_S

"""The quiet stretches of a trial, whose times count: in a ladder, those in which the hypervisor took no CPU time from it and it had
caught up with what it took; in a long trial of users who pause, whole periods in which it took little.

In: samples of machines, and the ticks of the engine. Out: stretches between two ticks. The host's counters alone choose them, and
no result of the server.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import numpy as np

from wsbench.metrics.tracks import TICK_S, of_trial, wanted_s
from wsbench.records.engine_files import Closed, Open, Plan, Push, Seconds, Tick
from wsbench.records.samples import MachineSample

NS_PER_S = 1e9
#: After a stop of t, a server that is busy for a share b of the time has caught up after t·b/(1 - b): 4 t at 80 %.
CATCHING_UP = 4
#: A long trial of users who pause is judged by periods of this length.
PERIOD_S = 10.0
#: A period of which the hypervisor took this share of the CPU time that the trial wanted belongs to a burst of another machine.
BURST = 0.03
#: Shorter trials are rerun instead.
LONG_S = 300.0

Stretch = tuple[int, int]


def is_fine(plan: Plan) -> bool:
    """Whether the engine ticked so often that a trial can be judged by stretches of its ticks. Only the times of an open loop can:
    its load is the same in all of them."""
    return plan.tick_s < 1 and isinstance(plan.loop, Open) and not isinstance(plan.scenario, Push) and plan.slices is None


def has_periods(plan: Plan) -> bool:
    """Whether a trial is judged by whole periods: a long one of users who pause, so that the server does not set the load.

    Their load changes by steps. A server is busiest after a step, and most likely to lose CPU time then. Fine stretches would leave
    out the slowest moments of the busiest server.
    """
    pausing = isinstance(plan.loop, Closed) and plan.loop.think is not None and plan.slices is None
    return pausing and plan.tick_s < 1 and isinstance(plan.measure, Seconds) and plan.measure.seconds >= LONG_S


def of_periods(ticks: list[Tick], window: Stretch, machines: list[list[MachineSample]]) -> list[Stretch] | None:
    """The stretches between two ticks in the periods without a burst on any machine. None if one was not sampled."""
    if not all(machines) or not machines:
        return None
    begin_ns, end_ns = window
    edges = np.arange(begin_ns, end_ns + PERIOD_S * NS_PER_S, PERIOD_S * NS_PER_S)
    kept = np.ones(len(edges) - 1, dtype=bool)
    for samples in machines:
        taken, wanted = np.diff(stolen_at(samples, edges)), np.diff(wanted_at(samples, edges))
        sampled = (edges[:-1] >= samples[0].t_ns) & (np.minimum(edges[1:], end_ns) <= samples[-1].t_ns)
        # The counters of two CPUs may be wrong by a tick each.
        kept &= sampled & (taken - 2 * TICK_S <= BURST * wanted)
    inside = [tick.t_ns for tick in ticks if begin_ns <= tick.t_ns <= end_ns]
    found = []
    for begin, end in pairwise(inside):
        first, last = (int((at - begin_ns) // (PERIOD_S * NS_PER_S)) for at in (begin, end - 1))
        if kept[first] and kept[last]:
            found.append((begin, end))
    return found


def stolen_at(samples: list[MachineSample], at_ns: np.ndarray) -> np.ndarray:
    """CPU seconds that the hypervisor had taken from the trial at these instants, interpolated."""
    return np.interp(at_ns, [one.t_ns for one in samples], [of_trial(one, samples[0]).steal for one in samples])


def wanted_at(samples: list[MachineSample], at_ns: np.ndarray) -> np.ndarray:
    """CPU seconds that the trial had used or had been refused at these instants, interpolated."""
    return np.interp(at_ns, [one.t_ns for one in samples], [wanted_s(of_trial(one, samples[0])) for one in samples])


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
    """Whether one of the stretches, which are in order, contains this instant."""
    place = bisect_right(stretches, at_ns, key=lambda one: one[0]) - 1
    return place >= 0 and at_ns < stretches[place][1]


def inside(stretches: list[Stretch], window: Stretch) -> list[Stretch]:
    """Those inside the window."""
    return [(begin, end) for begin, end in stretches if window[0] <= begin and end <= window[1]]


def seconds(stretches: list[Stretch]) -> float:
    return sum(end - begin for begin, end in stretches) / NS_PER_S

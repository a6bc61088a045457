"""How long the engine's workers waited for a CPU, and what that can have done to messages.

The kernel counts the sum of a thread's waits, not each one. What a message waited is therefore bounded, never known.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from wsbench.metrics import quiet
from wsbench.metrics.parts import NO_SCHEDSTAT, NS_PER_US, workers_of
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import NO_WINDOW, TrialData
from wsbench.metrics.unmeasured import known
from wsbench.records.engine_files import Closed

#: So many messages are delayed for each one that comes while a worker waits: as many again come while the worker catches up.
CATCHING_UP = 2


class Stretch(NamedTuple):
    """Between two ticks: the workers' wait, the messages answered, and those that come during a single wait of that length. A
    message comes when it is answered and, at a rate, when it falls due."""

    waited_ns: int
    answered: int
    come: float


@metric("%", "lower", "cpu")
def engine_wait_percent(trial):
    """Largest share of the measured window in which one of the engine's workers was ready to run but had no CPU.

    Where only quiet stretches count: of these.
    """
    workers = workers_of(trial)
    share = max(known(one.wait_ns, NO_SCHEDSTAT) / known(one.wall_ns or None, NO_WINDOW) for one in workers)
    return 100 * share * _in_quiet(trial)


@metric("µs", "lower", "cpu")
def engine_wait_us_per_message(trial):
    """Mean time that a message waited for the engine to get a CPU, at most; part of its service time.

    The smaller of two bounds. By wake-ups: the workers' wait / counted messages × the messages of an average wake-up, at least one
    and at most one per connection. By ticks, for a worker that rarely sleeps: as if the wait between two ticks was a single one. It
    delays the message for which the worker woke up and those that come meanwhile. Each counts with all of it, though on average it
    comes halfway: as much again is left for catching up.
    """
    waited_ns = sum(known(one.wait_ns, NO_SCHEDSTAT) for one in workers_of(trial)) * _in_quiet(trial)
    messages, waits = _messages(trial), _waits(trial)
    held_up = min(trial.plan.senders, max(1.0, messages / waits) if waits else trial.plan.senders)
    found = [waited_ns / messages * held_up]
    if stretches := _stretches(trial):
        most = _places(trial)
        delayed_ns = sum(one.waited_ns * min(1 + one.come, most) for one in stretches)
        found.append(delayed_ns / sum(one.answered for one in stretches))
    return min(found) / NS_PER_US


def delayed_share(trial: TrialData) -> float:
    """The largest share of the messages that waits can have delayed; 1 if nothing is known.

    Each wait delays the message for which the worker woke up, and those that come meanwhile. There are no more waits than context
    switches.
    """
    stretches = _stretches(trial)
    if not stretches:
        return 1.0
    came = sum(one.come for one in stretches) / sum(one.answered for one in stretches)
    return min(1.0, _waits(trial) / _messages(trial) + CATCHING_UP * came)


def _messages(trial: TrialData) -> int:
    """Those to which the workers' own counters belong: of all slices, also of turns that do not count."""
    replies = trial.counted if trial.slices is None else trial.measured.replies_in_window
    return known(replies or None, "no message was answered")


def _waits(trial: TrialData) -> int:
    return sum(one.voluntary_switches + one.involuntary_switches for one in workers_of(trial))


def _places(trial: TrialData) -> float:
    """As many messages are in flight at most."""
    loop = trial.plan.loop
    return trial.plan.senders * loop.depth if isinstance(loop, Closed) else float("inf")


def _stretches(trial: TrialData) -> list[Stretch]:
    """Those whose times count. Empty if a tick does not say how long the workers had waited, or nothing was answered."""
    at = {tick.t_ns: tick for tick in trial.ticks if tick.wait_ns is not None}
    loop, found = trial.plan.loop, []
    sides = 1 if isinstance(loop, Closed) and loop.think is None else 2
    for edges in _edges(trial):
        begin, end = (at.get(edge) for edge in edges)
        if begin is None or end is None:
            return []
        waited_ns, answered = end.wait_ns - begin.wait_ns, end.answered - begin.answered
        found.append(Stretch(waited_ns, answered, sides * answered * waited_ns / (end.t_ns - begin.t_ns)))
    return found if any(one.answered for one in found) else []


def _edges(trial: TrialData) -> list[tuple[int, int]]:
    if trial.slices is not None:
        return [(one.open_ns, one.close_ns) for one in trial.kept_slices]
    if trial.window is None:
        return []
    if trial.quiet is not None:
        return quiet.inside(trial.quiet, trial.window)
    begin_ns, end_ns = trial.window
    return list(pairwise([begin_ns, *(tick.t_ns for tick in trial.ticks if begin_ns < tick.t_ns < end_ns), end_ns]))


def _in_quiet(trial: TrialData) -> float:
    """The wait per second of the quiet stretches, against that of the whole window; 1 if the whole window counts. While the
    hypervisor runs another machine, every worker waits."""
    if trial.quiet is None:
        return 1.0
    waited = {tick.t_ns: tick.wait_ns for tick in trial.ticks}
    begin_ns, end_ns = trial.window
    kept = quiet.inside(trial.quiet, trial.window)
    if None in waited.values() or begin_ns not in waited or end_ns not in waited or not kept:
        return 1.0
    whole = (waited[end_ns] - waited[begin_ns]) / (end_ns - begin_ns)
    here = sum(waited[end] - waited[begin] for begin, end in kept) / sum(end - begin for begin, end in kept)
    return here / whole if whole > 0 else 1.0

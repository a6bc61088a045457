"""How many turns a trial took with others, how many of them the host disturbed, and what a resting server used."""

from __future__ import annotations

from statistics import fmean

from wsbench.metrics.registry import metric
from wsbench.metrics.unmeasured import known

ALONE = "the server took no turns with others"


@metric("count", "neither", "counts")
def turns(trial):
    """Turns in which the server was measured, with those that do not count. All servers of a heat have the same."""
    return len(known(trial.slices, ALONE))


@metric("count", "lower", "counts")
def turns_disturbed(trial):
    """Turns that the host disturbed. They are left out for all servers of the heat."""
    return sum(one.disturbed is not None for one in known(trial.slices, ALONE))


@metric("ms", "lower", "cpu")
def resting_cpu_ms(trial):
    """CPU time that the server used between two of its slices, mean over the turns that count."""
    known(trial.slices, ALONE)
    rests = [one.cpu.rest_s for one in trial.kept_slices if one.cpu.rest_s is not None]
    return 1e3 * fmean(known(rests or None, "no rest of the server was sampled"))

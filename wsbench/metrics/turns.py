"""How many turns a trial took with others, and how many of them the host disturbed."""

from __future__ import annotations

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

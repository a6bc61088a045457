"""Metrics: one trial in, one number out. Each is a function with a name, a unit, a direction and a docstring for
people.

A number that does not apply or was not measured is None with a reason, never zero: nothing is filled in and nothing is
extrapolated. Inside a metric, `known` and `Unmeasured` give the reason; called by its name a metric returns None. It
computes no quantile itself and never runs anything. A metric is one function in the room that fits it; importing the room
registers it.
"""

from wsbench.metrics import broadcasts, connections, failures, latencies, rates, resources, runtimes, stretches
from wsbench.metrics.parts import NS_PER_US, missing_connections
from wsbench.metrics.registry import METRICS, Metric, Numbers, measure, values

__all__ = [
    "METRICS",
    "NS_PER_US",
    "Metric",
    "Numbers",
    "broadcasts",
    "connections",
    "failures",
    "latencies",
    "measure",
    "missing_connections",
    "rates",
    "resources",
    "runtimes",
    "stretches",
    "values",
]

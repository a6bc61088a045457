"""Computes metrics and a verdict from one trial's files.

In: a trial's folder. Out: for each metric a number or the reason why there is none; VALID, SUSPECT or INVALID with reasons.
A metric is a function with a name, a unit, a direction and a docstring, registered when its module is imported. Values are never
filled in or extrapolated. May import experiments and the layers below.
"""

from wsbench.metrics import (
    broadcasts,
    capacities,
    connections,
    failures,
    latencies,
    rates,
    resources,
    runtimes,
    stretches,
    turns,
    waits,
)
from wsbench.metrics.parts import NS_PER_US, missing_connections
from wsbench.metrics.registry import METRICS, Metric, Numbers, measure, require, values

__all__ = [
    "METRICS",
    "NS_PER_US",
    "Metric",
    "Numbers",
    "broadcasts",
    "capacities",
    "connections",
    "failures",
    "latencies",
    "measure",
    "missing_connections",
    "rates",
    "require",
    "resources",
    "runtimes",
    "stretches",
    "turns",
    "values",
    "waits",
]

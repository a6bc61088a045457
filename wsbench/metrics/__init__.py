"""One trial: its files in, metrics and a verdict out.

In: a trial's folder. Out: a number or the reason why there is none, for each metric; VALID, SUSPECT or INVALID with reasons.
A metric is one function with a name, a unit, a direction and a docstring, registered when its module is imported. Nothing is
filled in or extrapolated. May import experiments and what lies below them.
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

"""How long a message, a connection or a request took: quantiles of the histogram log, each under a name of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from wsbench.engine.histogram import Histogram
from wsbench.metrics.parts import NS_PER_US, recorded
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import TrialData


@cache
def _of_tag(tag: str) -> Callable[[TrialData], Histogram]:
    return lambda trial: recorded(trial, tag)


def _latency(tag: str, unit: str, ns_per_unit: float, statistic: str, text: str) -> None:
    """Registers `<tag>_<unit>_<statistic>`: p50, p999, max or mean of one tag of the histogram log."""

    def compute(trial: TrialData) -> float:
        found = recorded(trial, tag)
        whole = statistic in ("max", "mean")
        return (getattr(found, statistic) if whole else found.quantile("0." + statistic[1:])) / ns_per_unit

    compute.__name__ = f"{tag}_{unit}_{statistic}"
    compute.__doc__ = text
    metric("µs" if unit == "us" else unit, "lower", _of_tag(tag))(compute)


_SERVICE = "the time from sending a message to its complete reply"
_RESPONSE = "the time from when a message was due to its complete reply (open loops and pauses)"
_SEND_LAG = "the time by which messages left later than they were due (open loops and pauses)"
_PUSH = "the time from triggering a broadcast to one receiver's copy"
_PUSH_STAMP = "the time from the server's own stamp of a broadcast to one receiver's copy, by the wall clocks of both"
for _statistic, _words in [
    ("p50", "Median of"),
    ("p90", "90th percentile of"),
    ("p99", "99th percentile of"),
    ("p999", "99.9th percentile of"),
    ("max", "Longest of"),
    ("mean", "Mean of"),
]:
    _latency("service", "us", NS_PER_US, _statistic, f"{_words} {_SERVICE}.")
    _latency("response", "us", NS_PER_US, _statistic, f"{_words} {_RESPONSE}.")
    _latency("send_lag", "us", NS_PER_US, _statistic, f"{_words} {_SEND_LAG}.")
    _latency("push", "us", NS_PER_US, _statistic, f"{_words} {_PUSH}.")
    _latency("push_stamp", "us", NS_PER_US, _statistic, f"{_words} {_PUSH_STAMP}.")
for _statistic, _words in [("p50", "Median"), ("p99", "99th percentile of the")]:
    _latency("connect", "us", NS_PER_US, _statistic, f"{_words} time from `connect()` to a usable connection.")
for _statistic, _words in [("p50", "Median"), ("p90", "90th percentile of the"), ("p99", "99th percentile of the")]:
    _latency("request", "us", NS_PER_US, _statistic, f"{_words} time from `connect()` to the server's close.")
_latency("request", "us", NS_PER_US, "max", "Longest time from `connect()` to the server's close.")

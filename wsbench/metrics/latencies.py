"""Duration of messages, connections and requests: quantiles of the histogram log, each registered as a metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from wsbench.engine.histogram import Histogram
from wsbench.metrics.findings import Family
from wsbench.metrics.parts import NS_PER_US, recorded, tick_means
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import TrialData


@cache
def _of_tag(tag: str) -> Callable[[TrialData], Histogram]:
    return lambda trial: recorded(trial, tag)


def _latency(tag: str, unit: str, ns_per_unit: float, statistic: str, text: str) -> None:
    """Registers `<tag>_<unit>_<statistic>`: a quantile such as p50 or p999, max or mean of one tag of the histogram log."""

    def compute(trial: TrialData) -> float:
        found = recorded(trial, tag)
        whole = statistic in ("max", "mean")
        return (getattr(found, statistic) if whole else found.quantile("0." + statistic[1:])) / ns_per_unit

    compute.__name__ = f"{tag}_{unit}_{statistic}"
    compute.__doc__ = text
    metric("µs" if unit == "us" else unit, "lower", _family(tag, statistic), _of_tag(tag))(compute)


def _family(tag: str, statistic: str) -> Family:
    if tag in ("connect", "setup"):
        return "connect"
    return "tail" if statistic in ("p99", "p999", "max") else "body"


_SERVICE = "service time: from sending a message to its complete reply"
_RESPONSE = "response time: from when a message was due to its complete reply (open loops and think times)"
_SEND_LAG = "send lag: how much later than due a message was sent (open loops and think times)"
_RECEIVE_DELAY = "receive delay: from the kernel's timestamp of arriving bytes until the engine has read them (sampled connections)"
_PUSH = "broadcast latency: from triggering a broadcast to one receiver's copy"
_PUSH_STAMP = "one-way broadcast latency: from the server's timestamp to one receiver's copy, by both wall clocks"
for _statistic, _words in [
    ("p50", "Median"),
    ("p90", "90th percentile of"),
    ("p99", "99th percentile of"),
    ("p999", "99.9th percentile of"),
    ("max", "Maximum"),
    ("mean", "Mean"),
]:
    _latency("service", "us", NS_PER_US, _statistic, f"{_words} {_SERVICE}.")
    _latency("response", "us", NS_PER_US, _statistic, f"{_words} {_RESPONSE}.")
    _latency("send_lag", "us", NS_PER_US, _statistic, f"{_words} {_SEND_LAG}.")
    _latency("receive_delay", "us", NS_PER_US, _statistic, f"{_words} {_RECEIVE_DELAY}.")
    _latency("push", "us", NS_PER_US, _statistic, f"{_words} {_PUSH}.")
    _latency("push_stamp", "us", NS_PER_US, _statistic, f"{_words} {_PUSH_STAMP}.")
for _statistic, _words in [("p50", "Median"), ("p99", "99th percentile of the")]:
    _latency("connect", "us", NS_PER_US, _statistic, f"{_words} time from `connect()` to a usable connection.")
for _statistic, _words in [("p50", "Median"), ("p90", "90th percentile of the"), ("p99", "99th percentile of the")]:
    _latency("request", "us", NS_PER_US, _statistic, f"{_words} time from `connect()` to the server's close.")
for _statistic, _words in [("p50", "Median"), ("p99", "99th percentile of the")]:
    _latency("setup", "us", NS_PER_US, _statistic, f"{_words} time of a session's setup, from the handshake to its last reply.")


@metric("µs", "lower", "tail")
def service_us_tick_mean_max(trial):
    """Highest mean service time of one tick of the engine (`timing.tick_s`): a short peak.

    Ticks without a message say nothing.
    """
    return max(one.mean_ns for one in tick_means(trial)) / NS_PER_US


@metric("µs", "lower", "tail")
def service_us_tick_mean_p99(trial):
    """99th percentile of the mean service times of the engine's ticks.

    Ticks without a message say nothing.
    """
    means = sorted(one.mean_ns for one in tick_means(trial))
    return means[math.ceil(0.99 * len(means)) - 1] / NS_PER_US


@metric("µs", "lower", "body")
def engine_adds_us(trial):
    """Mean part of the response time that is the engine's own: it sent late, and it read late.

    The sum of the mean send lag and the mean receive delay. It includes waking up, and is not the server's.
    """
    return (recorded(trial, "send_lag").mean + recorded(trial, "receive_delay").mean) / NS_PER_US


_latency("request", "us", NS_PER_US, "max", "Longest time from `connect()` to the server's close.")

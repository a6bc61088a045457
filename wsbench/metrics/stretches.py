"""Metrics per span (see `spans`): connecting, idle and sending. Registered as `<span>_<quantity>`, such as `idle_rss_bytes` or
`sending_cpu_idle_percent`.

A span without a sample has no value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from wsbench.metrics.findings import Family
from wsbench.metrics.registry import Direction, Number, metric
from wsbench.metrics.spans import Span
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.unmeasured import known
from wsbench.records.samples import MachineSample, ProcessSample

WORDS = {
    "connect": "in the connect span (connections are being opened)",
    "idle": "in the idle span (all connections are open, no message is due)",
    "sending": "in the sending span (from the first message or broadcast of the measured window to its end or the last delivery)",
}


def per_span(quantity: str, unit: str, direction: Direction, family: Family, text: str):
    """Registers a function of a trial and a span as a metric of every span. `text` is continued by the words of the span."""

    def register(of: Callable[[TrialData, Span], Number]):
        for name, words in WORDS.items():
            _registered(f"{name}_{quantity}", name, (unit, direction, family), f"{text} {words}.", of)
        return of

    return register


def _registered(full: str, name: str, kind: tuple[str, Direction, Family], text: str, of: Callable) -> None:
    def compute(trial: TrialData) -> Number:
        return of(trial, trial.span(name))

    compute.__name__, compute.__doc__ = full, text
    metric(*kind, _of_name(name))(compute)


@cache
def _of_name(name: str) -> Callable[[TrialData], Span]:
    return lambda trial: trial.span(name)


@per_span("s", "s", "neither", "throughput", "Time spent")
def seconds(trial: TrialData, span: Span) -> float:
    return span.seconds


@per_span("cpu_idle_percent", "%", "higher", "cpu", "Idle share of the machine's CPU time")
def cpu_idle_percent(trial: TrialData, span: Span) -> float:
    return 100 * trial.cpu_idle_share_over(span)


@per_span("server_cpu_percent", "%", "lower", "cpu", "CPU use (100 is one core) of the server's process tree")
def server_cpu_percent(trial: TrialData, span: Span) -> float:
    return 100 * trial.server_cpu_s_over(span) / span.seconds


@per_span("rss_bytes", "bytes", "lower", "memory", "RSS of the server's process tree at the last sample")
def rss_bytes(trial: TrialData, span: Span) -> int:
    return last_inside(trial.processes("server"), span, "the server").rss_bytes


@per_span("memory_used_bytes", "bytes", "lower", "memory", "Memory of the machine unavailable to programs at the last sample")
def memory_used_bytes(trial: TrialData, span: Span) -> int:
    memory = _memory(last_inside(trial.machine, span, "the machine"))
    return memory.total_bytes - memory.available_bytes


@per_span("memory_free_bytes", "bytes", "higher", "memory", "Unused memory of the machine at the last sample")
def memory_free_bytes(trial: TrialData, span: Span) -> int:
    return _memory(last_inside(trial.machine, span, "the machine")).free_bytes


@per_span(
    "memory_grown_bytes",
    "bytes",
    "lower",
    "memory",
    "Growth of the machine's used memory (server, engine and kernel) from before the first connection to the last sample",
)
def memory_grown_bytes(trial: TrialData, span: Span) -> int:
    before, last = _before(trial), _memory(last_inside(trial.machine, span, "the machine"))
    return before.available_bytes - last.available_bytes


@per_span(
    "slab_grown_bytes",
    "bytes",
    "lower",
    "memory",
    "Growth of the kernel's slab (with sockets of both ends if both are local) from before the first connection to the last sample",
)
def slab_grown_bytes(trial: TrialData, span: Span) -> int:
    return _memory(last_inside(trial.machine, span, "the machine")).slab_bytes - _before(trial).slab_bytes


@per_span("socket_buffer_bytes_max", "bytes", "lower", "memory", "Most memory in the machine's TCP buffers")
def socket_buffer_bytes_max(trial: TrialData, span: Span) -> int:
    found = [sample.sockets for sample in trial.machine if span.holds(sample.t_ns)]
    sizes = [one.tcp_buffer_bytes for one in found if one is not None]
    return known(max(sizes, default=None), f"no sample inside the span `{span.name}` contains TCP buffers")


def last_inside(samples: list, span: Span, of: str) -> ProcessSample | MachineSample:
    last = next((sample for sample in reversed(samples) if span.holds(sample.t_ns)), None)
    return known(last, f"no sample of {of} inside the span `{span.name}`")


def _memory(sample: MachineSample):
    return known(sample.memory, "the samples do not contain the machine's memory")


def _before(trial: TrialData):
    """The machine's memory at the last sample before connecting began."""
    begin = trial.span("connect").begin_ns
    before = [sample for sample in trial.machine if sample.t_ns <= begin]
    return _memory(known(before[-1] if before else None, "the machine was not sampled before the first connection"))

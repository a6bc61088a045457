"""Promises: conditions that a server is to keep under load, and whether it kept them in one trial.

Text in, frozen values out; a trial's values and verdict in, one word out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from wsbench import metrics
from wsbench.analysis import thresholds
from wsbench.analysis.dataset import TrialResult
from wsbench.analysis.thresholds import OPERATORS, SHORT
from wsbench.metrics.engine_checks import RAISES_MEDIAN
from wsbench.metrics.findings import Verdict
from wsbench.metrics.limits import LIMITS
from wsbench.records.errors import UserError

#: `kept` and `broken` are the server's. `host`, `generator`: the probe says nothing, because one of these disturbed it. `unknown`:
#: the trial has no such number.
Outcome = Literal["kept", "broken", "host", "generator", "unknown"]
LATENCY = re.compile(r"(response|service|request|push|connect|setup)\.([a-z0-9.]+)")
#: The value of a metric, by its name.
Values = Callable[[str], float | int | None]
#: What a server did that made the load lighter (`metrics.server_checks`).
LIGHTER = {"refused", "died", "no_connection"}
NAMES = {"lost": "errors", "reach": "push_reach"}


@dataclass(frozen=True)
class Condition:
    """`number` is in the metric's unit."""

    metric: str
    operator: str
    number: float

    @property
    def beyond(self) -> float:
        """The share of messages that may take longer, if the condition is about a quantile of times; else 1. A message without an
        answer took longer than any bound."""
        statistic = self.metric.rpartition("_")[2]
        of_quantile = re.fullmatch(r"p\d+", statistic) is not None
        return 1 - float(f"0.{statistic[1:]}") if of_quantile else 0.0 if statistic == "max" else 1.0

    @property
    def bound_us(self) -> float | None:
        """The longest time that keeps it, in µs; None if it is about something else."""
        return (
            self.number if metrics.METRICS[self.metric].unit == "µs" and self.operator in ("<", "<=") and self.number > 0 else None
        )

    def lost(self, value: Values) -> float | None:
        """The share of what the metric times that never arrived; None if that is not known. Nothing, if it is about no quantile."""
        if self.beyond == 1.0 or self.metric.startswith(("connect_", "setup_")):
            return 0.0  # connections that are missing break every promise
        if self.metric.startswith("push_"):
            reach = value("push_reach")
            return None if reach is None else 1 - reach
        return value("error_fraction")

    def keeps(self, value: float, lost: float) -> bool:
        """`lost`: the share of messages without a correct answer."""
        return lost <= self.beyond and OPERATORS[self.operator](value, self.number)


@dataclass(frozen=True)
class Promise:
    """Conditions that must all hold. `text` is what the user wrote."""

    text: str
    conditions: tuple[Condition, ...]

    @property
    def leading(self) -> Condition:
        """The condition that is drawn: the first on a time, else the first."""
        return next((one for one in self.conditions if metrics.METRICS[one.metric].unit == "µs"), self.conditions[0])

    @property
    def bound_s(self) -> float | None:
        """The bound of the first condition on a time, in s."""
        bound_us = self.leading.bound_us
        return None if bound_us is None else bound_us / 1e6


def parse(text: str) -> Promise:
    """`response.p99 < 20ms and lost = 0`. UserError for another form, an unknown metric or a wrong unit."""
    parts = [part.strip() for part in re.split(r"\band\b", text)]
    return Promise(" and ".join(parts), tuple(map(_condition, parts)))


def _condition(text: str) -> Condition:
    equal = re.sub(r"(?<![<>=!])=(?!=)", "==", text)
    name, rest = re.fullmatch(r"\s*([\w.]*)(.*)", equal, re.DOTALL).groups()
    found = LATENCY.fullmatch(name)
    if "." in name and found is None and name not in SHORT:
        raise UserError(
            f"--slo: {text!r}: no latency {name!r}; allowed: response.p99, and likewise service, request, push, connect"
        )
    meant = f"{found[1]}_us_{SHORT.get(found[2], found[2])}" if found else NAMES.get(name, name)
    if meant in SHORT:
        meant = f"response_us_{SHORT[meant]}"
    try:
        one = thresholds.parse(meant + rest, "--slo", "response.p99 < 20ms")
    except UserError as error:
        raise UserError(str(error).replace(repr(meant + rest), repr(text))) from error
    is_time = found is not None or name in SHORT
    if is_time and not re.search(r"[a-zµ]\s*$", rest):
        raise UserError(f"--slo: {text!r}: {name} is a time; give the unit, such as {text.strip()}ms")
    if is_time and ">" in rest:
        raise UserError(f"--slo: {text!r}: a promise says what holds, such as {name} < {rest.strip(' >=')}")
    return Condition(one.name, one.operator, one.number)


def _is_within_bound(name: str, one: Condition, value: Values) -> bool:
    """Whether this finding compares the engine's part of a time with the time, and the part is small against the bound.

    A promise asks on which side of its bound a time lies. Far below the bound, an engine that needs most of a short time changes
    nothing. The outcome does not take part, so neither side is favoured.
    """
    if (bound_us := one.bound_us) is None:
        return False
    if name == "send_lag":
        return True  # `_own_part` compares it with the bound
    if name == "wait":
        percent, wait_us = value("engine_wait_percent"), value("engine_wait_us_per_message")
        if percent is None or wait_us is None or percent / 100 > LIMITS["wait_share"].invalid:
            return False
        return RAISES_MEDIAN * wait_us / bound_us <= LIMITS["wait_p50"].invalid
    return False


def judge(promise: Promise, trial: TrialResult, as_is: bool = False) -> Outcome:
    """Whether a probe kept a promise. A number that the instrument disturbed decides nothing, whichever way it points: to leave out
    only those that broke a promise would raise the answer. `as_is`: what the host does to a probe is part of the answer."""
    return outcome(promise, trial.record, trial.verdict, trial.value, as_is)


def outcome(promise: Promise, record, verdict: Verdict, value: Values, as_is: bool = False) -> Outcome:
    if record.outcome != "ok":
        return "broken" if record.outcome == "stopped" or record.failed_by_server else "host"
    # A server that did not take or keep every connection carried a lighter load than asked.
    lighter = any(one.name in LIGHTER for one in verdict.outcomes)
    found: list[Outcome] = []
    for one in promise.conditions:
        number = value(one.metric)
        unusable = _unusable(verdict, one, value, as_is)
        failed = lighter or (number is None and bool(verdict.outcomes))
        # Messages for connections that are gone cannot leave: that is not the load generator's.
        if unusable is not None and not (failed and unusable == "generator"):
            found.append(unusable)
        elif failed:
            found.append("broken")
        elif number is None or (lost := one.lost(value)) is None:
            found.append("unknown")
        else:
            found.append("kept" if one.keeps(number, lost) else "broken")
    # A condition that is certainly broken breaks the promise, whatever else is unknown.
    order: tuple[Outcome, ...] = ("broken", "host", "generator", "unknown", "kept")
    return min(found, key=order.index)


def _unusable(verdict: Verdict, one: Condition, value: Values, as_is: bool) -> Outcome | None:
    """Whether the host or the load generator made a number INVALID, or the load another one than planned; or whether the generator
    was so near to its own limit that the number says nothing of the server, whichever way it points."""
    found = [*verdict.because("throughput"), *verdict.because(metrics.METRICS[one.metric].family)]
    because = {of.axis for of in found if not _is_within_bound(of.name, one, value)}
    if "host" in because and not as_is:
        return "host"
    # A server that is full takes no more bytes, so messages leave late, too.
    if "engine" in because and verdict.bottleneck != "server":
        return "generator"
    return "generator" if _is_full(verdict, one) else _own_part(verdict, one, value)


def _is_full(verdict: Verdict, one: Condition) -> bool:
    """Whether the engine had no CPU time left. The use of workers that poll is unknown: messages that did not leave tell, and of
    times `_own_part`."""
    full = {"engine_busy"} if one.bound_us is not None else {"engine_busy", "rate"}
    return any(of.axis == "engine" and of.name in full for of in verdict.findings)


def _own_part(verdict: Verdict, one: Condition, value: Values) -> Outcome | None:
    """Whether what the engine adds to a time, because it sends and reads late, is too large against the bound.

    A full server makes messages leave late, too, but the engine still reads in time.
    """
    if one.bound_us is None or one.metric.startswith(("connect_", "setup_")) or value(one.metric) is None:
        return None
    sent_us, read_us = value("send_lag_us_p99"), value("receive_delay_us_p99")
    if read_us is None:
        return "unknown"
    by_server = verdict.bottleneck == "server"
    own_us = read_us if by_server else (sent_us or 0.0) + read_us
    if own_us / one.bound_us > LIMITS["own_part"].invalid:
        return "generator"
    # Only a response counts from when it was due; other times have no send lag.
    return "unknown" if sent_us is None and not by_server and one.metric.startswith("response") else None

"""Thresholds for `--fail-if`: a condition over one metric that must not hold, as NAME OP NUMBER[UNIT].

Text in, frozen values out; a trial in, judgements out. A missing metric breaches its threshold. One that
the instrument made INVALID leaves it undecided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from wsbench import metrics
from wsbench.metrics.findings import Verdict
from wsbench.metrics.ladder import OPERATORS
from wsbench.metrics.trial_data import TrialData
from wsbench.metrics.verdict import verdict
from wsbench.records.errors import UserError
from wsbench.records.session_table import Session

FORM = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<number>[-+]?(\d[\d_]*)?\.?\d+(?:[eE][-+]?\d+)?)"
    r"\s*(?P<unit>[a-zA-Zµ%]*)\s*"
)
COUNTED = ("messages/s", "requests/s", "connections/s", "switches/s", "connections", "connects", "packets", "count")
SIZES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
#: Units that may stand behind the number, each with its size in a metric's unit.
UNITS = {
    **{unit: {"k": 1e3, "M": 1e6} for unit in COUNTED},
    "µs": {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6},
    "ms": {"us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3},
    "s": {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0},
    "bytes": SIZES,
    "bytes/s": SIZES,
    "%": {"%": 1.0},
    "fraction": {"%": 1e-2},
}
#: Short names of the latency that describes a trial: the first of these that it has.
LATENCIES = ("response", "push", "request", "service")
#: A step of a session, and a quantile of its times.
STEP = re.compile(r"(?P<step>[a-z][a-z0-9_-]*)\.(?P<of>p50|p90|p99|p99\.9|p999|max)")
SHORT = {"p50": "p50", "p90": "p90", "p99": "p99", "p99.9": "p999", "p999": "p999", "max": "max"}


@dataclass(frozen=True)
class Threshold:
    """A condition that must not hold. `number` is in the metric's unit; `text` is what the user wrote."""

    name: str
    operator: str
    number: float
    text: str

    @property
    def step(self) -> re.Match | None:
        """The step of a session and the quantile of it that the name means. None: it names a metric."""
        return None if self.name in SHORT else STEP.fullmatch(self.name)

    @property
    def names(self) -> list[str]:
        """The metrics that the name may mean; the first with a value counts."""
        return [f"{of}_us_{SHORT[self.name]}" for of in LATENCIES] if self.name in SHORT else [self.name]


@dataclass(frozen=True)
class Judged:
    """A threshold and this trial's value: a statement about the trial, not an estimate of what the server does. `reason` says why
    there is none. `undecided`: the host or the engine made it INVALID."""

    threshold: Threshold
    metric: str
    value: float | None
    reason: str | None
    undecided: bool = False

    @property
    def breached(self) -> bool:
        if self.undecided:
            return False
        return self.value is None or OPERATORS[self.threshold.operator](self.value, self.threshold.number)

    @property
    def words(self) -> str:
        head = f"--fail-if {self.threshold.text!r}"
        if self.value is None:
            return f"{head}: {'undecided' if self.undecided else 'not known'}: {self.reason}"
        meant = "" if self.metric == self.threshold.name else f"{self.metric} "
        unit = "µs" if self.threshold.step else metrics.METRICS[self.metric].unit
        return f"{head}: {'breached' if self.breached else 'held'} in this run, {meant}{in_units(self.value, unit)}"


def in_units(value: float, unit: str) -> str:
    """Six digits with the unit that suits them: `69.47 ms` rather than `69470 µs`."""
    sizes = {"µs": (("s", 1e6), ("ms", 1e3)), "ms": (("s", 1e3),)}.get(unit, ())
    shown, size = next(((name, size) for name, size in sizes if abs(value) >= size), (unit, 1.0))
    return f"{value / size:,.6g} {shown}"


def parse(text: str, option: str = "--fail-if", example: str = "p99 > 5ms") -> Threshold:
    """UserError for another form, an unknown metric, or a unit that the metric does not have."""
    found = FORM.fullmatch(text)
    if found is None:
        raise UserError(
            f"{option}: found {text!r}, allowed: NAME OP NUMBER[UNIT], such as {example!r}; OP is one of {' '.join(OPERATORS)}"
        )
    name, unit = found["name"], found["unit"]
    timed = name in SHORT or STEP.fullmatch(name) is not None
    if not timed:
        metrics.require([name], f"{option}: ", also=SHORT)
    if timed and not unit:
        raise UserError(f"{option}: {text!r}: {name} is a time; give the unit, such as {found['number']}ms")
    of = "µs" if timed else metrics.METRICS[name].unit
    if unit and unit not in UNITS.get(of, {}):
        allowed = ", ".join(UNITS.get(of, {})) or "none"
        raise UserError(f"{option}: {text!r}: {name} is in {of}; units allowed: {allowed}")
    return Threshold(name, found["operator"], float(found["number"]) * (UNITS[of][unit] if unit else 1.0), text.strip())


def judge(trial: TrialData, thresholds: list[Threshold]) -> list[Judged]:
    plain = [one for one in thresholds if one.step is None]
    measured = metrics.measure(trial, [name for one in plain for name in one.names])
    judged = iter(judge_values(measured.values, measured.reasons, verdict(trial), plain))
    return [_judge_step(trial, one, one.step) if one.step is not None else next(judged) for one in thresholds]


def _judge_step(trial: TrialData, one: Threshold, named: re.Match) -> Judged:
    """The times of a session's step, which are as valid as the latencies of the same quantiles."""
    steps = trial.plan.scenario.steps if trial.plan is not None and isinstance(trial.plan.scenario, Session) else []
    place = next((place for place, step in enumerate(steps) if step.name == named["step"]), None)
    if place is None:
        allowed = ", ".join(step.name for step in steps) or "none: the load is no session"
        return Judged(one, one.name, None, f"no step {named['step']!r}; its steps: {allowed}")
    because = verdict(trial).because("body" if named["of"] in ("p50", "p90") else "tail")
    if because:
        by_server = all(finding.axis == "server" for finding in because)
        return Judged(one, one.name, None, f"{one.name} is INVALID: {because[0].seen}", undecided=not by_server)
    of = trial.histograms.get(f"step_{place}")
    if of is None or not of.count:
        return Judged(one, one.name, None, "no time of this step was recorded")
    quantile = SHORT[named["of"]]
    return Judged(one, one.name, (of.max if quantile == "max" else of.quantile(f"0.{quantile[1:]}")) / 1e3, None)


def judge_values(
    values: Mapping[str, float | None], reasons: Mapping[str, str], found: Verdict, thresholds: list[Threshold]
) -> list[Judged]:
    """Of metrics that are computed already, with the reason for each that is None. An INVALID value decides nothing."""
    judged = []
    for one in thresholds:
        name = next((name for name in one.names if values[name] is not None), one.names[-1])
        because = found.because(metrics.METRICS[name].family)
        if because and values[name] is not None:
            by_server = all(finding.axis == "server" for finding in because)
            judged.append(Judged(one, name, None, f"{name} is INVALID: {because[0].seen}", undecided=not by_server))
        else:
            judged.append(Judged(one, name, values[name], reasons.get(name)))
    return judged

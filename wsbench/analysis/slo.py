"""SLOs: conditions that a server is to keep under load, as text, and whether it kept them in one steady trial.

The capacity under an SLO comes from a ladder (`metrics.ladder`); here is what a trial at one load says.
"""

from __future__ import annotations

import re
from typing import Literal

from wsbench import metrics
from wsbench.analysis import thresholds
from wsbench.analysis.dataset import TrialResult
from wsbench.analysis.thresholds import SHORT
from wsbench.metrics.ladder import OPERATORS, TIME, beyond
from wsbench.records.errors import UserError
from wsbench.records.rundir import Slo

#: `kept` and `broken` are the server's; `unknown`: the host or the load generator disturbed the trial, or it lacks the number.
Outcome = Literal["kept", "broken", "unknown"]
LATENCY = re.compile(r"(response|service|request|push|push_last)\.([a-z0-9.]+)")
NAMES = {"lost": "errors", "reach": "push_reach"}
OTHERS = ("errors", "error_fraction", "push_reach")


def parse(text: str) -> Slo:
    """`response.p99 < 20ms and lost = 0`. UserError for another form, an unknown metric or a wrong unit."""
    parts = [part.strip() for part in re.split(r"\band\b", text)]
    return Slo(text=" and ".join(parts), conditions=list(map(_condition, parts)))


def _condition(text: str) -> tuple[str, str, float]:
    """The metric, the operator, and the number in the metric's unit."""
    equal = re.sub(r"(?<![<>=!])=(?!=)", "==", text)
    name, rest = re.fullmatch(r"\s*([\w.]*)(.*)", equal, re.DOTALL).groups()
    found = LATENCY.fullmatch(name)
    statistic = SHORT.get(name) or (name if re.fullmatch(r"p\d\d+|max|mean", name) else None)
    if "." in name and found is None and statistic is None:
        raise UserError(f"--slo: {text!r}: no latency {name!r}; allowed: response.p99, and likewise service, push, push_last")
    meant = f"{found[1]}_us_{SHORT.get(found[2], found[2])}" if found else NAMES.get(name, name)
    if statistic is not None:
        meant = f"response_us_{statistic}"
    timed = TIME.fullmatch(meant)
    if timed is None and meant not in OTHERS:
        raise UserError(f"--slo: found {text!r}, allowed: a time such as 'response.p99 < 20ms', or 'lost = 0'")
    # Only some of these statistics are metrics; a ladder has them all.
    known = ("response_us_p99" if timed else meant) + rest
    try:
        one = thresholds.parse(known, "--slo", "response.p99 < 20ms")
    except UserError as error:
        raise UserError(str(error).replace(repr(known), repr(text)).replace("response_us_p99", name)) from error
    if timed and not re.search(r"[a-zµ]\s*$", rest):
        raise UserError(f"--slo: {text!r}: {name} is a time; give the unit, such as {text.strip()}ms")
    if (timed and ">" in rest) or one.operator == "!=":
        raise UserError(f"--slo: {text!r}: an SLO says what holds, such as {name} < {rest.strip(' >=!')}")
    return meant, one.operator, one.number


def judge(slo: Slo, trial: TrialResult) -> Outcome:
    """Whether the server kept it in a trial. A number that the instrument disturbed decides nothing, whichever way it points."""
    if trial.record.outcome != "ok":
        return "broken" if trial.record.failed_by_server else "unknown"
    found = [_judged(trial, *condition) for condition in slo.conditions]
    return next((one for one in ("broken", "unknown") if one in found), "kept")


def _judged(trial: TrialResult, metric: str, sign: str, number: float) -> Outcome:
    if metric not in metrics.METRICS:
        return "unknown"
    because = trial.verdict.because(metrics.METRICS[metric].family)
    if because:
        return "broken" if all(one.axis == "server" for one in because) else "unknown"
    value, lost, timed = trial.value(metric), trial.value("error_fraction"), TIME.fullmatch(metric)
    if value is None or (lost is None and timed is not None and timed["tag"] == "response"):
        return "unknown"
    if timed is not None and (lost or 0.0) > beyond(timed["statistic"]):
        return "broken"  # a message without an answer took longer than any bound
    return "kept" if OPERATORS[sign](value, number) else "broken"

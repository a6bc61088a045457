"""The verdict on a trial: which of its numbers may be used, what its server did, and which side was the limit.

VALID: no check found anything. SUSPECT: the number counts and is shown with the reason. INVALID: the number is shown and enters no
mean. The words are given per metric family, because a disturbance affects some numbers and not others. A check that could not be
made is itself a finding, after which no number is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from wsbench import metrics
from wsbench.metrics import cause, engine_checks, host_checks, server_checks
from wsbench.metrics.bottleneck import bottleneck
from wsbench.metrics.findings import Bottleneck, Finding, Verdict, everything, finding
from wsbench.metrics.limits import LIMITS
from wsbench.metrics.trial_data import TrialData
from wsbench.records import contained

#: All checks of a trial that ended by itself and whose record is complete.
CHECKS = (*host_checks.CHECKS, *engine_checks.CHECKS, *server_checks.CHECKS)
#: Those of a ladder. It goes beyond what the server carries, and each of its rungs is judged by itself.
OF_LADDER = (*host_checks.CHECKS, *engine_checks.OF_LADDER, server_checks.connections, server_checks.ran_out)


def verdict(trial: TrialData) -> Verdict:
    """Applies every check to one trial."""
    if trial.record.outcome == "failed":
        return Verdict((server_checks.failed(trial.record.reason or "", trial.record.failed_by_server),), "unknown")
    if trial.record.outcome == "stopped":
        return contained.part("verdict of a stopped trial", lambda: _stopped(trial), _not_judged)
    if trial.end is None or trial.plan is None:
        words = everything("INVALID")
        return Verdict(
            (finding("engine", "record", "the engine's record is incomplete", "Run the trial again.", **words),), "unknown"
        )
    checks = CHECKS if trial.record.ladder is None else OF_LADDER
    found = [one for check in checks for one in _made(check, trial)]
    if trial.record.as_is and trial.record.ladder is not None:
        # What the host does to it is a part of the answer.
        found = [replace(one, affects={}) if one.axis == "host" else one for one in found]
    return Verdict(tuple(found), contained.part("bottleneck", lambda: bottleneck(trial), _unknown))


def _made(check: Callable[[TrialData], Iterable[Finding]], trial: TrialData) -> list[Finding]:
    name = check.__name__.lstrip("_")
    return contained.part(f"check {name}", lambda: list(check(trial)), lambda reason: [_not_made(name, reason)])


def _not_made(check: str, reason: str) -> Finding:
    seen = f"the check {check!r} could not be made: {reason}"
    return finding("engine", "not_checked", seen, "Report this as a fault of wsbench.", **everything("INVALID"))


def _not_judged(reason: str) -> Verdict:
    return Verdict((_not_made("stopped", reason),), "unknown")


def _unknown(_: str) -> Bottleneck:
    return "unknown"


def of_load(trial: TrialData) -> Verdict:
    """The verdict on a load by itself. If nothing of it can be used, the cause leads, and advice that it rules out is left out."""
    found = verdict(trial)
    why = contained.part("cause", lambda: cause.cause(trial, found), lambda reason: _not_made("cause", reason))
    return found if why is None else Verdict((why, *cause.left(trial, why, found)), found.bottleneck, why)


def disturbed(trial: TrialData) -> Finding | None:
    """The disturbance by the host that makes numbers INVALID. None if there is none.

    Uses no result, so the decision to rerun a trial does not depend on what it measured.
    """
    if trial.record.outcome != "ok" or trial.end is None or trial.record.as_is:
        return None
    return contained.part("check cpu_time", lambda: host_checks.disturbed(trial), lambda _: None)


def _stopped(trial: TrialData) -> Verdict:
    """A stop is attributed to the server if the engine had CPU left while connections were opened."""
    why = (server_checks.stopped(trial.record.reason or ""), *server_checks.ran_out(trial))
    used = None if trial.plan is None else metrics.connections.engine_cpu_percent_connecting(trial)
    if used is None or trial.plan.busy_poll:
        return Verdict((*why, _in_doubt("the engine's CPU use while connecting is unknown")), "unknown")
    if (share := used / 100 / trial.plan.threads) >= LIMITS["engine_busy"].suspect:
        return Verdict((*why, _in_doubt(f"the engine was {share:.0%} busy while connecting")), "engine")
    return Verdict(why, "server")


def _in_doubt(seen: str) -> Finding:
    return finding("engine", "engine_busy", seen, "Give the engine more CPUs.", counts="SUSPECT", connect="SUSPECT")

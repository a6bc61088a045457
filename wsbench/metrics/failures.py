"""Counts of errors and lost connections."""

from __future__ import annotations

from wsbench.metrics.parts import NO_PLAN, missing_connections
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import NO_END, TrialData
from wsbench.metrics.unmeasured import Unmeasured, known
from wsbench.records.engine_files import Closed


@metric("count", "lower", "counts")
def errors(trial):
    """Messages that failed, stayed unanswered or were never sent, plus persistent connections that were never established."""
    return _lost(trial) + missing_connections(trial)


@metric("fraction", "lower", "counts")
def error_fraction(trial):
    """Failed, unanswered and unsent messages, as a share of the messages that were due in the measured window."""
    ledger = known(trial.measured, NO_END)
    due = known((ledger.sent + ledger.unsent) or None, "no message was due in the measured window")
    return _lost(trial) / due


@metric("count", "lower", "counts")
def connections_lost(trial):
    """Persistent connections that were established but not open at the end, although the load closes none."""
    plan, end = known(trial.plan, NO_PLAN), known(trial.end, NO_END)
    comes_and_goes = plan.stages is not None or getattr(plan.loop, "messages_per_connection", None) is not None
    if trial.connection_per_request or comes_and_goes or end.control.reconnects:
        raise Unmeasured("connections come and go in this load")
    return max(0, end.connections.established - end.connections.open)


def _lost(trial: TrialData) -> int:
    """Messages of the measured window without a correct reply. Unmeasured if the engine stopped before a reply was overdue."""
    ledger, plan = known(trial.measured, NO_END), known(trial.plan, NO_PLAN)
    if ledger.unanswered and isinstance(plan.loop, Closed) and plan.drain_s < plan.limits.reply_s:
        waited = f"{plan.drain_s:g} s after the window, when the engine stopped, {ledger.unanswered:,} replies were still due"
        raise Unmeasured(f"{waited}: they may take {plan.limits.reply_s:g} s")
    return ledger.failed + ledger.unanswered + ledger.unsent

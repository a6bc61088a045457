"""Counts of errors and lost connections."""

from __future__ import annotations

from wsbench.metrics.parts import NO_PLAN, missing_connections
from wsbench.metrics.registry import metric
from wsbench.metrics.trial_data import NO_END
from wsbench.metrics.unmeasured import Unmeasured, known


@metric("count", "lower", "counts")
def errors(trial):
    """Messages that failed, stayed unanswered or were never sent, plus persistent connections that were never established."""
    ledger = known(trial.measured, NO_END)
    return ledger.failed + ledger.unanswered + ledger.unsent + missing_connections(trial)


@metric("fraction", "lower", "counts")
def error_fraction(trial):
    """Failed, unanswered and unsent messages, as a share of the messages that were due in the measured window."""
    ledger = known(trial.measured, NO_END)
    due = known((ledger.sent + ledger.unsent) or None, "no message was due in the measured window")
    return (ledger.failed + ledger.unanswered + ledger.unsent) / due


@metric("count", "lower", "counts")
def connections_lost(trial):
    """Persistent connections that were established but not open at the end, although the load closes none."""
    plan, end = known(trial.plan, NO_PLAN), known(trial.end, NO_END)
    comes_and_goes = plan.stages is not None or getattr(plan.loop, "messages_per_connection", None) is not None
    if trial.connection_per_request or comes_and_goes or end.control.reconnects:
        raise Unmeasured("connections come and go in this load")
    return max(0, end.connections.established - end.connections.open)

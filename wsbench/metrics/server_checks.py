"""What the server did under the load: refused, lost or answered too much, stopped early, ended. An outcome to show and compare.

A number that was measured right counts, whatever the server did. The few numbers that an outcome makes meaningless, such as the
tail when lost messages weigh as much as the tail, are named by family; such a round is one that the server lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from wsbench import metrics
from wsbench.metrics.bottleneck import may_lose
from wsbench.metrics.findings import Family, Finding, Kind, everything, finding
from wsbench.metrics.limits import beyond
from wsbench.metrics.trial_data import TrialData
from wsbench.records.engine_files import Closed, Echo, Push

#: Allowance around a reply: frame headers, a TLS record, an occasional Ping.
WRAPPING_BYTES = 100
#: Allowance for opening a connection with TLS: the server's part of the handshake, with its certificate and session tickets.
OPENING_BYTES = 4096
#: The outcomes in a few words, for tables that count trials.
OUTCOMES: dict[str, str] = {
    "failed": "failed",
    "stopped": "stopped early",
    "no_connection": "no connection",
    "no_answer": "no answer",
    "refused": "connections missing",
    "died": "connections died",
    "lost_messages": "messages lost",
    "lost_copies": "copies lost",
    "unasked": "unrequested replies",
    "flood": "flood of bytes",
    "rate": "rate not carried",
    "listen_queue": "listen queue full",
    "heap_full": "heap full",
    "waited_for_last": "last messages delayed",
}
LOAD = ("throughput", "body", "tail", "cpu")
DELAYED = "The server delayed them; its rate includes that."
SEE_LOG = "See the server's log in the trial's folder."
#: Of a server that wsbench did not start.
SEE_ITS_LOG = "See the server's log."


def failed(reason: str, by_server: bool) -> Finding:
    """A trial without numbers."""
    if by_server:
        return finding("server", "failed", f"failed: {reason}", SEE_LOG, **everything("INVALID"))
    return finding("host", "failed", f"failed: {reason}", "Fix the cause and run the trial again.", **everything("INVALID"))


def stopped(reason: str) -> Finding:
    """The experiment's stop rule ended the trial. What was measured by then counts."""
    return finding("server", "stopped", reason, "Its numbers up to the stop count.")


def connections(trial: TrialData) -> Iterator[Finding]:
    """Connections that were refused, and those that died."""
    counts, end = trial.end.connections, trial.end.outcome
    see_log = SEE_LOG if trial.record.restarted else SEE_ITS_LOG
    if end == "no_connection":
        seen = f"none of {counts.asked:,} connections was established"
        yield finding("server", "no_connection", seen, see_log, **everything("INVALID") | {"counts": None})
    elif missing := metrics.missing_connections(trial):
        yield refused(counts.asked - missing, counts.asked, see_log)
    if end == "connections_lost":
        seen = "a worker of the engine had no connection left at the end"
        yield finding("server", "died", seen, see_log, body="INVALID", tail="INVALID", memory="INVALID")
    elif lost := metrics.failures.connections_lost(trial):
        yield died(lost, counts.established, see_log)


def refused(established: int, asked: int, see_log: str = SEE_LOG) -> Finding:
    """Connections that were asked for and not established: a lighter load than planned."""
    kind = beyond("connections", 1 - established / asked)
    seen = f"{established:,} of {asked:,} connections were established"
    return finding("server", "refused", seen, see_log, body=kind, tail=kind, memory=kind)


def died(lost: int, established: int, see_log: str = SEE_LOG) -> Finding:
    """Connections that were open and ended although the load closed none."""
    kind = beyond("connections", lost / established)
    return finding("server", "died", f"{lost:,} of {established:,} connections died", see_log, body=kind, tail=kind, memory=kind)


def messages(trial: TrialData) -> Iterator[Finding]:
    """Messages without a correct reply. The engine's, if it was the limit."""
    ledger = trial.measured
    lost, due = ledger.failed + ledger.unanswered + ledger.unsent, ledger.sent + ledger.unsent
    if lost:
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(trial.end.errors.items())) or "no kind given"
        yield lost_messages(lost, due, kinds, by_engine=may_lose(trial))
    answered = trial.counted if trial.slices is None else trial.measured.answered
    if (
        not answered
        and not trial.holds_only
        and trial.window is not None
        and trial.end.outcome in ("completed", "connections_lost")
    ):
        words: dict[Family, Kind] = dict.fromkeys(LOAD, "INVALID")
        remedy = f"Check that it answers such messages. {SEE_LOG if trial.record.restarted else SEE_ITS_LOG}"
        yield finding("server", "no_answer", "no message was answered", remedy, **words)


def lost_messages(lost: int, due: int, kinds: str, by_engine: bool = False) -> Finding:
    """Messages that got no correct reply, of those that were due."""
    seen, share = f"{lost:,} of {due:,} messages were lost ({kinds})", lost / due
    words = {"body": beyond("lost_body", share), "tail": beyond("lost_tail", share)}
    if by_engine:
        return finding("engine", "lost_messages", seen, "Lower the load, or give the engine more CPUs.", **words)
    return finding("server", "lost_messages", seen, "Lower the load to find what it carries.", **words)


def unasked(trial: TrialData) -> Iterator[Finding]:
    """More replies than requests: a server that answers in advance, twice or from elsewhere gives meaningless results."""
    control, session, answered = trial.end.control, trial.end.session, trial.measured.answered
    other = trial.end.errors.get("reply_content", 0) if isinstance(trial.plan.scenario, Push) else 0
    for count, what in (
        (trial.end.errors.get("unexpected_reply", 0), "replies arrived that no message had requested"),
        (other, "messages arrived that are not broadcasts and were not triggered by this load"),
        (control.out_of_order, "copies of broadcasts arrived twice or late"),
        (control.foreign, "broadcasts arrived that this load did not trigger"),
        (session.copies_out_of_order if session else 0, "copies in rooms arrived twice or behind later ones"),
        (session.copies_misplaced if session else 0, "copies in rooms reached somebody they were not for"),
    ):
        if count:
            kind = beyond("unasked", count / answered) if answered else "SUSPECT"
            remedy = "Check what else sends to these connections, and how the server answers."
            yield finding("server", "unasked", f"{count:,} {what}", remedy, **dict.fromkeys(LOAD, kind))


def copies(trial: TrialData) -> Iterator[Finding]:
    """Copies in rooms that did not arrive, or of which there were more than the room has members."""
    counts = trial.end.session
    if counts is None or not counts.copies_expected:
        return
    lost, due = counts.copies_expected - counts.copies_received, counts.copies_expected
    if lost > 0:
        seen = f"{lost:,} of {due:,} copies did not arrive until the end of the drain"
        words = {"body": beyond("lost_body", lost / due), "tail": beyond("lost_tail", lost / due)}
        yield finding("server", "lost_copies", seen, "Lower the load to find what it carries.", **words)
    elif lost < 0:
        seen = f"{-lost:,} more copies arrived than the {due:,} that the members of the rooms expect"
        remedy = "Check that rooms are as large as the load says, and that the session joins them."
        yield finding("server", "unasked", seen, remedy, **everything("INVALID"))


def flood(trial: TrialData) -> Iterator[Finding]:
    """A flood on one connection (Pings, empty fragments or anything else) delays all others."""
    scenario = trial.plan.scenario
    if not isinstance(scenario, Echo):
        return
    replies = trial.measured.replies_in_window + trial.plan.connections
    loop = trial.plan.loop
    opens = trial.plan.tls is not None and isinstance(loop, Closed) and loop.messages_per_connection is not None
    most = 2 * replies * (scenario.bytes + WRAPPING_BYTES + (OPENING_BYTES if opens else 0))
    if (came := trial.measured.bytes_received) > most:
        seen = f"{came:,} bytes arrived with {replies:,} replies of {scenario.bytes:,}: the server sends more than it was asked for"
        yield finding(
            "server", "flood", seen, "Load a chat or a broadcast with its session (`--session`).", **dict.fromkeys(LOAD, "SUSPECT")
        )


def ran_out(trial: TrialData) -> Iterator[Finding]:
    """What the server had no more of: room in its listen queue, or heap."""
    if not isinstance(trial.runtime, str) and (full := trial.runtime.heap_full):
        yield heap_full(full)
    if dropped := metrics.connections.listen_overflows(trial):
        yield listen_queue(dropped)


def heap_full(seen: str) -> Finding:
    return finding("server", "heap_full", seen, "Choose a larger heap, such as `+heap4g`.")


def listen_queue(dropped: int) -> Finding:
    seen = f"its kernel dropped {dropped:,} connects because a listen queue was full; each was retried after a second or more"
    return finding("server", "listen_queue", seen, "Raise the server's backlog and net.core.somaxconn.")


#: The checks of what the server did, in a trial whose record is complete.
CHECKS = (connections, messages, unasked, copies, flood, ran_out)

"""Why nothing of a load can be used: no connection, no answer, more lost than answered, or numbers that are all INVALID.

A finished trial and its verdict in; one finding out, which names the cause, and whose advice the cause does not rule out.
"""

from __future__ import annotations

import re

from wsbench import metrics
from wsbench.metrics import partings
from wsbench.metrics.bottleneck import may_lose
from wsbench.metrics.findings import Axis, Family, Finding, Verdict, everything, finding
from wsbench.metrics.trial_data import NS_PER_S, TrialData
from wsbench.records.engine_files import Error, Messages

#: What a load is about, if messages are due, and if connections are only held.
OF_MESSAGES: tuple[Family, ...] = ("throughput", "body", "tail")
OF_HOLDING: tuple[Family, ...] = ("counts", "memory", "connect")
#: Kinds of errors by which no connection comes about, in words. `{}` is the engine's example.
REFUSALS = {
    "connect_refused": "the connection is refused",
    "connect_timeout": "the server does not accept connections ({})",
    "connect_failed": "the connection fails: {}",
    "reset": "the server resets the connection: {}",
    "handshake_status": "the server answers HTTP {}",
    "handshake_accept": "the server's handshake has a wrong key: {}",
    "handshake_invalid": "the server's handshake is invalid: {}",
    "handshake_timeout": "the server does not answer the handshake: {}",
    "handshake_closed": "the server closes during the handshake: {}",
    "tls_failed": "TLS fails: {}",
    "setup_failed": "the setup of the session fails: {}",
    "setup_timeout": "the server does not answer the setup of the session: {}",
}
#: Kinds of errors by which connections end, as what the server did with them. `{}` are the connections, with a time.
ENDS = {
    "close_frame": "the server closed {}",
    "closed_early": "the server closed {}",
    "reset": "the server reset {}",
    "timeout": "the server did not answer on {}",
    "session_failed": "the session failed on {}",
    "setup_failed": "the setup of the session failed on {}",
    "setup_timeout": "the server did not answer the setup of the session on {}",
}
VIOLATES = "the server broke the protocol on {}"
#: What to do about a refusal, by the beginning of the status.
OF_STATUS = {
    "401": "Add what it asks for, such as -H 'Authorization: …'.",
    "403": "Add what it asks for, such as -H 'Authorization: …' or -H 'Origin: …'.",
    "426": "Use ws:// or wss://.",
    "429": "Open connections more slowly: --connect-rate.",
    "2": "Check the path: no WebSocket is there.",
    "3": "Load the address that it redirects to.",
    "400": "Check the path of the URL, and what the server asks for: --subprotocol, -H.",
    "4": "Check the path of the URL.",
    "5": "See the server's log.",
}
OF_REFUSAL = {
    "connect_refused": "Start the server, or correct the port.",
    "tls_failed": "Check that the port speaks TLS (else ws://); trust its certificate with --ca, or add --insecure.",
    "handshake_invalid": "Check that the port speaks WebSocket.",
    "reset": "Check that the port speaks WebSocket.",
    "handshake_accept": "Check that the port speaks WebSocket.",
    "handshake_timeout": "Check that the port speaks WebSocket.",
    "setup_failed": "Carry it out with one user: `wsbench session try`.",
    "setup_timeout": "Carry it out with one user: `wsbench session try`.",
}
#: What to do about a handshake that lacks what was asked for, by the engine's words.
OF_OFFER = {"declined permessage-deflate": "Omit --deflate.", "subprotocol": "Correct --subprotocol."}
#: What to do if the engine may be the reason.
LESS_LOAD = "Lower the load, or give the engine more CPUs."
#: Errors of a server that says nothing; the host may then have kept it from answering.
SILENT = {"timeout", "setup_timeout", "connect_timeout", "handshake_timeout"}
#: Findings about the engine that no cause rules out: its record is wrong.
OF_RECORD = {"outcome", "ledger", "latencies", "clipped", "record"}
#: Findings about the server that say more than a cause.
SAYS_MORE = {"listen_queue", "heap_full", "unasked", "refused"}


def cause(trial: TrialData, found: Verdict) -> Finding | None:
    """Why no number that the load is about can be used. None: at least one can."""
    if trial.record.outcome == "failed" or trial.end is None or trial.plan is None:
        reason = trial.record.reason or "the engine wrote no result"
        return _of("server" if reason.startswith("the server") else "host", "failed", reason)
    if trial.end.outcome == "interrupted":
        return _of("engine", "outcome", "the load was interrupted before its end")
    return of_server(trial) or _all_invalid(trial, found)


def of_server(trial: TrialData) -> Finding | None:
    """Why a load that ran to its end carried nothing, or lost most of it."""
    checks = (_no_connection, _none_left, _no_answer, _mostly_lost)
    return next(filter(None, (check(trial) for check in checks)), None)


def left(trial: TrialData, why: Finding, found: Verdict) -> list[Finding]:
    """The findings of the verdict that the cause neither contains nor rules out."""
    if why.name == "outcome":
        return []  # what was under way at that moment is nobody's loss
    if why.name in ("failed", "unusable") or why.axis == "engine":
        return [one for one in found.findings if one.name != why.name]
    silent = trial.end is not None and set(trial.end.errors) <= SILENT

    def stays(one: Finding) -> bool:
        if one.axis == "server":
            return one.name != why.name and (one.name in SAYS_MORE or (one.name == "flood" and why.name == "no_answer"))
        return one.name in OF_RECORD if one.axis == "engine" else silent and one.kind == "INVALID"

    return [one for one in found.findings if stays(one)]


def _of(axis: Axis, name: str, seen: str, remedy: str = "", **kept: None) -> Finding:
    """A cause: it makes every number INVALID but those of the families in `kept`."""
    return finding(axis, name, seen, remedy, **everything("INVALID") | kept)


def _no_connection(trial: TrialData) -> Finding | None:
    if trial.end.connections.established:
        return None
    kind, example = _commonest(trial)
    status = re.sub(r"^status ", "", example)
    why = REFUSALS.get(kind, f"{kind}: {{}}").format(status) if kind else "the engine recorded no error"
    lacks = (words for what, words in OF_OFFER.items() if kind == "handshake_invalid" and what in example)
    remedy = next(lacks, OF_REFUSAL.get(kind, ""))
    if kind == "handshake_status":
        remedy = next((words for start, words in OF_STATUS.items() if status.startswith(start)), "")
    return _of("server", "no_connection", f"no connection was established: {why}", remedy, counts=None)


def _none_left(trial: TrialData) -> Finding | None:
    """Every connection had ended before the window did, and the load itself closes none."""
    held = trial.end.connections
    lost = metrics.failures.connections_lost(trial)
    if trial.end.outcome != "connections_lost" and (lost is None or lost < held.established):
        return None
    at_end = next((tick.open for tick in trial.ticks if trial.window is not None and tick.t_ns == trial.window[1]), held.open)
    # After the window a server may close as it likes, unless messages of the window were lost by it.
    if (at_end and not trial.measured.failed) or _has_all(trial):
        return None
    kind, example = _commonest(trial)
    number = min(held.asked, held.established)
    which = "the connection" if number == 1 else f"all {number:,} connections"
    seen = ENDS.get(kind, VIOLATES if kind else "no connection is left of {}").format(which + _when(trial))
    said = {"closed_early": "without a Close frame"}.get(kind, example if kind in ENDS else f"{kind} ({example})")
    return _of("server", "died", f"{seen}: {said}" if kind else seen, connect=None, counts=None)


def _has_all(trial: TrialData) -> bool:
    """Whether a load that ends by a count got every answer."""
    until, counts = trial.plan.measure, trial.measured
    return isinstance(until, Messages) and counts.answered == counts.sent >= until.messages


def _when(trial: TrialData) -> str:
    """` within 2 s` of the first phase, by the first tick from which on no connection was open; ` at once` if before it."""
    began, gone_ns = trial.begins.get("warmup", trial.begins.get("measure")), None
    for tick in reversed(trial.ticks):
        if tick.open:
            break
        gone_ns = tick.t_ns
    if gone_ns is None:
        return ""
    return " at once" if began is None or gone_ns <= began else f" within {(gone_ns - began) / NS_PER_S:.2g} s"


def _no_answer(trial: TrialData) -> Finding | None:
    if trial.holds_only or trial.measured.answered:
        return None
    counts, ticks = trial.measured, trial.ticks
    if not counts.sent and ticks and ticks[-1].sent and not ticks[-1].answered:
        seen = f"no message was answered: {ticks[-1].sent:,} sent before the window{_kinds(trial)}"
    elif not counts.sent:
        late = f": {counts.unsent:,} were due" if counts.unsent else ""
        seen = f"no message was sent{late}{_kinds(trial)}"
    else:
        seen = f"no message was answered: {counts.sent:,} sent{_kinds(trial)}"
    kept: dict[str, None] = dict.fromkeys(("connect", "counts", "memory"))
    if may_lose(trial):
        return _of("engine", "no_answer", seen, LESS_LOAD, **kept)
    return _of("server", "no_answer", seen, "Check that the server answers such messages.", **kept)


def _mostly_lost(trial: TrialData) -> Finding | None:
    counts, copies = trial.measured, trial.end.session
    lost = counts.failed + counts.unanswered + counts.unsent
    if lost and lost >= counts.answered:
        by_engine = may_lose(trial)
        many = "more messages were lost than" if lost > counts.answered else "as many messages were lost as"
        seen = f"{many} answered: {lost:,} of {lost + counts.answered:,}{_kinds(trial)}"
        axis: Axis = "engine" if by_engine else "server"
        return _of(axis, "lost_messages", seen, LESS_LOAD if by_engine else "", connect=None, counts=None)
    if copies is not None and copies.copies_expected > 2 * copies.copies_received:
        missing = copies.copies_expected - copies.copies_received
        seen = f"more copies were lost than arrived in the rooms: {missing:,} of {copies.copies_expected:,}{_kinds(trial)}"
        return _of("server", "lost_copies", seen, connect=None, counts=None)
    return None


def _all_invalid(trial: TrialData, found: Verdict) -> Finding | None:
    about = OF_HOLDING if trial.holds_only else OF_MESSAGES
    if any(found.of(family) != "INVALID" for family in about):
        return None
    worst = found.because(about[0])[0]
    return Finding(worst.axis, "unusable", f"no number can be used: {worst.seen}", "", dict.fromkeys(about, "INVALID"))


def errors(trial: TrialData) -> dict[str, int]:
    """The errors of the window by kind; if it has none, those of the whole load, in which they came earlier."""
    if trial.end.errors:
        return trial.end.errors
    earlier: dict[str, int] = {}
    for event in trial.events:
        if isinstance(event, Error):
            earlier[event.kind] = earlier.get(event.kind, 0) + event.count
    return earlier


def _commonest(trial: TrialData) -> tuple[str, str]:
    """The most frequent kind of error, and what it was; two empty texts if there was none."""
    counts = errors(trial)
    kind = max(counts, key=lambda name: counts[name], default="")
    return kind, partings.words(trial, kind)


def _kinds(trial: TrialData) -> str:
    """`; timeout 4 (no reply within 10 s)`: the kinds of errors, with words for the most frequent one."""
    if not (counts := errors(trial)):
        return ""
    kind, example = _commonest(trial)
    others = [f"{name} {number:,}" for name, number in sorted(counts.items()) if name != kind]
    return "; " + ", ".join([f"{kind} {counts[kind]:,} ({example})", *others])

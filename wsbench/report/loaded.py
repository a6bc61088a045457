"""A finished load in words and times, the same on the terminal and on its page. It needs no more than the base installation."""

from __future__ import annotations

from wsbench import metrics
from wsbench.engine.histogram import Histogram
from wsbench.metrics import cause, partings
from wsbench.metrics.findings import Verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.records.engine_files import Closed, Echo, End, Open, Push
from wsbench.records.plain import time_text
from wsbench.records.session_table import Session

TAGS = ("response", "service", "send_lag", "receive_delay", "request", "push", "connect")
#: Errors by which a server shows that it does not echo.
NO_ECHO = {"reply_opcode", "reply_length", "reply_content", "unexpected_reply", "reply_missing", "timeout", "close_frame"}
FEW_ANSWERS = 0.01
#: What the limit was, by the side that had no CPU left.
LIMITS = {
    "server": "the server was the limit",
    "engine": "the load generator was the limit, so the server may carry more",
    "neither": "neither side was at its limit",
    "none": "",
    "unknown": "what the limit was is unknown",
}


def times(trial: TrialData) -> dict[str, Histogram]:
    """The times that were recorded, by name, in the order of the tables."""
    found = {tag: trial.histograms.get(tag) for tag in TAGS}
    if trial.plan is not None and isinstance(trial.plan.scenario, Session):
        found |= {"push, last": trial.histograms.get("push_last"), "setup": trial.histograms.get("setup")}
    return {name: of for name, of in found.items() if of is not None and of.count}


def step_times(trial: TrialData, setup: bool = True) -> dict[str, Histogram]:
    """The times of a session's steps by name, with or without those of its setup. Empty for any other load."""
    if trial.plan is None or not isinstance(trial.plan.scenario, Session):
        return {}
    session = trial.plan.scenario
    found = [(step.name, trial.histograms.get(f"step_{place}")) for place, step in enumerate(session.steps)]
    return {name: of for name, of in found[0 if setup else session.setup :] if of is not None and of.count}


def rate(trial: TrialData) -> str:
    """`12,345 messages/s over 10.00 s`."""
    if trial.window_s is None:
        return "nothing was measured"
    found = metrics.rates.messages_per_s(trial)
    return f"{'no rate' if found is None else f'{found:,.0f} messages/s'} over {trial.window_s:.2f} s"


def answer(trial: TrialData, found: Verdict) -> str:
    """A load that can be used, in a sentence: `5,000 messages/s over 10.00 s, p50 0.4 ms, p99 3.1 ms, none lost; …`."""
    limit = LIMITS[found.bottleneck]
    if trial.holds_only:
        said = [f"{connected(trial.end)} held", received(trial)]
    else:
        times, counts = trial.reported_times, trial.measured
        lost = counts.failed + counts.unanswered + counts.unsent
        said = [rate(trial)]
        if times is not None and times.count:
            quantiles = {"p50": ("0.5", "body"), "p99": ("0.99", "tail")}
            usable = {name: q for name, (q, family) in quantiles.items() if found.of(family) != "INVALID"}
            said += [f"{name} {time_text(times.quantile(q))}" for name, q in usable.items()]
            unusable = [name for name in quantiles if name not in usable]
            said += [f"{' and '.join(unusable)} cannot be used"] if unusable else []
        said.append(f"{lost:,} lost" if lost else "none lost")
    return f"{', '.join(filter(None, said))}{'; ' if limit else ''}{limit}."


def ledger(end: End) -> str:
    """`100 sent = 98 answered + 1 failed + 1 unanswered`."""
    measured = end.measured
    unsent = f"; {measured.unsent:,} due but never sent" if measured.unsent else ""
    parts = f"{measured.answered:,} answered + {measured.failed:,} failed + {measured.unanswered:,} unanswered"
    return f"{measured.sent:,} sent = {parts}{unsent}"


def connected(end: End) -> str:
    """`4 of 4 connections`, or `100 connections at a time, 168,094 in all` if they come and go."""
    held = end.connections
    if held.established > held.asked:
        return f"{held.asked:,} connections at a time, {held.established:,} in all"
    return f"{held.established:,} of {held.asked:,} connections"


def received(trial: TrialData) -> str | None:
    """What arrived although no message was due: the pushes of a session. None for any other load."""
    if not trial.holds_only or trial.end is None or trial.end.session is None:
        return None
    rate = metrics.broadcasts.pushes_per_s(trial)
    return f"{trial.end.session.pushes_in_window:,} messages received{'' if rate is None else f', {rate:,.4g} a second'}"


def examples(trial: TrialData) -> dict[str, tuple[int, str]]:
    """Every kind of error with its number, and what it was."""
    found = {} if trial.end is None else trial.end.errors
    return {kind: (number, partings.words(trial, kind)) for kind, number in sorted(found.items())}


def shape(trial: TrialData) -> str:
    """The load, which decides how to read the numbers."""
    plan = trial.plan
    if plan is None:
        return "the load has no plan"
    if isinstance(plan.scenario, Push):
        return _broadcasts(trial)
    if isinstance(plan.scenario, Session) and plan.scenario.rooms is not None and trial.end is not None:
        counts = trial.end.session
        if counts is not None:
            arrived = f"{counts.copies_received:,} of {counts.copies_expected:,} copies arrived"
            return f"{arrived}, {counts.copies_out_of_order:,} out of order"
    if isinstance(plan.loop, Open):
        ratio = metrics.rates.rate_ratio(trial)
        reached = "it is unknown whether the rate was reached" if ratio is None else f"{ratio:.2%} of the messages left on schedule"
        told = f"open loop ({plan.loop.arrivals} arrivals), {reached}: response time counts from the due time"
        adds, response = metrics.latencies.engine_adds_us(trial), trial.histograms.get("response")
        if adds is None or response is None:
            return told
        return f"{told}; on average {time_text(1e3 * adds)} of {time_text(response.mean)} are the engine's own sending and reading"
    if isinstance(plan.loop, Closed) and plan.loop.think is None:
        return "closed loop: these are service times at saturation, not response times at a fixed rate"
    if isinstance(plan.loop, Closed):
        return "closed loop with pauses: a slow server receives fewer messages"
    if plan.stages is None:
        return f"{metrics.failures.connections_lost(trial)} connections died"
    return "connections opened and closed as the stages ask"


def _broadcasts(trial: TrialData) -> str:
    found = metrics.values(trial, ["push_reach", "push_last_us_p50", "push_spread_us"])
    if None in found.values():
        return f"{len(trial.broadcasts)} broadcasts; none reached all its receivers"
    reach, last, spread = found.values()
    took = f"median to the last {time_text(1e3 * last)}, spread {time_text(1e3 * spread)}"
    return f"{len(trial.broadcasts)} broadcasts reached {reach:.2%}; {took}"


def no_echo(trial: TrialData) -> str | None:
    """What to type if the server does not seem to echo: (nearly) no message of an echo was answered correctly. Else None."""
    if trial.plan is None or trial.end is None or not isinstance(trial.plan.scenario, Echo):
        return None
    found = trial.end.measured
    # Connections that wait for the answers of the warm-up send nothing in the window.
    counts = found if found.sent or not trial.ticks else trial.ticks[-1]
    if counts.answered > FEW_ANSWERS * counts.sent or not (found.unanswered or NO_ECHO & cause.errors(trial).keys()):
        return None
    return "the server does not seem to echo; if it speaks a protocol, name its session with --session (`wsbench list sessions`)"

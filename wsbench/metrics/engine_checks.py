"""Checks of the engine: whether it carried out its plan, recorded everything, and had the CPU time that its numbers need."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from statistics import fmean, pstdev

from wsbench import metrics
from wsbench.engine.histogram import Histogram
from wsbench.metrics.bottleneck import bottleneck, engine_busy, engine_full, rate_met, server_busy, shortfall
from wsbench.metrics.findings import Family, Finding, everything, finding, worst
from wsbench.metrics.limits import LIMITS, beyond
from wsbench.metrics.server_checks import DELAYED
from wsbench.metrics.trial_data import NO_WINDOW, NS_PER_S, TrialData
from wsbench.records.engine_files import Closed, Messages, Open, Push, Tick
from wsbench.records.plain import time_text

TICKS_FOR_LITTLE = 4
#: Half of the messages are above the median, so waits of this many times the mean can have raised it.
RAISES_MEDIAN = 2
TICKS_FOR_HALVES = 3
TIMES: tuple[Family, ...] = ("body", "tail")
RATES: tuple[Family, ...] = ("throughput", "body", "tail")
RUN_AGAIN = "Run the trial again."
MORE_CPU = "Give the engine its own CPUs, or more of them."
APART = "Keep server and engine on separate CPUs, stop other programs, or use fewer connections."


def _outcome(trial: TrialData) -> Iterator[Finding]:
    if (outcome := trial.end.outcome) in ("interrupted", "deadline", "not_begun"):
        remedy = "Raise the deadline or lower the load." if outcome == "deadline" else RUN_AGAIN
        yield finding("engine", "outcome", f"the engine's outcome is {outcome}", remedy, **everything("INVALID"))


def _ledger(trial: TrialData) -> Iterator[Finding]:
    """Messages are conserved, and each answered message has a latency."""
    ledger = trial.measured
    if ledger.sent != ledger.answered + ledger.failed + ledger.unanswered:
        seen = (
            f"messages are not conserved: {ledger.sent:,} sent; {ledger.answered:,} answered, "
            f"{ledger.failed:,} failed, {ledger.unanswered:,} unanswered"
        )
        words = everything("INVALID") | {"memory": None, "connect": None}
        yield finding("engine", "ledger", seen, "Report this as a fault of wsbench.", **words)
    tag = "push" if isinstance(trial.plan.scenario, Push) else "service"
    recorded = trial.recorded[tag].count if tag in trial.recorded else 0
    if recorded != ledger.answered:
        seen = f"{ledger.answered:,} messages were answered, but {recorded:,} have a latency"
        remedy = "Restore latency.hlog from a copy if it was altered; else report this as a fault of wsbench."
        yield finding("engine", "latencies", seen, remedy, body="INVALID", tail="INVALID")


def _histograms(trial: TrialData) -> Iterator[Finding]:
    for tag, found in trial.histograms.items():
        if found.saturated:
            seen = f"a {tag} time reached the end of the histogram's range: the largest values are clipped"
            words = {"connect": "INVALID"} if tag == "connect" else {"tail": "INVALID", "body": "SUSPECT"}
            yield finding("engine", "clipped", seen, "Use a shorter load: no time may exceed an hour.", **words)


def _little(trial: TrialData) -> Iterator[Finding]:
    """Little's law for a closed loop without think time. The window's edges may cut one message per slot (senders × depth).

    Short runs that end by a count ramp up and run out within the window. Therefore slots / messages is added to both limits: below
    about fifty messages per connection, this check shows little. Such a run also waits for its last messages with fewer in flight.
    Its rate includes that end, so a gap makes it SUSPECT, never INVALID. If the server lost messages or connections, or its listen
    queue was full, it is the server that was waited for: its rate then includes what it did.
    """
    times, loop = trial.times, trial.plan.loop
    if times is None or not times.count or not trial.counted or trial.window_s is None:
        return
    if not isinstance(loop, Closed) or loop.think is not None or trial.plan.stages is not None:
        return
    places = trial.plan.senders * loop.depth
    ratio = trial.counted / trial.window_s * times.mean / NS_PER_S / places
    gap = abs(ratio - 1) if loop.messages_per_connection is None else ratio - 1  # replaced connections also shake hands
    kind = beyond("little", gap - places / trial.counted)
    if not kind:
        return
    seen = f"rate × mean time gives {ratio * places:,.1f} messages in flight, not {places:,} (Little's law)"
    if not isinstance(trial.plan.measure, Messages) or ratio >= 1:
        yield finding(
            "engine", "little", seen, "Use a longer measurement, or report a fault of wsbench.", **dict.fromkeys(RATES, kind)
        )
        return
    seen += "; fewer were in flight while the last ones were awaited"
    if waited_for_server(trial):
        yield finding("server", "waited_for_last", seen, DELAYED)
    else:
        yield finding("engine", "little", seen, "Send more messages, or measure for a time.", **dict.fromkeys(RATES, "SUSPECT"))


def waited_for_server(trial: TrialData) -> bool:
    """Whether the server dropped connects, connections or messages, so that the last messages had to wait for it."""
    found = metrics.values(trial, ["listen_overflows", "connections_lost", "errors"])
    return any(found.values())


def _little_open(trial: TrialData) -> Iterator[Finding]:
    """Little's law for an open loop: messages in flight at the ticks, which do not depend on latencies, against rate × mean time.

    The ticks sample a varying number, so the check allows four standard errors of their mean. Ticks can miss a stall of
    milliseconds that the times have, and their own spread then shows nothing of it. So the spread is at least the one that the
    times imply: in a queue that is served in order, N messages in flight have E[N(N − 1)] = rate² × E[time²] (Keilson and Servi
    1988). The check also allows what the edges of the window cut, and one message: at a constant rate, all ticks can fall at one
    point between two messages. Below about ten messages in flight, this check shows little. A message without an answer is in
    flight and has no time, so with many of them the law says nothing about the engine: `server_checks` judges the loss.
    """
    times, window = trial.times, trial.window
    if not isinstance(trial.plan.loop, Open) or isinstance(trial.plan.scenario, Push) or trial.connection_per_request:
        return
    if times is None or not times.count or window is None or not trial.window_s or not trial.measured.sent:
        return
    if beyond("little", trial.measured.unanswered / trial.measured.sent):
        return
    ticks = [tick for tick in trial.ticks if window[0] <= tick.t_ns <= window[1] and tick.phase in ("warmup", "measure")]
    if trial.slices is not None:
        edges = {at for one in trial.slices for at in (one.open_ns, one.close_ns)}
        ticks = [tick for tick in ticks if tick.t_ns in edges]
    elif trial.quiet is not None:
        ends = {end for _, end in trial.quiet}
        ticks = [tick for tick in ticks if tick.t_ns in ends]
    under_way = [tick.sent - tick.answered - tick.failed for tick in ticks]
    if len(under_way) < TICKS_FOR_LITTLE or not trial.counted:
        return
    rate = trial.counted / trial.window_s / NS_PER_S
    expected = rate * times.mean
    implied = expected + max(0.0, rate**2 * times.mean_square - expected**2)
    seen = fmean(under_way)
    error = 4 * max(pstdev(under_way), math.sqrt(implied)) / math.sqrt(len(under_way))
    edges = expected * (under_way[0] + under_way[-1]) / trial.measured.sent
    gap = max(0.0, abs(seen - expected) - 1 - error - edges)
    if expected and (kind := beyond("little", gap / expected)):
        text = f"rate × mean time gives {expected:,.1f} messages in flight, {seen:,.1f} were seen (Little's law)"
        yield finding("engine", "little", text, "Use a longer measurement.", body=kind, tail=kind)


def _settled(trial: TrialData) -> Iterator[Finding]:
    """A closed loop has settled after its warm-up if the second half of the window has the throughput of the first.

    Without a warm-up, the cold start is part of the requested load.
    """
    loop, window = trial.plan.loop, trial.window
    steady = isinstance(loop, Closed) and loop.think is None and trial.plan.warmup is not None and not trial.plan.stages
    if not steady or window is None:
        return
    if trial.slices is not None:
        kept = trial.kept_slices
        halves = kept[: len(kept) // 2], kept[len(kept) // 2 :]
        before, after = (sum(one.counted for one in half) / max(1e-9, sum(one.seconds for one in half)) for half in halves)
        yield from _rising(before, after)
        return
    ticks = [tick for tick in trial.ticks if window[0] <= tick.t_ns <= window[1]]
    if len(ticks) < TICKS_FOR_HALVES:
        return
    first, last = ticks[0], ticks[-1]
    middle = min(ticks[1:-1], key=lambda tick: abs(tick.t_ns - (first.t_ns + last.t_ns) / 2))
    yield from _rising(_throughput(first, middle), _throughput(middle, last))


def _rising(before: float, after: float) -> Iterator[Finding]:
    if before and after and (kind := beyond("rising", after / before - 1)):
        seen = (
            f"the throughput was still rising: {after / before - 1:.0%} higher in the second half of the window than in the first"
        )
        yield finding("engine", "rising", seen, "Use a longer warm-up.", **dict.fromkeys((*RATES, "cpu"), kind))


def _throughput(first: Tick, last: Tick) -> float:
    return (last.answered - first.answered) * NS_PER_S / max(1, last.t_ns - first.t_ns)


def _rate(trial: TrialData) -> Iterator[Finding]:
    """Open loop: messages were due at the plan's rate, and were sent when due. A missed rate is the server's if it was the limit.

    The times then belong to another load. The throughput is what was carried, or too low if the engine was the limit.
    """
    short = shortfall(trial)
    if short is None:
        if isinstance(trial.plan.loop, Open):
            reason = metrics.measure(trial, ["rate_ratio"]).reasons.get("rate_ratio", NO_WINDOW)
            seen = f"whether the offered rate was reached is unknown: {reason}"
            yield finding("engine", "rate", seen, RUN_AGAIN, **dict.fromkeys(RATES, "SUSPECT"))
        return
    if kind := beyond("rate", abs(short)):
        seen = (
            f"the offered rate was not reached: {trial.left_in_window:,} messages sent in the window, {trial.due_in_window:,} due"
        )
        if bottleneck(trial) == "server":
            yield finding("server", "rate", seen, "Lower the rate to find what the server carries.", body=kind, tail=kind)
        else:
            lower_bound = "SUSPECT" if bottleneck(trial) == "engine" else None
            yield finding("engine", "rate", seen, f"Lower the rate. {MORE_CPU}", throughput=lower_bound, body=kind, tail=kind)
    planned, due = trial.planned_in_window, trial.due_in_window
    if planned:
        # Both edges cut one message of each worker's schedule. Poisson arrivals scatter; four deviations are allowed.
        chance = 4 * math.sqrt(planned) if trial.open_loop.arrivals == "poisson" else 0.0
        gap = max(0.0, abs(due - planned) - trial.cut_messages - chance)
        if kind := beyond("rate", gap / planned):
            seen = f"the schedule deviated from the plan: {due:,} messages were due in the window, {planned:,.0f} planned"
            yield finding("engine", "schedule", seen, "Report this as a fault of wsbench.", **dict.fromkeys(RATES, kind))


def _send_lag(trial: TrialData) -> Iterator[Finding]:
    """Late sends: the median of the lag against typical latency, p99 against the tail. No response time has a part in it."""
    lag = trial.histograms.get("send_lag")
    loop = trial.plan.loop
    if isinstance(loop, Open) and loop.depth is not None:
        return
    if lag is None or not lag.count:
        if isinstance(loop, Open) and trial.counted and not isinstance(trial.plan.scenario, Push):
            yield finding(
                "engine", "send_lag", "how late messages were sent is unknown", RUN_AGAIN, **dict.fromkeys(TIMES, "SUSPECT")
            )
        return
    name = "polled_lag" if trial.plan.busy_poll else "send_lag"
    p50, p99 = lag.quantile("0.5"), lag.quantile("0.99")
    words = {
        "body": beyond(f"{name}_p50_us", p50 / metrics.NS_PER_US),
        "tail": beyond(f"{name}_p99_us", p99 / metrics.NS_PER_US),
    }
    if any(words.values()):
        seen = f"messages left late: the median of the send lag is {time_text(p50)}, p99 {time_text(p99)}"
        yield finding("engine", "send_lag", seen, f"Lower the rate. {MORE_CPU}", **words)


def _engine(trial: TrialData) -> Iterator[Finding]:
    busy = engine_busy(trial)
    if busy is None:
        if not trial.plan.busy_poll:
            seen = "the engine's CPU use is unknown"
            yield finding("engine", "engine_unknown", seen, RUN_AGAIN, **dict.fromkeys(RATES, "SUSPECT"))
        elif bottleneck(trial) == "unknown":
            seen = "the engine polled without sleeping, so it is unknown whether it was the limit: possibly a lower bound"
            yield finding("engine", "polled", seen, MORE_CPU, throughput="SUSPECT")
        return
    full = engine_full(trial)
    if full and rate_met(trial):
        seen = f"the engine was {busy:.0%} busy: although the rate was met, response times may include its own queue"
        yield finding("engine", "engine_busy", seen, MORE_CPU, **dict.fromkeys(TIMES, "SUSPECT"))
    elif full and bottleneck(trial) == "engine":
        seen = f"the engine was the limit ({busy:.0%} busy): the result is a lower bound for the server"
        yield finding("engine", "engine_busy", seen, MORE_CPU, **dict.fromkeys(RATES, "SUSPECT"))
    elif full and server_busy(trial) is None:
        seen = f"the engine was {busy:.0%} busy and the server's CPU use is unknown: possibly a lower bound"
        yield finding(
            "engine", "engine_busy", seen, f"Name the server's process (`--pid`). {MORE_CPU}", **dict.fromkeys(RATES, "SUSPECT")
        )


def _wait(trial: TrialData) -> Iterator[Finding]:
    """The engine's run-queue wait against each number that it would distort, the tail first. Steal is a check of the host."""
    times = trial.times
    if trial.holds_only or times is None or not times.count:
        return  # there is no number that a wait could have changed
    found = metrics.measure(trial, ["engine_wait_percent", "engine_wait_us_per_message"])
    if found.reasons:
        reason = next(iter(found.reasons.values()))
        seen = f"how long the engine waited for a CPU is unknown: {reason}"
        yield finding("engine", "wait", seen, "Use a kernel with schedstat.", **dict.fromkeys(RATES, "SUSPECT"))
        return
    share, wait_us = found.values["engine_wait_percent"] / 100, found.values["engine_wait_us_per_message"]
    delayed = Fraction(metrics.waits.delayed_share(trial))
    parts = {
        name: min(above * wait_us * metrics.NS_PER_US / times.quantile(q), _raised(times, q, delayed))
        for name, q, above in (("p50", Fraction(1, 2), RAISES_MEDIAN), ("p99", Fraction(99, 100), 100))
    }
    in_all, body = beyond("wait_share", share), beyond("wait_p50", parts["p50"])
    # At a given rate the wait delays messages and loses none.
    loop = trial.plan.loop
    throughput = in_all if isinstance(loop, Closed) and loop.think is None else None
    words = {"throughput": throughput, "body": worst([in_all, body])}
    words["tail"] = worst([words["body"], beyond("wait_p99", parts["p99"])])
    if worst(words.values()) != "VALID":
        seen = (
            f"an engine worker waited for a CPU in {share:.1%} of the window, {time_text(1e3 * wait_us)} per message on average: "
        )
        seen += f"up to {min(parts['p50'], 1):.0%} of p50 and {min(parts['p99'], 1):.0%} of p99"
        yield finding("engine", "wait", seen, APART, **words)


def _held_up(trial: TrialData) -> Iterator[Finding]:
    """A worker that stood still: no reply that was there in time is lost, but its time has the stop in it."""
    held_up_s = max((one.held_up_ns or 0 for one in trial.end.threads), default=0) / NS_PER_S
    if not trial.holds_only and (kind := beyond("held_up", held_up_s)):
        seen = f"an engine worker stood still for {held_up_s:.2g} s, which is in the times of the replies that it kept waiting"
        yield finding("engine", "held_up", seen, APART, tail=kind)


def _raised(times: Histogram, q: Fraction, delayed: Fraction) -> float:
    """The share of a quantile that waits can have added, if they delayed this share of the messages: without them it would be no
    less than the quantile of q less that share."""
    return 1.0 if delayed >= q else 1 - times.quantile(q - delayed) / times.quantile(q)


def _window(trial: TrialData) -> Iterator[Finding]:
    if trial.slices is not None and not trial.kept_slices:
        return  # a finding about the host says why
    if trial.window is None or trial.window_s is None:
        if trial.end.outcome != "no_connection":
            words = everything("INVALID") | {"counts": None, "connect": None}
            yield finding("engine", "window", NO_WINDOW, RUN_AGAIN, **words)
    elif trial.window_s < LIMITS["window_s"].suspect:
        seen = f"the measured window is only {trial.window_s:.3g} s long"
        yield finding("engine", "window", seen, "Measure for longer.", **dict.fromkeys((*RATES, "cpu"), "SUSPECT"))


def _start(trial: TrialData) -> Iterator[Finding]:
    """Workers that entered the measured window late. In slices nothing is sent until the first one starts."""
    late_s = (metrics.rates.start_spread_us(trial) or 0.0) * metrics.NS_PER_US / NS_PER_S
    if trial.slices:
        late_s -= (trial.slices[0].start_ns - trial.begins["measure"]) / NS_PER_S
    if kind := beyond("start_spread_s", late_s):
        seen = f"the engine's workers did not start together: the last {late_s * 1e3:,.0f} ms after the first"
        yield finding("engine", "start", seen, MORE_CPU, **dict.fromkeys(RATES, kind))


#: The checks of the engine, in a trial whose record is complete.
CHECKS = (
    _outcome,
    _ledger,
    _histograms,
    _little,
    _little_open,
    _rate,
    _send_lag,
    _engine,
    _wait,
    _held_up,
    _settled,
    _start,
    _window,
)
#: Those that hold also beyond what a server carries.
OF_LADDER = (_outcome, _ledger, _histograms, _held_up, _start, _window)

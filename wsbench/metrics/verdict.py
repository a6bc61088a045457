"""The verdict on a trial: whether its numbers may be published, and which side was the limit. One trial in, a `Verdict` out.

VALID: no check failed. SUSPECT: shown together with the reasons. INVALID: kept and shown, never part of a mean. The verdict judges
how a trial was carried out, never whether a server is fast. A check that could not be made is itself a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Literal

from wsbench import metrics
from wsbench.metrics.bottleneck import Bottleneck, bottleneck, engine_busy, rate_met, server_busy, shortfall
from wsbench.metrics.limits import LIMITS
from wsbench.metrics.trial_data import NO_WINDOW, NS_PER_S, TrialData
from wsbench.records.engine_files import Closed, Echo, Idle, Messages, Open, Push, Tick

Kind = Literal["VALID", "SUSPECT", "INVALID"]


TICKS_FOR_LITTLE = 4
TICKS_FOR_HALVES = 3
#: Allowance around a reply: frame headers, a TLS record, an occasional Ping.
WRAPPING_BYTES = 100


@dataclass(frozen=True)
class Verdict:
    """`reasons` is empty for VALID, unless a stop rule ended the trial. `bottleneck` is the side without CPU left, if known."""

    kind: Kind
    reasons: tuple[str, ...]
    bottleneck: Bottleneck


def verdict(trial: TrialData) -> Verdict:
    """Applies every check to one trial. The worst result decides."""
    if trial.record.outcome == "failed":
        return Verdict("INVALID", (f"failed: {trial.record.reason}",), "unknown")
    if trial.record.outcome == "stopped":
        return _stopped(trial)
    if trial.end is None or trial.plan is None:
        return Verdict("INVALID", ("the engine's record is incomplete",), "unknown")
    found: list[tuple[Kind, str]] = []
    for check in CHECKS:
        found.extend(check(trial))
    kinds = {kind for kind, _ in found}
    worst: Kind = "INVALID" if "INVALID" in kinds else "SUSPECT" if kinds else "VALID"
    ordered = sorted(found, key=lambda item: item[0] != "INVALID")
    return Verdict(worst, tuple(reason for _, reason in ordered), bottleneck(trial))


def disturbed(trial: TrialData) -> str | None:
    """The disturbance by the machine that makes a trial INVALID. None if there is none.

    Uses no result, so the decision to rerun a trial does not depend on what it measured.
    """
    if trial.record.outcome != "ok" or trial.end is None:
        return None
    return next((reason for kind, reason in _machine(trial) if kind == "INVALID"), None)


def _stopped(trial: TrialData) -> Verdict:
    """A stop is attributed to the server if the engine had CPU left while connections were opened."""
    why = (trial.record.reason, *_ran_out(trial))
    used = metrics.connections.engine_cpu_percent_connecting(trial)
    if used is None or trial.plan.busy_poll:
        return Verdict("SUSPECT", (*why, "the engine's CPU use is unknown"), "unknown")
    if (share := used / 100 / trial.plan.threads) >= LIMITS["engine_busy"].suspect:
        return Verdict("SUSPECT", (*why, f"the engine was {share:.0%} busy"), "engine")
    return Verdict("VALID", why, "server")


def _ran_out(trial: TrialData) -> Iterator[str]:
    if not isinstance(trial.runtime, str) and (full := trial.runtime.heap_full):
        yield full
    if dropped := metrics.connections.listen_overflows(trial):
        yield f"its kernel dropped {dropped:,} connects because a listen queue was full"


Found = Iterator[tuple[Kind, str]]


def _outcome(trial: TrialData) -> Found:
    if trial.end.outcome != "completed":
        yield "INVALID", f"the engine's outcome is {trial.end.outcome}"
    if not trial.counted and not isinstance(trial.plan.scenario, Idle):
        yield "INVALID", "no message was answered"


def _connections(trial: TrialData) -> Found:
    counts = trial.end.connections
    if metrics.missing_connections(trial):
        yield "INVALID", f"{counts.established:,} of {counts.asked:,} connections were established"
    lost = metrics.failures.connections_lost(trial)
    if lost:
        yield _beyond("errors", lost / counts.established), f"{lost:,} of {counts.established:,} connections died"


def _ledger(trial: TrialData) -> Found:
    """Messages are conserved, and each answered message has a latency."""
    ledger = trial.measured
    if ledger.sent != ledger.answered + ledger.failed + ledger.unanswered:
        yield (
            "INVALID",
            f"messages are not conserved: {ledger.sent:,} sent; {ledger.answered:,} answered, "
            f"{ledger.failed:,} failed, {ledger.unanswered:,} unanswered",
        )
    tag = "push" if isinstance(trial.plan.scenario, Push) else "service"
    recorded = trial.histograms[tag].count if tag in trial.histograms else 0
    if recorded != ledger.answered:
        yield "INVALID", f"{ledger.answered:,} messages were answered, but {recorded:,} have a latency"


def _histograms(trial: TrialData) -> Found:
    for tag, found in trial.histograms.items():
        if found.saturated:
            yield "INVALID", f"a {tag} time reached the end of the histogram's range: the largest values are clipped"


def _errors(trial: TrialData) -> Found:
    fraction = metrics.failures.error_fraction(trial)
    if fraction:
        ledger = trial.measured
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(trial.end.errors.items())) or "no kind given"
        lost, due = ledger.failed + ledger.unanswered + ledger.unsent, ledger.sent + ledger.unsent
        text = f"{lost:,} of {due:,} messages were lost ({kinds})"
        yield _beyond("errors", fraction), text


def _unasked(trial: TrialData) -> Found:
    """More replies than requests: a server that answers in advance, twice or from elsewhere gives meaningless results."""
    control, answered = trial.end.control, trial.measured.answered
    other = trial.end.errors.get("reply_content", 0) if isinstance(trial.plan.scenario, Push) else 0
    for count, what in (
        (trial.end.errors.get("unexpected_reply", 0), "replies arrived that no message had requested"),
        (other, "messages arrived that are not broadcasts and were not triggered by this load"),
        (control.out_of_order, "copies of broadcasts arrived twice or late"),
        (control.foreign, "broadcasts arrived that this load did not trigger"),
    ):
        if count:
            yield _beyond("errors", count / answered) if answered else "SUSPECT", f"{count:,} {what}"


def _flood(trial: TrialData) -> Found:
    """A flood on one connection (Pings, empty fragments or anything else) delays all others."""
    scenario = trial.plan.scenario
    if not isinstance(scenario, Echo):
        return
    replies = trial.measured.replies_in_window + trial.plan.connections
    most = 2 * replies * (scenario.bytes + WRAPPING_BYTES)
    if (came := trial.measured.bytes_received) > most:
        yield (
            "SUSPECT",
            f"{came:,} bytes arrived with {replies:,} replies of {scenario.bytes:,}: a flood delays other connections",
        )


def _little(trial: TrialData) -> Found:
    """Little's law for a closed loop without think time. The window's edges may cut one message per slot (connections × depth).

    Short runs that end by a count ramp up and run out within the window. Therefore slots / messages is added to both limits: below
    about fifty messages per connection, this check shows little. Such a run also waits for its last messages with fewer in flight.
    Its rate includes that end, so a gap makes it SUSPECT, never INVALID.
    """
    times, loop = trial.times, trial.plan.loop
    if times is None or not times.count or not trial.counted or trial.window_s is None:
        return
    if not isinstance(loop, Closed) or loop.think is not None or trial.plan.stages is not None:
        return
    places = trial.plan.connections * loop.depth
    ratio = trial.counted / trial.window_s * times.mean / NS_PER_S / places
    gap = abs(ratio - 1) if loop.messages_per_connection is None else ratio - 1  # replaced connections also shake hands
    kind = _beyond("little", gap - places / trial.counted)
    if kind:
        by_count = isinstance(trial.plan.measure, Messages)
        where = "; fewer were in flight while the last ones were awaited" if by_count and ratio < 1 else ""
        yield (
            "SUSPECT" if where else kind,
            f"rate × mean time gives {ratio * places:,.1f} messages in flight, not {places:,} (Little's law){where}",
        )


def _little_open(trial: TrialData) -> Found:
    """Little's law for an open loop: messages in flight at the ticks, which do not depend on latencies, against rate × mean time.

    The ticks sample a varying number, so the check allows four standard errors of their mean (at least those of a Poisson number).
    It also allows what the edges of the window cut, and one message: at a constant rate, all ticks can fall at one point between
    two messages. Below about ten messages in flight, this check shows little.
    """
    times, window = trial.times, trial.window
    if not isinstance(trial.plan.loop, Open) or isinstance(trial.plan.scenario, Push) or trial.connection_per_request:
        return
    if times is None or not times.count or window is None or not trial.window_s or not trial.measured.sent:
        return
    ticks = [tick for tick in trial.ticks if window[0] <= tick.t_ns <= window[1] and tick.phase in ("warmup", "measure")]
    under_way = [tick.sent - tick.answered - tick.failed for tick in ticks]
    if len(under_way) < TICKS_FOR_LITTLE or not trial.counted:
        return
    expected = trial.counted / trial.window_s * times.mean / NS_PER_S
    seen = fmean(under_way)
    error = 4 * max(pstdev(under_way), math.sqrt(expected)) / math.sqrt(len(under_way))
    edges = expected * (under_way[0] + under_way[-1]) / trial.measured.sent
    gap = max(0.0, abs(seen - expected) - 1 - error - edges)
    if expected and (kind := _beyond("little", gap / expected)):
        yield kind, f"rate × mean time gives {expected:,.1f} messages in flight, {seen:,.1f} were seen (Little's law)"


def _settled(trial: TrialData) -> Found:
    """A closed loop has settled after its warm-up if the second half of the window has the throughput of the first.

    Without a warm-up, the cold start is part of the requested load.
    """
    loop, window = trial.plan.loop, trial.window
    steady = isinstance(loop, Closed) and loop.think is None and trial.plan.warmup is not None and not trial.plan.stages
    if not steady or window is None:
        return
    ticks = [tick for tick in trial.ticks if window[0] <= tick.t_ns <= window[1]]
    if len(ticks) < TICKS_FOR_HALVES:
        return
    first, last = ticks[0], ticks[-1]
    middle = min(ticks[1:-1], key=lambda tick: abs(tick.t_ns - (first.t_ns + last.t_ns) / 2))
    before, after = _throughput(first, middle), _throughput(middle, last)
    if before and after and (kind := _beyond("rising", after / before - 1)):
        yield (
            kind,
            f"the throughput was still rising: {after / before - 1:.0%} higher in the second half of the window than in the "
            "first, so the warm-up was too short",
        )


def _throughput(first: Tick, last: Tick) -> float:
    return (last.answered - first.answered) * NS_PER_S / max(1, last.t_ns - first.t_ns)


def _rate(trial: TrialData) -> Found:
    """Open loop: messages were due at the plan's rate, and were sent when due."""
    short = shortfall(trial)
    if short is None:
        if isinstance(trial.plan.loop, Open):
            reason = metrics.measure(trial, ["rate_ratio"]).reasons.get("rate_ratio", NO_WINDOW)
            yield "SUSPECT", f"whether the offered rate was reached is unknown: {reason}"
        return
    if kind := _beyond("rate", abs(short)):
        yield (
            kind,
            f"the offered rate was not reached: {trial.left_in_window:,} messages sent in the window, {trial.due_in_window:,} due",
        )
    planned, due = trial.planned_in_window, trial.due_in_window
    if planned:
        # Both edges cut one message of each worker's schedule. Poisson arrivals scatter; four deviations are allowed.
        chance = 4 * math.sqrt(planned) if trial.open_loop.arrivals == "poisson" else 0.0
        gap = max(0.0, abs(due - planned) - trial.plan.threads - 1 - chance)
        if kind := _beyond("rate", gap / planned):
            yield (
                kind,
                f"the schedule deviated from the plan: {due:,} messages were due in the window, {planned:,.0f} planned",
            )


def _send_lag(trial: TrialData) -> Found:
    lag, response = trial.histograms.get("send_lag"), trial.histograms.get("response")
    loop = trial.plan.loop
    if isinstance(loop, Open) and loop.depth is not None:
        return
    if lag is None or response is None or not lag.count or not response.count:
        if isinstance(loop, Open) and trial.counted and not isinstance(trial.plan.scenario, Push):
            yield "SUSPECT", "how late messages were sent is unknown"
        return
    p99, of = lag.quantile("0.99"), response.quantile("0.99")
    if kind := _beyond("send_lag", p99 / of):
        yield kind, f"messages left late: p99 of the send lag is {p99 / 1e3:,.4g} µs, {p99 / of:.0%} of p99 of response"


def _engine(trial: TrialData) -> Found:
    busy = engine_busy(trial)
    if busy is None:
        if not trial.plan.busy_poll:
            yield "SUSPECT", "the engine's CPU use is unknown"
        elif bottleneck(trial) == "unknown":
            yield (
                "SUSPECT",
                "the engine polled without sleeping, so it is unknown whether it was the limit: possibly a lower bound",
            )
        return
    full = busy >= LIMITS["engine_busy"].suspect
    if full and rate_met(trial):
        yield (
            "SUSPECT",
            f"the engine was {busy:.0%} busy: although the rate was met, response times may include its own queue",
        )
    elif full and bottleneck(trial) == "engine":
        yield "SUSPECT", f"the engine was the limit ({busy:.0%} busy): the result is a lower bound for the server"
    elif full and server_busy(trial) is None:
        yield "SUSPECT", f"the engine was {busy:.0%} busy and the server's CPU use is unknown: possibly a lower bound"


def _wait(trial: TrialData) -> Found:
    """The engine's run-queue wait against each number that it would distort. Steal is not part of it and has its own check."""
    if isinstance(trial.plan.scenario, Idle):
        return
    found = metrics.measure(trial, ["engine_wait_percent", "engine_wait_us_per_message"])
    times = trial.times
    if found.reasons or times is None or not times.count:
        reason = next(iter(found.reasons.values()), "no latency was recorded")
        yield "SUSPECT", f"how long the engine waited for a CPU is unknown: {reason}"
        return
    share, wait_us = found.values["engine_wait_percent"] / 100, found.values["engine_wait_us_per_message"]
    if kind := _beyond("wait_share", share):
        yield (
            kind,
            f"an engine worker waited for a CPU in {share:.1%} of the window: the throughput may be too low by as much",
        )
    for name, quantile, above in (("p50", "0.5", 2), ("p99", "0.99", 100)):
        part = above * wait_us * metrics.NS_PER_US / times.quantile(quantile)
        if kind := _beyond(f"wait_{name}", part):
            yield (
                kind,
                f"messages waited {wait_us:.3g} µs on average for the engine: this may be up to {min(part, 1):.0%} of {name}",
            )


def _machine(trial: TrialData) -> Found:
    """CPU steal and throttling of every machine of the trial, from the samples that enclose the window."""
    if trial.window is None:
        return
    start, end = trial.window
    for name, samples in trial.machines.items():
        before = [sample for sample in samples if sample.t_ns <= start]
        after = [sample for sample in samples if sample.t_ns >= end]
        if not before or not after:
            yield "SUSPECT", f"{name} was not sampled across the window: steal and throttling are unknown"
            continue
        first, last = before[-1], after[0]
        used = {key: value - getattr(first.cpu_s, key) for key, value in last.cpu_s.model_dump().items()}
        total = sum(used.values())
        if total > 0 and (kind := _beyond("steal", used["steal"] / total)):
            yield kind, f"the hypervisor stole {used['steal'] / total:.1%} of the CPU time of {name}"
        if first.throttled_s is not None and last.throttled_s is not None and last.throttled_s > first.throttled_s:
            yield "INVALID", f"a CPU quota throttled {name} for {last.throttled_s - first.throttled_s:.3g} s"


def _queues(trial: TrialData) -> Found:
    """Packets dropped at a CPU's queue. Runs older than this counter are not SUSPECT for lack of it."""
    if dropped := metrics.connections.backlog_drops(trial):
        yield "SUSPECT", f"the machine dropped {dropped:,} packets at a CPU's full queue; each came at least 0.2 s late"


def _window(trial: TrialData) -> Found:
    if trial.window is None or trial.window_s is None:
        yield "INVALID", NO_WINDOW
    elif trial.window_s < LIMITS["window_s"].suspect:
        yield "SUSPECT", f"the measured window is only {trial.window_s:.3g} s long"


def _start(trial: TrialData) -> Found:
    late_s = (metrics.rates.start_spread_us(trial) or 0.0) * metrics.NS_PER_US / NS_PER_S
    if kind := _beyond("start_spread_s", late_s):
        yield kind, f"the engine's workers did not start together: the last {late_s * 1e3:,.0f} ms after the first"


CHECKS = (
    *(
        _outcome,
        _connections,
        _ledger,
        _histograms,
        _errors,
        _unasked,
        _flood,
        _little,
        _little_open,
        _rate,
        _send_lag,
        _engine,
        _wait,
    ),
    *(_settled, _start, _machine, _queues, _window),
)


def _beyond(name: str, value: float) -> Kind | None:
    limit = LIMITS[name]
    return "INVALID" if value > limit.invalid else "SUSPECT" if value > limit.suspect else None

"""The self-test's judgements: observations and the server's log in, table rows out. Pure functions.

Each band is defined here with its reason. A value outside its band FAILS. If the engine or the server waited for a CPU so
long that the machine may be the cause, the result is undecided, which is not a pass. Counts need no quiet machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

import numpy as np

from wsbench import metrics
from wsbench.engine.histogram import Histogram
from wsbench.metrics.trial_data import TrialData
from wsbench.records.engine_files import Closed

Result = Literal["holds", "FAILS", "undecided"]
NS_PER_US, NS_PER_MS, NS_PER_S = 1e3, 1e6, 1e9

#: The server's reply delays. In bimodal one reply in twenty is slow, so p50 and p90 are fast and p99 is slow.
DELAYS = {
    "constant": {"kind": "constant", "ms": 5},
    "bimodal": {"kind": "bimodal", "fast_ms": 1, "slow_ms": 100, "share": 0.05},
    "exponential": {"kind": "exponential", "mean_ms": 5},
    "lognormal": {"kind": "lognormal", "median_ms": 4, "sigma": 0.5},
}
#: The errors that the engine must report for each fault, once per fault.
FAULTS = {
    "drop": ("reply_missing",),
    "duplicate": ("unexpected_reply",),
    "reorder": ("reply_missing", "unexpected_reply"),
    "corrupt": ("reply_content",),
}


@dataclass(frozen=True)
class Stall:
    rate_per_s: float = 500.0
    seconds: float = 5.0
    after_s: float = 1.5
    for_s: float = 1.0
    connections: int = 4


STALL = Stall()
HISTOGRAM = 0.001  # three significant digits; a reply cannot come before its delay has passed
DELAY_SHARE = 0.01
# Loopback both ways, and one wake-up of the engine before and one after a sleep.
DELAY_FLOOR_US = 300.0
# The server needs about 40 µs for each queued message: at 500/s, 2 % of the stall.
STALL_SHARE = 0.03
STALL_MEAN_SHARE = 0.05
# Timer slack is 50 µs; a wake-up on a shared machine seldom takes a millisecond.
LAG_P50_US, LAG_P99_US = 150.0, 1_000.0
STAMP_SHARE = 0.1  # of the reported p99: a larger share would measure the engine
STAMP_P50_US = 50.0  # above a plain reader's wake-up: the engine reads all its sockets in turn
TURN_P50_US = 100.0  # above a plain reader's wake-up: two sends, one of them Python's, and the engine's reads in turn
SIGMAS = 4.0  # of a random number around its expected value: exceeded in one case of 16,000
BIN_MS = 20.0  # for counting arrivals
RATE_SHARE = 0.001
LITTLE_SHARE = 0.02
ADDED_US = 10.0
BUSY = 0.01  # share of a run, for medians and rates
# Share of the messages beyond a quantile: a wait delays all messages in flight, so a smaller one is enough.
BUSY_OF_TAIL = 0.25


@dataclass(frozen=True)
class Truth:
    """The server's log. `delays_ns`: by path. `stamped`: reads with a kernel receive stamp. `arrivals_ns`: arrival times of
    messages by source address, CLOCK_MONOTONIC. `turns_ns`: from a reply to the next message of its connection."""

    received: int
    stamped: int
    replied: int
    faults: int
    frozen_ns: int | None
    delays_ns: dict[str, list[int]]
    arrivals_ns: dict[str, list[int]]
    turns_ns: list[int]
    wait_ns: int | None
    steal_ns: int
    wall_ns: int


@dataclass(frozen=True)
class Row:
    check: str
    quantity: str
    allowed: str
    found: str
    result: Result
    why: str = ""


def passed(rows: Sequence[Row]) -> bool:
    """True if there is at least one row and every row holds."""
    return {row.result for row in rows} == {"holds"}


# ---- times -----------------------------------------------------------------------------------------------------------


def judge_delays(kind: str, trial: TrialData, truth: Truth) -> list[Row]:
    """Compares reported service times with the delays in the server's log, quantile by quantile."""
    times = trial.histograms.get("service")
    delays = sorted(truth.delays_ns.get("/echo", []))
    if times is None or not delays:
        return [Row(f"{kind} delays", "messages", "some", "none", "FAILS")]
    # One wait delays all connections that answer together; a wait of the floor's length once per delay is enough.
    hit = DELAY_FLOOR_US * NS_PER_US / fmean(delays)
    rows = []
    for name, quantile in (("p50", "0.5"), ("p90", "0.9"), ("p99", "0.99"), ("p99.9", "0.999")):
        told = delays[math.ceil(float(quantile) * len(delays)) - 1]
        low = told * (1 - HISTOGRAM)
        high = told * (1 + HISTOGRAM) + max(DELAY_SHARE * told, DELAY_FLOOR_US * NS_PER_US)
        busy = _busy([trial], truth, hit * (1 - float(quantile)))
        rows.append(_row(f"{kind} delays", name, low, high, times.quantile(quantile), NS_PER_MS, "ms", busy))
    return rows


def judge_open_stall(trial: TrialData, truth: Truth) -> list[Row]:
    """A stall of S in a run of T at an even rate: the share S/T of all messages waits, evenly from S down to 0.

    The maximum is then S, the mean S²/2T, and the quantile 1 − x is S − xT.
    """
    check = "stall, open loop"
    times = trial.histograms.get("response")
    if truth.frozen_ns is None or trial.window_s is None:
        return [Row(check, "stall", "one", "none", "FAILS")]
    if times is None:
        return [Row(check, "response", "recorded", "not recorded", "FAILS", "no time counts from when a message was due")]
    stall_s, run_s, busy = truth.frozen_ns / NS_PER_S, trial.window_s, _busy([trial], truth)
    around = STALL_SHARE * stall_s
    expected = {"max": (stall_s, times.max)}
    for share in (0.01, 0.05, 0.10):
        expected[f"p{100 - share * 100:g}"] = (stall_s - share * run_s, times.quantile(f"{1 - share:.2f}"))
    rows = [
        _row(check, name, (told - around) * NS_PER_S, (told + around) * NS_PER_S, found, NS_PER_MS, "ms", busy)
        for name, (told, found) in expected.items()
    ]
    mean = stall_s**2 / (2 * run_s)
    low, high = (mean * (1 + sign * STALL_MEAN_SHARE) * NS_PER_S for sign in (-1, 1))
    return [*rows, _row(check, "mean", low, high, times.mean, NS_PER_MS, "ms", busy)]


def judge_closed_stall(trial: TrialData, truth: Truth) -> list[Row]:
    """A closed loop sends nothing during a stall: one slow sample per connection, and no invented samples for the rest."""
    check = "stall, closed loop"
    times = trial.histograms.get("service")
    if truth.frozen_ns is None or times is None:
        return [Row(check, "stall", "one", "none", "FAILS")]
    slow = above(times, truth.frozen_ns // 2)
    most = 2 * STALL.connections
    corrected = "response" in trial.histograms
    return [
        Row(check, "slow samples", f"1 to {most}", f"{slow:,} of {times.count:,}", _result(1 <= slow <= most, None)),
        Row(check, "response", "none", "recorded" if corrected else "none", _result(not corrected, None)),
    ]


def judge_pacing(trial: TrialData, truth: Truth) -> list[Row]:
    lag, busy = trial.histograms.get("send_lag"), _busy([trial], truth)
    tail = _busy([trial], truth, BUSY_OF_TAIL * 0.01)
    if lag is None:
        return [Row("pacing", "send lag", "recorded", "not recorded", "FAILS")]
    rows = [
        _row("pacing", f"send lag {name}", 0, most * NS_PER_US, lag.quantile(quantile), NS_PER_US, "µs", tail)
        for name, quantile, most in (("p50", "0.5", LAG_P50_US), ("p99", "0.99", LAG_P99_US))
    ]
    measured = metrics.measure(trial, ["rate_ratio", "planned_rate_ratio"])
    for name, value in measured.values.items():
        # One message may be cut off at an edge of the window; of a few thousand that is less than the band.
        band = f"1 ± {RATE_SHARE:g}"
        if value is None:
            rows.append(Row("pacing", name, band, measured.reasons[name], "FAILS"))
        else:
            rows.append(Row("pacing", name, band, f"{value:.5f}", _result(abs(value - 1) <= RATE_SHARE, busy), busy or ""))
    return rows


def judge_stamps(trial: TrialData, truth: Truth, wakeups_ns: Sequence[int]) -> list[Row]:
    """Compares the engine's clock readings with the kernel's: every read of the run has a kernel receive stamp.

    `wakeups_ns`: the same delays of a plain reader on the same CPU. Its delay is due to the machine, not the engine.
    """
    delay, service = trial.histograms.get("receive_delay"), trial.histograms["service"]
    if delay is None or delay.count < service.count:
        found = 0 if delay is None else delay.count
        return [Row("receive stamps", "stamped reads", f"{service.count:,}", f"{found:,}", "FAILS")]
    if not wakeups_ns:
        return [Row("receive stamps", "a plain reader", "stamped", "not stamped", "FAILS")]
    plain = median(wakeups_ns)
    most = STAMP_SHARE * service.quantile("0.99")
    middle, tail = _busy([trial], truth), _busy([trial], truth, BUSY_OF_TAIL * 0.01)
    p50, p99 = delay.quantile("0.5"), delay.quantile("0.99")
    return [
        _row("receive stamps", "kernel to user, p50", 0, plain + STAMP_P50_US * NS_PER_US, p50, NS_PER_US, "µs", middle),
        _row("receive stamps", "kernel to user, p99", 0, most, p99, NS_PER_US, "µs", tail),
    ]


def judge_begin(truth: Truth, trial: TrialData, wakeups_ns: Sequence[int]) -> list[Row]:
    """In a closed loop `service` begins with the read that allows the next message, slightly before that message is sent. The
    time from a reply to the next message is therefore a plain reader's wake-up plus that difference."""
    check = "service begins"
    if not truth.turns_ns or not wakeups_ns:
        return [Row(check, "turns", "some", "none", "FAILS")]
    most = median(wakeups_ns) + TURN_P50_US * NS_PER_US
    found, busy = median(truth.turns_ns), _busy([trial], truth)
    return [_row(check, "a reply to the next message, p50", 0, most, found, NS_PER_US, "µs", busy)]


# ---- arrivals --------------------------------------------------------------------------------------------------------


def judge_arrivals(trial: TrialData, truth: Truth, per_s: float, workers: int) -> list[Row]:
    """Poisson arrivals at the server's kernel: the requested number, counts whose variance equals their mean, and independent
    streams per worker. The bands are those of random samples of this size."""
    check = "Poisson arrivals"
    streams = [np.sort(np.array(times)) for times in truth.arrivals_ns.values()]
    if len(streams) != workers or trial.window_s is None or any(len(times) < 2 for times in streams):
        found = f"{len(streams)} with {', '.join(f'{len(times):,}' for times in streams)}"
        return [Row(check, "streams", f"{workers}", found, "FAILS")]
    first, last = min(times[0] for times in streams), max(times[-1] for times in streams)
    edges = np.arange(first, last, BIN_MS * NS_PER_MS)
    counts = [np.histogram(times, edges)[0] for times in streams]
    union = np.sum(counts, axis=0)
    expected, bins = per_s * trial.window_s, len(union)
    busy = _busy([trial], truth)
    number = sum(map(len, streams))
    off = SIGMAS * math.sqrt(expected)
    spread = SIGMAS * math.sqrt(2 / (bins - 1))
    rows = [
        Row(
            check,
            "messages",
            f"{expected:,.0f} ± {off:,.0f}",
            f"{number:,}",
            _result(abs(number - expected) <= off, None),
        ),
        _plain(check, "variance ÷ mean of counts", 1, spread, float(union.var(ddof=1) / union.mean()), busy),
    ]
    alike = SIGMAS / math.sqrt(bins)
    if workers > 1:
        worst = max((_correlation(a, b) for a, b in itertools.combinations(counts, 2)), key=abs)
        rows.append(_plain(check, "correlation of two workers' counts", 0, alike, worst, busy))
    after = _correlation(union[:-1], union[1:])
    return [*rows, _plain(check, "correlation of one count with the next", 0, alike, after, busy)]


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's r; 0 if one series is constant."""
    return float(np.corrcoef(one, other)[0, 1]) if one.std() > 0 and other.std() > 0 else 0.0


# ---- counts ----------------------------------------------------------------------------------------------------------


def judge_ledger(name: str, trial: TrialData, truth: Truth) -> list[Row]:
    """No message is lost or invented, by the engine's count and by the server's. Both are exact."""
    check, ledger = f"ledger, {name}", trial.measured
    if ledger is None:
        return [Row(check, "ledger", "one", "none", "FAILS")]
    told = ledger.answered + ledger.failed + ledger.unanswered
    return [
        Row(check, "answered + failed + unanswered", f"{ledger.sent:,}", f"{told:,}", _result(told == ledger.sent, None)),
        Row(check, "received", f"{ledger.sent:,}", f"{truth.received:,}", _result(truth.received == ledger.sent, None)),
    ]


def judge_little(trial: TrialData, truth: Truth) -> list[Row]:
    """rate × mean time = slots for messages. One message per slot may be cut off at an edge of the window."""
    times, loop = trial.histograms.get("service"), trial.plan.loop
    if times is None or not trial.counted or trial.window_s is None or not isinstance(loop, Closed):
        return [Row("Little's law", "messages in flight", "known", "not known", "FAILS")]
    places = trial.plan.connections * loop.depth
    found = trial.counted / trial.window_s * times.mean / NS_PER_S
    most = LITTLE_SHARE + places / trial.counted
    holds, busy = abs(found / places - 1) <= most, _busy([trial], truth)
    return [
        Row(
            "Little's law",
            "messages in flight",
            f"{places} ± {most:.1%}",
            f"{found:.3f}",
            _result(holds, busy),
            busy or "",
        )
    ]


def judge_fault(kind: str, trial: TrialData, truth: Truth) -> list[Row]:
    """Each fault is reported under its own name, as often as it was made, and under no other name."""
    expected = {name: truth.faults for name in FAULTS[kind]}
    errors = trial.end.errors if trial.end is not None else {}
    holds = truth.faults > 0 and errors == expected
    return [Row(f"fault: {kind}", "errors", _counted(expected), _counted(errors), _result(holds, None))]


def _counted(errors: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(errors.items())) or "none"


# ---- differences -----------------------------------------------------------------------------------------------------


def judge_same(first: list[TrialData], second: list[TrialData], truth: Truth) -> list[Row]:
    """Two identical series: their medians differ by no more than the larger range of the two series.

    Two series of five values from one distribution violate this by chance in less than 1 % of cases.
    """
    one, other = _medians_us(first), _medians_us(second)
    if one is None or other is None:
        return [Row("A/A", "medians", "known", "not known", "FAILS")]
    spread = max(max(values) - min(values) for values in (one, other))
    found, busy = abs(median(one) - median(other)), _busy([*first, *second], truth)
    return [_row("A/A", "difference of medians", 0, spread, found, 1, "µs", busy)]


def judge_added_delay(without: list[TrialData], late: list[TrialData], truth: Truth) -> list[Row]:
    """50 µs more in the server must be 50 µs more in the median, by the server's own log of both paths."""
    before, after = _medians_us(without), _medians_us(late)
    logged = [truth.delays_ns.get(path) for path in ("/echo", "/late")]
    if before is None or after is None or not all(logged):
        return [Row("+50 µs", "difference of medians", "known", "not known", "FAILS")]
    told = (median(logged[1]) - median(logged[0])) / NS_PER_US
    found, busy = median(after) - median(before), _busy([*without, *late], truth)
    return [_row("+50 µs", "difference of medians", told - ADDED_US, told + ADDED_US, found, 1, "µs", busy)]


def _medians_us(views: list[TrialData]) -> list[float] | None:
    found = [metrics.values(trial, ["service_us_p50"])["service_us_p50"] for trial in views]
    return None if None in found else found


# ---- rows ------------------------------------------------------------------------------------------------------------


def above(times: Histogram, value: int) -> int:
    """The number of values that are certainly above `value`."""
    return int(times.counts[times.lower_bounds > value].sum())


def _busy(views: list[TrialData], truth: Truth, most: float = BUSY) -> str | None:
    """Names what waited for a CPU for more than the share `most` of the time; None if nothing did. Unknown counts as busy."""
    waits = [metrics.waits.engine_wait_percent(trial) for trial in views]
    if None in waits or truth.wait_ns is None:
        return "the CPU wait of the engine or the server is unknown"
    parts = {
        "the engine waited for a CPU for": median(waits) / 100,
        "the server waited for a CPU for": truth.wait_ns / truth.wall_ns,
        "the hypervisor withheld a CPU for": truth.steal_ns / truth.wall_ns,
    }
    busy = [f"{words} {part:.1%}" for words, part in parts.items() if part > most]
    return f"the machine was busy: {' and '.join(busy)} of the time" if busy else None


def _row(check, quantity, low, high, found, per_unit, unit, busy: str | None) -> Row:
    result = _result(low <= found <= high, busy)
    allowed = f"{low / per_unit:,.4g} to {high / per_unit:,.4g} {unit}"
    return Row(check, quantity, allowed, f"{found / per_unit:,.4g} {unit}", result, busy or "")


def _plain(check, quantity, middle, off, found, busy: str | None) -> Row:
    result = _result(abs(found - middle) <= off, busy)
    return Row(check, quantity, f"{middle:g} ± {off:.2f}", f"{found:.2f}", result, busy or "")


def _result(holds: bool, busy: str | None) -> Result:
    return "holds" if holds else "FAILS" if busy is None else "undecided"

"""From where on a quantity makes a trial SUSPECT and INVALID, and why there: the numbers that the verdict goes by.

A table and nothing else; what is held against it stands in `verdict`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """From where on a quantity makes a trial SUSPECT and INVALID, and why there."""

    suspect: float
    invalid: float
    why: str


NEVER = float("inf")
LIMITS = {
    "errors": Limit(
        0.0,
        0.001,
        "A lost message has no latency. At one in a thousand the lost ones weigh as much as everything beyond p99.9: "
        "the tail that is shown is no longer the tail.",
    ),
    "little": Limit(
        0.02,
        0.10,
        "In a closed loop, connections = rate × mean time (Little). A gap is time in which a connection had nothing "
        "under way, so the load was lighter than asked. 2 % is well above the histogram's 0.1 %; at 10 % the latencies "
        "belong to another load than the one named.",
    ),
    "rate": Limit(
        0.001,
        0.01,
        "Open loop: the share by which the rate that left, or the schedule itself, missed the rate asked for. Near saturation "
        "response time goes with 1/(1 - utilisation): at 90 % one per cent less load makes it a tenth shorter, one in a thousand "
        "a hundredth, which repeats hide. From 1 % on the response times belong to another rate than the one named.",
    ),
    "send_lag": Limit(
        0.1,
        0.5,
        "p99 of the send lag against p99 of response. All but one in a hundred messages left within that lag, so it is the most "
        "by which late sending can have raised the quantiles up to there. Up to a tenth repeats differ as much; from half on "
        "the number says more about the engine than about the server. Only where a message need not wait for a free "
        "connection: with a limited depth that wait is part of the load and of the response.",
    ),
    "engine_busy": Limit(0.95, NEVER, "A worker with no idle time left adds its own queue to every latency it takes."),
    "wait_share": Limit(
        0.05,
        0.10,
        "Share of the window in which a worker of the engine was ready but had no CPU. In a closed loop it bounds what the "
        "wait can add to the mean and take from the throughput: while a worker waits, at most its connections' messages "
        "wait too. Below 5 % repeats differ as much; at 10 % as for Little's law.",
    ),
    "wait_p50": Limit(
        0.05,
        0.25,
        "Twice the mean wait of a message, against the median. Half of the messages stand below the median, so the half "
        "above it can have borne twice the mean each: the most by which waiting can have raised the median.",
    ),
    "wait_p99": Limit(
        0.5,
        NEVER,
        "A hundred times the mean wait of a message, against p99: what it would be if nobody but the slowest hundredth had "
        "waited. From half of p99 on, the tail may be the engine's. The sum does not tell whether it is, and it is no "
        "argument against the other numbers, so it never makes a trial INVALID.",
    ),
    "rising": Limit(
        0.2,
        NEVER,
        "A closed loop, after its warm-up: the share by which the second half of the window had more throughput than the first. "
        "On a shared machine halves of two seconds differ by a tenth by chance; a fifth is a runtime that is still compiling, "
        "and the mean of the window is then a number of no state that it was ever in.",
    ),
    "steal": Limit(0.01, 0.05, "CPU time that the hypervisor gave to somebody else is missing from both sides."),
    "start_spread_s": Limit(
        0.05, 0.5, "Until the last worker is in the window the load is lighter: 50 ms are 1 % of 5 s."
    ),
    "window_s": Limit(0.5, 0.0, "A shorter window is decided by its edges, and by whatever the machine did just then."),
}

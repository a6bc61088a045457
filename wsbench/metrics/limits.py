"""The limits of the verdict: the value beyond which a quantity makes numbers SUSPECT or INVALID, and the reason for that value.

This module is only a table. The checks apply it and say which metric families a quantity affects.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsbench.metrics.findings import Kind


@dataclass(frozen=True)
class Limit:
    """The value beyond which a quantity makes numbers SUSPECT or INVALID, and the reason for it."""

    suspect: float
    invalid: float
    why: str


NEVER = float("inf")
LIMITS = {
    "lost_tail": Limit(
        0.0,
        0.001,
        "Lost messages, against the tail. A lost message has no latency. At one in a thousand, lost messages weigh as much as "
        "everything beyond p99.9, and the tail shown is no longer the real tail.",
    ),
    "lost_body": Limit(
        0.01,
        0.05,
        "Lost messages, against median, mean and p90. At 5 %, the p90 of the answered messages is p85.5 of all: half of what "
        "lies beyond p90 is missing.",
    ),
    "connections": Limit(
        0.0,
        0.01,
        "Connections that were refused or died, as a share. The load was lighter by that share, which flatters latencies and "
        "memory. 1 % is below the spread of repeats; beyond it, the numbers belong to a smaller load.",
    ),
    "unasked": Limit(
        0.0,
        0.001,
        "Replies that no message had requested, per answered message. A server that answers in advance or twice is not doing the "
        "work that is measured.",
    ),
    "little": Limit(
        0.02,
        0.10,
        "In a closed loop, connections = rate × mean time (Little's law). A gap is time in which a connection had no "
        "message in flight, so the load was lighter than planned. 2 % is well above the histogram's 0.1 %. At 10 % the "
        "latencies belong to a different load.",
    ),
    "rate": Limit(
        0.001,
        0.01,
        "Open loop: the share by which the sending rate, or the schedule, missed the requested rate. Near saturation the "
        "response time is proportional to 1/(1 - utilisation). At 90 % a load 1 % lower makes it a tenth shorter; a load 0.1 % "
        "lower makes it a hundredth shorter, within the spread of repeats. From 1 % on the response times belong to another rate.",
    ),
    "send_lag_p50_us": Limit(
        150.0,
        1_500.0,
        "Median of the send lag in µs of an engine that sleeps until a message is due, against typical latency: what the self-test "
        "allows. A timer's slack is 50 µs, and undisturbed published campaigns have 11 to 70 µs. Half of the messages left no "
        "later, so late sending can have raised the median by that much. Ten times that says that the schedule was not kept. The "
        "limits of the send lag are absolute: against the measured response they doubt the shortest tails. Not applied with a "
        "limited depth: there the wait for a free connection is part of the load and of the response time.",
    ),
    "send_lag_p99_us": Limit(
        1_000.0,
        10_000.0,
        "p99 of the send lag, the same engine, against the tail: what the self-test allows. Undisturbed published campaigns have "
        "60 to 800 µs.",
    ),
    "polled_lag_p50_us": Limit(
        10.0,
        100.0,
        "Median of the send lag in µs of an engine that polls, against typical latency. Published campaigns have 0.3 to 0.6 µs. "
        "With 10 µs, messages waited for other messages, or for a CPU.",
    ),
    "polled_lag_p99_us": Limit(
        50.0,
        1_000.0,
        "p99 of the send lag in µs of an engine that polls, against the tail. In published campaigns without a program in it, "
        "99 of 100 trials have less than 35 µs. From 1 ms on, the slowest hundredth of the messages waited for a slice of CPU time "
        "of another program.",
    ),
    "held_up": Limit(
        0.25,
        1.0,
        "Seconds by which a worker came back too late to its sockets: it was stopped, or had no CPU. A reply that came meanwhile "
        "has up to that much too long a time. The share of the window below has shorter stops. A quarter of a second is seen in "
        "any tail, and a second is longer than most of what is measured.",
    ),
    "engine_busy": Limit(0.95, NEVER, "A worker without idle time adds its own queue to every latency it measures."),
    "own_part": Limit(
        NEVER,
        0.1,
        "A rung of a ladder: p99 of the send lag plus p99 of the receive delay, relative to the bound. Up to a tenth, the engine "
        "shifts a capacity by less than processes differ. Beyond it, a rung tells of the engine, not of the server.",
    ),
    "wait_share": Limit(
        0.05,
        0.10,
        "Share of the window in which an engine worker was ready to run but had no CPU. In a closed loop it bounds what the "
        "wait can add to the mean and take from the throughput: while a worker waits, at most its connections' messages "
        "wait too. Below 5 %, repeats differ as much. For 10 %, see Little's law. The tail is affected before that (wait_p99).",
    ),
    "wait_p50": Limit(
        0.05,
        0.25,
        "What waiting can have added to the median, relative to it: the smaller of two bounds. Half of the messages are below the "
        "median, so those above it can have waited twice the mean each. And if waits can have delayed a hundredth of the messages, "
        "the median is no less than the quantile 0.49 that was measured.",
    ),
    "wait_p99": Limit(
        0.5,
        NEVER,
        "The same for p99: a hundred times the mean wait of a message, as if only the slowest hundredth had waited, or the "
        "distance to the quantile below it by the share that waits can have delayed. From half of p99 on, the tail may be the "
        "engine's. These bounds cannot show whether it is, so they make no tail INVALID.",
    ),
    "rising": Limit(
        0.2,
        NEVER,
        "Closed loop, after its warm-up: how much higher the throughput was in the second half of the window than in the first. "
        "On a shared machine, halves of two seconds differ by a tenth by chance. A fifth indicates a runtime that is still "
        "compiling. The mean of the window then describes no steady state.",
    ),
    "steal": Limit(
        0.003,
        0.01,
        "CPU time that the hypervisor gave to other machines, as a share of the time that the trial wanted (busy and stolen). In "
        "the published campaigns, 106 trials with 1 to 2 % of steal had 9 % less throughput and needed 11 % more CPU time per "
        "message than trials of the same server and cell below 1 %; their memory was the same within 1 %. From 1 % on the loss is "
        "three times the practical margin; at 0.3 % it reaches the margin if it is proportional.",
    ),
    "turn_steal": Limit(
        0.01,
        0.10,
        "The same for a turn of slices. What is stolen from a turn falls on its servers at random, so their ratios stay: with 2 to "
        "20 % of steal in most turns, the ratio of two processes of one server spread by the same 5 to 10 % from round to round, "
        "whether turns above 3, 5, 10 or 20 % were left out; a limit of 1 % left out seven turns of ten. A tenth of a turn of ten "
        "slices is one whole slice. Above 1 % over all turns that count, the rates themselves are too low (see steal).",
    ),
    "foreign_cpu": Limit(
        0.05,
        0.10,
        "CPU time of programs outside the trial, as a share of one CPU. If all of it falls on the busiest side, throughput drops "
        "by that share. Up to 5 %, repeats differ as much, and ticks of 10 ms scatter by 2 %. For 10 %, see Little's law.",
    ),
    "others": Limit(
        0.01,
        NEVER,
        "CPU time of all other programs, as a share of one CPU, against the tail. They run for milliseconds at a time. At 1 % on "
        "the CPU of one side, the slowest hundredth of the messages may be those that waited for them. It is not known when and on "
        "which CPU they ran, so the tail counts. wsbench itself is judged by the same limit.",
    ),
    "crowd": Limit(
        0.001,
        0.01,
        "Servers that run at the same time: the share of the window in which they may have left no CPU time. One then waits for "
        "another, for seconds at the worst. At 1 %, the slowest hundredth of the messages and most of the mean may be that wait.",
    ),
    "disturbed_turns": Limit(
        0.25,
        0.5,
        "Share of the turns of a heat that were left out. They are chosen by the host's condition alone. But a host that disturbs "
        "every second turn disturbs the others too, below the limits.",
    ),
    "disturbed_stretches": Limit(
        0.5,
        0.75,
        "Share of a ladder that lies outside its quiet stretches and is left out. They are chosen by the host's condition alone. A "
        "quarter of a ladder still has thousands of messages. Where less is quiet, the host takes so much that some of it is "
        "probably hidden in the rest: its counters miss pieces below 10 ms.",
    ),
    "disturbed_periods": Limit(
        0.0,
        0.25,
        "Share of a long trial of pausing users that lies in bursts of steal and is left out. The load changes by steps, so what "
        "is left out is not like the rest: never VALID. With a quarter, several steps would be missing.",
    ),
    "start_spread_s": Limit(0.05, 0.5, "Until the last worker has entered the window, the load is lighter: 50 ms are 1 % of 5 s."),
    "window_s": Limit(0.5, 0.0, "A shorter window is dominated by its edges and by momentary disturbances of the machine."),
}


def beyond(name: str, value: float) -> Kind | None:
    """The word for a quantity. None within its limits."""
    limit = LIMITS[name]
    return "INVALID" if value > limit.invalid else "SUSPECT" if value > limit.suspect else None

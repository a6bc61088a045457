"""Verdicts of data sets that were stored with one word and texts for the whole trial, before findings named metric families.

In: the word, the texts and the numbers that were stored. Out: a `Verdict`. Nothing is judged again that was not stored. The rules:

- A text that says what affected the trial affects the families that the same check affects today, each by the stored word. The word
  of a single reason was not stored; the word of the trial is at least as bad.
- Counts in a text (lost messages, connections that died) are judged by today's limits, as outcomes of the server.
- If one text is not recognised, or no text explains the word, the word applies to every family.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from wsbench.metrics import server_checks
from wsbench.metrics.findings import Axis, Bottleneck, Family, Finding, Kind, Verdict, everything, finding
from wsbench.records.engine_files import Idle, Plan
from wsbench.records.rundir import TrialRecord

RATES: tuple[Family, ...] = ("throughput", "body", "tail")
#: Texts about the instrument, of this version and earlier ones: axis, name and families as in the check that gives them today.
#: `SUSPECT` at the end: a check that never made a trial INVALID.
INSTRUMENT: tuple[tuple[str, Axis, str, tuple[Family, ...], Kind], ...] = (
    (r"stolen by the hypervisor|hypervisor stole", "host", "steal", (*RATES, "cpu"), "INVALID"),
    (r"^a CPU quota (of \S+ CPUs )?throttled", "host", "throttled", (*RATES, "cpu"), "INVALID"),
    (r"packets at a CPU's full queue", "host", "backlog", ("tail", "connect"), "SUSPECT"),
    (r"not sampled across the window", "host", "not_sampled", (*RATES, "cpu"), "SUSPECT"),
    (r"waited for a CPU in .* of the window", "engine", "wait", RATES, "INVALID"),
    (r"messages waited .* of p50", "engine", "wait", ("body", "tail"), "INVALID"),
    (r"messages waited .* of p99", "engine", "wait", ("tail",), "SUSPECT"),
    (r"Little's law", "engine", "little", RATES, "INVALID"),
    (r"the throughput was still rising", "engine", "rising", (*RATES, "cpu"), "SUSPECT"),
    (r"^the engine was the limit|^the engine was .* busy", "engine", "engine_busy", RATES, "SUSPECT"),
    (r"^the engine polled without sleeping", "engine", "polled", ("throughput",), "SUSPECT"),
    (r"^messages left late|^how late messages were sent", "engine", "send_lag", ("body", "tail"), "INVALID"),
    (r"^the measured window is only", "engine", "window", (*RATES, "cpu"), "SUSPECT"),
)
LOST = re.compile(r"([\d,]+) of ([\d,]+) messages were lost \((.*)\)")
DIED = re.compile(r"([\d,]+) of ([\d,]+) connections died")
REFUSED = re.compile(r"([\d,]+) of ([\d,]+) connections were established")
QUEUE = re.compile(r"dropped ([\d,]+) connects because a listen queue was full")
HEAP = re.compile(r"^its heap was full|full collections left")
AWAITED = re.compile(r"Little's law.*(last ones were waited for|last ones were awaited)")

Number = Callable[[str], float | int | None]


def verdict(
    kind: Kind, reasons: tuple[str, ...], bottleneck: str, record: TrialRecord, plan: Plan | None, number: Number
) -> Verdict:
    """The verdict that was stored. `number` gives the trial's stored value of a metric."""
    limit: Bottleneck = "none" if plan is not None and isinstance(plan.scenario, Idle) else bottleneck
    if record.outcome == "failed":
        return Verdict((server_checks.failed(record.reason or "", record.failed_by_server),), limit)
    found = [_known(reason, kind, record, number) for reason in reasons]
    explained = any(one.axis == "server" or one.kind == kind for one in found if one is not None)
    if None in found or (kind != "VALID" and not explained):
        seen = "; ".join(reasons) or "the reason was not stored"
        return Verdict((finding("engine", "stored", seen, "", **everything(kind)),), limit)
    return Verdict(tuple(found), limit)


def _known(reason: str, kind: Kind, record: TrialRecord, number: Number) -> Finding | None:
    if reason == record.reason:
        return server_checks.stopped(reason)
    for outcome in _of_server(reason, number):
        return outcome
    for pattern, axis, name, families, most in INSTRUMENT:
        if re.search(pattern, reason):
            return finding(axis, name, reason, "", **dict.fromkeys(families, kind if kind != "INVALID" else most))
    return None


def _of_server(reason: str, number: Number) -> Iterator[Finding]:
    if found := LOST.search(reason):
        yield server_checks.lost_messages(*_counts(found), found[3])
    elif found := DIED.search(reason):
        yield server_checks.died(*_counts(found))
    elif found := REFUSED.search(reason):
        yield server_checks.refused(*_counts(found))
    elif found := QUEUE.search(reason):
        yield server_checks.listen_queue(int(found[1].replace(",", "")))
    elif HEAP.search(reason):
        yield server_checks.heap_full(reason)
    elif AWAITED.search(reason) and any(number(name) for name in ("listen_overflows", "connections_lost", "errors")):
        yield finding("server", "waited_for_last", reason, server_checks.DELAYED)


def _counts(found: re.Match) -> tuple[int, int]:
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))

"""The slices of a trial that took turns with others: what was counted in each, and which turns were disturbed.

In: a trial's plan, events and samples. Out: its slices. A turn that the host disturbed is left out for all servers of the heat,
because every trial of the heat has the same record of it (`TurnSample`), and no result of a server takes part in the decision.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from wsbench.metrics.limits import LIMITS
from wsbench.records.engine_files import Open, Plan, Seconds, Tick
from wsbench.records.samples import ProcessSample, TurnSample

NS_PER_S = 1e9


class Cpu(NamedTuple):
    """CPU seconds of a server: from the start of its slice to the end of the window, to the end of the slice, and from there until
    its next slice starts. None where it was not sampled in time."""

    loaded_s: float | None
    slice_s: float | None
    rest_s: float | None


@dataclass(frozen=True)
class Slice:
    """One slice: its edges, the replies and bytes in its window, and all replies from its start until the next slice starts.

    `disturbed` says why its turn does not count.
    """

    start_ns: int
    open_ns: int
    close_ns: int
    end_ns: int
    counted: int
    bytes_sent: int
    bytes_received: int
    replies: int
    cpu: Cpu
    disturbed: str | None

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.close_ns - self.open_ns) / NS_PER_S

    def holds(self, start_s: float, origin_ns: int) -> bool:
        """Whether an interval of the latency log that starts then, in seconds since the origin, belongs to this slice."""
        return self.start_ns - MS <= origin_ns + start_s * NS_PER_S < self.close_ns + MS


#: The latency log has times to a millisecond.
MS = 1_000_000
#: A sample of an edge is at most this late: a server that has gone on uses no more than this much CPU time uncounted.
LATEST_NS = 2 * MS
#: Share of the lead by which a server may go on late.
LATE = 0.5
TICK_S = 0.01  # of /proc/stat


def of(plan: Plan, began_ns: int, ticks: list[Tick], server: list[ProcessSample], told: list[TurnSample]) -> list[Slice]:
    """The measured slices. `began_ns` is the start of the first phase. A slice without its ticks is left out."""
    slices = plan.slices
    at = {tick.t_ns: tick for tick in ticks}
    warmup_s = plan.warmup.seconds if isinstance(plan.warmup, Seconds) else 0.0
    edges = []
    for open_s, close_s in slices.windows:
        if open_s > warmup_s:
            seconds = (open_s - slices.lead_s, open_s, close_s, close_s + slices.tail_s)
            edges.append(tuple(began_ns + round(second * NS_PER_S) for second in seconds))
    found = []
    last = ticks[-1] if ticks else None
    for (start, opens, closes, ends), after in pairwise([*edges, None]):
        begun, first, second = at.get(start), at.get(opens), at.get(closes)
        following = last if after is None else at.get(after[0])
        if None in (begun, first, second, following):
            continue
        found.append(
            Slice(
                start,
                opens,
                closes,
                ends,
                second.answered - first.answered,
                second.bytes_sent - first.bytes_sent,
                second.bytes_received - first.bytes_received,
                following.answered - begun.answered,
                cpu(server, start, closes, ends, None if after is None else after[0]),
                disturbance(opens, slices.lead_s, told),
            )
        )
    return found


def cpu(server: list[ProcessSample], start: int, close: int, end: int, after: int | None) -> Cpu:
    """CPU time of a server around its slice. The harness samples right after a server goes on, when the window closes, and right
    before the server stops; a sample that came late makes the number unknown."""
    begun, closed, ended = (_at(server, edge) for edge in (start, close, end))
    return Cpu(_grown(begun, closed), _grown(begun, ended), _grown(ended, None if after is None else _at(server, after)))


def _grown(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None else last - first


def _at(server: list[ProcessSample], edge_ns: int) -> float | None:
    place = bisect_left(server, edge_ns, key=lambda sample: sample.t_ns)
    if place == len(server) or server[place].t_ns > edge_ns + LATEST_NS or server[place].cpu_ns is None:
        return None
    return server[place].cpu_ns / NS_PER_S


def planned(plan: Plan, load: Open) -> float:
    """Messages of an open loop that are due in the measured windows by its schedule, which pauses between slices."""
    warmup_s = plan.warmup.seconds if isinstance(plan.warmup, Seconds) else 0.0
    passed_s = due = 0.0
    for open_s, close_s in plan.slices.windows:
        end_s = passed_s + plan.slices.lead_s + close_s - open_s
        if open_s > warmup_s:
            due += load.due_before(end_s) - load.due_before(passed_s + plan.slices.lead_s)
        passed_s = end_s
    return due


def disturbance(at_ns: int, lead_s: float, told: list[TurnSample]) -> str | None:
    """Why the turn around this time does not count."""
    turn = next((one for one in told if one.begin_ns <= at_ns <= one.t_ns), None)
    return "its turn was not sampled" if turn is None else disturbed_by(turn, lead_s)


def disturbed_by(turn: TurnSample, lead_s: float) -> str | None:
    """Why this turn does not count."""
    if turn.throttled_s:
        return f"a CPU quota throttled it for {turn.throttled_s:.3g} s"
    if stolen_share([turn]) > LIMITS["turn_steal"].invalid:
        return f"the hypervisor took {stolen_share([turn]):.1%} of its CPU time"
    if turn.late_s > LATE * lead_s:
        return f"a server went on {turn.late_s * 1e3:,.0f} ms late"
    foreign_s = 0.0 if turn.ours_s is None else turn.busy_s - turn.ours_s - 2 * TICK_S
    foreign = foreign_s * NS_PER_S / (turn.t_ns - turn.begin_ns)
    return f"other programs used {foreign:.0%} of a CPU" if foreign > LIMITS["foreign_cpu"].invalid else None


def stolen_share(turns: list[TurnSample]) -> float:
    """The share of the CPU time wanted in these turns that the hypervisor took. A counter of ticks may be wrong by one."""
    wanted_s = sum(turn.busy_s + turn.steal_s for turn in turns)
    return max(0.0, sum(turn.steal_s for turn in turns) - TICK_S) / wanted_s if wanted_s > 0 else 0.0

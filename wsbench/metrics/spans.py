"""Spans: parts of a trial with their own metrics, as distinguished in studies.

| span | from | to |
|---|---|---|
| `connect` | the phase `connect` begins | the next phase begins, or the run ends |
| `idle` | all connections are open | the first message is due, the first broadcast is triggered, or the window ends |
| `sending` | the first of these in the measured window | the last receiver of the last broadcast, or the end of the window |
| `measured` | the phase `measure` begins | the phase `drain` begins |

Takes a plan and the instants of a trial and returns its spans, or the reason for each missing one. Uses no samples and no metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsbench.records.engine_files import Broadcast, NoLoop, Open, Plan, Push, Seconds

NS_PER_S = 1e9
NAMES = ("connect", "idle", "sending", "measured")
SHORTEST_IDLE_S = 1.0
NO_WINDOW = "the measured window never began"
COMES_AND_GOES = "connections come and go in this load"


@dataclass(frozen=True)
class Span:
    """A part of a trial, on the monotonic clock of the engine's host."""

    name: str
    begin_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / NS_PER_S

    def holds(self, t_ns: int) -> bool:
        return self.begin_ns <= t_ns <= self.end_ns


@dataclass(frozen=True)
class Instants:
    """Times of events: phases by name, the measured window, the end of the record, every broadcast."""

    begins: dict[str, int]
    window: tuple[int, int] | None
    end_ns: int | None
    broadcasts: list[Broadcast]

    @property
    def connected_ns(self) -> int | None:
        """Start of the phase after `connect`: all connections are open then."""
        return self.begins.get("warmup", self.begins.get("measure"))


def find(plan: Plan, at: Instants) -> dict[str, Span | str]:
    """Every span by name, or the reason why it is missing."""
    bounds = {
        "connect": _connect(plan, at),
        "idle": _idle(plan, at),
        "sending": _sending(plan, at),
        "measured": NO_WINDOW if at.window is None else at.window,
    }
    return {name: found if isinstance(found, str) else Span(name, *found) for name, found in bounds.items()}


def silent_s(plan: Plan) -> float:
    """Seconds after connecting until a message is due. Infinite if none ever is."""
    if isinstance(plan.loop, NoLoop):
        return float("inf")
    silent = 0.0
    for segment in plan.loop.rate if isinstance(plan.loop, Open) else []:
        if segment.from_per_s or segment.to_per_s:
            return silent
        silent += segment.for_s
    return float("inf") if isinstance(plan.loop, Open) else 0.0


def quiet_s(plan: Plan) -> float:
    """Seconds after connecting without a due message, limited to the duration of the plan. 0 if a message count ends a phase."""
    phases = [phase for phase in (plan.warmup, plan.measure) if phase is not None]
    if plan.stages is not None or not all(isinstance(phase, Seconds) for phase in phases):
        return 0.0
    return min(silent_s(plan), sum(phase.seconds for phase in phases))


def _connect(plan: Plan, at: Instants) -> tuple[int, int] | str:
    if plan.stages is not None:
        return COMES_AND_GOES
    if "connect" not in at.begins:
        return "the engine wrote no phase `connect`"
    end = at.end_ns if at.connected_ns is None else at.connected_ns
    return "the engine did not record the end of the phase `connect`" if end is None else (at.begins["connect"], end)


def _idle(plan: Plan, at: Instants) -> tuple[int, int] | str:
    if plan.stages is not None:
        return COMES_AND_GOES
    if at.window is None or at.connected_ns is None:
        return NO_WINDOW
    begin, end = at.connected_ns, _first_ns(plan, at)
    end = at.window[1] if end is None else min(end, at.window[1])
    if end - begin < SHORTEST_IDLE_S * NS_PER_S:
        return f"the connections were idle for less than {SHORTEST_IDLE_S:g} s"
    return begin, end


def _sending(plan: Plan, at: Instants) -> tuple[int, int] | str:
    if at.window is None:
        return NO_WINDOW
    start, end = at.window
    if isinstance(plan.scenario, Push):
        made = [one for one in at.broadcasts if start <= one.t_ns < end]
        if not made:
            return "no broadcast was triggered in the measured window"
        return made[0].t_ns, max(max(one.t_ns, one.last_ns or 0) for one in made)
    first = _first_ns(plan, at)
    if first is None or first >= end:
        return "no message was sent"
    return max(start, first), end


def _first_ns(plan: Plan, at: Instants) -> int | None:
    """Time of the first due message or the first broadcast. None if there was none."""
    if isinstance(plan.scenario, Push):
        return min((one.t_ns for one in at.broadcasts), default=None)
    silent = silent_s(plan)
    return None if silent == float("inf") else at.connected_ns + round(silent * NS_PER_S)

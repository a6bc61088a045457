"""Merges the output of a trial's engine processes into one `events.jsonl` and one `latency.hlog`.

Nothing is estimated: counts are added, intervals of the same second are added bucket by bucket, and workers are listed together.
All processes use the same clock. If one process ends differently from the others, the trial fails.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from wsbench.engine import histogram
from wsbench.engine.histogram import Interval
from wsbench.records.engine_files import (
    Anchor,
    Broadcast,
    ConnectionCounts,
    Control,
    Copies,
    End,
    Error,
    Measured,
    Phase,
    PhaseBegin,
    Receivers,
    Tick,
    summed,
)
from wsbench.records.errors import TrialFailed
from wsbench.records.files import read_text
from wsbench.records.rundir import TrialFolder
from wsbench.records.session_table import SessionCounts
from wsbench.records.sums import write_unlisted

PHASES: tuple[Phase, ...] = ("connect", "warmup", "measure", "drain")


@dataclass(frozen=True)
class Part:
    """The complete record of one process: it has an end event."""

    events: list

    @classmethod
    def read(cls, folder: TrialFolder, name: str) -> Part:
        events = folder.events()
        if not events or not isinstance(events[-1], End):
            raise TrialFailed(f"{name}: its record has no end event")
        return cls(events)

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    @cached_property
    def anchor(self) -> Anchor:
        return self.events[0]

    @cached_property
    def end(self) -> End:
        return self.events[-1]

    @cached_property
    def begins(self) -> dict[Phase, PhaseBegin]:
        return {event.phase: event for event in self.of(PhaseBegin)}

    @cached_property
    def edges(self) -> dict[Phase, Tick]:
        """The last tick before each phase, except the first."""
        found, last = {}, None
        for event in self.events:
            if isinstance(event, Tick):
                last = event
            elif isinstance(event, PhaseBegin) and last is not None:
                found[event.phase] = last
        return found

    @cached_property
    def last(self) -> Tick:
        return self.of(Tick)[-1]

    @cached_property
    def seconds(self) -> dict[int, Tick]:
        """The ticks inside phases, by time."""
        edges = {id(tick) for tick in (*self.edges.values(), self.last)}
        return {tick.t_ns: tick for tick in self.of(Tick) if id(tick) not in edges}

    @cached_property
    def receivers(self) -> list[Receivers]:
        return self.of(Receivers)

    def reading_at(self, t_ns: int) -> int:
        """Number of its broadcast receivers at that time."""
        place = bisect_right(self.receivers, t_ns, key=lambda event: event.t_ns)
        return self.receivers[place - 1].reading if place else 0


def merge(folder: TrialFolder, interrupted: bool) -> None:
    """Writes the trial's files from those of its parts. If the parts ended differently: TrialFailed, and no file."""
    folders = folder.parts()
    parts = [Part.read(part, name_of(number, len(folders))) for number, part in enumerate(folders)]
    outcome = _outcome(parts, interrupted)
    intervals = _intervals(folders)
    ticks = _ticks(parts)
    events = [*ticks, *_errors(parts), *_phases(parts)]
    order = {"tick": 0, "error": 1, "phase": 2}
    events.sort(key=lambda event: (event.t_ns, order[event.event]))
    broadcasts = _broadcasts(parts)
    whole = [_anchor(parts), *events, *broadcasts, _end(parts, outcome, broadcasts)]
    # Its wall clock and the anchor's are one: `TrialData.origin_ns` subtracts them.
    heading = _heading(folders[[part.anchor for part in parts].index(_anchor(parts))].latency_log)
    _write(folder.latency_log, [*heading, *map(_line, intervals)])
    _write(folder.path / "events.jsonl", [event.model_dump_json() for event in whole])


def so_far(events: list[list]) -> list:
    """Phases, ticks and errors of a running trial, over all its processes."""
    if len(events) == 1:
        return events[0]
    parts = [Part(one) for one in events]
    ticks = [{tick.t_ns: tick for tick in part.of(Tick)} for part in parts]
    common = sorted(set(ticks[0]).intersection(*ticks[1:]))
    return [*_phases(parts), *(summed(t_ns, [one[t_ns] for one in ticks]) for t_ns in common), *_errors(parts)]


def name_of(number: int, count: int) -> str:
    return f"engine {number + 1} of {count}"


def _outcome(parts: list[Part], interrupted: bool) -> str:
    outcomes = [part.end.outcome for part in parts]
    if interrupted and "interrupted" in outcomes and set(outcomes) <= {"interrupted", "completed"}:
        return "interrupted"
    usual = max(outcomes, key=lambda one: (outcomes.count(one), one == "completed"))
    for number, outcome in enumerate(outcomes):
        if outcome != usual:
            raise TrialFailed(f"{name_of(number, len(parts))} ended as {outcome}, the others as {usual}")
    versions = {part.anchor.engine for part in parts}
    if len(versions) != 1:
        raise TrialFailed(f"the engine processes have different versions: {', '.join(sorted(versions))}")
    return usual


# ---- events ----------------------------------------------------------------------------------------------------------


def _anchor(parts: list[Part]) -> Anchor:
    return min((part.anchor for part in parts), key=lambda anchor: anchor.t_ns)


def _phases(parts: list[Part]) -> list[PhaseBegin]:
    """Start of a phase: the earliest of all processes, for the drain the latest. It is entered when the last worker enters."""
    found = []
    for phase in PHASES:
        begins = [part.begins[phase] for part in parts if phase in part.begins]
        if len(begins) == len(parts):
            edge = max if phase == "drain" else min
            entered = [one.entered_ns for one in begins]
            last = None if None in entered else max(entered)
            t_ns = edge(one.t_ns for one in begins)
            found.append(PhaseBegin(event="phase", t_ns=t_ns, phase=phase, entered_ns=last))
    return found


def _ticks(parts: list[Part]) -> list[Tick]:
    """Sums of the processes' ticks. At each phase's start: the tick of each process at its own start. At each second: all running
    processes, if they are in the same phase, plus the last tick of those that ended. At the end: the last tick of all."""
    begins = {event.phase: event.t_ns for event in _phases(parts)}
    found = [
        summed(begins[phase], [part.edges[phase] for part in parts])
        for phase in begins
        if all(phase in part.edges for part in parts)
    ]
    for t_ns in sorted(set().union(*(part.seconds for part in parts))):
        here = [part.seconds.get(t_ns) for part in parts]
        ended = [part.last if part.last.t_ns < t_ns else None for part in parts]
        ticks = [tick or last for tick, last in zip(here, ended, strict=True)]
        if None not in ticks and len({tick.phase for tick in here if tick is not None}) == 1:
            running = next(tick for tick in here if tick is not None)
            found.append(summed(t_ns, ticks).model_copy(update={"phase": running.phase}))
    found.sort(key=lambda tick: tick.t_ns)
    found.append(summed(max(part.last.t_ns for part in parts), [part.last for part in parts]))
    for before, after in pairwise(range(len(found))):
        # Workers that had ended reported their CPU time a moment later than those still running.
        used = max(found[before].cpu_ns, found[after].cpu_ns)
        found[after] = found[after].model_copy(update={"cpu_ns": used})
    return found


def _errors(parts: list[Part]) -> list[Error]:
    """Errors of the same kind and time are added up."""
    found: dict[tuple, Error] = {}
    for part in parts:
        for one in part.of(Error):
            key = (one.t_ns, one.phase, one.kind)
            known = found.get(key)
            found[key] = one if known is None else known.model_copy(update={"count": known.count + one.count})
    return list(found.values())


def _broadcasts(parts: list[Part]) -> list[Broadcast]:
    """The broadcasts of the process that triggers them, with the copies that all processes received."""
    copies = [{one.number: one for one in part.of(Copies)} for part in parts]
    found = []
    for one in parts[0].of(Broadcast):
        others = [known[one.number] for known in copies if one.number in known]
        firsts = [time for time in (one.first_ns, *(other.t_ns for other in others)) if time is not None]
        lasts = [time for time in (one.last_ns, *(other.last_ns for other in others)) if time is not None]
        whole = {
            "expected": one.expected + sum(part.reading_at(one.t_ns) for part in parts[1:]),
            "received": one.received + sum(other.received for other in others),
            "first_ns": min(firsts, default=None),
            "last_ns": max(lasts, default=None),
        }
        found.append(one.model_copy(update=whole))
    return found


def _end(parts: list[Part], outcome: str, broadcasts: list[Broadcast]) -> End:
    ends = [part.end for part in parts]
    errors: dict[str, int] = defaultdict(int)
    for end in ends:
        for kind, count in end.errors.items():
            errors[kind] += count
    sessions = [end.session for end in ends if end.session is not None] or None
    return End(
        event="end",
        t_ns=max(end.t_ns for end in ends),
        outcome=outcome,
        connections=_added(ConnectionCounts, [end.connections for end in ends]),
        measured=_measured(parts, broadcasts),
        control=_added(Control, [end.control for end in ends]),
        session=None if sessions is None else _added(SessionCounts, sessions),
        errors=dict(errors),
        closes=_by(attrgetter("code"), [one for end in ends for one in end.closes]),
        refusals=_by(attrgetter("status"), [one for end in ends for one in end.refusals]),
        threads=[worker for end in ends for worker in end.threads],
        wall_moved_ns=max((end.wall_moved_ns for end in ends if end.wall_moved_ns is not None), default=None),
    )


def _measured(parts: list[Part], broadcasts: list[Broadcast]) -> Measured:
    """The sum of ledgers. Lost copies of a broadcast are counted here for the processes that did not trigger it: those processes
    do not know what they missed."""
    ledgers = [part.end.measured for part in parts]
    windows = [(part.begins["measure"].t_ns, part.end.measured.window_ns) for part in parts if "measure" in part.begins]
    began = len(windows) == len(parts) and all(length is not None for _, length in windows)
    window_ns = max(at + length for at, length in windows) - min(at for at, _ in windows) if began else None
    missed = sum(_missed(part, broadcasts) for part in parts[1:])
    total = {
        key: sum(getattr(one, key) for one in ledgers)
        for key in Measured.model_fields
        if key not in ("window_ns", "sent", "unanswered")
    }
    sent = sum(one.sent for one in ledgers) + missed
    unanswered = sum(one.unanswered for one in ledgers) + missed
    return Measured(window_ns=window_ns, sent=sent, unanswered=unanswered, **total)


def _missed(part: Part, broadcasts: list[Broadcast]) -> int:
    """Copies of measured broadcasts that this process's receivers should have received but did not."""
    if "measure" not in part.begins:
        return 0
    received = {one.number: one.received for one in part.of(Copies)}
    measured = [one for one in broadcasts if one.t_ns >= part.begins["measure"].t_ns]
    return sum(max(0, part.reading_at(one.t_ns) - received.get(one.number, 0)) for one in measured)


def _added(kind: type, values: list):
    """The sum of each field. None if one of the values has none."""
    columns = {key: [getattr(value, key) for value in values] for key in kind.model_fields}
    return kind(**{key: None if None in column else sum(column) for key, column in columns.items()})


def _by(key: Callable, parts: list) -> list:
    """Parts with the same key are one, with the sum of their counts and the words of the first. In order of the key."""
    found: dict = {}
    for part in parts:
        first = found.setdefault(key(part), part)
        found[key(part)] = part if first is part else first.model_copy(update={"count": first.count + part.count})
    return [found[name] for name in sorted(found, key=lambda name: -1 if name is None else name)]


# ---- histograms ------------------------------------------------------------------------------------------------------


def _intervals(folders: list[TrialFolder]) -> list[Interval]:
    """Intervals of the same tag and time span are added up. Ordered by end."""
    found: dict[tuple, Interval] = {}
    for folder in folders:
        for one in histogram.read_log(folder.latency_log):
            key = (one.tag, one.start_s, one.length_s)
            known = found.get(key)
            whole = one.histogram if known is None else known.histogram + one.histogram
            found[key] = Interval(*key, whole)
    return sorted(found.values(), key=lambda one: one.start_s + one.length_s)


def _line(one: Interval) -> str:
    payload = histogram.encode(one.histogram)
    return f"Tag={one.tag},{one.start_s:.3f},{one.length_s:.3f},{one.histogram.max or 0},{payload}"


def _heading(log: Path) -> list[str]:
    return [line for line in read_text(log).splitlines() if line.startswith(("#", '"'))]


def _write(file: Path, lines: Iterable[str]) -> None:
    write_unlisted(file, "".join(f"{line}\n" for line in lines).encode())

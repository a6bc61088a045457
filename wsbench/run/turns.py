"""The turns of a heat: who loads its server when. A pure function of its arguments and a random source.

In every turn each contender has one slice, in a fresh random order. Before the turns each contender is warmed up once, in one
stretch. Times are in seconds from the start of the first phase.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from wsbench.experiments.experiment import TAIL_S
from wsbench.records.engine_files import Slices

#: A slice starts this long after the last one has ended: its server is stopped before the next one goes on.
STEP_S = 0.001
#: Between two turns: time to sample every contender, and for the harness itself.
GAP_S = 0.02
#: Before the first turn: the engines write what they recorded while their servers warmed up.
PAUSE_S = 0.3


@dataclass(frozen=True)
class Slot:
    """One slice of a contender, with its lead and its tail. `turn` is None while servers warm up."""

    contender: int
    turn: int | None
    start_s: float
    open_s: float
    close_s: float
    end_s: float


@dataclass(frozen=True)
class Turns:
    slots: list[Slot]
    lead_s: float
    #: Length of the warm-up, equal for all contenders. None: there is none.
    warmup_s: float | None
    #: When the measurement of each contender ends, and its server goes on after the last turn: one after another, so that each
    #: answers what it has left without the others.
    ends_s: list[float]

    def measure_s(self, contender: int) -> float:
        """The length of one contender's measurement, with its rests."""
        return round(self.ends_s[contender] - (self.warmup_s or 0.0), 9)

    def slices(self, contender: int, frozen: bool) -> Slices:
        """The windows of one contender's plan."""
        windows = [(slot.open_s, slot.close_s) for slot in self.slots if slot.contender == contender]
        return Slices(windows=windows, lead_s=self.lead_s, tail_s=TAIL_S, frozen=frozen)

    @property
    def turn_s(self) -> float:
        """The length of a turn."""
        last = [slot for slot in self.slots if slot.turn == 0]
        return last[-1].end_s - last[0].start_s


def drawn(contenders: int, warmup_s: float, measure_s: float, slice_s: float, lead_s: float, draw: random.Random) -> Turns:
    """Turns in which each contender is warmed up for `warmup_s` and measured for `measure_s`, in slices of `slice_s`."""
    slots, at = [], GAP_S

    def give(contender: int, turn: int | None, length_s: float) -> float:
        # Nanoseconds: the engine compares the same instants.
        start, open_, close = round(at, 9), round(at + lead_s, 9), round(at + lead_s + length_s, 9)
        slots.append(Slot(contender, turn, start, open_, close, round(close + TAIL_S, 9)))
        return close + TAIL_S + STEP_S

    order = list(range(contenders))
    warmup_end = None
    if warmup_s:
        draw.shuffle(order)
        for contender in order:
            at = give(contender, None, warmup_s)
        warmup_end = round(at + GAP_S, 9)
        at = warmup_end + PAUSE_S
    for turn in range(max(1, round(measure_s / slice_s))):
        draw.shuffle(order)
        for contender in order:
            at = give(contender, turn, slice_s)
        at += GAP_S
    ends = [round(at + GAP_S + number * lead_s, 9) for number in range(contenders)]
    return Turns(slots, lead_s, warmup_end, ends)

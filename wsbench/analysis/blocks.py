"""Blocks of a campaign: trials that ran under the same conditions and are compared with each other."""

from __future__ import annotations

from wsbench.analysis.dataset import Cell
from wsbench.records.rundir import TrialOrder, TrialRecord

MOST_HEATS = 1000  # of a round and cell


class Blocks:
    """A block is a round. If memory did not hold all servers of a round at once, each heat of the round is a block of its own; one
    server is in all of them and connects the others."""

    def __init__(self, order: list[TrialOrder]):
        self._planned = {planned.number: planned for planned in order}
        self._heats: dict[tuple[int, Cell], list[int]] = {}
        for planned in order:
            if planned.heat is not None and planned.again_of is None:
                heats = self._heats.setdefault((planned.round, tuple(planned.cell.items())), [])
                if planned.heat not in heats:
                    heats.append(planned.heat)

    @property
    def of_a_round(self) -> int:
        """The most blocks of a round and cell."""
        return max(map(len, self._heats.values()), default=1)

    def of(self, trial: TrialRecord) -> int:
        """The block of a trial, as a number that no other block of its cell has."""
        heats = self._heats.get((trial.round, tuple(trial.cell.items())), [])
        return trial.round if len(heats) < 2 else trial.round * MOST_HEATS + heats.index(self._first_heat(trial.number))

    def _first_heat(self, number: int) -> int | None:
        """The heat of the trial that this one repeats, or its own."""
        planned = self._planned[number]
        while planned.again_of is not None:
            planned = self._planned[planned.again_of]
        return planned.heat

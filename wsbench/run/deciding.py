"""Says after each round of a campaign whether another one follows, by the one decision function."""

from __future__ import annotations

from collections.abc import Callable

from wsbench.analysis import reading, tables, until
from wsbench.analysis.dataset import DataSet
from wsbench.records.rundir import RunFolder


class Referee:
    """Reads a campaign after each round; each trial is read once."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._data: DataSet | None = None

    def goes_on(self, say: Callable[[str], None]) -> bool:
        """Whether another round follows; writes the data set if none does. `say` gets a line about this one."""
        results = reading.load(self._run, known=self._data)
        self._data = results.data
        found = until.standing(results)
        say(found.words)
        if found.ended is not None:
            tables.write(self._run, results.data)
        return found.ended is None

"""Says after each round of a campaign whether another one follows, by the one decision function."""

from __future__ import annotations

import time
from collections.abc import Callable

from wsbench.analysis import reading, tables, until
from wsbench.metrics.trial_data import TrialData
from wsbench.records.rundir import RunFolder


class Referee:
    """Knows every trial of a campaign: each is added once, when it has ended. `seconds`: a clock."""

    def __init__(self, run: RunFolder, seconds: Callable[[], float] = time.monotonic) -> None:
        self._run, self._seconds = run, seconds
        self._growing = reading.growing(run)
        before_s = run.campaign.spent_s
        earlier = self._growing.data.trials
        spent_s = sum(until.round_times(one.record for one in earlier)) if before_s is None else before_s
        self._began_s = seconds() - spent_s

    def add(self, trial: TrialData) -> None:
        """A trial that has just ended."""
        self._growing.add(trial)

    def goes_on(self, tell: Callable[[until.Standing], None]) -> bool:
        """Whether another round follows; writes the data set if none does. `tell` gets what is decided after this one."""
        spent_s = self._seconds() - self._began_s
        self._run.write_json("campaign.json", self._run.campaign.model_copy(update={"spent_s": spent_s}))
        results = reading.load(self._run, known=self._growing.data)
        standing = until.standing(results)
        tell(standing)
        if standing.ended is not None:
            tables.write(self._run, results.data)
        return standing.ended is None

"""All numbers of all trials as two arrays, since ten thousand trials have more than a million of them.

Trials in, `Columns` out: a row a trial, a column a metric, in the order of `metrics.METRICS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wsbench import metrics

PLACE = {name: place for place, name in enumerate(metrics.METRICS)}


class Measured(Protocol):
    """What has numbers, and a reason for each that is None."""

    values: dict[str, float | int | None]
    reasons: dict[str, str]


@dataclass(frozen=True)
class Columns:
    """`values` has NaN where a trial has no number, and there `reasons` the place of its reason in `texts`; elsewhere 0."""

    values: np.ndarray
    reasons: np.ndarray
    texts: list[str | None]

    def of(self, metric: str, rows: Sequence[int]) -> np.ndarray:
        return self.values[rows, PLACE[metric]]


def columns(trials: Iterable[Measured]) -> Columns:
    values, places = [], []
    texts: dict[str | None, int] = {None: 0}
    for trial in trials:
        for reason in trial.reasons.values():
            if reason not in texts:
                texts[reason] = len(texts)
        values.append(list(map(trial.values.__getitem__, PLACE)))
        places.append(list(map(texts.__getitem__, map(trial.reasons.get, PLACE))))
    shape = (len(values), len(PLACE))
    return Columns(
        np.array(values, dtype=float).reshape(shape), np.array(places, dtype=np.int32).reshape(shape), list(texts)
    )

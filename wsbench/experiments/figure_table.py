"""A `[[figure]]` of an experiment's file: what to draw of its results, and the numbers printed in the study it repeats.

Frozen values only; `report.figures` draws them. This module knows no metric by name.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from wsbench.records.frozen import Frozen

Kind = Literal["lines", "bars", "percentiles", "time", "fit", "table"]
#: Kinds that draw metrics of trials. The others draw histograms and events.
OF_METRICS = ("lines", "bars", "fit", "table")


class Published(Frozen):
    """Numbers printed in a study, as text, with their source. If the study printed none, `source` states so."""

    source: str
    head: list[str] = []
    rows: list[list[str]] = []

    @model_validator(mode="after")
    def _rows_fit(self) -> Published:
        if any(len(row) != len(self.head) for row in self.rows):
            raise ValueError("each row of 'rows' needs as many texts as 'head'")
        return self


class FigureTable(Frozen):
    """One figure.

    lines: each metric over the numeric swept key. bars: each metric by server, a panel per cell. percentiles: a table of one
    histogram `tag`. time: users requested and connected, and response times with their trend, per second. fit: a straight line of
    each metric over the swept key `over`, and its slope with an interval. table: the metrics in columns.
    """

    title: str
    kind: Kind
    metrics: list[str] = []
    over: str | None = None
    tag: str | None = None
    note: str | None = None
    published: Published | None = Field(default=None)

    @model_validator(mode="after")
    def _is_whole(self) -> FigureTable:
        if (self.kind in OF_METRICS) != bool(self.metrics):
            raise ValueError(f"a figure of kind {self.kind!r} {'needs' if self.kind in OF_METRICS else 'has no'} 'metrics'")
        if (self.kind == "percentiles") != (self.tag is not None):
            raise ValueError("kind 'percentiles' requires 'tag'; no other kind takes it")
        if (self.kind == "fit") != (self.over is not None):
            raise ValueError("kind 'fit' requires 'over'; no other kind takes it")
        return self

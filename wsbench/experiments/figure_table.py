"""A `[[figure]]` of an experiment's file: what is to be drawn of its results, and what the study it repeats has printed.

Frozen values only; `report.figures` draws them. It knows no metric by name.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from wsbench.records.frozen import Frozen

Kind = Literal["lines", "bars", "percentiles", "time", "fit", "table"]
#: Which kinds draw metrics of trials; the others draw histograms and events.
OF_METRICS = ("lines", "bars", "fit", "table")


class Published(Frozen):
    """Numbers as the study printed them, as texts, and where. A study that printed none says so in `source` alone."""

    source: str
    head: list[str] = []
    rows: list[list[str]] = []

    @model_validator(mode="after")
    def _rows_fit(self) -> Published:
        if any(len(row) != len(self.head) for row in self.rows):
            raise ValueError("every row of 'rows' needs as many texts as 'head'")
        return self


class FigureTable(Frozen):
    """One figure.

    lines: each metric over the numeric swept key. bars: each metric by server, a panel a cell. percentiles: a table of one
    histogram `tag`. time: users asked for and connected, and response times with their trend, second by second. fit: a
    straight line of each metric over the swept key `over`, its slope with an interval. table: the metrics side by side.
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
            raise ValueError(
                f"a figure of kind {self.kind!r} {'needs' if self.kind in OF_METRICS else 'has no'} 'metrics'"
            )
        if (self.kind == "percentiles") != (self.tag is not None):
            raise ValueError("'tag' is for kind 'percentiles', which needs it")
        if (self.kind == "fit") != (self.over is not None):
            raise ValueError("'over' is for kind 'fit', which needs it")
        return self

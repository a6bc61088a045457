"""The files of a report: the data set as Parquet and `report.html`, written into the run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from wsbench.analysis import tables
from wsbench.analysis.measuring import timelines, without_collections
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results
from wsbench.records.errors import UserError
from wsbench.records.plain import visible
from wsbench.records.rundir import RunFolder
from wsbench.records.sums import write_unlisted
from wsbench.report import figures, ladders
from wsbench.report.claimed import claim_rows
from wsbench.report.data import drawn
from wsbench.report.page import render

FILE = "report.html"


def build(run: RunFolder, results: Results | None = None, anew: bool = False) -> Path:
    """Writes `report.html`, and the data set unless it is stored already; each file whole or not at all. Returns the page's path.

    `results`: the campaign, if it has been read already. `anew`: recompute it from its raw files. UserError if data would be lost.
    """
    with without_collections():
        results = load(run, anew) if results is None else results
        require_nothing_lost(run, results)
        results = with_timelines(results)
        page = render(results, [*ladders.blocks(results), *figures.blocks(results)], claim_rows(results))
        if not results.data.stored:
            tables.write(run, results.data)
    file = run.path / FILE
    write_unlisted(file, visible(page).encode())
    return file


def with_timelines(results: Results) -> Results:
    """The results with every timeline that the page or a figure draws, as far as the raw files exist."""
    kept, drawn_by_figures = results.data.timelines, set(figures.over_time(results))
    # Campaigns published before per-second means were stored.
    without_means = {number for number in drawn_by_figures & kept.keys() if kept[number].series.keys() & {"p50", "mean"} == {"p50"}}
    wanted = ({*drawn(results)} | drawn_by_figures) - kept.keys() | without_means
    if not wanted or (results.folder.packed and kept and not without_means):
        return results
    found = timelines(results.folder, sorted(wanted))
    stored = results.data.stored and not found
    return replace(results, data=replace(results.data, timelines=kept | found, stored=stored))


def require_nothing_lost(run: RunFolder, results: Results) -> None:
    """UserError if the report would contain less than the existing files, e.g. for a published campaign without its data set."""
    known = tables.trials_in(run)
    lost = known - results.data.numbers
    if lost or (not results.every_trial and (run.path / FILE).exists()):
        trials = f"the raw files of {len(lost):,} of {len(known):,} trials" if known else "the trials' raw files"
        raise UserError(
            f"{run.path}: {trials} are missing, so a new report would lose their data in {tables.TRIALS} and {FILE}; both are "
            f"unchanged"
        )

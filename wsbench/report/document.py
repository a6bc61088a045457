"""The files of a report, `report.html` and `trials.parquet`, written into the run folder, each whole or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wsbench.analysis.reading import load, without_collections
from wsbench.analysis.results import Results
from wsbench.analysis.table import FILE as TABLE
from wsbench.analysis.table import table_bytes, trials_in
from wsbench.records.errors import UserError
from wsbench.records.files import write_whole
from wsbench.records.plain import visible
from wsbench.records.rundir import RunFolder
from wsbench.report import figures
from wsbench.report.claimed import claim_rows
from wsbench.report.page import render

FILE = "report.html"


def build(run: RunFolder, results: Results | None = None) -> Path:
    """Writes `trials.parquet` and `report.html` into the run directory, each whole or not at all; returns the page.

    `results` is the campaign where it has been read already.
    """
    with without_collections(), ThreadPoolExecutor(1) as beside:
        results = load(run) if results is None else results
        require_nothing_lost(run, results)
        made = beside.submit(table_bytes, results)  # a second of compressing, which holds nobody up
        page = render(results, figures.blocks(results), claim_rows(results))
        table = made.result()
    file = run.path / FILE
    write_whole(run.path / TABLE, table)
    write_whole(file, visible(page).encode())
    return file


def require_nothing_lost(run: RunFolder, results: Results) -> None:
    """UserError where what would be written has less in it than what is there: of a published campaign the trials are elsewhere."""
    known = trials_in(run.path / TABLE)
    lost = known - {trial.record.number for trial in results.every_trial}
    if lost or (not results.every_trial and (run.path / FILE).exists()):
        trials = f"the raw files of {len(lost):,} of {len(known):,} trials" if known else "the trials' raw files"
        raise UserError(
            f"{run.path}: {trials} are not here, so a report made now would lose what {TABLE} and {FILE} have of them; "
            f"they are left as they are"
        )

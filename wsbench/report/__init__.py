"""Reports: a run directory in; `report.html`, `trials.parquet` and summary rows out, all derived and rebuilt at any
time.

It reads a campaign through rundir and never runs one: last year's campaign is reported with today's code.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wsbench.report import figures
from wsbench.report.claimed import claim_rows
from wsbench.report.page import render
from wsbench.report.reading import load, without_collections
from wsbench.report.results import Results
from wsbench.report.summary import Figure, SummaryRow, columns, summary
from wsbench.report.table import trials_table, write_table
from wsbench.rundir import RunFolder

__all__ = ["Figure", "SummaryRow", "build", "columns", "summary", "trials_table", "write_table"]

FILE = "report.html"


def build(run: RunFolder, results: Results | None = None) -> Path:
    """Writes `trials.parquet` and `report.html` into the run directory, each whole or not at all; returns the page.

    `results` is the campaign where it has been read already.
    """
    with without_collections(), ThreadPoolExecutor(1) as beside:
        results = load(run) if results is None else results
        table = beside.submit(write_table, run, results)  # a second of compressing, which holds nobody up
        page = render(results, figures.blocks(results), claim_rows(results))
        table.result()
    file = run.path / FILE
    part = file.with_name(FILE + ".part")
    part.write_text(page, encoding="utf-8")
    part.replace(file)
    return file

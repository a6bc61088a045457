"""The output of `wsbench claims` and `wsbench list claims`: tables, Markdown or JSON. `analysis.claims` decides verdicts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wsbench.cli import terminal
from wsbench.experiments import experiment
from wsbench.records import plain
from wsbench.records.errors import Faults, UserError
from wsbench.records.rundir import RunFolder


def add(made: argparse.ArgumentParser) -> None:
    """The arguments of `wsbench claims`."""
    made.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    made.add_argument("--from", dest="source", type=Path, metavar="FILE", help="use the claims of this experiment file")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print verdicts with all comparisons as JSON")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")


def show(runs: list[Path], source: Path | None, as_json: bool, as_markdown: bool) -> None:
    # Statistics take a second to import.
    from wsbench.analysis.claims import evaluate, text
    from wsbench.analysis.reading import load

    other = experiment.text_of(source) if source else None
    judged, notes = {}, []
    for run in runs:
        try:
            results = load(RunFolder.open(run))
            judged[str(run)] = evaluate.evaluate(results, other)
        except UserError as error:
            if len(runs) == 1:
                raise
            notes.append(f"left out {error.lines[0]}")
            continue
        if other is None and (changed := evaluate.put_right(results)):
            own = f"`--from {results.folder.experiment_toml}` judges by the campaign's own text"
            notes.append(f"{run}: {', '.join(changed)}: by the catalogue's condition, put right since; {own}")
    if not judged:
        raise Faults(notes)
    if as_json:
        print(text.document(judged))
    for run, verdicts in {} if as_json else judged.items():
        if not verdicts:
            print(f"{run}: its experiment has no claims")
        elif as_markdown:
            print(text.markdown(verdicts))
        else:
            terminal.table(run, *text.table(verdicts))
    for line in notes:
        print(f"wsbench: {plain.line(line)}", file=sys.stderr)


def listed() -> None:
    """Every claim of every experiment."""
    rows = [
        [file.stem, one.id, one.says, " ".join(one.holds_if.split())]
        for file in sorted(experiment.EXPERIMENTS.glob("*.toml"))
        for one in experiment.read(file).claim
    ]
    terminal.table(None, ["experiment", "claim", "says", "holds if"], rows, keys=2)

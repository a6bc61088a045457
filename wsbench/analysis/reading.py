"""Reads a campaign into `Results`: its records, and its data set, stored or computed from raw trials.

A stored data set is used unchanged, so a published campaign keeps its numbers. It is recomputed if the raw files of all its trials
exist and the code that computes them has changed. Missing trials are computed and added.
"""

from __future__ import annotations

from pydantic import ValidationError

from wsbench.analysis.as_written import Experiment, read_experiment
from wsbench.analysis.dataset import FILES, DataSet
from wsbench.analysis.measuring import Growing, Tell, digest, measured
from wsbench.analysis.results import Results
from wsbench.experiments.experiment import Climb
from wsbench.records.errors import UserError
from wsbench.records.files import is_plain
from wsbench.records.frozen import one_line
from wsbench.records.rundir import RunFolder
from wsbench.records.sums import Altered


def load(run: RunFolder, anew: bool = False, known: DataSet | None = None, tell: Tell = lambda *_: None) -> Results:
    """A whole campaign, finished or not. `anew`: recompute from raw files. `known`: a data set already in memory. `tell`: progress
    where raw files are read, which takes about 0.1 s a trial."""
    order = run.order
    if len({frozenset(planned.cell) for planned in order}) > 1:
        raise UserError(f"{run.path / 'order.json'}: its cells have different keys")
    experiment = read_experiment(run)
    data = _data(run, experiment, anew, known, tell)
    return Results(
        folder=run,
        campaign=run.campaign,
        machine=run.machine if (run.path / "machine.json").exists() else None,
        machine_after=run.machine_after,
        hosts=run.hosts,
        servers=run.servers if (run.path / "servers.json").exists() else [],
        order=[planned for planned in order if planned.follow_up is None],
        experiment=experiment,
        data=data,
        of_rounds=data.of_rounds(),
        climb=_climb(run, experiment),
    )


def growing(run: RunFolder) -> Growing:
    """The data set of a campaign that goes on: of its finished trials, to which the next ones are added."""
    experiment = read_experiment(run)
    return Growing(_data(run, experiment, False, None, lambda *_: None), frozenset(_tags(experiment)))


def _climb(run: RunFolder, experiment: Experiment) -> Climb | None:
    """What its ladders are to find; None unless it has some."""
    if (table := experiment.keys.get("ladder")) is None:
        return None
    try:
        return Climb.model_validate(table)
    except ValidationError as error:
        raise UserError(f"{run.experiment_toml}: 'ladder': {one_line(error)}") from error


def _data(run: RunFolder, experiment: Experiment, anew: bool, known: DataSet | None, tell: Tell) -> DataSet:
    tags = frozenset(_tags(experiment))
    kept = known or _kept(run, anew)
    if kept is not None and run.packed and not anew:
        return kept
    raw = run.finished_numbers()
    if anew and not (kept is None or kept.numbers <= raw):
        raise UserError(f"{run.path}: the raw files of {len(kept.numbers - raw):,} trials are missing")
    if kept is None or anew or (kept.numbers <= raw and kept.made_by != digest()):
        return measured(run, raw, tags, tell)
    missing = raw - kept.numbers
    return kept + measured(run, missing, tags, tell) if missing else kept


def _kept(run: RunFolder, anew: bool) -> DataSet | None:
    """The stored data set; None if there is none, or if it cannot be read and the raw files exist. Altered if a file of it is not
    the one that was written, unless it is to be computed anew."""
    if not all(is_plain(run.path / name) for name in FILES):
        return None
    from wsbench.analysis import tables  # the base installation lacks what it needs

    try:
        return tables.read(run)
    except Altered as error:
        if anew and run.finished_numbers():
            return None
        more = "" if run.packed or not run.finished_numbers() else f", or compute it again: wsbench report --rebuild {run.path}"
        raise Altered(f"{error}{more}") from error
    except UserError:
        if run.packed or not run.finished_numbers():
            raise
        return None


def _tags(experiment: Experiment) -> list[str]:
    """Tags of the latencies in the experiment's figures."""
    figures = experiment.keys.get("figure", [])
    tables = [one for one in figures if isinstance(one, dict)] if isinstance(figures, list) else []
    return [one["tag"] for one in tables if isinstance(one.get("tag"), str)]

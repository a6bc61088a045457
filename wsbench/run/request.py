"""What the user asks of a campaign: an experiment with its overrides, checked before anything starts."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from wsbench.experiments import experiment, scaling
from wsbench.experiments.experiment import Experiment
from wsbench.records.errors import UserError
from wsbench.records.goals import Goal
from wsbench.records.rundir import Arrangement, CampaignRecord, CellValue, RunFolder, Sweep
from wsbench.run import preparing
from wsbench.servers import catalogue
from wsbench.servers.catalogue import Variant
from wsbench.servers.manifest import Unavailable


@dataclass(frozen=True)
class Request:
    """The user's request: the experiment with its overrides applied. `departures` lists the overrides in words.

    `control` None: an A/A control where servers are ranked. `until`: rounds go on until that is decided. `own`: a folder with
    servers of this campaign alone, which is kept in the campaign's. `sweep`: the swept values in place of the experiment's.
    """

    name: str
    file: Path
    experiment: Experiment
    variants: list[Variant]
    seed: int
    command: str
    departures: list[str]
    tags: list[str]
    scale: float = 1.0
    time_scale: float = 1.0
    arrangement: Arrangement | None = None
    control: bool | None = None
    engines: int | None = None
    server_processes: int | None = None
    again: int = 1
    until: Goal | None = None
    own: Path | None = None
    sweep: Sweep | None = None


def request(
    name: str,
    command: str,
    *,
    servers: list[str] | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    scale: float = 1.0,
    time_scale: float = 1.0,
    arrangement: Arrangement | None = None,
    tags: list[str] | None = None,
    control: bool | None = None,
    engines: int | None = None,
    server_processes: int | None = None,
    again: int | None = None,
    until: Goal | None = None,
    own: Path | None = None,
    only: list[str] | None = None,
) -> Request:
    """Checks everything before anything starts. `command` is the user's command line; None for an option: the experiment's value.
    `only`: the swept values to keep, such as `connections=1000,10000`.

    UserError if an option, the experiment or the choice of servers is invalid.
    """
    file = experiment.path_of(name)
    written = experiment.read(file)
    sweep = _kept(written.sweep, only) if only else None
    asked = sized(written, rounds or written.timing.rounds, scale, time_scale, arrangement, sweep)
    experiment.require_arranged(file, asked)
    if servers is not None:
        asked = asked.model_copy(update={"servers": servers})
    named = catalogue.select(asked.servers, catalogue.with_own(own))
    variants = catalogue.chosen_for(asked.runtime, named)
    if servers is None and (untaken := catalogue.untaken(asked.runtime, variants)):
        raise UserError(f"{file}: none of {', '.join(one.name for one in named)} supports 'runtime.{untaken[0]}'")
    if not any(asked.served in variant.serves for variant in variants):
        names = ", ".join(variant.name for variant in variants)
        raise UserError(f"none of the chosen servers serves {asked.served!r}: {names}")
    seed = secrets.randbits(32) if seed is None else seed
    departures = _departures(written, asked, sweep or {}) + scaling.departures(written, scale, time_scale)
    if until is not None and not until.pair and until.within is None:
        departures.append(
            f"rounds until decided, for at most {until.budget_s:g} s, instead of the experiment's {written.timing.rounds}"
        )
    again = asked.timing.again if again is None else again
    sizes = (scale, time_scale, arrangement, control, engines, server_processes, again, until, own, sweep)
    return Request(file.stem, file, asked, variants, seed, command, departures, tags or [], *sizes)


def _kept(swept: Sweep, only: list[str]) -> Sweep:
    """The swept values that are named, in the experiment's order. UserError for a key or value that it does not have."""
    kept = dict(swept)
    for one in only:
        key, _, named = one.partition("=")
        if key not in swept:
            keys = f"by {', '.join(swept)}" if swept else "nowhere: it has one cell"
            raise UserError(f"--only: this experiment has no values of {key!r} to choose from; it can be narrowed {keys}")
        allowed = [_written(value) for value in swept[key]]
        if unknown := [text for text in named.split(",") if text not in allowed]:
            raise UserError(f"--only: no {key} of {', '.join(unknown)}; allowed: {', '.join(allowed)}")
        kept[key] = [value for value, text in zip(swept[key], allowed, strict=True) if text in named.split(",")]
    return kept


def _written(value: CellValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def resumed(run: RunFolder, within: float | None, budget_s: float | None) -> CampaignRecord:
    """The record of a campaign whose rounds go on to another end. UserError if they do not end by precision."""
    record = run.campaign
    if record.until is None or record.until.within is None:
        raise UserError(
            "--within and --budget go with --resume only where rounds end by precision (`wsbench capacity`): rounds that are added "
            "once results are known raise the error of decisions"
        )
    changed = {name: value for name, value in (("within", within), ("budget_s", budget_s)) if value is not None}
    return record.model_copy(update={"until": record.until.model_copy(update=changed)})


def sized(
    written: Experiment,
    rounds: int,
    scale: float,
    time_scale: float,
    arrangement: Arrangement | None = None,
    sweep: Sweep | None = None,
) -> Experiment:
    changed = {"timing": written.timing.model_copy(update={"rounds": rounds})}
    if arrangement is not None:
        changed["arrangement"] = arrangement
    if sweep is not None:
        changed["sweep"] = sweep
    return scaling.scaled(written.model_copy(update=changed), scale, time_scale)


def _departures(written: Experiment, asked: Experiment, kept: Sweep) -> list[str]:
    """Overrides of rounds, cells and servers, in words."""
    found = [
        f"only {key} {', '.join(map(_written, values))} of the experiment's {', '.join(map(_written, written.sweep[key]))}"
        for key, values in kept.items()
        if len(values) < len(written.sweep[key])
    ]
    if asked.timing.rounds != written.timing.rounds:
        found.append(f"{rounds_text(asked.timing.rounds)} instead of the experiment's {written.timing.rounds}")
    if asked.servers != written.servers:
        found.append(f"servers {', '.join(asked.servers)} instead of the experiment's {', '.join(written.servers)}")
    if asked.arrangement != written.arrangement:
        found.append(f"arrangement {asked.arrangement!r} instead of the experiment's {written.arrangement!r}")
    return found


def one_after_another(asked: Request) -> Request:
    """The request for a cluster, where servers cannot be alive together."""
    departure = f"arrangement 'trials' instead of {asked.experiment.arrangement!r}, which needs one machine"
    arranged = asked.experiment.model_copy(update={"arrangement": "trials"})
    return replace(asked, experiment=arranged, arrangement="trials", departures=[*asked.departures, departure])


def rounds_text(number: int) -> str:
    return f"{number} round{'' if number == 1 else 's'}"


def left_out(asked: Request) -> dict[str, str]:
    """Chosen variants that get no trial whatever is installed here, with the reason for each."""
    reasons = {}
    for variant in asked.variants:
        if asked.experiment.served not in variant.serves:
            reasons[variant.name] = f"does not serve {asked.experiment.served!r}"
        elif isinstance(variant.table, Unavailable):
            reasons[variant.name] = f"unavailable: {variant.table.unavailable}"
        elif not preparing.cells_of(asked.experiment, variant):
            reasons[variant.name] = preparing.exceeded(asked.experiment, variant, asked.experiment.cells()[0])
    return reasons

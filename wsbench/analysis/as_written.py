"""The experiment of a campaign as its reader wants it: texts and choices of `experiment.toml`, even of an old file."""

from __future__ import annotations

from dataclasses import dataclass

from wsbench import metrics
from wsbench.analysis import stats
from wsbench.records.errors import UserError
from wsbench.records.frozen import toml_of
from wsbench.records.rundir import RunFolder


@dataclass(frozen=True)
class Experiment:
    """Texts and choices of experiment.toml for a reader; missing ones are None. `source`: its text, `keys`: the parsed table.

    `compares`: the metrics of its choices between servers, in their order.
    """

    question: str | None
    reading: str | None
    headline: str | None
    source: str
    keys: dict
    compares: tuple[str, ...] = ()


def read_experiment(run: RunFolder) -> Experiment:
    if not run.experiment_toml.exists():
        return Experiment(None, None, None, "", {})
    try:
        source = run.read("experiment.toml").decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{run.experiment_toml}: not UTF-8: {error.reason} at byte {error.start}") from error
    keys = toml_of(source, run.experiment_toml)
    for name in ("sweep", "timing"):
        if not isinstance(keys.get(name, {}), dict):
            raise UserError(f"{run.experiment_toml}: '{name}': found {keys[name]!r}, allowed: a table")
    for name, swept in keys.get("sweep", {}).items():
        if not isinstance(swept, list):
            raise UserError(f"{run.experiment_toml}: 'sweep.{name}': found {swept!r}, allowed: a list")
    headline = keys.get("headline")
    if headline is not None and (not isinstance(headline, str) or headline not in metrics.METRICS):
        raise UserError(f"{run.experiment_toml}: headline {headline!r} is not a metric; see `wsbench list metrics`")
    margin = keys.get("margin", stats.MARGIN)
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 < margin < 1:
        raise UserError(f"{run.experiment_toml}: 'margin': found {margin!r}, allowed: a share between 0 and 1, such as 0.03")
    choices = keys.get("choice", [])
    found = [one.get("metric") for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
    compares = tuple(one for one in dict.fromkeys(found) if one in metrics.METRICS)
    return Experiment(*(_text(keys.get(key)) for key in ("question", "reading", "headline")), source, keys, compares)


def _text(value) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None

"""Scales an experiment: connections, messages and heap by one factor, the duration of its phases by another.

Takes an experiment and returns a new one, and describes the changes in words. The experiment lists what `scale` changes, so that
related quantities scale together. This module starts nothing.
"""

from __future__ import annotations

from wsbench.experiments.experiment import Experiment
from wsbench.experiments.load import Load
from wsbench.records.engine_files import Stage
from wsbench.records.errors import UserError
from wsbench.servers.settings import mebibytes

#: Keys of [load] for the scalable quantities.
KEYS = {"connections": "connections", "messages": "messages"}
#: In MiB: about the size that an idle runtime needs.
SMALLEST_HEAP = 16


def scaled(written: Experiment, scale: float = 1.0, time_scale: float = 1.0) -> Experiment:
    """The experiment at another size. UserError if it cannot be scaled, or if two cells become the same or a heap too small."""
    made = written
    if scale != 1:
        _require_positive("--scale", scale)
        if not written.scales:
            raise UserError("'--scale': this experiment has only one size: its file has no key 'scales'")
        made = _smaller(made, scale)
    if time_scale != 1:
        _require_positive("--time-scale", time_scale)
        made = _shorter(made, time_scale)
    return made


def departures(written: Experiment, scale: float, time_scale: float) -> list[str]:
    """The changes made by `scaled`, in words."""
    found = []
    if scale != 1:
        found.append(f"scale {scale:g}: {' and '.join(written.scales)} times {scale:g}")
    if time_scale != 1:
        found.append(f"time scale {time_scale:g}: phases, stages and rate segments last {time_scale:g} times as long")
    return found


def _require_positive(option: str, value: float) -> None:
    if not 0 < value <= 1000:
        raise UserError(f"'{option}': found {value:g}, allowed: above 0 and at most 1,000; 1 leaves the experiment unchanged")


def _smaller(made: Experiment, scale: float) -> Experiment:
    keys = [KEYS[thing] for thing in made.scales if thing in KEYS]
    load = made.load.model_copy(update={key: _times(getattr(made.load, key), scale) for key in keys})
    if "connections" in keys and load.stages is not None:
        load = load.model_copy(update={"stages": [_smaller_stage(stage, scale) for stage in load.stages]})
    sweep = {key: [_times(value, scale) if key in keys else value for value in values] for key, values in made.sweep.items()}
    if any(len(set(values)) < len(values) for values in sweep.values()):
        raise UserError(f"'--scale': at {scale:g} two cells become the same; take a larger scale")
    runtime = made.runtime
    if "heap" in made.scales:
        runtime = runtime.model_copy(update={"heap": [_smaller_heap(heap, scale) for heap in runtime.heap]})
    return made.model_copy(update={"load": load, "sweep": sweep, "runtime": runtime})


def _smaller_heap(heap: str, scale: float) -> str:
    size = round(mebibytes(heap) * scale)
    if size < SMALLEST_HEAP:
        raise UserError(f"'--scale': at {scale:g} a heap of {heap} becomes {size} MiB; the minimum is {SMALLEST_HEAP} MiB")
    return f"{size}m"


def _times(value: int | None, scale: float) -> int | None:
    return None if value is None else max(1, round(value * scale))


def _smaller_stage(stage: Stage, scale: float) -> Stage:
    to = round(stage.to * scale)
    return stage.model_copy(update={"to": to, "chunk": _times(stage.chunk, scale)})


def _shorter(made: Experiment, by: float) -> Experiment:
    timing = made.timing.model_copy(
        update={
            "warmup_s": made.timing.warmup_s * by,
            "warmup_of": {runtime: seconds * by for runtime, seconds in made.timing.warmup_of.items()},
            "apart_s": made.timing.apart_s * by,
            "measure_s": None if made.timing.measure_s is None else made.timing.measure_s * by,
        }
    )
    return made.model_copy(update={"timing": timing, "load": _shorter_load(made.load, by)})


def _shorter_load(load: Load, by: float) -> Load:
    stages = load.stages and [stage.model_copy(update={"over_s": stage.over_s * by}) for stage in load.stages]
    rate = load.rate and [segment.model_copy(update={"for_s": segment.for_s * by}) for segment in load.rate]
    return load.model_copy(update={"stages": stages, "rate": rate})

"""How long trials of an experiment take, approximately."""

from __future__ import annotations

from wsbench.experiments.experiment import GAP, TAIL_S, Experiment

#: Start, stop and connect time per trial.
OVERHEAD_S = 3.0
#: The same for a trial of a heat in slices: nothing settles between trials.
SLICED_OVERHEAD_S = 1.0
#: Duration of a trial that ends by count.
COUNTED_S = 3.0


def estimate_s(asked: Experiment, trials: int) -> float:
    """Approximate duration of that many trials, in s."""
    timing, measure_s = asked.timing, asked.measure_s or COUNTED_S
    if asked.ladder is not None:
        return trials * (OVERHEAD_S + timing.warmup_s + asked.ladder.rungs * measure_s * (1 + GAP))
    if asked.arrangement == "together":
        heats = timing.rounds * len(asked.cells())
        return OVERHEAD_S * trials + (timing.warmup_s + measure_s) * heats
    if asked.arrangement == "slices":
        measure_s *= 1 + (timing.lead_s + TAIL_S) / timing.slice_s
        return trials * (SLICED_OVERHEAD_S + timing.warmup_s + measure_s + timing.lead_s)
    return trials * (OVERHEAD_S + timing.warmup_s + measure_s)

"""The order of a campaign's trials: rounds, the A/A control and heats. Pure functions of the request."""

from __future__ import annotations

import random

from wsbench.experiments.experiment import Experiment
from wsbench.records.errors import UserError
from wsbench.records.rundir import TrialOrder
from wsbench.run import preparing
from wsbench.servers.catalogue import Variant

#: From this number of rounds on, a campaign has an A/A control: with fewer it would not show a difference that matters.
CONTROL_ROUNDS = 5
#: Limits of the number of rounds that are planned if they go on until decided.
LEAST_PLANNED, MOST_PLANNED = 5, 1000
#: The server that is the control if it takes part.
CONTROL_SERVER = "reference"


def control_of(rounds: int, variants: list[Variant], wanted: bool | None = None) -> Variant | None:
    """The variant that runs twice in every round if servers are ranked (or if `wanted`): its two series differ by noise alone.

    It is the reference if it takes part, because it varies least, so that the difference shows the machine; else the first.
    """
    ranked = rounds >= CONTROL_ROUNDS and len(variants) > 1
    if not (ranked if wanted is None else wanted):
        return None
    return next((variant for variant in variants if variant.server == CONTROL_SERVER), variants[0])


Entered = tuple[Variant, bool]


def order_of(
    asked: Experiment, variants: list[Variant], seed: int, control: Variant | None = None, most: int | None = None
) -> list[TrialOrder]:
    """Every round of the experiment, one after the other (`round_of`)."""
    order: list[TrialOrder] = []
    for number in range(1, asked.timing.rounds + 1):
        order += round_of(number, len(order) + 1, asked, variants, seed, control, most)
    return order


def round_of(
    number: int,
    first: int,
    asked: Experiment,
    variants: list[Variant],
    seed: int,
    control: Variant | None = None,
    most: int | None = None,
) -> list[TrialOrder]:
    """One round, whose trials are numbered from `first`: every cell of every variant once, as far as its limits allow, and the
    control's cells a second time, in a random order drawn from the seed and the round's number. Unless trials run alone, those of a
    cell are a heat, named by its first number; if it would hold more than `most` servers, several heats."""
    draw = random.Random(f"{seed} round {number}")
    entered = [(variant, False) for variant in variants] + ([(control, True)] if control is not None else [])
    if asked.arrangement == "trials":
        block = [[(variant, again, cell)] for variant, again in entered for cell in preparing.cells_of(asked, variant)]
    else:
        heats = [(heat, cell) for cell in asked.cells() for heat in _heats(_fitting(asked, cell, entered), most, draw)]
        block = [[(variant, again, cell) for variant, again in heat] for heat, cell in heats]
    draw.shuffle(block)
    order: list[TrialOrder] = []
    for group in block:
        draw.shuffle(group)
        begins = first + len(order)
        heat = None if asked.arrangement == "trials" else begins
        order += [
            TrialOrder(
                number=begins + at,
                round=number,
                server=variant.server,
                variant=variant.variant,
                cell=cell,
                control=again,
                heat=heat,
                as_is=asked.timing.disturbed == "count",
            )
            for at, (variant, again, cell) in enumerate(group)
        ]
    return order


def _fitting(asked: Experiment, cell: dict, entered: list[Entered]) -> list[Entered]:
    return [one for one in entered if preparing.exceeded(asked, one[0], cell) is None]


def _heats(entered: list[Entered], most: int | None, draw: random.Random) -> list[list[Entered]]:
    """Heats of at most that many servers. One server, the anchor, is in each of them: it connects servers of different heats."""
    if most is None or len(entered) <= most:
        return [entered] if entered else []
    if most < 2:
        raise UserError("the memory available here holds only one of these servers at a time; free some, or name fewer servers")
    anchor = next(((variant, False) for variant, again in entered if again), entered[0])
    rest = [one for one in entered if one != anchor]
    draw.shuffle(rest)
    number = -(-len(rest) // (most - 1))
    return [[anchor, *rest[start::number]] for start in range(number)]


def again(found: list[TrialOrder], first: int) -> list[TrialOrder]:
    """Reruns of these trials, numbered from `first`. The trials of a heat stay together."""
    heats = {heat: first + found.index(next(one for one in found if one.heat == heat)) for heat in {one.heat for one in found}}
    reruns = []
    for at, planned in enumerate(found):
        heat = None if planned.heat is None else heats[planned.heat]
        reruns.append(planned.model_copy(update={"number": first + at, "again_of": planned.number, "heat": heat}))
    return reruns


def groups(due: list[TrialOrder], order: list[TrialOrder]) -> list[list[TrialOrder]]:
    """The trials that run at the same time, in order. A heat is run whole, even if some of its trials have an outcome."""
    found, seen = [], set()
    for planned in due:
        if planned.heat is None:
            found.append([planned])
        elif planned.heat not in seen:
            seen.add(planned.heat)
            found.append([one for one in order if one.heat == planned.heat])
    return found


def planned_rounds(budget_s: float, round_s: float) -> int:
    """How many rounds to plan for that time. Fixed before the first round, so that no result takes part in it."""
    return min(MOST_PLANNED, max(LEAST_PLANNED, int(budget_s // round_s)))

"""What several rooms of metrics need of a trial: each gives the thing, or the reason why there is none."""

from __future__ import annotations

import math
from fractions import Fraction

from wsbench.engine_files import Doc, Worker
from wsbench.histogram import Histogram
from wsbench.view import NO_END, NO_PLAN, TrialView, Unmeasured, known

NS_PER_US = 1e3
NS_PER_MS = 1e6
NOT_HTTP = "the scenario has no HTTP requests"
NOT_OPEN = "the loop is not open: nothing is due but by a reply"
NO_SAMPLES = "no sample of the server lies inside the measured window"
NO_SCHEDSTAT = "this kernel does not tell how long a thread waits for a CPU (no schedstat)"


def require_doc(view: TrialView) -> None:
    if not isinstance(known(view.plan, NO_PLAN).scenario, Doc):
        raise Unmeasured(NOT_HTTP)


def no_open_loop(view: TrialView) -> str | None:
    return NOT_OPEN if view.open_loop is None else None


def at_rank(numbers: list[int], q: str) -> int:
    """The number at rank ⌈q·n⌉ of those that are there; `q` by its decimal notation."""
    return sorted(numbers)[max(1, math.ceil(Fraction(q) * len(numbers))) - 1]


def recorded(view: TrialView, tag: str) -> Histogram:
    found = view.histograms.get(tag)
    return known(found if found is not None and found.count else None, f"no {tag} time was recorded")


def workers_of(view: TrialView) -> list[Worker]:
    return known(known(view.end, NO_END).threads or None, "the engine told nothing of its workers")


def missing_connections(view: TrialView) -> int:
    """Kept connections that were asked for and not established; 0 where every request has its own.

    Where stages say how many there are, those of the highest; who comes again counts again, so it is at least so many.
    """
    if view.end is None or view.connection_per_request:
        return 0
    stages = view.plan.stages if view.plan is not None else None
    asked = view.end.connections.asked if stages is None else max(stage.to for stage in stages)
    return max(0, asked - view.end.connections.established)

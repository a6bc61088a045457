"""The stop rule of an experiment: stops a trial early if the server cannot keep up while connections are opened.

In: the rule and the engine's events so far. Out: the reason to stop, or None. Has no side effects.
"""

from __future__ import annotations

from wsbench.experiments.experiment import Stop
from wsbench.records.engine_files import Error, Event, PhaseBegin, Tick

NS_PER_S = 1e9


def reason(rule: Stop, events: list[Event], asked: int, server_ended: bool) -> str | None:
    """The reason to stop the trial now. None if it may continue, or if all connections have been opened."""
    begun = {event.phase: event.t_ns for event in events if isinstance(event, PhaseBegin)}
    connecting = [event for event in events if isinstance(event, Tick) and event.phase == "connect"]
    reached = max((tick.open for tick in connecting), default=0)
    if "connect" not in begun or reached >= asked:
        return None
    if server_ended:
        return f"stopped at {reached:,} connections: the server ended"
    errors = [event for event in events if isinstance(event, Error) and event.phase == "connect"]
    if (failed := sum(event.count for event in errors)) > rule.errors * asked:
        kinds = ", ".join(dict.fromkeys(event.kind for event in errors))
        return f"stopped at {reached:,} connections: {failed:,} connections failed ({kinds}), more than {rule.errors:.3g} of all"
    if len(begun) > 1 or not connecting:
        return None
    last = connecting[-1]
    since = last.t_ns - rule.over_s * NS_PER_S
    # The span must not reach back before the first connection attempt.
    if since < begun["connect"]:
        return None
    before = max((tick.open for tick in connecting if tick.t_ns <= since), default=0)
    rate = (last.open - before) / rule.over_s
    if rate < rule.connects_per_s:
        return (
            f"stopped at {reached:,} connections: {rate:,.0f} connections a second over the last {rule.over_s:g} s, "
            f"less than {rule.connects_per_s:g}"
        )
    return None

"""The blocks of a campaign that searches for capacities: under each promise, what the probes showed over the load, and the answers.

Probes of all rounds are taken together: each is a fresh process, and the interval holds for as many as there are.
"""

from __future__ import annotations

from statistics import median

from wsbench import metrics
from wsbench.analysis import titles, wording
from wsbench.analysis.capacity import answers
from wsbench.analysis.capacity.answers import AT_HALF, ENDED, UNITS, Answer, Search
from wsbench.analysis.dataset import Cell
from wsbench.analysis.results import Results
from wsbench.analysis.stats.crossing import Crossing
from wsbench.records import contained
from wsbench.report import figure_drawing
from wsbench.report.blocks import Block, Table
from wsbench.report.figure_drawing import Line, Point

READING = (
    "Every mark is a probe: a fresh process under one load. Hollow marks decide nothing, because the host or the load generator "
    "disturbed them. The dashed line is the promise. On it, a bar per server spans the 95 % interval of its capacity, with a mark "
    "at the estimate."
)
#: Servers that the answer names under a promise; the tables have all.
LED = 3


def blocks(results: Results) -> list[Block]:
    """Empty unless the campaign searches for capacities."""
    asked = results.searched
    if asked is None:
        return []
    made = []
    for cell in results.cells:
        found = _searches(results, cell)
        for place, promise in enumerate(asked.promises):
            where = results.cell_text(cell)
            title = f"{titles.title(promise.leading.metric)} over the load: {promise.text}{f', {where}' if where else ''}"
            id_ = f"capacity-{len(made) + 1}"
            made.append(
                contained.part(
                    f"figure {title!r}",
                    lambda id_=id_, title=title, found=found, place=place: Block(
                        id_, title, READING, _table(results, found, place), _figure(results, found, place)
                    ),
                    lambda reason, id_=id_, title=title: Block(id_, title, f"{reason}."),
                )
            )
    return made


def _searches(results: Results, cell: Cell) -> dict[str, Search]:
    """All probes of each server in a cell."""
    of = {name: answers.probed(results.data, results.searched, name, cell) for name in results.names}
    return {name: one for name, one in of.items() if one.tried}


def lead(results: Results) -> str:
    """The answers under the first promise, the highest first, a sentence for each cell."""
    said = []
    asked, place = results.searched, 0
    for cell in results.cells:
        found = _searches(results, cell)
        where = results.cell_text(cell)
        ranked = _ranked(found, place)
        parts = [f"{results.label(name)} {_words(found[name].answers[place])}" for name in ranked[:LED]]
        more = f", and {wording.count(len(ranked) - LED, 'other server')}" if len(ranked) > LED else ""
        said.append(f"{f'with {where}: ' if where else ''}{', '.join(parts)}{more}")
    others = len(asked.promises) - 1
    also = f" The tables below have {wording.count(others, 'other promise')}." if others else ""
    return f"Capacity while {asked.promises[place].text}, in {UNITS[asked.capacity.over]}: {'; '.join(said)}.{also}"


def _words(answer: Answer) -> str:
    """The capacity, and both ends of its interval if they are known."""
    number, between = interval(answer)
    if None in (answer.found.low, answer.found.high):
        return number
    return between if answer.found.estimate is None else f"{number} ({between})"


def _figure(results: Results, found: dict[str, Search], place: int) -> dict:
    asked = results.searched
    condition = asked.promises[place].leading
    metric = metrics.METRICS[condition.metric]
    tried = {name: [(one, one.trial.value(metric.name)) for one in search.tried] for name, search in found.items()}
    shown = {
        name: [(one, value) for one, value in rows if value is not None and one.purpose != "recovery"]
        for name, rows in tried.items()
    }
    values = [value for rows in shown.values() for _, value in rows]
    scale = wording.scale(metric.unit, values)
    loads = [one.load for rows in shown.values() for one, _ in rows] or [1.0]
    lines = []
    for name, rows in shown.items():
        judged = [(one.load, value) for one, value in rows if one.outcomes[place] in ("kept", "broken")]
        middle = [(load, median(value for at, value in judged if at == load)) for load in sorted({load for load, _ in judged})]
        dots = [
            Point(one.load, scale.of(value), "VALID" if one.outcomes[place] in ("kept", "broken") else "INVALID")
            for one, value in rows
        ]
        answer = found[name].answers[place]
        bound = scale.of(condition.number)
        ends = [load for load in (answer.found.low, answer.found.high) if load is not None]
        lines.append(Line(name, [(load, scale.of(value)) for load, value in middle], dots=dots))
        marks = [] if answer.found.estimate is None else [(answer.found.estimate, bound)]
        lines.append(Line(name, [(load, bound) for load in ends], marks=marks))
    lines.append(Line(None, [(min(loads), scale.of(condition.number)), (max(loads), scale.of(condition.number))]))
    log = figure_drawing.spread_out([scale.of(value) for value in values])
    key = "messages per second" if asked.capacity.over == "rate" else "connections"
    label = f"{titles.title(metric.name)} over {key}"
    axis = f"{titles.title(metric.name)} ({scale.unit})"
    return figure_drawing.lines(results, label, key, axis, lines, log=log, log_x=True, asked="the promise")


def _table(results: Results, found: dict[str, Search], place: int) -> Table:
    unit = UNITS[results.searched.capacity.over]
    rows = []
    for name in _ranked(found, place):
        search, answer = found[name], found[name].answers[place]
        rows.append(
            [
                results.label(name),
                *interval(answer),
                _load(answer.held),
                str(len(search.tried)),
                ENDED[search.ended(place)],
                *([_at_half(search), _recovery(search)] if place == 0 else []),
            ]
        )
    headers = ["server", f"capacity ({unit})", "95 % interval", "held for longer", "probes", "ended because"]
    # These are around the capacity of the first promise.
    return Table([*headers, *(["at half: p50, p99", "recovery"] if place == 0 else [])], rows)


def interval(answer: Answer) -> tuple[str, str]:
    """The capacity and its interval in words; a bound where only one end is shown."""
    found = answer.found
    if found.low is None and found.high is None:
        return wording.NONE if found.estimate is None else f"near {_load(found.estimate)}", "not known"
    if found.high is None:
        return f"≥ {_load(found.low)}", f"from {_load(found.low)} on"
    if found.low is None:
        return f"≤ {_load(found.high)}", f"up to {_load(found.high)}"
    return _load(found.estimate), f"{_load(found.low)} to {_load(found.high)}"


def _ranked(found: dict[str, Search], place: int) -> list[str]:
    """The servers, the highest capacity first. Where only the lower end is shown, it stands for the capacity."""
    known = {name: one.answers[place].found for name, one in found.items()}

    def load(of: Crossing) -> float:
        return (of.estimate or of.low or 0.0) if of.high is not None or of.low is None else of.low

    return sorted(found, key=lambda name: -load(known[name]))


def disturbed(results: Results) -> str | None:
    """How many probes the host disturbed, and what became of them; None if none or nothing was searched for."""
    if results.searched is None:
        return None
    tried = [one for cell in results.cells for search in _searches(results, cell).values() for one in search.tried]
    number = sum(one.disturbed for one in tried)
    became = {
        "repeat": "They decided nothing and were repeated.",
        "count": "They were counted as asked: the answer is about this host as it is.",
    }[results.searched.capacity.disturbed]
    return f"The host disturbed {number:,} of {wording.count(len(tried), 'probe')}. {became}" if number else None


def _load(value: float | None) -> str:
    return wording.NONE if value is None else f"{float(f'{value:.3g}'):,.10g}"


def _at_half(search: Search) -> str:
    """The response times at half of the first promise's capacity."""
    found = [search.at_half(name) for name in AT_HALF.values()]
    if None in found:
        return wording.NONE
    return ", ".join(wording.scale("µs", [value]).with_unit(value) for value in found)


def _recovery(search: Search) -> str:
    last = search.recovery
    if last is None:
        return wording.NONE
    seconds = last.value("recovery_s")
    return (last.reason("recovery_s") or wording.NONE) if seconds is None else f"within {seconds:.3g} s"

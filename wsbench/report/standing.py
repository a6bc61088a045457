"""Where every server stands against the best: in one cell, or over all cells together.

`Results` and summary rows in, a `Place` of texts out. The decisions are those of `analysis.stats`; this module only says them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from wsbench import metrics
from wsbench.analysis import stats, titles, wording
from wsbench.analysis.dataset import Cell, TrialResult
from wsbench.analysis.results import Results
from wsbench.analysis.summary import SummaryRow

FEW = 4  # names that a sentence may list
LIMITS = {"server": "server CPU", "engine": "engine"}
OVERALL = "all cells"


@dataclass(frozen=True)
class Standing:
    """A server against the best. `behind`: by how much, with the interval, or why that is open. `leads`: it may be the best.

    `value` and `interval` are empty over all cells. `notes`: what to know about this number, a phrase each.
    """

    server: str
    says: str
    behind: str
    value: str
    interval: str
    limit: str
    notes: tuple[str, ...]
    leads: bool
    reference: bool


@dataclass(frozen=True)
class Place:
    """A cell, or all cells. `text`: its name. `sentence`: who is best there and who comes next, without the place's name.

    `leaders`: who may be the best; empty if nothing is ranked. `clear`: the best is known, alone or with its equals.
    """

    text: str
    sentence: str
    unit: str
    leaders: tuple[str, ...]
    clear: bool
    standings: tuple[Standing, ...]


def places(results: Results, rows: list[SummaryRow]) -> list[Place]:
    """Every cell in order; before them, if there is more than one cell and server, all cells together."""
    made = [_place(results, cell, [row for row in rows if row.cell == cell]) for cell in results.cells]
    return [_overall(results, rows), *made] if len(made) > 1 < len(results.contenders) else made


def best_of(results: Results) -> str:
    """`highest throughput`, `lowest p99 response time`."""
    return f"{'highest' if _higher(results) else 'lowest'} {titles.title(results.leading, inside=True)}"


def rounds_wanted(results: Results, rounds: int | None) -> str:
    """`a campaign of 18 rounds (36 min) decides it in 8 of 10 cases`, at this one's pace; empty if that cannot be foreseen."""
    pace = _round_s(results)
    return "" if rounds is None else stats.rounds_text(rounds, "" if pace is None else wording.lasting(rounds * pace))


# ---- a place -------------------------------------------------------------------------------------------------------


def _place(results: Results, cell: Cell, rows: list[SummaryRow]) -> Place:
    known = [row for row in rows if row.figure(results.leading).estimate.mean is not None]
    unit = rows[0].figure(results.leading).unit
    text = results.cell_text(cell)
    contenders = [row for row in known if row.name in results.contenders]
    if not contenders:
        ends = [row.figure(results.leading).estimate for row in rows if row.name in results.contenders]
        bounded = any((one.low, one.high) != (None, None) for one in ends)
        said = "undecided: no server has both ends of an interval" if bounded else "no usable number"
        return Place(text, said, unit, (), False, tuple(_standing(results, row, None) for row in rows))
    found = results.best(cell, results.leading)
    order = {name: at for at, name in enumerate(found.order)}
    rows = sorted(rows, key=lambda row: (row not in known, order.get(row.name, math.inf)))
    standings = tuple(_standing(results, row, found) for row in rows)
    if found.reason is not None or _may_be_better(results, found, [cell]):
        return Place(text, _unranked(results, contenders, found), unit, (), False, standings)
    by_name = {row.name: row for row in rows}
    first = by_name[found.order[0]].figure(results.leading)
    value = f"{first.text} {first.unit}" + (f" ({first.interval})" if first.interval else "")
    sentence, clear = _ranked(results, found, value)
    return Place(text, sentence, unit, tuple(map(results.label, found.first)), clear, standings)


def _overall(results: Results, rows: list[SummaryRow]) -> Place:
    found = results.best(None, results.leading)
    names = [*found.order, *found.left_out, *results.references]
    of = {name: [row for row in rows if row.name == name] for name in dict.fromkeys(names)}
    standings = tuple(_standing_overall(results, name, found, mine) for name, mine in of.items() if mine)
    if found.reason is not None or _may_be_better(results, found, results.cells):
        return Place(OVERALL, f"not ranked: {_why_not(results, found)}", "", (), False, standings)
    sentence, clear = _ranked(results, found, "")
    return Place(OVERALL, sentence, "", tuple(map(results.label, found.first)), clear, standings)


def _ranked(results: Results, found: stats.Decided, value: str) -> tuple[str, bool]:
    """The sentence, and whether the best is known."""
    first = [results.label(name) for name in found.first]
    of = {one.one: one for one in found.decisions}
    equal = [one.one for one in found.decisions if one.says == "equal"]
    clear = all(name == found.order[0] or name in equal for name in found.first)
    reach = f": {value}" if value else ""
    if clear:
        best = results.label(found.order[0])
        sentence = f"{best} has the {best_of(results)}{reach}"
        if equal:
            sentence += f"; {_few([results.label(name) for name in equal])} {_is(equal)} equal within {margin(results)}"
    else:
        open_ = [of[name].rounds for name in found.first if name in of and of[name].says == "undecided"]
        wanted = rounds_wanted(results, open_[0]) if len(open_) == 1 else ""
        names = wording.listed(first).replace(" and ", " or ") if len(first) <= FEW else f"one of {len(first)} servers"
        sentence = "; ".join(filter(None, (f"undecided: {names} may have the {best_of(results)}", wanted)))
    if found.left_out:
        names = [results.label(name) for name in found.left_out]
        sentence += f"; {_few(names)} could not be compared"
    behind = [one for one in found.decisions if one.one not in found.first and one.says != "equal"]
    if behind and clear:
        sentence += f"; {results.label(behind[0].one)}, the next, is {phrase(results, behind[0])}"
    elif behind:
        names = [results.label(one.one) for one in behind]
        sentence += f"; {_few(names)} {_is(names)} behind"
    return sentence, clear


def _unranked(results: Results, contenders: list[SummaryRow], found: stats.Decided) -> str:
    """Nothing is compared: one server, or too few rounds."""
    top = contenders[0].figure(results.leading)
    value = f"{top.text} {top.unit}" + (f" ({top.interval})" if top.interval else "")
    if len(results.contenders) == 1:
        return f"{contenders[0].server}: {value}; there is no other server to compare with"
    if len(contenders) == 1:
        return f"not ranked: {_why_not(results, found)}. Only {contenders[0].server} has a mean: {value}"
    even = [row.server for row in contenders if row.figure(results.leading).estimate.mean == top.estimate.mean]
    names = _few(even)
    return f"not ranked: {_why_not(results, found)}. By the mean alone {names} {'lead' if len(even) > 1 else 'leads'}: {value}"


def _may_be_better(results: Results, found: stats.Decided, cells: list[Cell]) -> str | None:
    """A server that could not be compared although its mean is better than the first one's somewhere."""
    if not found.order:
        return None
    sign = 1 if _higher(results) else -1
    for name in found.left_out:
        for cell in cells:
            mine, best = (results.estimate(one, cell, results.leading).mean for one in (name, found.order[0]))
            if mine is not None and (best is None or sign * mine > sign * best):
                return name
    return None


def _why_not(results: Results, found: stats.Decided) -> str:
    done = results.campaign.rounds
    if done < stats.LEAST_ROUNDS:
        least = stats.LEAST_ROUNDS
        return f"{wording.count(done, 'round')} of the {least} that are needed{_time(results, least)}"
    if found.reason is not None:
        return found.reason
    better = _may_be_better(results, found, results.cells) or ""
    return f"{results.label(better)} may be the best and could not be compared ({found.left_out[better]})"


# ---- a server ------------------------------------------------------------------------------------------------------


def _standing(results: Results, row: SummaryRow, found: stats.Decided | None) -> Standing:
    figure = row.figure(results.leading)
    ranked = found is not None and _may_be_better(results, found, [row.cell]) is None
    says, behind = _says(results, row.name, found, ranked)
    group = results.group(row.name, row.cell)
    notes = [*_unused(results, group)]
    if row.missing:
        notes.append(f"{wording.count(row.missing, 'trial')} not run")
    if figure.estimate.mean is None and figure.estimate.reason:
        notes.append(figure.estimate.reason)
    notes += [row.note] if row.note else []
    leads = ranked and row.name in found.first
    reference = row.name in results.references
    return Standing(
        row.server,
        says,
        behind,
        figure.text,
        figure.interval,
        limit_text(row.bottleneck),
        tuple(notes),
        leads,
        reference and row.name not in results.contenders,
    )


def _unused(results: Results, trials: list[TrialResult]) -> Iterator[str]:
    """The trials without a usable number: failed, and left out by the verdict."""
    failed = sum(trial.record.outcome == "failed" for trial in trials)
    invalid = sum(not trial.counts_for(results.leading) for trial in trials) - failed
    for number, what in ((failed, "failed"), (invalid, "left out")):
        if number:
            yield f"{number} of {wording.count(len(trials), 'trial')} {what}"


def _standing_overall(results: Results, name: str, found: stats.Decided, rows: list[SummaryRow]) -> Standing:
    ranked = _may_be_better(results, found, results.cells) is None
    says, behind = _says(results, name, found, ranked)
    trials = [trial for row in rows for trial in results.group(name, row.cell)]
    notes = tuple(_unused(results, trials))
    limits = Counter(trial.verdict.bottleneck for trial in trials if trial.counts_for(results.leading))
    limit = ", ".join(LIMITS.get(text, text) + (f" {number}" if len(limits) > 1 else "") for text, number in limits.most_common())
    reference = name not in results.contenders
    return Standing(
        results.label(name), says, behind, "", "", limit or wording.NONE, notes, ranked and name in found.first, reference
    )


def _says(results: Results, name: str, found: stats.Decided | None, ranked: bool) -> tuple[str, str]:
    """Where a server stands, and by how much it is behind."""
    if name not in results.contenders:
        return "baseline", ""
    if found is None:
        return wording.NONE, ""
    if name in found.left_out and results.campaign.rounds >= stats.LEAST_ROUNDS:
        return "not compared", found.left_out[name]
    if found.reason is not None or not ranked:
        return "not ranked", ""
    of = found.of(name)
    if of is None:
        alone = all(found.of(other).says == "equal" for other in found.first if other != name)
        return ("best" if alone else "may be the best"), ""
    how = phrase(results, of)
    if of.says == "equal":
        return f"equal within {margin(results)}", how
    if of.says == "worse":
        return ("behind" if of.relevant else f"behind, perhaps by less than {margin(results)}"), how
    return "may be the best", "; ".join(filter(None, (how, rounds_wanted(results, of.rounds))))


def phrase(results: Results, of: stats.Decision) -> str:
    """`12 % lower (10–14 %)`, `2.3 times as high (2.1–2.5)`; the reason if there is no ratio."""
    if of.ratio is None or not math.isfinite(of.ratio):
        return of.reason
    if of.ratio >= 2:
        return f"{wording.number(of.ratio, 2)} times as high" + (f" ({wording.between(of.low, of.high)})" if of.low else "")
    ends = () if of.low is None else sorted(abs(round(100 * (end - 1), 9)) for end in (of.low, of.high))
    reach = f" ({_percent(ends[0])}–{_percent(ends[1])} %)" if ends else ""
    return f"{_percent(100 * abs(of.ratio - 1))} % {'lower' if of.ratio < 1 else 'higher'}{reach}"


def _percent(value: float) -> str:
    """Whole per cent from ten on, else one decimal: noise is larger."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


def limit_text(bottleneck: str) -> str:
    """`server CPU`, `engine`, `neither`; with numbers if the trials differ."""
    parts = [part.split(" ") for part in bottleneck.split(", ")] if bottleneck else []
    return ", ".join(" ".join([LIMITS.get(name, name), *number]) for name, *number in parts) or wording.NONE


def margin(results: Results) -> str:
    return f"{100 * results.margin:.3g} %"


def _higher(results: Results) -> bool:
    return metrics.METRICS[results.leading].direction == "higher"


def _few(names: list[str]) -> str:
    return wording.listed(names) if len(names) <= FEW else wording.count(len(names), "server")


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


# ---- pace ----------------------------------------------------------------------------------------------------------


def _time(results: Results, rounds: int) -> str:
    """` (12 min)`: the time of so many rounds; empty if it is not known."""
    pace = _round_s(results)
    return "" if pace is None else f" ({wording.lasting(rounds * pace)})"


def _round_s(results: Results) -> float | None:
    """The usual length of a round of this campaign, from the first trial's start to the last one's end."""
    ends: dict[int, list[tuple[float, float]]] = {}
    for trial in results.every_trial:
        record = trial.record
        if record.started_unix_s is not None and record.duration_s is not None and record.again_of is None:
            ends.setdefault(record.round, []).append((record.started_unix_s, record.started_unix_s + record.duration_s))
    spans = [max(end for _, end in found) - min(begin for begin, _ in found) for found in ends.values()]
    return median(spans) if spans else None

"""The answer: who is best by the leading metric, overall and in every cell, and what limits the answer.

The leading metric is throughput, or the experiment's headline if the load is given (`Results.leading`). Every sentence follows from
the decisions that the tables below it show. The reference server is a baseline and never the answer, unless it ran alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wsbench.analysis import stats, titles, wording
from wsbench.analysis.dataset import TrialResult
from wsbench.analysis.results import Results
from wsbench.analysis.summary import LOWER_BOUND, SummaryRow
from wsbench.metrics.server_checks import OUTCOMES
from wsbench.records import contained
from wsbench.records.rundir import CONTROL
from wsbench.report import caution, ladders
from wsbench.report.need import Need, need
from wsbench.report.standing import Place, best_of, margin, places


@dataclass(frozen=True)
class Answer:
    """The whole answer. `best`: what the best is best at (`highest throughput`). `overall`: all cells together, if several.

    `cannot`: what changes or limits the answer, a sentence each. `control`: what the A/A control shows about the machine, or None.
    `aside`: what was looked at and changes nothing. `need`: the memory answer, or None if memory is not asked for.
    """

    lead: str
    best: str
    overall: Place | None
    cells: tuple[Place, ...]
    cannot: tuple[str, ...]
    control: str | None
    aside: tuple[str, ...]
    need: Need | None


def answer(results: Results, rows: list[SummaryRow]) -> Answer:
    """The answer of a campaign, from its summary rows."""
    return contained.part("answer", lambda: _answer(results, rows), _no_answer)


def _no_answer(reason: str) -> Answer:
    return Answer(f"No answer: {reason}.", "", None, (), (), None, (), None)


def _answer(results: Results, rows: list[SummaryRow]) -> Answer:
    found = places(results, rows)
    overall, cells = (found[0], found[1:]) if len(found) > len(results.cells) else (None, found)
    asked = need(results)
    lead = _lead(results, overall, cells) if asked is None else _memory_lead(results, asked, cells)
    if results.climb is not None:
        lead = ladders.lead(results)
    doubt = caution.suspect(results)
    cannot = [*(asked.cannot if asked else []), *_cannot(results, rows, doubt[0] if doubt and doubt[1] else "")]
    aside = [*([doubt[0]] if doubt and not doubt[1] else []), *_reruns(results)]
    return Answer(lead, best_of(results), overall, tuple(cells), tuple(cannot), _control(results), tuple(aside), asked)


def _memory_lead(results: Results, asked: Need, cells: list[Place]) -> str:
    """Where the asked number of connections was measured, the decision there; else what the lines say."""
    measured = [place for cell, place in zip(results.cells, cells, strict=True) if dict(cell) == {"connections": asked.there}]
    return f"For {asked.there:,} connections, {measured[0].sentence}." if measured else asked.lead


def _lead(results: Results, overall: Place | None, cells: list[Place]) -> str:
    if not any(standing.value.strip("≥ –") for place in cells for standing in place.standings):
        return "No result: no VALID or SUSPECT trial has a number."
    if overall is None and len(cells) > 1:
        values = [f"{place.text} {one.value} {place.unit}" for place in cells for one in place.standings if not one.reference]
        reach = values[0] if len(values) < 2 else f"{values[0]} to {values[-1]}"
        return f"{results.label(results.contenders[0])}: {reach}; there is no other server to compare with."
    if overall is None:
        return _sentence(cells[0].sentence)
    if overall.leaders:
        return " ".join(filter(None, [_sentence(f"Over all {len(cells)} cells, {overall.sentence}"), _by_cell(overall, cells)]))
    return " ".join(filter(None, [_sentence(f"Over all {len(cells)} cells {overall.sentence}"), _by_cell(overall, cells)]))


def _by_cell(overall: Place, cells: list[Place]) -> str:
    """The cells that are clear, where they say something else than all cells together."""
    best = overall.leaders if overall.clear else ()
    others = [place for place in cells if place.clear and not set(place.leaders) & set(best)]
    if best and not others:
        return ""
    counts: dict[str, list[str]] = {}
    for place in others:
        counts.setdefault(wording.listed(place.leaders), []).append(place.text)
    parts = [
        f"{names} clearly in {f'{len(where)} of {len(cells)} cells' if len(where) > 1 else where[0]}"
        for names, where in sorted(counts.items(), key=lambda one: -len(one[1]))
    ]
    if parts:
        return f"{'But by' if best else 'By'} cell, the best: {'; '.join(parts)}."
    leading = any(place.leaders for place in cells)
    return "No single cell is clear either." if leading and overall.leaders else ""


def _sentence(text: str) -> str:
    """Ends with a full stop and begins with a capital, unless it begins with the name of a server."""
    begins = text.startswith(("undecided", "not ", "no "))
    return f"{text[:1].upper() + text[1:] if begins else text}."


def _control(results: Results) -> str | None:
    """The A/A control where its two series differ most; a warning where they differ by more than the margin for sure."""
    found = {cell: results.against_itself(cell, results.leading) for cell in results.cells}
    known = {cell: one for cell, one in found.items() if one is not None and one.ratio}
    if not known:
        return None
    cell = max(known, key=lambda cell: max(known[cell].ratio, 1 / known[cell].ratio))
    one = known[cell]
    where = f" ({results.cell_text(cell)})" if results.cell_text(cell) else ""
    server = results.label(results.control.removesuffix(CONTROL))
    what = titles.title(results.leading, inside=True)
    said = f"A/A control: {server} against itself: {wording.decided(one)} in {what}{where}"
    if one.relevant:
        return f"{said}. Two identical servers differ by more than {margin(results)}: distrust this machine and measure again."
    if one.says == "equal":
        return f"{said}: equal within {margin(results)}."
    return f"{said}."


def _cannot(results: Results, rows: list[SummaryRow], doubt: str) -> list[str]:
    """The limits of the answer, the most serious first."""
    said = []
    trials, ok = results.trials, [trial for trial in results.trials if trial.record.outcome != "failed"]
    if results.missing:
        planned = len(results.order)
        said.append(f"The campaign is unfinished: {wording.count(len(results.missing), 'trial')} of {planned:,} not run.")
    repeats = [row.repeats for row in rows if row.repeats] or [0]
    if min(repeats) < stats.LEAST_ROUNDS <= max(repeats):
        said.append(
            f"Servers with fewer than {stats.LEAST_ROUNDS} usable rounds in a cell are not ranked there; fewest: {min(repeats)}."
        )
    if stopped := [trial.record for trial in trials if trial.record.outcome == "stopped"]:
        names = dict.fromkeys(results.label(record.name) for record in stopped)
        said.append(
            f"Stopped early by the experiment's stop rule: {wording.count(len(stopped), 'trial')} of {wording.listed(names)}."
        )
    if bounded := [row for row in rows if row.note.startswith(LOWER_BOUND) and row.name in results.contenders]:
        where = [
            f"{server} ({wording.listed(row.cell_text for row in found)})" if found[0].cell_text else server
            for server, found in _by_server(bounded).items()
        ]
        what = "these" if results.leading == results.throughput else "their throughputs"
        said.append(f"The engine, not the server, was the limit for {wording.listed(where)}: {what} are lower bounds.")
    said += _outcomes(results, ok)
    said += caution.left_out(results)
    said += [doubt] if doubt else []
    if failed := len(trials) - len(ok):
        said.append(f"Failed: {wording.count(failed, 'trial')}, without a number.")
    if skipped := [row.name for row in results.servers if row.skipped]:
        said.append(f"Skipped and not compared: {wording.listed(skipped)}.")
    silent = dict.fromkeys(row.server for row in rows if not row.repeats and not row.missing)
    if silent:
        said.append(f"No usable number in at least one cell: {wording.listed(silent)}.")
    return said


def _reruns(results: Results) -> Iterator[str]:
    if number := sum(trial.record.again_of is not None for trial in results.every_trial):
        yield f"{wording.count(number, 'trial')} ran again, because the host had disturbed {'it' if number == 1 else 'them'}."


def _by_server(rows: list[SummaryRow]) -> dict[str, list[SummaryRow]]:
    found: dict[str, list[SummaryRow]] = {}
    for row in rows:
        found.setdefault(row.server, []).append(row)
    return found


def _outcomes(results: Results, ok: list[TrialResult]) -> list[str]:
    """What servers did, a sentence for each kind of outcome. Stops have their own sentence."""
    by_name: dict[str, dict[str, None]] = {}
    for trial in ok:
        for one in trial.verdict.outcomes:
            if one.name != "stopped":
                by_name.setdefault(one.name, {})[results.label(trial.record.name)] = None
    return [f"{OUTCOMES[name].capitalize()}: {wording.listed(servers)}." for name, servers in by_name.items()]

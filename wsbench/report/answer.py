"""The answer in words: the best server per cell by the leading metric, its lead, and the limits of the answer.

The leading metric is throughput, or the experiment's headline if the load is given (`Results.leading`). Sentences are built from
estimates, claim only what `stats` allows, and state an order only as tiers. The reference server is a baseline and never the
answer, unless it ran alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsbench import metrics
from wsbench.analysis import stats, wording
from wsbench.analysis.dataset import Cell, TrialResult
from wsbench.analysis.results import Results
from wsbench.analysis.summary import LOWER_BOUND, SummaryRow
from wsbench.metrics.findings import Kind
from wsbench.metrics.server_checks import OUTCOMES
from wsbench.records.rundir import CONTROL
from wsbench.report.need import Need, need

FEW = 3  # names that a sentence may list


@dataclass(frozen=True)
class CellAnswer:
    """One cell's answer: the leader and its numbers. `tied`: servers that cannot be ranked against it; None: not ranked."""

    cell_text: str
    leader: str | None
    value: str
    interval: str
    unit: str
    comparison: str
    ceiling: str
    latency: str
    lower_bound: bool
    tied: tuple[str, ...] | None


@dataclass(frozen=True)
class Answer:
    """The whole answer. `best`: what the leader is best at (`highest throughput`), in `unit`. `by`: what distinguishes cells.

    `control`: the A/A control's result in one sentence, or None. `need`: the memory answer, or None if memory is not asked for.
    """

    lead: str
    best: str
    unit: str
    by: str
    cells: list[CellAnswer]
    cannot: list[str]
    control: str | None
    need: Need | None


def answer(results: Results, rows: list[SummaryRow]) -> Answer:
    """The answer of a campaign, from its summary rows."""
    of_cell: dict[Cell, list[SummaryRow]] = {cell: [] for cell in results.cells}
    for row in rows:
        of_cell[row.cell].append(row)
    cells = [_cell(results, found) for found in of_cell.values()]
    asked = need(results)
    lead = _lead(results, cells) if asked is None else asked.lead
    cannot = _cannot(results, rows) if asked is None else [*asked.cannot, *_cannot(results, rows)]
    unit = rows[0].figure(results.leading).unit if rows else ""
    return Answer(lead, _best(results), unit, _by(results), cells, cannot, _control(results), asked)


def _best(results: Results) -> str:
    """`highest throughput`, `lowest p99 response time`."""
    most = "highest" if metrics.METRICS[results.leading].direction == "higher" else "lowest"
    return f"{most} {wording.title(results.leading, inside=True)}"


def _cell(results: Results, rows: list[SummaryRow]) -> CellAnswer:
    contenders = [row for row in rows if row.name not in results.references] or rows
    measured = [row for row in contenders if row.figure(results.leading).estimate.mean is not None]
    if not measured:
        return CellAnswer(_cell_text(results, rows[0].cell), None, wording.NONE, "", "", "not measured", "", "", False, None)
    first = measured[0]
    tied = _tied(results, measured)
    figure = first.figure(results.leading)
    even = [row.server for row in measured if row.figure(results.leading).estimate.mean == figure.estimate.mean]
    return CellAnswer(
        cell_text=_cell_text(results, first.cell),
        leader=wording.listed(even) if len(even) <= FEW else wording.count(len(even), "server"),
        value=figure.text,
        interval=figure.interval,
        unit=figure.unit,
        comparison=_comparison(results, measured, tied),
        ceiling=first.against_reference_text,
        latency=_lowest_latency(results, measured),
        lower_bound=results.leading == results.throughput and first.note.startswith(LOWER_BOUND),
        tied=tied,
    )


def _by(results: Results) -> str:
    return results.swept[0].replace("_", " ") if len(results.swept) == 1 else "cell"


def _cell_text(results: Results, cell: Cell) -> str:
    """A cell in the column `Answer.by`: the value alone if one key is swept."""
    return results.cell_text(cell).removeprefix(f"{_by(results)} ")


def _tied(results: Results, measured: list[SummaryRow]) -> tuple[str, ...] | None:
    """Servers that are not shown to be behind the first; None if it or any other server could not be compared."""
    first, rest = measured[0], measured[1:]
    found = results.best(first.cell, results.leading)
    if found.reason is not None or any(row.name in found.left_out for row in measured):
        return None
    return tuple(row.server for row in rest if (of := found.of(row.name)) is None or of.says != "worse")


def _comparison(results: Results, measured: list[SummaryRow], tied: tuple[str, ...] | None) -> str:
    """The leader compared with the next server, or with those that may be as good."""
    first, rest = measured[0], measured[1:]
    if not rest:
        return "no other server to compare with"
    found = results.best(first.cell, results.leading)
    if tied:
        equal = [row.server for row in rest if (of := found.of(row.name)) is not None and of.says == "equal"]
        open_ = [name for name in tied if name not in equal]
        parts = []
        if equal:
            parts.append(f"equal within {100 * results.margin:.3g} % to {_many(tuple(equal), rest)}")
        if open_:
            parts.append(f"undecided against {_many(tuple(open_), rest)}: {_more(found)}")
        return "; ".join(parts)
    mean = first.figure(results.leading).estimate.mean
    rest = [row for row in rest if row.figure(results.leading).estimate.mean != mean]
    if not rest:
        return "all equal"
    next_ = rest[0].server
    of = found.of(rest[0].name)
    if of is None:
        return f"{wording.times(results.ratio(first.name, rest[0].name, first.cell, results.leading))} that of {next_}; not ranked"
    return f"{next_} has {wording.decided(of)} of it" if of.ratio is not None else f"{next_} {of.reason}"


def _more(found: stats.Decided) -> str:
    """How many more rounds would decide what is open."""
    return stats.rounds_text(found.more_rounds)


def _many(tied: tuple[str, ...], rest: list[SummaryRow]) -> str:
    """The tied servers: by name if there are few, else their number and the servers that are not tied, if those are few."""
    beaten = [row.server for row in rest if row.server not in tied]
    if len(tied) <= FEW:
        return wording.listed(tied)
    if not beaten:
        return f"all {len(rest)} others"
    return f"{len(tied)} of {len(rest)} others" + (f"; ahead of {wording.listed(beaten)}" if len(beaten) <= FEW else "")


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
    what = wording.title(results.leading, inside=True)
    said = f"A/A control: two series of {server} have a ratio of {wording.decided(one)} in {what}{where}"
    margin = f"{100 * results.margin:.3g} %"
    if one.low is not None and (one.low > 1 + results.margin or one.high < 1 / (1 + results.margin)):
        return f"{said}. Two identical servers differ by more than {margin}: distrust this machine and measure again."
    if one.says == "equal":
        return f"{said}: equal within {margin}."
    return f"{said}."


def _lowest_latency(results: Results, measured: list[SummaryRow]) -> str:
    metric = f"{results.latency}_p99"
    if metric not in measured[0].figures or metric == results.leading:
        return ""
    known = [row for row in measured if row.figure(metric).estimate.mean is not None]
    if not known:
        return ""
    lowest = min(known, key=lambda row: row.figure(metric).estimate.mean)
    figure = lowest.figure(metric)
    return f"{lowest.server}, {figure.text} {figure.unit}" + (f" ({figure.interval})" if figure.interval else "")


def _lead(results: Results, cells: list[CellAnswer]) -> str:
    leaders = [cell.leader for cell in cells if cell.leader]
    if not leaders:
        return "No result: no VALID or SUSPECT trial has a number."
    best = _best(results)
    aside = ", excluding the reference" if len(results.names) > len(results.references) > 0 else ""
    if len(cells) == 1:
        cell = cells[0]
        between = f" (95 % interval {cell.interval})" if cell.interval else ""
        tied = f"; {cell.comparison}" if cell.tied else ""
        return f"{cell.leader} had the {best}{aside}: {cell.value} {cell.unit}{between}{tied}."
    ranked = [cell for cell in cells if cell.tied is not None]
    apart = sum(not cell.tied for cell in ranked)
    by_leader = {name: leaders.count(name) for name in dict.fromkeys(leaders)}
    parts = [f"{name} in {number}" for name, number in sorted(by_leader.items(), key=lambda item: -item[1])]
    overall = _overall(results)
    if overall and not apart:
        return f"{overall} In no single cell is the lead clear."
    if ranked and not apart:
        highest = f"{wording.listed(parts)} of {len(cells)} cells" if len(parts) > 1 else leaders[0]
        return f"No server clearly has the {best} in any cell{aside}. By the mean alone: {highest}."
    beyond = f"; the lead is clear in {apart} of {len(cells)}" if apart < len(ranked) else ""
    if len(by_leader) == 1:
        return f"{leaders[0]} had the {best} in {_all(len(leaders), len(cells))}{aside}{beyond}."
    return f"The {best}{aside}: {wording.listed(parts)} of {len(cells)} cells{beyond}."


def _overall(results: Results) -> str | None:
    """The best over all cells together, if it leads alone."""
    found = results.best(None, results.leading)
    if len(found.first) != 1 or len(results.cells) < 2 or any(one.says != "worse" for one in found.decisions):
        return None
    aside = ", excluding the reference" if len(results.names) > len(results.references) > 0 else ""
    behind = found.decisions[0]
    next_ = "" if behind.ratio is None else f" {results.label(behind.one)}, the next, has {wording.decided(behind)} of it."
    return f"{results.label(found.first[0])} had the {_best(results)} over all {len(results.cells)} cells together{aside}.{next_}"


def _all(found: int, total: int) -> str:
    every = {1: "the one cell", 2: "both cells"}.get(found, f"all {found} cells")
    return every if found == total else f"{every} that {'has' if found == 1 else 'have'} a number, out of {total}"


def _by_server(rows: list[SummaryRow]) -> dict[str, list[SummaryRow]]:
    found: dict[str, list[SummaryRow]] = {}
    for row in rows:
        found.setdefault(row.server, []).append(row)
    return found


def _cannot(results: Results, rows: list[SummaryRow]) -> list[str]:
    """The limits of the answer, the most serious first."""
    said = []
    trials, ok = results.trials, [trial for trial in results.trials if trial.record.outcome != "failed"]
    if results.missing:
        planned = len(results.order)
        said.append(f"The campaign is unfinished: {wording.count(len(results.missing), 'trial')} of {planned:,} not run.")
    repeats = [row.repeats for row in rows if row.repeats] or [0]
    if max(repeats) < stats.LEAST_ROUNDS:
        said.append(f"No ranking: {stats.LEAST_ROUNDS} rounds are needed. Differences may be chance.")
    elif min(repeats) < stats.LEAST_ROUNDS:
        said.append(
            f"Servers with fewer than {stats.LEAST_ROUNDS} usable rounds in a cell are not ranked there; fewest: {min(repeats)}."
        )
    if stopped := [trial.record for trial in trials if trial.record.outcome == "stopped"]:
        names = dict.fromkeys(results.label(record.name) for record in stopped)
        said.append(
            f"Stopped early by the experiment's stop rule: {wording.count(len(stopped), 'trial')} of {wording.listed(names)}."
        )
    if bounded := [row for row in rows if row.note.startswith(LOWER_BOUND)]:
        where = [
            f"{server} ({wording.listed(row.cell_text for row in found)})" if found[0].cell_text else server
            for server, found in _by_server(bounded).items()
        ]
        what = "these" if results.leading == results.throughput else "their throughputs"
        said.append(f"The engine, not the server, was the limit for {wording.listed(where)}: {what} are lower bounds.")
    said += _outcomes(results, ok)
    if invalid := _in_words(results, ok, "INVALID"):
        again = sum(planned.again_of is not None and not planned.control for planned in results.order)
        repeated = f"; {wording.count(again, 'trial')} rerun after a disturbance by the host" if again else ""
        said.append(f"INVALID: {invalid}, shown but excluded from the means{repeated}.")
    if suspect := _in_words(results, ok, "SUSPECT"):
        said.append(f"SUSPECT: {suspect}, included in the means; the table of trials has the reasons.")
    if failed := len(trials) - len(ok):
        said.append(f"Failed: {wording.count(failed, 'trial')}, without a number.")
    if skipped := [row.name for row in results.servers if row.skipped]:
        said.append(f"Skipped and not compared: {wording.listed(skipped)}.")
    silent = dict.fromkeys(row.server for row in rows if not row.repeats and not row.missing)
    if silent:
        said.append(f"No usable number in at least one cell: {wording.listed(silent)}.")
    return said


def _outcomes(results: Results, ok: list[TrialResult]) -> list[str]:
    """What servers did, a sentence for each kind of outcome. Stops have their own sentence."""
    by_name: dict[str, dict[str, None]] = {}
    for trial in ok:
        for one in trial.verdict.outcomes:
            if one.name != "stopped":
                by_name.setdefault(one.name, {})[results.label(trial.record.name)] = None
    return [f"{OUTCOMES[name].capitalize()}: {wording.listed(servers)}." for name, servers in by_name.items()]


def _in_words(results: Results, ok: list[TrialResult], kind: Kind) -> str:
    """`3 trials for throughput, 5 for p99 service time`: the trials with this word, for the metrics that are drawn."""
    drawn = [metric for metric in (results.leading, results.second) if metric is not None]
    numbers = {metric: sum(trial.kind(metric) == kind for trial in ok if trial.value(metric) is not None) for metric in drawn}
    found = [(wording.title(metric, inside=True), number) for metric, number in numbers.items() if number]
    return ", ".join(
        f"{wording.count(number, 'trial') if not place else number} for {title}" for place, (title, number) in enumerate(found)
    )

"""Users and response times over a run, second by second: requested and connected users; per-second means and their trend.

Timelines of a campaign in, blocks out. The engine keeps one histogram per second and no single responses, so a point is the mean
of a second. The trend is LOWESS (Cleveland 1979) local lines through SHARE of the points, three robust rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wsbench.analysis import wording
from wsbench.analysis.dataset import Cell, TrialResult
from wsbench.analysis.results import Results
from wsbench.experiments.figure_table import FigureTable
from wsbench.records.engine_files import Plan
from wsbench.report import figure_drawing
from wsbench.report.blocks import Block, Table
from wsbench.report.figure_drawing import Line, Point
from wsbench.report.lowess import lowess

SHARE, ROUNDS = 0.1, 3
FEWEST = 10  # seconds; with fewer the trend would be the points themselves
NEIGHBOURS = 20  # points per local line; with 10, one peak distorts the trend around it despite the robust rounds
NS_PER_MS = 1e6
SECONDS = "seconds of the measured phase"
LONG_TAIL = 50  # maximum over median from which a linear axis would hide all other values


@dataclass(frozen=True)
class Run:
    """One trial over its measured phase: (second, users), (second, mean ms, maximum ms), and the requested users as corners."""

    name: str
    server: str
    number: int
    users: list[tuple[float, int]]
    times: list[tuple[float, float, float]]
    asked: list[tuple[float, float]]


def blocks(results: Results, asked: FigureTable, id_: str) -> list[Block]:
    made = []
    for cell in results.cells:
        runs = [run for trial in results.trials if trial.cell == cell and (run := _run(results, trial)) is not None]
        if runs:
            text = results.cell_text(cell)
            made.append(_users(results, asked, runs, text, f"{id_}-{len(made) + 1}"))
            made.append(_times(results, asked, runs, text, f"{id_}-{len(made) + 1}"))
    return made


def _run(results: Results, trial: TrialResult) -> Run | None:
    """The trial's measured phase. Includes INVALID trials: this figure must show a server that lost its users."""
    line, name, number = results.data.timelines.get(trial.record.number), trial.record.name, trial.record.number
    if trial.record.outcome == "failed" or line is None or trial.plan is None or "measure" not in dict(line.phases):
        return None
    phases, last = dict(line.phases), line.buckets * line.width_s
    begin, end = phases["measure"], phases.get("drain", last)
    ends = [(min((at + 1) * line.width_s, last) - begin, at) for at in range(line.buckets)]
    inside = [(second, at) for second, at in ends if second >= 0 and second + begin <= end + 1e-9]
    users = [(second, line.series["open"][at]) for second, at in inside if line.series["open"][at] is not None]
    means, longest = (line.series.get(of, [None] * line.buckets) for of in ("mean", "max"))
    times = [
        (second - line.width_s / 2, means[at] / NS_PER_MS, longest[at] / NS_PER_MS)
        for second, at in ends
        if means[at] is not None and 0 <= second - line.width_s / 2 <= end - begin
    ]
    return Run(name, results.label(name), number, users, times, asked_for(trial.plan))


def asked_for(plan: Plan) -> list[tuple[float, float]]:
    """(second, users) corners of the plan's requested users; chunks are steps, single users a slope."""
    corners, users, began = [(0.0, 0.0 if plan.stages else float(plan.connections))], 0, 0.0
    for stage in plan.stages or []:
        total, sign = abs(stage.to - users), 1 if stage.to > users else -1
        if stage.chunk == 1 and total:
            corners.append((began + stage.over_s, float(stage.to)))
        else:
            for moved in [*range(stage.chunk, total, stage.chunk), *([total] if total else [])]:
                at = began + stage.over_s * moved / total
                corners += [(at, corners[-1][1]), (at, float(users + sign * moved))]
        users, began = stage.to, began + stage.over_s
        corners.append((began, float(users)))
    return corners


def trend(times: list[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """LOWESS of the per-second means; empty if there are too few."""
    if len(times) < FEWEST:
        return []
    seconds, means = np.array([t for t, *_ in times]), np.array([mean for _, mean, _ in times])
    share = max(SHARE, NEIGHBOURS / len(times))
    line = lowess(seconds, means, min(1.0, share), ROUNDS)
    return list(zip(seconds.tolist(), line.tolist(), strict=True))


def _users(results: Results, asked: FigureTable, runs: list[Run], cell: str, id_: str) -> Block:
    lines = [Line(None, runs[0].asked), *(Line(run.name, run.users) for run in runs)]
    label = "users connected over time, by server; the table has the extremes"
    drawing = figure_drawing.lines(results, label, SECONDS, "users connected", lines)
    rows = []
    for run in runs:
        at = [(x, wanted(run.asked, x), found) for x, found in run.users]
        short = max(((ask - found, x) for x, ask, found in at), default=(0, 0.0))
        most = max((found for _, found in run.users), default=0)
        rows.append(
            [
                f"{run.server}, trial {run.number:04}",
                f"{most:,}",
                f"{max(0, round(short[0])):,}",
                wording.number(short[1]),
            ]
        )
    head = ["server", "most connected at once", "most missing at once", "at second"]
    text = "Dashed: requested users. One line per trial; a user whose exchange failed is not reconnected."
    return Block(id_, _title(asked, "users", cell), text, Table(head, rows), drawing)


def wanted(corners: list[tuple[float, float]], second: float) -> float:
    """Requested users at a second; in the second before a step, the smaller number: users take a moment to connect."""
    before = [(x, y) for x, y in corners if x < second] or corners[:1]
    after = [(x, y) for x, y in corners if x >= second] or corners[-1:]
    (x0, y0), (x1, y1) = before[-1], after[0]
    inside = y0 if x1 <= x0 else y0 + (y1 - y0) * (second - x0) / (x1 - x0)
    return min(inside, y1) if x1 - second < 1 else inside


def _times(results: Results, asked: FigureTable, runs: list[Run], cell: str, id_: str) -> Block:
    lines = [
        Line(
            run.name,
            [(x, y) for x, y in trend(run.times) if y > 0],
            dots=[Point(x, mean) for x, mean, _ in run.times],
        )
        for run in runs
    ]
    means = sorted(point.y for line in lines for point in line.dots)
    log = bool(means) and means[0] > 0 and means[-1] > LONG_TAIL * means[len(means) // 2]
    label = "response time over time, by server; the table has the extremes"
    drawing = figure_drawing.lines(results, label, SECONDS, "response time (ms)", lines, log=log)
    head = ["server", "median of per-second means (ms)", "highest per-second mean (ms)", "maximum (ms)"]
    rows = []
    for run in runs:
        seen = [mean for _, mean, _ in run.times]
        longest = max((longest for *_, longest in run.times), default=None)
        middle = float(np.median(seen)) if seen else None
        texts = [wording.number(value) for value in (middle, max(seen, default=None), longest)]
        rows.append([f"{run.server}, trial {run.number:04}", *texts])
    text = f"{asked.note or ''} LOWESS through a tenth of the points at a time, {ROUNDS} robust rounds.".strip()
    return Block(id_, _title(asked, "response time", cell), text, Table(head, rows), drawing)


def _title(asked: FigureTable, what: str, cell: Cell | str) -> str:
    return ": ".join(part for part in (asked.title, what, cell) if part)

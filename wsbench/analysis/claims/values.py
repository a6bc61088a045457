"""Values of the claim language over a campaign: resolves each reading to a server and cell, and returns its number per round.

`highest` and `lowest` stay lists of terms, so that each comparison is judged by its own interval: the maximum of five means has no
known interval. This module returns numbers; `evaluate` decides what holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from wsbench import metrics
from wsbench.analysis import stats
from wsbench.analysis.claims.outcome import Obstacle
from wsbench.experiments.claims import conditions
from wsbench.records.errors import UserError

COMBINE = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@dataclass(frozen=True)
class Problem:
    """Why a number is missing."""

    obstacle: Obstacle
    reason: str


@dataclass(frozen=True)
class Subject:
    """The subject of a reading: a server, a metric, and a cell in words."""

    server: str
    metric: str
    cell: str

    def __str__(self) -> str:
        return f"{self.server} {self.metric}" + (f" at {self.cell}" if self.cell else "")


def together(left: Term, op: str, right: Term) -> str:
    """Two terms in words; common parts appear once."""
    one, other = left.subject, right.subject
    if one and other and (one.metric, one.cell) == (other.metric, other.cell):
        at = f" at {one.cell}" if one.cell else ""
        return f"{one.metric}{at}: {one.server} {op} {other.server}"
    if one and other and (one.server, one.metric) == (other.server, other.metric):
        return f"{one.server} {one.metric}: at {one.cell} {op} at {other.cell}"
    return f"{left.text} {op} {right.text}"


@dataclass(frozen=True)
class Term:
    """One number per round, or one number (`constant`) for all.

    `subject` is set for a plain reading, with the rounds that the server `lost` by its own fault and the common variance of the
    metric (`prior`).
    """

    text: str
    rounds: dict[int, float]
    constant: float | None
    problem: Problem | None
    subject: Subject | None = None
    lost: frozenset[int] = frozenset()
    prior: stats.Prior | None = None

    def value(self, round_: int) -> float:
        return self.rounds[round_] if self.constant is None else self.constant


@dataclass(frozen=True)
class Spread:
    """A value: one term, or several of which the highest or lowest is meant. `others`: several, not yet reduced."""

    kind: Literal["one", "others", "highest", "lowest"]
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Scope:
    """The context of a condition: campaign, server by role, cells, the cells that the campaign was told to leave out, the role that
    `server` means, the roles that are named."""

    campaign: object
    roles: dict[str, str]
    cells: tuple[conditions.Cell, ...]
    left_out: tuple[conditions.Cell, ...] = ()
    server: str | None = None
    named: frozenset[str] = frozenset()

    def role(self, role: str) -> str:
        if role != "server":
            return role
        if self.server is None:
            raise UserError("'server' is used outside 'every server: …'")
        return self.server


def spread(value: conditions.Value, scope: Scope) -> Spread:
    """The terms of a value. UserError if it covers more than one cell or mixes highest and lowest."""
    match value:
        case conditions.Number(number):
            return Spread("one", (Term(f"{number:,g}", {}, number, None),))
        case conditions.Extreme(kind, values):
            inner = [spread(one, scope) for one in values]
            if any(one.kind not in ("one", "others", kind) for one in inner):
                raise UserError(f"{kind!r} of a value of the opposite kind")
            return Spread(kind, tuple(term for one in inner for term in one.terms))
        case conditions.Reading(role, metric, where):
            return _readings(role, metric, where, scope)
        case conditions.Arithmetic(op, left, right):
            return _combined(op, spread(left, scope), spread(right, scope))
    raise AssertionError(value)


def _readings(role: str, metric: str, where: tuple[conditions.Filter, ...], scope: Scope) -> Spread:
    metrics.require([metric])
    cells = conditions.choose(scope.cells, where)
    if len(cells) > 1:
        raise UserError(f"'{role}.{metric}' covers {len(cells)} cells; choose with 'every cell: …', 'at KEY = …: …' or […]")
    if role != "others":
        roles = [scope.role(role)]
    else:
        roles = [other for other in scope.roles if other not in scope.named]
        if not roles:
            raise UserError("there are no 'others': all roles are named")
    terms = tuple(_reading(one, metric, cells, where, scope) for one in roles)
    return Spread("one" if role != "others" else "others", terms)


def _reading(role: str, metric: str, cells: list[conditions.Cell], where: tuple[conditions.Filter, ...], scope: Scope) -> Term:
    name = scope.roles.get(role)
    if not cells:
        wanted = " and ".join(map(str, where)) or "this condition"
        return _none(Subject(name or role, metric, ""), Problem("missing", f"the campaign has no cell for {wanted}"))
    (cell,) = cells
    subject = Subject(name or role, metric, scope.campaign.cell_text(cell))
    if name is None:
        return _none(subject, Problem("missing", f"no server has the role {role!r} in these versions"))
    lost = scope.campaign.lost(name, cell, metric) if name in scope.campaign.names else frozenset()
    if not lost and (problem := _absent(name, cell, metric, scope)):
        return _none(subject, problem)
    known = _measured(scope.campaign.by_round(name, cell, metric))
    if not known and not lost:
        first = scope.campaign.counted(name, cell, metric)[0]
        return _none(subject, Problem("missing", f"{subject}: {first.reason(metric)}"))
    return Term(str(subject), known, None, None, subject, frozenset(lost), scope.campaign.prior(metric))


def _measured(by_round: stats.Series) -> dict[int, float]:
    """The rounds with a number."""
    known = {number: float(value) for number, value in by_round.items() if value is not None}
    return stats.AtLeast(known, by_round.why) if isinstance(by_round, stats.AtLeast) else known


def _absent(name: str, cell: conditions.Cell, metric: str, scope: Scope) -> Problem | None:
    """Why a server has no trial in this cell that counts for the metric; None if it has one."""
    if name not in scope.campaign.names:
        skipped = next((row.skipped for row in scope.campaign.servers if row.name == name and row.skipped), None)
        return Problem("missing", f"{name} is not in this campaign" + (f": {skipped}" if skipped else ""))
    group = scope.campaign.group(name, cell)
    if not group:
        return Problem("missing", f"{name} did not run in this cell")
    if scope.campaign.counted(name, cell, metric):
        return None
    failed = [trial for trial in group if trial.record.outcome == "failed"]
    if failed:
        return Problem("failed", f"{name} failed: {failed[0].record.reason}")
    because = group[0].verdict.because(metrics.METRICS[metric].family)
    return Problem("failed", f"{name} has no valid trial: {'; '.join(one.seen for one in because) or 'INVALID'}")


def _none(subject: Subject | str, problem: Problem) -> Term:
    return Term(str(subject), {}, None, problem, subject if isinstance(subject, Subject) else None)


def common_rounds(left: Term, right: Term) -> list[int]:
    """The rounds in which both have a number; one of them is not a constant."""
    return sorted(set.intersection(*(set(one.rounds) for one in (left, right) if one.constant is None)))


def _combined(op: str, left: Spread, right: Spread) -> Spread:
    flip = {"one": "one", "highest": "lowest", "lowest": "highest"}
    if "others" in (left.kind, right.kind):
        raise UserError("say which of the 'others': highest(others.METRIC) or lowest(others.METRIC)")
    kinds = {left.kind, flip[right.kind] if op in "-/" else right.kind} - {"one"}
    if len(kinds) > 1:
        raise UserError(f"{left.kind} {op} {right.kind}: one value cannot be both the highest and the lowest")
    terms = [_term(op, one, other) for one in left.terms for other in right.terms]
    return Spread(kinds.pop() if kinds else "one", tuple(terms))


def _term(op: str, left: Term, right: Term) -> Term:
    combine: Callable = COMBINE[op]
    text = together(left, op, right)
    if problem := left.problem or right.problem:
        return _none(text, problem)
    if left.constant is not None and right.constant is not None:
        return Term(text, {}, combine(left.constant, right.constant), None)
    for side in (left, right):
        if isinstance(side.rounds, stats.AtLeast):
            return _none(text, Problem("missing", f"{side.text} is a lower bound: {side.rounds.why}"))
    rounds = common_rounds(left, right)
    if op == "/" and any(right.value(number) == 0 for number in rounds):
        return _none(text, Problem("missing", f"{right.text} is zero: division by zero"))
    found = {number: combine(left.value(number), right.value(number)) for number in rounds}
    return Term(text, found, None, None if found else Problem("missing", "no round has both values"))

"""Evaluates claims on a campaign: `evaluate(results)` returns a verdict per claim and set of versions.

The command line, reports and documents judge by one text (`source_of`). Measures nothing and draws nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from pydantic import TypeAdapter, ValidationError

from wsbench.analysis import stats
from wsbench.analysis.claims.comparing import Asked, compare
from wsbench.analysis.claims.comparing import trend as judge_trend
from wsbench.analysis.claims.outcome import ClaimVerdict, Comparison, Figure, Obstacle, Verdict
from wsbench.analysis.claims.truth import Joined, Judged, Leaf, Negated, Node
from wsbench.analysis.claims.values import Scope, Spread, Term, spread
from wsbench.analysis.dataset import ENDED
from wsbench.experiments import experiment
from wsbench.experiments.claims import conditions, language, written
from wsbench.records import contained
from wsbench.records.errors import UserError
from wsbench.records.frozen import one_line, toml_of

MOST_REASONS = 3


def evaluate(results, source: str | None = None) -> list[ClaimVerdict]:
    """A verdict per claim and set of versions. `source` is an experiment's text that replaces the one of `source_of`.

    `results` is an `analysis.results.Results`. UserError if a claim is invalid.
    """
    claims, versions = read(source_of(results) if source is None else source)
    return [
        _contained(claim, name, Scope(results, _rows(roles, results.names), tuple(results.cells), left_out(results)))
        for claim in claims
        for name, roles in versions.items()
        if name in (claim.versions or versions)
    ]


def source_of(results) -> str:
    """The text whose claims are judged: that of the catalogue's experiment of this name, if it has every claim of the campaign,
    else the campaign's own. A condition that was put right in the catalogue is put right for the campaigns that exist."""
    own, catalogue = results.experiment.source, _catalogue(results.campaign.experiment)
    return own if catalogue is None or not _tables(own).keys() <= _tables(catalogue).keys() else catalogue


def put_right(results) -> list[str]:
    """The claims that the campaign's own text has in other words than the text they are judged by."""
    own, judged = _tables(results.experiment.source), _tables(source_of(results))
    return [id_ for id_, table in judged.items() if id_ in own and own[id_] != table]


@cache
def _catalogue(name: str) -> str | None:
    """The text of the catalogue's experiment; None if it has none of this name."""
    file = experiment.in_catalogue(name)
    return None if file is None else experiment.text_of(file)


def _tables(source: str) -> dict[str, dict]:
    """The claims of a text as they stand there, by their ids: a text of earlier days may be none that is valid now."""
    claims = toml_of(source, "experiment.toml").get("claim", [])
    return {str(one.get("id")): one for one in claims if isinstance(one, dict)} if isinstance(claims, list) else {}


def read(source: str) -> tuple[list[written.Claim], written.Versions]:
    """The validated claims and versions in an experiment's text."""
    keys = toml_of(source, "experiment.toml")
    try:
        claims = TypeAdapter(list[written.Claim]).validate_python(keys.get("claim", []))
        versions = TypeAdapter(written.Versions).validate_python(keys.get("versions", {}))
    except ValidationError as error:
        raise UserError(one_line(error)) from error
    written.check(claims, versions, list(keys.get("sweep", {})))
    return claims, versions


def left_out(results) -> tuple[conditions.Cell, ...]:
    """The cells of the experiment that the campaign was told to leave out (`run --only`), at the campaign's scale."""
    if results.campaign.sweep is None:
        return ()
    scale, keys = results.campaign.scale, results.experiment.keys
    scaled = keys.get("scales") if isinstance(keys.get("scales"), list) else []

    def run_as(key: str, value):
        return max(1, round(value * scale)) if key in scaled and type(value) is int else value

    swept = {key: [run_as(key, value) for value in values] for key, values in keys.get("sweep", {}).items()}
    grid = [dict(zip(swept, values, strict=True)) for values in itertools.product(*swept.values())]
    ran = [dict(cell) for cell in results.cells]
    return tuple(tuple(cell.items()) for cell in grid if cell not in ran)


def _rows(roles: dict[str, str], names: list[str]) -> dict[str, str]:
    """The campaign's variant for each role. If the experiment chooses one runtime for all, the variant's name ends with it."""
    return {role: _row(server, names) for role, server in roles.items()}


def _row(server: str, names: list[str]) -> str:
    chosen = [name for name in names if name.partition("+")[0] == server]
    return chosen[0] if server not in names and len(chosen) == 1 else server


def _contained(claim: written.Claim, versions: str, scope: Scope) -> ClaimVerdict:
    return contained.part(
        f"claim {claim.id}",
        lambda: _verdict(claim, versions, scope),
        lambda reason: _of(claim, versions, scope, "undecided", reason, "missing"),
    )


def _of(claim: written.Claim, versions: str, scope: Scope, verdict: Verdict, why: str, obstacle: Obstacle | None, **rest):
    """The verdict of a claim. `rest`: what is known of its comparisons."""
    known = {"by_means": None, "comparisons": (), "figures": (), **rest}
    return ClaimVerdict(
        id=claim.id,
        says=claim.says.strip(),
        means=claim.means.strip(),
        published=claim.published.strip(),
        holds_if=" ".join(claim.holds_if.split()),
        versions=versions,
        servers=dict(scope.roles),
        verdict=verdict,
        why=why,
        obstacle=obstacle,
        **known,
    )


def _verdict(claim: written.Claim, versions: str, scope: Scope) -> ClaimVerdict:
    try:
        judged = node(claim.condition, scope).judged()
        figures = tuple(_figure(text, scope) for text in claim.figures.items())
    except UserError as error:
        raise UserError(f"claim {claim.id}: {error}") from error
    smaller = _smaller_load(claim, scope)
    truth = None if smaller else judged.truth
    obstacle, why = smaller or _why(judged)
    return _of(
        claim,
        versions,
        scope,
        {True: "holds", False: "does not hold", None: "undecided"}[truth],
        why,
        obstacle if truth is None else None,
        by_means=judged.by_means,
        comparisons=judged.comparisons,
        figures=figures,
    )


# ---- conditions become comparisons ---------------------------------------------------------------------------------


def node(condition: conditions.Condition, scope: Scope) -> Node:
    """A condition in a scope, as a tree of comparisons."""
    match condition:
        case conditions.Join(op, joined):
            return Joined("every" if op == "and" else "some", tuple(node(one, scope) for one in joined))
        case conditions.Not(inner):
            return Negated(node(inner, scope))
        case conditions.Servers(quantifier, roles, body):
            chosen = roles or tuple(scope.roles)
            return _quantified(quantifier, [node(body, replace(scope, server=role)) for role in chosen])
        case conditions.Cells(quantifier, where, body):
            cells = conditions.choose(scope.cells + scope.left_out, where)
            if not cells:
                return _never(f"the campaign has no cell where {' and '.join(map(str, where))}")
            nodes = [node(body, replace(scope, cells=(cell,), left_out=())) for cell in cells if cell in scope.cells]
            if missing := [cell for cell in cells if cell in scope.left_out]:
                nodes += [_not_run(missing)] * len(missing)  # each may hold or not
            return _quantified(quantifier, nodes)
        case conditions.Reaches():
            return _reaches(condition, scope)
        case conditions.Trend():
            return _trend(condition, _naming(condition, scope))
        case conditions.Within(left, right, share):
            at = _naming(condition, scope)
            one, other = spread(left, at), spread(right, at)
            if one.kind != "one" or other.kind != "one":
                raise UserError("'within' compares two single values")
            return _leaf(Asked(one.terms[0], "within", other.terms[0], scope.campaign.claimed, share))
        case conditions.Compare(left, op, right):
            at = _naming(condition, scope)
            return _compared(spread(left, at), op, spread(right, at), scope.campaign.claimed)
    raise AssertionError(condition)


def _naming(condition: conditions.Condition, scope: Scope) -> Scope:
    """The scope with the roles that the condition names; `others` are all remaining roles."""
    named = conditions.roles(list(conditions.parts(condition)))
    return replace(scope, named=frozenset(named | ({scope.server} if scope.server else set())))


def _quantified(quantifier: conditions.Quantifier, nodes: list[Node]) -> Node:
    if quantifier == "no":
        return Negated(Joined("some", tuple(nodes)))
    return Joined(quantifier, tuple(nodes))


def _compared(left: Spread, op: str, right: Spread, rules: stats.Rules) -> Node:
    if op in ("<", "<="):
        return _compared(right, op.replace("<", ">"), left, rules)
    if "others" in (left.kind, right.kind):
        raise UserError("say which of the 'others': highest(others.METRIC) or lowest(others.METRIC)")
    if op == "=":
        if left.kind != "one" or right.kind != "one":
            raise UserError("'=' compares two single values")
        return _leaf(Asked(left.terms[0], "=", right.terms[0], rules))
    outer, inner = ("some" if left.kind == "highest" else "every"), ("some" if right.kind == "lowest" else "every")
    rows = [Joined(inner, tuple(_leaf(Asked(one, op, other, rules)) for other in right.terms)) for one in left.terms]
    return Joined(outer, tuple(rows))


def _trend(trend: conditions.Trend, scope: Scope) -> Node:
    """A trend test over the values of the key, for every combination of the other swept keys."""
    if scope.left_out:
        return _not_run(scope.left_out)
    rest = dict.fromkeys(tuple(pair for pair in cell if pair[0] != trend.key) for cell in scope.cells)
    lines: list[Node] = []
    for other in rest:
        cells = [cell for cell in scope.cells if tuple(pair for pair in cell if pair[0] != trend.key) == other]
        if len(cells) < 2:
            return _never(f"the campaign has one value of {trend.key!r}; a trend needs two")
        steps = [spread(trend.value, replace(scope, cells=(cell,))) for cell in cells]
        if steps[0].kind == "others":
            raise UserError("say which of the 'others': highest(others.METRIC) or lowest(others.METRIC)")
        first = steps[0].terms[0].text.replace(f" at {scope.campaign.cell_text(cells[0])}", "")
        text = f"{first} {trend.kind} with {trend.key}"
        lines.append(_trend_leaf(trend.kind, text, steps, scope.campaign.claimed))
    return Joined("every", tuple(lines))


def _trend_leaf(kind: str, text: str, steps: list[Spread], rules: stats.Rules) -> Leaf:
    return Leaf(lambda truth_of, falsity_of: judge_trend(kind, text, steps, rules, truth_of, falsity_of))


def _leaf(asked: Asked) -> Leaf:
    return Leaf(lambda truth_of, falsity_of: compare(asked, truth_of, falsity_of))


def _not_run(cells: Sequence[conditions.Cell]) -> Leaf:
    words = (" and ".join(f"{key} = {value}" for key, value in cell) for cell in cells)
    return _never(f"the campaign left out {', '.join(words)}")


def _never(reason: str) -> Leaf:
    found = Comparison("–", None, None, "–", reason, "missing")
    return Leaf(lambda *_: found)


# ---- reaching a number of connections ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reached:
    """Connections of one trial: the most it had, and the number requested."""

    most: int
    asked: int


def _reaches(condition: conditions.Reaches, scope: Scope) -> Leaf:
    role = scope.role(condition.role)
    name, wanted = scope.roles.get(role), condition.connections
    text = f"{name or role} reaches {wanted:,} connections"
    if name is None or name not in scope.campaign.names:
        reason = f"{name} is not in this campaign" if name else f"no server has the role {role!r} in these versions"
        return _fact(text, None, "–", reason, "missing")
    trials = [trial for cell in scope.cells for trial in scope.campaign.group(name, cell)]
    ended = [trial for trial in trials if trial.record.reason == ENDED]
    seen = [found for trial in trials if (found := _reached(trial)) is not None]
    if not seen and not ended:
        return _fact(text, None, "–", f"{name}: no trial reports its connections", "missing")
    # A scaled run can refute the claim, not confirm it, and only its largest load says anything.
    most, asked = max((one.most for one in seen), default=0), max((one.asked for one in seen), default=0)
    ours = f"{most:,} of {asked:,} requested" + (f", server ended under load in {len(ended)} trials" if ended else "")
    full = [one for one in seen if one.asked >= min(wanted, asked)]
    met = [one.most >= min(wanted, one.asked) for one in full]
    if not any(met):
        if any(trial.verdict.bottleneck == "engine" for trial in trials):
            return _fact(text, None, ours, f"{text}: the engine was the limit", "spans")
        return _fact(text, False, ours, None, None)
    if not all(met) or ended:
        return _fact(text, None, ours, f"{text} in {sum(met)} of {len(met) + len(ended)} trials", "spans")
    if asked < wanted:
        return _fact(text, None, ours, f"{text}: scaled run, all {asked:,} requested connections reached", "scaled")
    return _fact(text, True, ours, None, None)


def _reached(trial) -> Reached | None:
    most = trial.value("connections_reached")
    asked = trial.load.get("connections")
    return None if most is None or asked is None else Reached(int(most), asked)


def _fact(text: str, holds: bool | None, ours: str, reason: str | None, obstacle) -> Leaf:
    found = Comparison(text, holds, holds, ours, reason, obstacle)
    return Leaf(lambda *_: found)


# ---- words ---------------------------------------------------------------------------------------------------------


def _smaller_load(claim: written.Claim, scope: Scope) -> tuple[Obstacle, str] | None:
    """Why the campaign's load or server CPUs do not meet the claim's needs, from the actual trials. None if they do."""
    loads = [trial.load | dict(cell) for cell in scope.cells for trial in _trials(cell, scope)]
    for one in claim.needed:
        values = [load[one.key] for load in loads if load.get(one.key) is not None]
        if not values:
            return ("scaled", f"scaled run: the claim needs {one}, no trial reports {one.key}") if loads else None
        if not any(one.admits({one.key: value}) for value in values):
            obstacle, kind = ("machine", "other machine") if one.key == "server_cpus" else ("scaled", "scaled run")
            return obstacle, f"{kind}: the claim needs {one}, the campaign has {round(max(values), 3):,}"
    return None


def _trials(cell: conditions.Cell, scope: Scope) -> list:
    return [trial for name in scope.roles.values() for trial in scope.campaign.group(name, cell)]


def _why(judged: Judged) -> tuple[Obstacle | None, str]:
    """The obstacle, if any, and one sentence: the counter-example, the open comparisons, or the number that hold."""
    comparisons = judged.comparisons
    if judged.truth is None:
        open_ = list(judged.resting_on(None))
        reasons = list(dict.fromkeys(one.reason for one in open_ if one.reason))
        more = f"; and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else ""
        return open_[0].obstacle, "; ".join(reasons[:MOST_REASONS]) + more
    resting = list(judged.resting_on(judged.truth))
    if judged.truth:
        said = f"{resting[0].text}: {resting[0].ours}" if len(comparisons) == 1 else ""
        return None, said or f"{len(resting)} of {len(comparisons)} comparisons hold"
    more = f"; and {len(resting) - 1} more" if len(resting) > 1 else ""
    first = resting[0]
    negated = first.text.startswith("not ")
    said = f"{first.text.removeprefix('not ')} is true: {first.ours}" if negated else f"{first.text} is false: {first.ours}"
    return None, said + more


def _figure(printed: tuple[str, float], scope: Scope) -> Figure:
    text, published = printed
    found = spread(language.value(text), scope)
    if found.kind != "one":
        raise UserError(f"figure {text!r} is not a single value")
    return _beside(text, published, found.terms[0])


def _beside(text: str, published: float, term: Term) -> Figure:
    if term.problem:
        return Figure(text, published, None, None, None, term.problem.reason)
    if not term.rounds and term.constant is None:
        return Figure(text, published, None, None, None, "the server failed in every round")
    found = stats.estimate(list(term.rounds.values()))
    if found.mean is None:
        values = list(term.rounds.values())
        return Figure(text, published, sum(values) / len(values), None, None, found.reason)
    return Figure(text, published, found.mean, found.low, found.high, found.reason)

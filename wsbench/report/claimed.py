"""Claims as the page shows them: one row per claim, with a verdict per set of versions and published numbers next to ours.

Verdicts in, rows of texts out. `claims.evaluate` makes the judgements.
"""

from __future__ import annotations

from wsbench.analysis import wording
from wsbench.analysis.claims.evaluate import evaluate
from wsbench.analysis.claims.outcome import ClaimVerdict, Figure, Obstacle
from wsbench.analysis.results import Results
from wsbench.records.errors import UserError
from wsbench.report.blocks import ClaimRow


def claim_rows(results: Results) -> list[ClaimRow]:
    """One row per claim; empty if the experiment has none. If the claims do not fit this campaign, one row with the reason."""
    try:
        verdicts = evaluate(results)
    except UserError as error:
        return [ClaimRow("none", "The experiment's claims cannot be tested on this campaign.", "", str(error), {}, [])]
    by_id: dict[str, list[ClaimVerdict]] = {}
    for one in verdicts:
        by_id.setdefault(one.id, []).append(one)
    return [_row(found) for found in by_id.values()]


def _row(found: list[ClaimVerdict]) -> ClaimRow:
    """The row of one claim; `found` has its verdicts, one per set of versions."""
    first = found[0]
    figures: dict[str, tuple[str, str, dict[str, str]]] = {}
    for one in found:
        for figure in one.figures:
            published = wording.number(figure.published)
            figures.setdefault(figure.text, (figure.text, published, {}))[2][one.versions] = _ours(figure)
    verdicts = {one.versions: (one.verdict, _why(one)) for one in found}
    return ClaimRow(first.id, first.says, first.published, first.means, verdicts, list(figures.values()))


def _why(one: ClaimVerdict) -> str:
    means = {True: "hold", False: "not hold"}.get(one.by_means)
    aside = f" By the means alone it would {means}, which decides nothing." if one.verdict == "undecided" and means else ""
    return one.why.rstrip(".") + "." + aside if aside else one.why


#: What would decide a claim that is open for this reason.
TAKES: dict[Obstacle, str] = {
    "spans": "more rounds",
    "rounds": "more rounds",
    "scaled": "the published load",
    "machine": "more server CPUs",
    "missing": "a campaign with what is missing",
    "failed": "rounds with valid trials",
}


def _ours(figure: Figure) -> str:
    if figure.ours is None:
        return f"unknown: {figure.reason}" if figure.reason else "unknown"
    interval = "" if figure.low is None or figure.high is None else f" ({wording.between(figure.low, figure.high)})"
    return wording.number(figure.ours) + interval

"""Claims as the page shows them: a row a claim, with a verdict for each set of versions and printed numbers beside ours.

Verdicts in, rows of texts out. It judges nothing: `claims.evaluate` does.
"""

from __future__ import annotations

from wsbench.analysis import wording
from wsbench.analysis.claims.evaluate import evaluate
from wsbench.analysis.claims.outcome import ClaimVerdict, Figure
from wsbench.analysis.results import Results
from wsbench.records.errors import UserError
from wsbench.report.blocks import ClaimRow


def claim_rows(results: Results) -> list[ClaimRow]:
    """Nothing where the experiment makes no claim; one row that says why where its claims do not fit this campaign."""
    try:
        verdicts = evaluate(results)
    except UserError as error:
        return [ClaimRow("none", "The experiment's claims cannot be tried on this campaign.", "", str(error), {}, [])]
    by_id: dict[str, list[ClaimVerdict]] = {}
    for one in verdicts:
        by_id.setdefault(one.id, []).append(one)
    return [_row(found) for found in by_id.values()]


def _row(found: list[ClaimVerdict]) -> ClaimRow:
    """`found` are the verdicts on one claim, one a set of versions."""
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
    aside = (
        f" By the means alone it would {means}; that decides nothing." if one.verdict == "undecided" and means else ""
    )
    return one.why.rstrip(".") + "." + aside if aside else one.why


def _ours(figure: Figure) -> str:
    if figure.ours is None:
        return f"not known: {figure.reason}" if figure.reason else "not known"
    interval = "" if figure.low is None or figure.high is None else f" ({wording.between(figure.low, figure.high)})"
    return wording.number(figure.ours) + interval

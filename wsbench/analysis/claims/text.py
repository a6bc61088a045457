"""Claim verdicts written down: rows of a table, Markdown, JSON. Verdicts in, text out."""

from __future__ import annotations

import json

from wsbench.analysis.claims.outcome import ClaimVerdict, Figure


def number(value: float) -> str:
    """Three significant digits."""
    return f"{float(f'{value:.3g}'):,.10g}"


def verdict(found: ClaimVerdict) -> str:
    """The verdict, and where it is open what the means alone would say, which decides nothing."""
    if found.verdict != "undecided" or found.by_means is None:
        return found.verdict
    return f"undecided (means: {'for' if found.by_means else 'against'})"


def ours(figure: Figure) -> str:
    if figure.ours is None:
        return f"not measured: {figure.reason}"
    return number(figure.ours) + ("" if figure.low is None else f" ({number(figure.low)}–{number(figure.high)})")


def beside(found: ClaimVerdict) -> str:
    """What was published and what we found: the printed numbers one by one, else the words and the comparisons' numbers."""
    parts = [f"{one.text}: published {number(one.published)}, ours {ours(one)}" for one in found.figures]
    if not parts:
        parts = [found.published] if found.published else []
        measured = [f"{one.text}: {one.ours}" for one in found.comparisons if one.ours != "–"]
        if measured:
            parts.append(f"ours: {measured[0]}" + (f" … ({len(measured)} in all)" if len(measured) > 1 else ""))
    return "; ".join(parts)


def grouped(verdicts: list[ClaimVerdict]) -> dict[str, dict[str, ClaimVerdict]]:
    """Claim → set of versions → its verdict."""
    found: dict[str, dict[str, ClaimVerdict]] = {}
    for one in verdicts:
        found.setdefault(one.id, {})[one.versions] = one
    return found


def table(verdicts: list[ClaimVerdict]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows, a row a claim and set of versions."""
    rows = []
    for by_versions in grouped(verdicts).values():
        for place, one in enumerate(by_versions.values()):
            said = [one.id, one.says] if place == 0 else ["", ""]
            rows.append([*said, one.versions, verdict(one), one.why, beside(one)])
    return ["claim", "says", "versions", "verdict", "why", "published and ours"], rows


def markdown(verdicts: list[ClaimVerdict]) -> str:
    headers, rows = table(verdicts)
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])


def document(runs: dict[str, list[ClaimVerdict]]) -> str:
    """Every run's verdicts with all they rest on."""
    return json.dumps(
        {run: [one.as_json() for one in verdicts] for run, verdicts in runs.items()}, indent=1, ensure_ascii=False
    )

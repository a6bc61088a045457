"""Formats claim verdicts as table rows, Markdown and JSON."""

from __future__ import annotations

import json

from wsbench.analysis.claims.outcome import ClaimVerdict, Figure


def number(value: float) -> str:
    """Three significant digits."""
    return f"{float(f'{value:.3g}'):,.10g}"


def verdict(found: ClaimVerdict) -> str:
    """The verdict. If undecided, with the result from the means alone, which decides nothing."""
    if found.verdict != "undecided" or found.by_means is None:
        return found.verdict
    return f"undecided (means: {'for' if found.by_means else 'against'})"


def ours(figure: Figure) -> str:
    if figure.ours is None:
        return f"not measured: {figure.reason}"
    return number(figure.ours) + ("" if figure.low is None else f" ({number(figure.low)}–{number(figure.high)})")


def beside(found: ClaimVerdict) -> str:
    """Published and measured numbers: one by one if the claim has figures, else its words and the first comparison."""
    parts = [f"{one.text}: published {number(one.published)}, measured {ours(one)}" for one in found.figures]
    if not parts:
        parts = [found.published] if found.published else []
        measured = [f"{one.text}: {one.ours}" for one in found.comparisons if one.ours != "–"]
        if measured:
            parts.append(f"measured: {measured[0]}" + (f" … ({len(measured)} in all)" if len(measured) > 1 else ""))
    return "; ".join(parts)


def grouped(verdicts: list[ClaimVerdict]) -> dict[str, dict[str, ClaimVerdict]]:
    """Claim → set of versions → its verdict."""
    found: dict[str, dict[str, ClaimVerdict]] = {}
    for one in verdicts:
        found.setdefault(one.id, {})[one.versions] = one
    return found


def table(verdicts: list[ClaimVerdict]) -> tuple[list[str], list[list[str]]]:
    """Headers, and one row per claim and set of versions."""
    rows = []
    for by_versions in grouped(verdicts).values():
        for place, one in enumerate(by_versions.values()):
            said = [one.id, one.says] if place == 0 else ["", ""]
            rows.append([*said, one.versions, verdict(one), one.why, beside(one)])
    return ["claim", "statement", "versions", "verdict", "reason", "published and measured"], rows


def markdown(verdicts: list[ClaimVerdict]) -> str:
    headers, rows = table(verdicts)
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])


def document(runs: dict[str, list[ClaimVerdict]]) -> str:
    """JSON: every run's verdicts with their comparisons and figures."""
    return json.dumps({run: [one.as_json() for one in verdicts] for run, verdicts in runs.items()}, indent=1, ensure_ascii=False)

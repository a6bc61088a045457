"""The server that needs the least memory for a number of connections, in words: the answer of a campaign about memory.

Fits in, a sentence and a table out. An order is stated only if intervals do not overlap; values beyond the measured connections
are labelled as extrapolated.
"""

from __future__ import annotations

from dataclasses import dataclass

from wsbench.analysis import stats, wording
from wsbench.analysis.memory import METRIC, MemoryFit, asked_connections, memory_fits
from wsbench.analysis.results import Results
from wsbench.report.blocks import Table

INTERVAL = f"{100 * stats.LEVEL:g} % interval"


@dataclass(frozen=True)
class Need:
    """`there`: the connections that are asked about. `lead` is the answer by the lines, `cannot` its limits. The table has every
    server, the one that needs least first."""

    there: int
    lead: str
    cannot: list[str]
    title: str
    table: Table


def need(results: Results) -> Need | None:
    """None if the answer is not about memory, or no server has a fitted line."""
    fits = memory_fits(results) if results.leading == METRIC else []
    lines = sorted((fit for fit in fits if fit.slope is not None), key=lambda fit: fit.there)
    if not lines:
        return None
    there = asked_connections(results)
    contenders = [fit for fit in lines if fit.name not in results.references] or lines
    first, rest = contenders[0], contenders[1:]
    size = wording.scale("bytes", [first.there])
    aside = ", excluding the reference" if len(contenders) < len(lines) else ""
    reach = wording.between(size.of(max(first.there_low, 0.0)), size.of(first.there_high))
    measured = f"{min(fit.smallest for fit in lines):,} to {max(fit.largest for fit in lines):,}"
    beyond = there > max(fit.largest for fit in lines)
    found = f"{size.with_unit(first.there)} ({INTERVAL} {reach}; {per_connection(first)} per connection)"
    found += f", extrapolated from {measured}" if beyond else ""
    alike = [fit for fit in rest if fit.there_low <= first.there_high]
    if alike:
        names = wording.listed(results.label(fit.name) for fit in (first, *alike)).replace(" and ", " or ")
        best = f"undecided{aside}: {names} may need the least memory, their intervals overlap; by the line alone "
        best += f"{results.label(first.name)}: {found}"
    else:
        best = f"{results.label(first.name)} needs the least memory{aside}: {found}{_next(results, rest)}"
    return Need(
        there=there,
        lead=f"For {there:,} connections, {best}.",
        cannot=_cannot(lines, there),
        title=f"Memory for {there:,} connections ({'extrapolated from' if beyond else 'measured:'} {measured})",
        table=_table(results, fits, there),
    )


def per_connection(fit: MemoryFit) -> str:
    """The slope in a suitable unit, e.g. `2.31 KiB`."""
    return ("−" if fit.slope < 0 else "") + wording.scale("bytes", [abs(fit.slope)]).with_unit(abs(fit.slope))


def _next(results: Results, rest: list[MemoryFit]) -> str:
    """The server that follows."""
    if not rest:
        return ""
    size = wording.scale("bytes", [rest[0].there])
    return f"; next is {results.label(rest[0].name)} with {size.with_unit(rest[0].there)}"


def _cannot(lines: list[MemoryFit], there: int) -> list[str]:
    largest = max(fit.largest for fit in lines)
    if there <= largest:
        return []
    fewer = wording.number(there / largest)
    return [
        f"{there:,} connections were not measured: the line is extrapolated from {largest:,}, {fewer} times fewer. "
        "Memory allocated in steps, or a limit in between, would not show."
    ]


def _table(results: Results, fits: list[MemoryFit], there: int) -> Table:
    head = [
        "server",
        "per connection",
        INTERVAL,
        f"at {there:,}",
        INTERVAL,
    ]
    known = sorted((fit for fit in fits if fit.slope is not None), key=lambda fit: fit.there)
    each, all_ = (
        wording.scale("bytes", [abs(fit.slope) for fit in known]),
        wording.scale("bytes", [fit.there for fit in known]),
    )
    rows = []
    for fit in known:
        slope = ("−" if fit.slope < 0 else "") + each.with_unit(abs(fit.slope))
        ends = f"{_signed(each, fit.low)} to {_signed(each, fit.high)}"
        reach = wording.between(all_.of(max(fit.there_low, 0.0)), all_.of(fit.there_high))
        rows.append([results.label(fit.name), slope, ends, all_.with_unit(fit.there), reach])
    missing = [fit for fit in fits if fit.slope is None]
    return Table(head, rows + [[results.label(fit.name), fit.reason, *[wording.NONE] * 3] for fit in missing])


def _signed(scale: wording.Scale, value: float) -> str:
    return ("−" if value < 0 else "") + scale.text(abs(value))

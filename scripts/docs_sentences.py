"""Sentences, and rows of tables, whose numbers come from campaigns in results/: docs/sentences.toml lists them.

    [[sentence]]
    file   = "README.md"
    text   = "Netty answers {} times the requests/s of Undertow there"
    values = ["2026-11-22-hoticn-2018-concurrency | ratio requests_per_s | connections = 1000 | netty@4.2, undertow@2.4"]

Each `{}` in the text stands for one value: the campaign, what of which metric, the cell where something is swept, and the servers.

- `mean METRIC` and `interval METRIC` (the mean, and its 95 % interval in brackets) of one server. A unit may follow, such as `ms`.
- `ratio METRIC` of the first server over the second, by rounds; over all pairs of rounds and cells if the cell is `all`.
- `growth METRIC`: how many times the mean of the first cell that of the second is, `CELL > CELL`.
- `trials`, or a verdict such as `VALID`: how many trials there are, or have it.
- `orders METRIC, METRIC`: in how many pairs of servers one is shown to be better, over all cells and these metrics; `pairs`: how
  many pairs there are. `intervals METRIC, METRIC`: how many servers have an interval; `answers`: how many have a number.
- `alike METRIC`, with an earlier campaign in place of the cell: how many pairs of servers both put in the same order; `reversed`:
  how many in opposite orders.

Of the published claims, `claims | all` and `claims | decided` count the verdicts, with `| ws` those of the WebSocket twins.

The sentence may be wrapped anywhere. A sentence that its file does not have is an error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs_tables import Wrong, cell_of, counted_claims, listed, metrics_of, results_of

from wsbench import metrics
from wsbench.analysis import orders, stats, wording
from wsbench.analysis.dataset import Cell
from wsbench.analysis.results import Results
from wsbench.analysis.stats import Estimate
from wsbench.metrics.findings import KINDS

FILE = Path(__file__).resolve().parents[1] / "docs" / "sentences.toml"
#: A value as it stands in a document: a number, with the sign of a lower bound and its interval in brackets where it has them, or a
#: dash.
NUMBER = r"((?:≥\s+)?\d[\d.,]*(?:\s+\([\d.,–]+\))?|–)"


@dataclass(frozen=True)
class Sentence:
    file: str
    text: str
    values: tuple[str, ...]

    @property
    def pattern(self) -> str:
        end = "$" if self.text.endswith("|") else ""  # a row of a table is whole
        return "(?m)" + NUMBER.join(r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in self.text.split("{}")) + end


@cache
def sentences() -> tuple[Sentence, ...]:
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["sentence"]
    return tuple(Sentence(row["file"], row["text"], tuple(row["values"])) for row in rows)


def made(text: str, name: str) -> str:
    """The text of a file of the repository with all numbers of its sentences made again."""
    for one in sentences():
        if one.file == name:
            text = rewritten(text, one)
    return text


def rewritten(text: str, one: Sentence) -> str:
    found = list(re.finditer(one.pattern, text))
    if len(found) != 1:
        raise Wrong(f"{one.file} has {len(found)} sentences {one.text!r}, expected one")
    if len(one.values) != found[0].re.groups:
        raise Wrong(f"{one.text!r}: {found[0].re.groups} numbers, {len(one.values)} values")
    for place, asked in reversed(list(enumerate(one.values, 1))):
        value, (start, end) = value_of(asked), found[0].span(place)
        if value == wording.NONE:
            raise Wrong(f"{one.text!r}: the campaign has no number for {asked!r}")
        if " ".join(text[start:end].split()) != value:
            text = text[:start] + value + text[end:]
    return text


@cache
def value_of(asked: str) -> str:
    parts = [part.strip() for part in asked.split("|")]
    if not 2 <= len(parts) <= 4:
        raise Wrong(f"{asked!r}: expected CAMPAIGN | WHAT | CELL | SERVERS")
    if parts[0] == "claims":
        return counted_claims(parts[1], parts[2] if len(parts) > 2 else "")
    results, (what, _, of) = results_of(parts[0]), parts[1].partition(" ")
    if not of:
        return _counted(results, what, asked)
    if what in ORDERS:
        if len(parts) != 3:
            raise Wrong(f"{asked!r}: expected CAMPAIGN | {what} METRIC | EARLIER CAMPAIGN")
        return f"{sum(ORDERS[what](one) for name in metrics_of(of, asked) for one in _shared(parts[2], parts[0], name)):,}"
    if what in COUNTS:
        if len(parts) > 2:
            raise Wrong(f"{asked!r}: {what} are counted over all cells and servers")
        return f"{sum(COUNTS[what](results, cell, name) for cell in results.cells for name in metrics_of(of, asked)):,}"
    name, _, unit = of.partition(" ")
    (metric,) = metrics_of(name, asked)
    cell, servers = (parts[2] if len(parts) > 2 else ""), (listed(parts[3]) if len(parts) > 3 else [])
    if unknown := set(servers) - set(results.names):
        raise Wrong(f"{asked!r}: the campaign has no {', '.join(sorted(unknown))}")
    if len(servers) != (2 if what == "ratio" else 1):
        raise Wrong(f"{asked!r}: expected {'two servers' if what == 'ratio' else 'one server'}")
    if what == "ratio":
        return _text(_ratio(results, metric, cell, servers, asked), wording.Scale("", 1.0), interval=True)
    if what == "growth":
        means = [results.estimate(servers[0], cell_of(results, one, asked), metric).mean for one in cell.split(">")]
        return wording.NONE if len(means) != 2 or None in means else wording.number(means[1] / means[0], 2)
    found = results.estimate(servers[0], cell_of(results, cell, asked), metric)
    return _text(found, _scale(metric, unit.strip() or None, found, asked), interval=_is_interval(what, asked))


@cache
def _shared(earlier: str, campaign: str, metric: str) -> list[orders.Orders]:
    return orders.orders(results_of(earlier), results_of(campaign), metric)


def _pairs(results: Results, cell: Cell, metric: str) -> tuple[stats.Decision, ...]:
    return results.decide(cell, metric, stats.Pairs(tuple(results.names))).decisions


def _orders(results: Results, cell: Cell, metric: str) -> int:
    return sum(one.says in ("better", "worse") for one in _pairs(results, cell, metric))


def _estimates(results: Results, cell: Cell, metric: str) -> list[Estimate]:
    return [results.estimate(name, cell, metric) for name in results.names]


#: What is counted in every cell for every metric.
COUNTS: dict[str, Callable[[Results, Cell, str], int]] = {
    "orders": _orders,
    "pairs": lambda *of: len(_pairs(*of)),
    "intervals": lambda *of: sum(None not in (one.low, one.high) for one in _estimates(*of)),
    "answers": lambda *of: sum((one.mean, one.low, one.high) != (None, None, None) for one in _estimates(*of)),
}

#: What is counted in the orders of two campaigns.
ORDERS: dict[str, Callable[[orders.Orders], int]] = {"alike": lambda one: one.alike, "reversed": lambda one: len(one.reversed)}


def _is_interval(what: str, asked: str) -> bool:
    if what not in ("mean", "interval"):
        raise Wrong(f"{asked!r}: expected mean, interval, ratio, growth, {', '.join([*COUNTS, *ORDERS])}, trials or a verdict")
    return what == "interval"


def _ratio(results: Results, metric: str, cell: str, servers: list[str], asked: str) -> Estimate:
    one, other = servers
    if cell != "all":
        return results.ratio(one, other, cell_of(results, cell, asked), metric)
    series = [
        {(at, block): value for at in results.cells for block, value in results.by_round(name, at, metric).items()}
        for name in servers
    ]
    return stats.ratio(*series)


def _scale(metric: str, unit: str | None, found: Estimate, asked: str) -> wording.Scale:
    own = metrics.METRICS[metric].unit
    if unit is None:
        return wording.scale(own, [found.mean])
    step = next((step for step in wording.LADDERS.get(own, ()) if step[0] == unit), None)
    if step is None:
        raise Wrong(f"{asked!r}: {metric} is in {own}, not to be shown in {unit}")
    return wording.Scale(step[0], step[1])


def _text(found: Estimate, scale: wording.Scale, interval: bool) -> str:
    between = scale.interval(found) if interval and found.mean is not None else ""
    return scale.mean(found) + (f" ({between})" if between else "")


def _counted(results: Results, what: str, asked: str) -> str:
    verdicts = [trial.verdict.kind for trial in results.trials]
    if what == "trials":
        return f"{len(verdicts):,}"
    if what not in KINDS:
        raise Wrong(f"{asked!r}: expected a metric, trials or one of {', '.join(KINDS)}")
    return f"{verdicts.count(what):,}"

"""Two campaigns, or two servers of one campaign, compared metric by metric.

Results in, frozen rows out. `stats.decision` decides; the rows of a metric share one error rate (Holm). Campaigns of different
machines or settings are not compared.

Two campaigns differ by the machine's day, too. So a server of two campaigns is divided by an anchor that both ran, and what days
leave of a difference after that is part of the interval. Without an anchor nothing is decided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from wsbench import metrics
from wsbench.analysis import orders, stats, wording
from wsbench.analysis.dataset import Cell
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results
from wsbench.records.errors import NothingUsable, UserError
from wsbench.records.hosts import MachineRecord
from wsbench.records.rundir import RunFolder

Says = Literal["better", "worse", "changed", "equal", "undecided"]
#: Properties of the machine that affect every number. The rest of machine.json (tools, revision) may differ.
SAME_MACHINE = ("hostname", "cpu_model", "cpu_id", "cpus", "memory_bytes", "kernel", "virtualisation", "governor", "sysctls")
#: Parameters of a campaign that change its trials.
AS_ASKED = ("scale", "time_scale", "arrangement", "engines", "server_processes")
#: Keys of experiment.toml that do not change a trial.
OTHER_TEXTS = ("question", "reading", "servers", "headline", "margin", "claim", "figure", "choice", "versions")
#: Keys of a ladder that say where it looks, not what it finds.
WHERE_LADDERS_LOOK = ("start", "span", "rungs")
#: The log ratio of a server's numbers on two days of one machine, without what all servers shared, had an SD of 6 % (HTTP requests,
#: 2026-11-25 and 11-26), 8 % (large messages, the same days) and 3 % (WebSocket, 11-26 and 11-27). Together 6 %, from 17 degrees of
#: freedom. What they shared was 15, 17 and 4 %: an SD of about 12 %.
DAY, DAY_FREEDOM, SHARED_DAY = 0.06, 17, 0.12
#: Keys of a campaign that say which trials and how many of them it has.
EXTENT = ("sweep", "until")
USUAL = ("service_us_p50", "service_us_p99", "server_cpu_us_per_message", "server_rss_bytes_max")


@dataclass(frozen=True)
class Side:
    """A campaign and one of its servers, or all (None)."""

    results: Results
    server: str | None
    text: str


@dataclass(frozen=True)
class Row:
    """One metric of one server and cell: both sides, and the decision about new over base. That of two campaigns is divided by the
    anchor."""

    server: str
    cell: Cell
    metric: str
    base: stats.Estimate
    new: stats.Estimate
    decision: stats.Decision
    margin: float

    @property
    def says(self) -> Says:
        """*Changed* is better or worse for a metric that has no direction."""
        neither = metrics.METRICS[self.metric].direction == "neither"
        return "changed" if neither and self.decision.says in ("better", "worse") else self.decision.says

    @property
    def plain(self) -> float | None:
        """New over base, by the means alone."""
        return self.new.mean / self.base.mean if self.new.mean is not None and self.base.mean else None

    @property
    def why(self) -> str:
        """One phrase: that it is relevant, why it is undecided, or what would decide it."""
        weight = f"relevant, beyond {100 * self.margin:.3g} %" if self.decision.relevant else ""
        wanted = "" if self.decision.rounds is None else stats.rounds_text(self.decision.rounds)
        return "; ".join(filter(None, (weight, self.decision.reason, wanted)))

    @property
    def worse_by(self) -> float:
        """The loss that is proven, as a share: 0.05 for at least 5 % worse; 0 if none is."""
        return self.decision.loss if self.says == "worse" else 0.0


@dataclass(frozen=True)
class Comparison:
    base: Side
    new: Side
    differences: list[str]  # of machine and settings
    rows: list[Row]
    left_out: list[str]  # what only one side has
    anchor: str | None = None  # the server by which two campaigns are divided
    undecidable: str = ""  # why nothing of two campaigns is decided
    notes: list[str] = field(default_factory=list)
    orders: list[orders.Orders] = field(default_factory=list)  # for each metric and cell, if asked


def side(text: str) -> Side:
    """`RUN` or `RUN:SERVER[@VARIANT]`. UserError if the campaign or server does not exist."""
    path, server = Path(text), None
    if not path.exists() and ":" in text:
        name, _, server = text.rpartition(":")
        path = Path(name)
    results = load(RunFolder.open(path))
    if server is not None and server not in results.names:
        meant = [name for name in results.names if name.rpartition("@")[0] == server]
        if len(meant) != 1:
            raise UserError(f"{path} has no server {server!r}; it has {', '.join(meant or results.names)}")
        (server,) = meant
    return Side(results, server, text)


def compare(
    base: Side,
    new: Side,
    named: list[str],
    anyway: bool = False,
    margin: float | None = None,
    ordered: bool = False,
    anchor: str | None = None,
) -> Comparison:
    """`margin`: a share that replaces the experiment's. `ordered`: also compares the orders of servers. `anchor`: a server that ran
    in both campaigns, in the same build; None: the reference, if it did.

    UserError if machines or settings differ (unless `anyway`), nothing is in both, or a metric or the anchor is unknown.
    """
    metrics.require(named)
    if ordered and (base.server is not None or base.results.folder == new.results.folder):
        raise UserError("an order is one of several servers: name two campaigns and no server")
    if (base.server is None) != (new.server is None):
        raise UserError("name a server on both sides or on neither: RUN:SERVER@VARIANT")
    found = [] if base.results.folder == new.results.folder else differences(base.results, new.results)
    if found and not anyway:
        raise UserError(f"these campaigns are not comparable (--anyway compares them): {'; '.join(found)}")
    pairs, left_out = _pairs(base, new)
    if not pairs:
        raise UserError("no server and cell is in both campaigns: " + "; ".join(left_out))
    headline = base.results.headline
    wanted = named or list(dict.fromkeys([headline, base.results.throughput, *USUAL]))
    margin = base.results.margin if margin is None else margin
    by, undecidable = _anchor(base, new, anchor)
    rows = [row for metric in wanted for row in _rows(base, new, pairs, metric, margin, by)]
    measured = [row for row in rows if row.base.values or row.new.values]
    if not measured:
        raise NothingUsable(f"neither side has measured any of {', '.join(wanted)}")
    known = dict.fromkeys(row.metric for row in measured) if ordered else ()
    turns = [one for metric in known for one in orders.orders(base.results, new.results, metric)]
    notes = [] if base.results.folder == new.results.folder else _extents(base.results, new.results)
    return Comparison(base, new, found, measured, left_out, by, undecidable, notes, turns)


def _anchor(base: Side, new: Side, named: str | None) -> tuple[str | None, str]:
    """The anchor of two campaigns, or why there is none. UserError for a name that cannot be one."""
    if base.results.folder == new.results.folder:
        if named is not None:
            raise UserError("--anchor is for two campaigns; two servers of one campaign are compared within its rounds")
        return None, ""
    versions = [{row.name: (row.library_version, row.receipt) for row in side.results.servers} for side in (base, new)]
    common = [name for name in base.results.names if name in new.results.names]
    same = [name for name in common if versions[0].get(name) == versions[1].get(name)]
    if named is None:
        named = next((name for name in base.results.references if name in same), None)
        others = [name for name in same if name not in (base.server, new.server)]
        remedy = f"name a server that is the same in both: --anchor {others[0]}" if others else "run the reference in both"
        return named, "" if named else (
            f"nothing is decided: two campaigns differ by the machine's day, about {100 * SHARED_DAY:.0f} %, "
            f"and no reference ran in both to divide by; {remedy}"
        )
    chosen = [name for name in common if named in (name, name.rpartition("@")[0])]
    if len(chosen) != 1:
        raise UserError(
            f"--anchor {named}: found {', '.join(chosen) or 'no such server'}, allowed: one of {', '.join(same) or 'none'}"
        )
    if chosen[0] not in same:
        raise UserError(f"--anchor {named}: its version differs between the campaigns; allowed: one of {', '.join(same) or 'none'}")
    return chosen[0], ""


def _extents(base: Results, new: Results) -> list[str]:
    """Which cells and rounds were asked for, where that differs. Trials do not depend on it."""
    pairs = [(key, getattr(base.campaign, key), getattr(new.campaign, key)) for key in EXTENT]
    return [f"{key}: {_asked(one)} against {_asked(other)}" for key, one, other in pairs if one != other]


def _asked(value) -> str:
    return "as the experiment says" if not value else str(value)


def differences(base: Results, new: Results) -> list[str]:
    """Differences of machine and settings in words; empty if the campaigns are comparable."""
    found = []
    if base.machine is None or new.machine is None:
        found.append("a campaign has no record of its machine")
    else:
        for key in _unlike(base.machine, new.machine):
            one, other = getattr(base.machine, key), getattr(new.machine, key)
            found.append(f"{key.replace('_', ' ')}: {_short(one, other)} against {_short(other, one)}")
    if not _same_hosts(base, new):
        found.append(f"hosts: {_named(base)} against {_named(new)}")
    one, other = (_settings(results) for results in (base, new))
    for key in dict.fromkeys([*one, *other]):
        if one.get(key) != other.get(key):
            found.append(f"{key}: {_short(one.get(key), other.get(key))} against {_short(other.get(key), one.get(key))}")
    return found


def _unlike(one: MachineRecord, other: MachineRecord) -> list[str]:
    """Properties that affect every number, and that two machines have otherwise. An older record lacks `cpu_id`."""
    both = {key: (getattr(one, key), getattr(other, key)) for key in SAME_MACHINE}
    return [key for key, (was, is_) in both.items() if was != is_ and not (key == "cpu_id" and None in (was, is_))]


def _same_hosts(base: Results, new: Results) -> bool:
    """Whether the hosts of a cluster have the same roles and CPUs, and are the same machines."""
    if len(base.hosts) != len(new.hosts):
        return False
    pairs = zip(base.hosts, new.hosts, strict=True)
    return all((a.key.role, a.key.cpus) == (b.key.role, b.key.cpus) and not _unlike(a.machine, b.machine) for a, b in pairs)


def _named(results: Results) -> str:
    return ", ".join(f"{row.key.name} ({row.key.role})" for row in results.hosts) or "one machine"


def _settings(results: Results) -> dict:
    """Keys of the experiment and parameters of the campaign that change its trials."""
    keys = {key: value for key, value in results.experiment.keys.items() if key not in OTHER_TEXTS}
    timing = {key: value for key, value in keys.pop("timing", {}).items() if key != "rounds"}
    if "ladder" in keys:
        keys["ladder"] = {key: value for key, value in keys["ladder"].items() if key not in WHERE_LADDERS_LOOK}
    asked = {key: getattr(results.campaign, key) for key in AS_ASKED}
    return keys | {"timing": timing} | asked


def _short(value, other) -> str:
    """Only the differing keys of a table."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {key: found for key, found in value.items() if other.get(key) != found}
    return "nothing" if value in (None, {}, []) else str(value)


Pair = tuple[str, str, Cell]


def _pairs(base: Side, new: Side) -> tuple[list[Pair], list[str]]:
    """(server of the base, server of the new one, cell) that both have, and descriptions of the rest."""
    if base.server is not None:
        names = [(base.server, new.server)]
    else:
        names = [(name, name) for name in base.results.names if name in new.results.names]
    cells = [cell for cell in base.results.cells if cell in new.results.cells]
    alone = []
    for one, other, which in ((base, new, "the base"), (new, base, "the new campaign")):
        if base.server is None:
            alone += [f"{name} is only in {which}" for name in one.results.names if name not in other.results.names]
        alone += [f"the cell {dict(cell)} is only in {which}" for cell in one.results.cells if cell not in other.results.cells]
    return [(one, other, cell) for cell in cells for one, other in names], alone


def _rows(base: Side, new: Side, pairs: list[Pair], metric: str, margin: float, anchor: str | None) -> list[Row]:
    """A row per pair; all rows of the metric share one error rate."""
    rules = stats.Rules(margin, base.results.rules(metric).best, min(base.results.error, new.results.error))
    if base.results.folder == new.results.folder:
        both = [_both(base, new, pair, metric) for pair in pairs]
        prior = stats.common_variance([series for series, _ in both])
        found = [stats.Contrasts(series, lost, prior, best=rules.best).contrast("new", "base") for series, lost in both]
    else:
        found = [_between(base, new, pair, metric, anchor) for pair in pairs]
    made = []
    decisions = stats.holm([("new", "base", one) for one in found], rules)
    for (old, name, cell), decision in zip(pairs, decisions, strict=True):
        before, after = base.results.estimate(old, cell, metric), new.results.estimate(name, cell, metric)
        server = old if old == name else f"{old} → {name}"
        made.append(Row(server, cell, metric, before, after, _with_sides(decision, before, after), margin))
    return made


def _between(base: Side, new: Side, pair: Pair, metric: str, anchor: str | None) -> stats.Contrast:
    """New over base of two campaigns, each divided by its anchor. Its deviation has what two days leave of both."""
    old, name, cell = pair
    if anchor is None:
        return stats.Open("no anchor")
    if anchor in (old, name):
        return stats.Open("the anchor: its ratio is taken as the machine's")
    sides = [_by_anchor(new.results, name, anchor, cell, metric), _by_anchor(base.results, old, anchor, cell, metric)]
    plain = [side.found if isinstance(side, stats.Bounded) else side for side in sides]
    for side in plain:
        if isinstance(side, stats.Open):
            return side
        if not isinstance(side, stats.Measured):
            return stats.Open(f"only ratios of numbers are carried from one campaign to another; {side.reason}")
    after, before = plain
    parts = [(after.deviation**2, after.freedom), (before.deviation**2, before.freedom), (2 * DAY**2, DAY_FREEDOM)]
    variance = math.fsum(part for part, _ in parts)
    freedom = variance**2 / math.fsum(part**2 / of for part, of in parts)
    # More rounds do not make two days more alike: nothing is foreseen from 0 rounds.
    found = stats.Measured(after.estimate - before.estimate, math.sqrt(variance), freedom, rounds=0)
    bounds = [isinstance(side, stats.Bounded) for side in sides]
    why = "; ".join(side.why for side in sides if isinstance(side, stats.Bounded))
    return stats.Bounded(found, *bounds, why) if any(bounds) else found


def _by_anchor(results: Results, name: str, anchor: str, cell: Cell, metric: str) -> stats.Contrast:
    """A server against the anchor within one campaign. The anchor's numbers are a measure of the machine, so they count as they are
    seen, also where the engine was the limit."""
    series = {name: results.by_round(name, cell, metric), **stats.as_seen({anchor: results.by_round(anchor, cell, metric)})}
    lost = {name: results.lost(name, cell, metric)}
    return stats.Contrasts(series, lost, results.prior(metric), best=results.rules(metric).best).contrast(name, anchor)


def _both(base: Side, new: Side, pair: Pair, metric: str) -> tuple[dict[str, stats.Series], dict[str, frozenset[int]]]:
    old, name, cell = pair
    series = {"base": base.results.by_round(old, cell, metric), "new": new.results.by_round(name, cell, metric)}
    return series, {"base": base.results.lost(old, cell, metric), "new": new.results.lost(name, cell, metric)}


def _with_sides(found: stats.Decision, before: stats.Estimate, after: stats.Estimate) -> stats.Decision:
    """Says which side lacks its numbers, and why."""
    for side, which in ((before, "the base"), (after, "the new one")):
        if found.says == "undecided" and not side.values:
            return replace(found, reason=f"{which} has no number: {side.reason}")
    return found


# ---- for people and programs ---------------------------------------------------------------------------------------


def headers(found: Comparison) -> list[str]:
    divided = [f"÷ {found.anchor}"] if found.anchor else []
    return ["server", "cell", "metric", "base", "new", "new / base", *divided, "says", "why"]


def table(found: Comparison) -> list[list[str]]:
    """Texts in the order of `headers`."""
    rows = []
    for row in found.rows:
        scale = wording.scale(metrics.METRICS[row.metric].unit, (row.base.mean, row.new.mean))
        cell = found.base.results.cell_text(row.cell)
        decision = row.decision
        decided = wording.NONE if decision.ratio is None else f"{decision.ratio:.3f}"
        if decision.low is not None:
            decided += f" ({decision.low:.3f}–{decision.high:.3f})"
        plain = wording.NONE if row.plain is None else f"{row.plain:.3f}"
        ratios = [plain, decided] if found.anchor else [plain if found.undecidable else decided]
        both = scale.of_estimate(row.base), scale.of_estimate(row.new)
        rows.append([row.server, cell, row.metric, *both, *ratios, row.says, row.why])
    return rows


def orders_table(found: Comparison) -> list[list[str]]:
    """Texts in the order of orders.HEADERS."""
    return [orders.row(one, found.base.results.cell_text(one.cell)) for one in found.orders]


def reversals(found: Comparison) -> list[str]:
    """A line for each pair of servers whose order is the opposite in the new campaign."""
    return [text for one in found.orders for text in orders.reversals(one, found.base.results.cell_text(one.cell))]


def markdown(found: Comparison) -> str:
    """For a pull request: what is better or worse first, the rest folded away."""
    loud, quiet = [], []
    for row, texts in zip(found.rows, table(found), strict=True):
        (loud if row.says in ("better", "worse", "changed") else quiet).append(texts)
    lead = f"`{found.new.text}` against `{found.base.text}`: " + summary(found)
    parts = [lead, *([f"{wording.escaped(found.undecidable)}."] if found.undecidable else [])]
    parts += [f"Note: {wording.escaped(text)}." for text in found.notes]
    parts += [*(f"**Compared anyway:** {wording.escaped(text)}" for text in found.differences)]
    if loud:
        parts.append(wording.grid(headers(found), loud))
    if quiet:
        title = f"{len(quiet)} without a difference that can be claimed"
        parts.append(f"<details><summary>{title}</summary>\n\n{wording.grid(headers(found), quiet)}\n\n</details>")
    if found.orders:
        parts.append(wording.grid(orders.HEADERS, orders_table(found)))
        parts += [f"- {wording.escaped(text)}" for text in reversals(found)]
    parts += [f"Left out: {wording.escaped(text)}." for text in found.left_out]
    return "\n\n".join(parts) + "\n"


def summary(found: Comparison) -> str:
    """One line: how many of each."""
    counts = {says: sum(row.says == says for row in found.rows) for says in ("worse", "better", "changed", "equal", "undecided")}
    return ", ".join(f"{count} {says}" for says, count in counts.items() if count) + f" of {len(found.rows)} comparisons"


def document(found: Comparison) -> dict:
    """For programs; `ratio` is new over base, of two campaigns divided by the anchor's; `plain_ratio` is that of the means."""
    return {
        "format": "wsbench-comparison-3",
        "base": found.base.text,
        "new": found.new.text,
        "differences": found.differences,
        "left_out": found.left_out,
        "notes": found.notes,
        "anchor": found.anchor,
        "undecidable": found.undecidable or None,
        "rows": [
            {
                "server": row.server,
                "cell": dict(row.cell),
                "metric": row.metric,
                "unit": metrics.METRICS[row.metric].unit,
                "base": row.base.mean,
                "new": row.new.mean,
                "plain_ratio": row.plain,
                "ratio": {"mean": row.decision.ratio, "low": row.decision.low, "high": row.decision.high},
                "margin": row.margin,
                "says": row.says,
                "why": row.why,
                "relevant": row.decision.relevant,
                "rounds_for_8_of_10": row.decision.rounds,
            }
            for row in found.rows
        ],
        "orders": [orders.document(one) for one in found.orders],
    }

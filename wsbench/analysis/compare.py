"""Two campaigns, or two servers of one campaign, compared metric by metric.

Results in, frozen rows out. `stats.decision` decides; the rows of a metric share one error rate (Holm). Campaigns of different
machines or settings are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from wsbench import metrics
from wsbench.analysis import orders, stats, wording
from wsbench.analysis.dataset import Cell
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results
from wsbench.records.errors import UserError
from wsbench.records.hosts import MachineRecord
from wsbench.records.rundir import RunFolder

Says = Literal["better", "worse", "changed", "equal", "undecided"]
#: Properties of the machine that affect every number. The rest of machine.json (tools, revision) may differ.
SAME_MACHINE = ("hostname", "cpu_model", "cpu_id", "cpus", "memory_bytes", "kernel", "virtualisation", "governor", "sysctls")
#: Parameters of a campaign that change its trials.
AS_ASKED = ("scale", "time_scale", "arrangement", "engines", "server_processes")
#: Keys of experiment.toml that do not change a trial.
OTHER_TEXTS = ("question", "reading", "servers", "headline", "margin", "claim", "figure", "choice", "versions")
#: Keys of a search for a capacity that say where it begins and when it ends, not what it searches for.
HOW_LONG = ("start", "within", "budget_s", "probes")
USUAL = ("service_us_p50", "service_us_p99", "server_cpu_us_per_message", "server_rss_bytes_max")


@dataclass(frozen=True)
class Side:
    """A campaign and one of its servers, or all (None)."""

    results: Results
    server: str | None
    text: str


@dataclass(frozen=True)
class Row:
    """One metric of one server and cell: both sides, and the decision about new over base."""

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
    base: Side, new: Side, named: list[str], anyway: bool = False, margin: float | None = None, ordered: bool = False
) -> Comparison:
    """`margin`: a share that replaces the experiment's. `ordered`: also compares the orders of servers.

    UserError if machines or settings differ (unless `anyway`), nothing is in both, or a metric is unknown.
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
    rows = [row for metric in wanted for row in _rows(base, new, pairs, metric, margin or base.results.margin)]
    measured = [row for row in rows if row.base.values or row.new.values]
    if not measured:
        raise UserError(f"neither side has measured any of {', '.join(wanted)}")
    known = dict.fromkeys(row.metric for row in measured) if ordered else ()
    turns = [one for metric in known for one in orders.orders(base.results, new.results, metric)]
    return Comparison(base, new, found, measured, left_out, turns)


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
    if "capacity" in keys:
        keys["capacity"] = {key: value for key, value in keys["capacity"].items() if key not in HOW_LONG}
        keys["capacity"]["promises"] = results.searched.capacity.promises
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


def _rows(base: Side, new: Side, pairs: list[Pair], metric: str, margin: float) -> list[Row]:
    """A row per pair; all rows of the metric share one error rate."""
    rules = stats.Rules(margin, base.results.rules(metric).best, min(base.results.error, new.results.error))
    same = base.results.folder == new.results.folder
    both = [_both(base, new, pair, metric) for pair in pairs]
    prior = stats.common_variance([series for series, _ in both], paired=same)
    found = [stats.Contrasts(series, lost, prior, same, rules.best) for series, lost in both]
    contrasts = [("new", "base", one.contrast("new", "base")) for one in found]
    made = []
    for (old, name, cell), decision in zip(pairs, stats.holm(contrasts, rules), strict=True):
        before, after = base.results.estimate(old, cell, metric), new.results.estimate(name, cell, metric)
        server = old if old == name else f"{old} → {name}"
        made.append(Row(server, cell, metric, before, after, _with_sides(decision, before, after), margin))
    return made


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

HEADERS = ["server", "cell", "metric", "base", "new", "new / base", "says", "why"]


def table(found: Comparison) -> list[list[str]]:
    """Texts in the order of HEADERS."""
    rows = []
    for row in found.rows:
        scale = wording.scale(metrics.METRICS[row.metric].unit, (row.base.mean, row.new.mean))
        cell = found.base.results.cell_text(row.cell)
        decision = row.decision
        ratio = wording.NONE if decision.ratio is None else f"{decision.ratio:.3f}"
        if decision.low is not None:
            ratio += f" ({decision.low:.3f}–{decision.high:.3f})"
        both = scale.of_estimate(row.base), scale.of_estimate(row.new)
        rows.append([row.server, cell, row.metric, *both, ratio, row.says, row.why])
    return rows


def orders_table(found: Comparison) -> list[list[str]]:
    """Texts in the order of orders.HEADERS."""
    return [orders.row(one, found.base.results.cell_text(one.cell)) for one in found.orders]


def reversals(found: Comparison) -> list[str]:
    """A line for each pair of servers whose order is the opposite in the new campaign."""
    return [text for one in found.orders for text in orders.reversals(one, found.base.results.cell_text(one.cell))]


def markdown(found: Comparison) -> str:
    """For a pull request: what is better or worse first, the rest folded away."""
    rows = table(found)
    loud = [row for row in rows if row[6] in ("better", "worse", "changed")]
    quiet = [row for row in rows if row not in loud]
    lead = f"`{found.new.text}` against `{found.base.text}`: " + summary(found)
    parts = [lead, *(f"**Compared anyway:** {wording.escaped(text)}" for text in found.differences)]
    if loud:
        parts.append(wording.grid(HEADERS, loud))
    if quiet:
        title = f"{len(quiet)} without a difference that can be claimed"
        parts.append(f"<details><summary>{title}</summary>\n\n{wording.grid(HEADERS, quiet)}\n\n</details>")
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
    """For programs; `ratio` is new over base."""
    return {
        "format": "wsbench-comparison-2",
        "base": found.base.text,
        "new": found.new.text,
        "differences": found.differences,
        "left_out": found.left_out,
        "rows": [
            {
                "server": row.server,
                "cell": dict(row.cell),
                "metric": row.metric,
                "unit": metrics.METRICS[row.metric].unit,
                "base": row.base.mean,
                "new": row.new.mean,
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

"""Two campaigns, or two servers of one campaign, compared metric by metric.

Results in, frozen rows out. A difference is claimed if its interval, widened so that all rows of a metric hold jointly, excludes
1, and if it exceeds max(3 %, A/A noise). Campaigns of different machines or settings are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wsbench import metrics
from wsbench.analysis import stats, wording
from wsbench.analysis.dataset import Cell
from wsbench.analysis.reading import load
from wsbench.analysis.results import Results
from wsbench.records.errors import UserError
from wsbench.records.rundir import RunFolder

Says = Literal["better", "worse", "changed", "equal", "not shown", "undecided"]
#: Properties of the machine that affect every number. The rest of machine.json (tools, revision) may differ.
SAME_MACHINE = ("hostname", "cpu_model", "cpus", "memory_bytes", "kernel", "virtualisation", "governor", "sysctls")
#: Parameters of a campaign that change its trials.
AS_ASKED = ("scale", "time_scale", "engines", "server_processes")
#: Keys of experiment.toml that do not change a trial.
OTHER_TEXTS = ("question", "reading", "servers", "headline", "claim", "figure", "versions")
USUAL = ("service_us_p50", "service_us_p99", "server_cpu_us_per_message", "server_rss_bytes_max")


@dataclass(frozen=True)
class Side:
    """A campaign and one of its servers, or all (None)."""

    results: Results
    server: str | None
    text: str


@dataclass(frozen=True)
class Row:
    """One metric of one server and cell: both sides, their ratio, and the conclusion."""

    server: str
    cell: Cell
    metric: str
    base: stats.Estimate
    new: stats.Estimate
    ratio: stats.Estimate
    threshold: float
    says: Says
    why: str

    @property
    def worse_by(self) -> float:
        """The loss as a share, 0.05 for 5 % worse; 0 if no loss is claimed."""
        if self.says != "worse":
            return 0.0
        return max(self.ratio.mean, 1 / self.ratio.mean) - 1


@dataclass(frozen=True)
class Comparison:
    base: Side
    new: Side
    differences: list[str]  # of machine and settings
    rows: list[Row]
    left_out: list[str]  # what only one side has


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


def compare(base: Side, new: Side, named: list[str], anyway: bool = False) -> Comparison:
    """UserError if machines or settings differ (unless `anyway`), nothing is in both, or a metric is unknown."""
    metrics.require(named)
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
    rows = [_row(base, new, pair, metric, len(pairs)) for metric in wanted for pair in pairs]
    measured = [row for row in rows if row.base.values or row.new.values]
    if not measured:
        raise UserError(f"neither side has measured any of {', '.join(wanted)}")
    return Comparison(base, new, found, measured, left_out)


def differences(base: Results, new: Results) -> list[str]:
    """Differences of machine and settings in words; empty if the campaigns are comparable."""
    found = []
    if base.machine is None or new.machine is None:
        found.append("a campaign has no record of its machine")
    else:
        for key in SAME_MACHINE:
            one, other = getattr(base.machine, key), getattr(new.machine, key)
            if one != other:
                found.append(f"{key.replace('_', ' ')}: {_short(one, other)} against {_short(other, one)}")
    if _hosts(base) != _hosts(new):
        found.append(f"hosts: {_named(base)} against {_named(new)}")
    one, other = (_settings(results) for results in (base, new))
    for key in dict.fromkeys([*one, *other]):
        if one.get(key) != other.get(key):
            found.append(f"{key}: {_short(one.get(key), other.get(key))} against {_short(other.get(key), one.get(key))}")
    return found


def _hosts(results: Results) -> list[tuple]:
    """Properties of each host that affect every number."""
    return [(row.key.role, row.key.cpus, *(getattr(row.machine, key) for key in SAME_MACHINE)) for row in results.hosts]


def _named(results: Results) -> str:
    return ", ".join(f"{row.key.name} ({row.key.role})" for row in results.hosts) or "one machine"


def _settings(results: Results) -> dict:
    """Keys of the experiment and parameters of the campaign that change its trials."""
    keys = {key: value for key, value in results.experiment.keys.items() if key not in OTHER_TEXTS}
    timing = {key: value for key, value in keys.pop("timing", {}).items() if key != "rounds"}
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


def _row(base: Side, new: Side, pair: Pair, metric: str, comparisons: int) -> Row:
    old_name, new_name, cell = pair
    before = base.results.estimate(old_name, cell, metric)
    after = new.results.estimate(new_name, cell, metric)
    noise = [results.noise(cell, metric) or 0.0 for results in (base.results, new.results)]
    threshold = max(stats.PRACTICAL, *noise)
    if base.results.folder == new.results.folder:
        of, to = (base.results.by_round(name, cell, metric) for name in (new_name, old_name))
        ratio = stats.ratio(of, to, comparisons)
    else:
        ratio = stats.ratio_of_groups(after.values, before.values, comparisons)
    says, why = _say(before, after, ratio, threshold, metrics.METRICS[metric].direction)
    server = old_name if old_name == new_name else f"{old_name} → {new_name}"
    return Row(server, cell, metric, before, after, ratio, threshold, says, why)


def _say(before, after, ratio, threshold: float, direction: str) -> tuple[Says, str]:
    for found, which in ((before, "the base"), (after, "the new one")):
        if found.mean is None:
            return "undecided", f"{which} has no number: {found.reason}"
        if (obstacle := stats.rank_obstacle(found.repeats)) is not None:
            return "undecided", f"{which}: {obstacle}"
    if ratio.low is None or ratio.high is None:
        return "undecided", ratio.reason or "there is no interval"
    size = max(ratio.mean, 1 / ratio.mean) - 1
    if (ratio.low > 1 or ratio.high < 1) and size > threshold:
        if direction == "neither":
            return "changed", ""
        return ("better" if (ratio.mean > 1) == (direction == "higher") else "worse"), ""
    if ratio.low > 1 / (1 + threshold) and ratio.high < 1 + threshold:
        return "equal", f"within {100 * threshold:.3g} %"
    if ratio.low > 1 or ratio.high < 1:
        return "not shown", f"the difference is below the practical threshold of {100 * threshold:.3g} %"
    return "not shown", "the interval holds 1"


# ---- for people and programs ---------------------------------------------------------------------------------------

HEADERS = ["server", "cell", "metric", "base", "new", "new / base", "says", "why"]


def table(found: Comparison) -> list[list[str]]:
    """Texts in the order of HEADERS."""
    rows = []
    for row in found.rows:
        scale = wording.scale(metrics.METRICS[row.metric].unit, (row.base.mean, row.new.mean))
        cell = found.base.results.cell_text(row.cell)
        ratio = wording.NONE if row.ratio.mean is None else f"{row.ratio.mean:.3f}"
        if row.ratio.low is not None:
            ratio += f" ({row.ratio.low:.3f}–{row.ratio.high:.3f})"
        both = scale.with_unit(row.base.mean), scale.with_unit(row.new.mean)
        rows.append([row.server, cell, row.metric, *both, ratio, row.says, row.why])
    return rows


def markdown(found: Comparison) -> str:
    """For a pull request: what is better or worse first, the rest folded away."""
    rows = table(found)
    loud = [row for row in rows if row[6] in ("better", "worse", "changed")]
    quiet = [row for row in rows if row not in loud]
    lead = f"`{found.new.text}` against `{found.base.text}`: " + summary(found)
    parts = [lead, *(f"**Compared anyway:** {_escaped(text)}" for text in found.differences)]
    if loud:
        parts.append(_grid(loud))
    if quiet:
        title = f"{len(quiet)} without a difference that can be claimed"
        parts.append(f"<details><summary>{title}</summary>\n\n{_grid(quiet)}\n\n</details>")
    parts += [f"Left out: {_escaped(text)}." for text in found.left_out]
    return "\n\n".join(parts) + "\n"


def summary(found: Comparison) -> str:
    """One line: how many of each."""
    counts = {
        says: sum(row.says == says for row in found.rows)
        for says in ("worse", "better", "changed", "equal", "not shown", "undecided")
    }
    return ", ".join(f"{count} {says}" for says, count in counts.items() if count) + f" of {len(found.rows)} comparisons"


def document(found: Comparison) -> dict:
    """For programs; `ratio` is new over base."""
    return {
        "format": "wsbench-comparison-1",
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
                "ratio": {"mean": row.ratio.mean, "low": row.ratio.low, "high": row.ratio.high},
                "threshold": row.threshold,
                "says": row.says,
                "why": row.why,
            }
            for row in found.rows
        ],
    }


def _grid(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(HEADERS) + " |", "|" + "---|" * len(HEADERS)]
    return "\n".join(lines + ["| " + " | ".join(_escaped(text) for text in row) + " |" for row in rows])


def _escaped(text: str) -> str:
    """As text in Markdown: names come from folders that anybody may have written."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").replace("`", "\\`")

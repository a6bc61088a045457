"""Which server for which load: the columns that experiments declare (`[[choice]]`), each filled from the newest campaign with it.

Campaigns in, frozen values out. A column is one metric in one cell of one campaign, so its servers can be ranked. Two columns are
never compared: their campaigns may come from different days and machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from wsbench import metrics
from wsbench.analysis import stats, wording
from wsbench.analysis.campaigns import Campaign
from wsbench.analysis.dataset import ENGINE_LIMIT, Cell
from wsbench.analysis.results import Results
from wsbench.experiments import experiment as experiments
from wsbench.experiments.choice import NEEDS, Choice
from wsbench.experiments.experiment import Experiment
from wsbench.metrics import capacities
from wsbench.metrics.findings import Kind, worst
from wsbench.records.hosts import MachineRecord

#: `best`: alone, or with its equals. `may be best`: no other is shown to be better. `open`: nothing is ranked.
Rank = Literal["best", "may be best", "behind", "reference", "open"]


@dataclass(frozen=True)
class Entry:
    """A server in a column. `value` is in the metric's unit, or the end of its interval where nothing else is shown; None where
    there is none. `bound`: it is only known to be at least or at most that. `note`: how far it is behind, or why there is no
    number. `few`: it has fewer rounds than a decision needs."""

    server: str
    value: float | None
    bound: Literal["", "≥", "≤"]
    text: str
    interval: str
    verdict: Kind | None
    rank: Rank
    note: str
    few: bool = False


@dataclass(frozen=True)
class Column:
    """`entries`: the best first. `machine`: such as `M2` if they are on several; empty if it is unknown."""

    choice: Choice
    campaign: Campaign
    unit: str
    higher: bool
    entries: tuple[Entry, ...]
    machine: str = ""

    @property
    def best(self) -> tuple[Entry, ...]:
        """Those that may be the best; empty if nothing is ranked."""
        return tuple(one for one in self.entries if one.rank in ("best", "may be best"))

    @property
    def compared(self) -> int:
        """How many servers have a number, without the baseline."""
        return sum(one.value is not None and one.rank != "reference" for one in self.entries)

    @property
    def next(self) -> Entry | None:
        """The best of those that are shown to be behind."""
        return next((one for one in self.entries if one.rank == "behind"), None)

    def of(self, server: str) -> Entry | None:
        return next((one for one in self.entries if one.server == server), None)


def columns(campaigns: list[Campaign]) -> list[Column]:
    """By need, then by experiment, as declared. `campaigns`: the newest first."""
    made = []
    for name in sorted({one.experiment for one in campaigns}):
        known = experiments.of_catalogue(name)
        of = [one for one in campaigns if one.experiment == name and not one.running and one.withdrawn is None]
        for choice in _choices(name):
            found = (_column(one, fitting) for one in of if (fitting := _fitting(choice, known, one.results)) is not None)
            if (column := next((one for one in found if one is not None), None)) is not None:
                made.append(column)
    return _with_machines(sorted(made, key=lambda one: NEEDS.index(one.choice.need)))


def withdrawn(campaigns: list[Campaign]) -> list[tuple[str, list[Campaign]]]:
    """Why answers are withdrawn, each with its campaigns, the newest first."""
    found: dict[str, list[Campaign]] = {}
    for one in campaigns:
        if one.withdrawn is not None and _choices(one.experiment):
            found.setdefault(one.withdrawn, []).append(one)
    return list(found.items())


def _with_machines(found: list[Column]) -> list[Column]:
    """Each with the name of its machine. They are numbered in the order in which they were used first."""
    on = _machines(found)
    names = {said: f"M{number}" for number, said in enumerate(dict.fromkeys(on.values()), 1)}
    if len(names) < 2:
        return found
    return [replace(one, machine=names[on[one.campaign.id]]) if one.campaign.id in on else one for one in found]


def _choices(name: str) -> Sequence[Choice]:
    """The columns of an experiment of the repository. Its words may be newer than a campaign."""
    known = experiments.of_catalogue(name)
    return () if known is None else known.choice


def _fitting(choice: Choice, known: Experiment | None, results: Results) -> Choice | None:
    """With the campaign's name of the metric: a capacity has the number of its SLO, and campaigns have different ones. None if this
    one does not have the SLO."""
    if known is None or known.ladder is None or results.climb is None:
        return choice
    over, slos = known.ladder.over, known.ladder.slos
    place = next((place for place in range(len(slos)) if capacities.name_of(over, place) == choice.metric), None)
    if place is None:
        return choice
    climb = results.climb
    if climb.over != over or slos[place] not in climb.slos:
        return None
    return choice.model_copy(update={"metric": capacities.name_of(over, climb.slos.index(slos[place]))})


def _column(campaign: Campaign, choice: Choice) -> Column | None:
    """None if the campaign has no number for it, or compares variants of one server: those do not tell which server to use."""
    results = campaign.results
    cell = next((one for one in results.cells if dict(one) == choice.at), None)
    if cell is None or not any(_has(results, name, cell, choice.metric) for name in results.names):
        return None
    if len({name.partition("@")[0] for name in results.names}) < 2:
        return None
    metric = metrics.METRICS[choice.metric]
    found = results.best(cell, choice.metric)
    order = {name: at for at, name in enumerate(found.order)}
    scale = wording.scale(metric.unit, [results.estimate(name, cell, choice.metric).mean for name in results.names])
    higher = metric.direction == "higher"
    entries = [_entry(results, name, cell, choice.metric, found, scale) for name in results.names]
    unplaced = _unplaced(entries, found.first, higher)
    if unplaced:
        entries = [replace(one, rank="may be best") if one.rank == "best" else one for one in entries]
    ahead = [one.server for one in unplaced]

    def place(one: Entry) -> tuple:
        value = 0.0 if one.value is None else one.value
        # The order is of estimates; one behind may have a better one than who may be best.
        group = 0 if one.server in ahead else 1 if one.server in found.first else 2
        return one.value is None, group, order.get(one.server, len(order)), -value if higher else value

    return Column(choice, campaign, scale.unit, higher, tuple(sorted(entries, key=place)))


def _unplaced(entries: list[Entry], first: tuple[str, ...], higher: bool) -> list[Entry]:
    """Servers with too few numbers to be compared, whose mean is no worse than that of every one that may be the best."""
    sign = 1 if higher else -1
    shown = [sign * one.value for one in entries if one.server in first and one.value is not None]
    return [one for one in entries if shown and one.rank == "open" and one.value is not None and sign * one.value >= max(shown)]


def _has(results: Results, name: str, cell: Cell, metric: str) -> bool:
    found = results.estimate(name, cell, metric)
    return (found.mean, found.low, found.high) != (None, None, None)


def _entry(results: Results, name: str, cell: Cell, metric: str, found: stats.Decided, scale: wording.Scale) -> Entry:
    estimate = results.estimate(name, cell, metric)
    counted = results.counted(name, cell, metric)
    verdict = worst(one.kind(metric) for one in counted) if counted else None
    value, bound = estimate.shown, "" if estimate.bound is None else estimate.bound[0]
    interval = "" if estimate.mean is None else scale.interval(estimate)
    rank, note = _rank(results, name, cell, metric, found)
    if estimate.at_least:
        note = f"a lower bound: {ENGINE_LIMIT}"
    note = note if value is not None else estimate.reason or ""
    few = len(estimate.values) < stats.LEAST_ROUNDS
    return Entry(name, value, bound, scale.mean(estimate), interval, verdict, rank, note, few)


def _rank(results: Results, name: str, cell: Cell, metric: str, found: stats.Decided) -> tuple[Rank, str]:
    if name in results.references:
        return "reference", "the baseline: it does the least work, and is not ranked"
    if found.reason is not None or not found.first:
        return "open", found.left_out.get(name) or found.reason or ""
    of = found.of(name)
    clear = all(one == found.order[0] or found.of(one).says == "equal" for one in found.first)
    if name in found.first:
        return ("best" if clear else "may be best"), ("" if of is None else of.reason)
    if name in found.left_out:
        return "open", found.left_out[name]
    if of is None:
        return "behind", ""
    if not of.ratio:
        return "behind", f"behind {results.label(of.other)}"
    most = "at most " if results.estimate(of.other, cell, metric).at_least else ""
    return "behind", f"{most}{wording.decided(of)} of {results.label(of.other)}"


# ---- for people ----------------------------------------------------------------------------------------------------

#: So many others are named that may be the best, too.
NAMED = 2


@dataclass(frozen=True)
class Said:
    """A column in words: who is best, and who comes next; empty if no server does."""

    column: Column
    best: str
    next: str


def answers(found: list[Column]) -> list[Said]:
    return [Said(column, _best(column), "" if (after := column.next) is None else _in_words(column, after)) for column in found]


def _best(column: Column) -> str:
    if column.best:
        first, *others = column.best
        ahead = list(takewhile(lambda one: one.rank == "open", column.entries))
        if ahead:
            names = wording.listed(column.campaign.results.label(one.server) for one in ahead)
            return f"undecided: {names} may be ahead, known from fewer than {stats.LEAST_ROUNDS} rounds"
        if first.rank == "may be best" and column.next is None:
            return f"one of {len(column.best)} ({_in_words(column, first)})"
        named = wording.listed(column.campaign.results.label(one.server) for one in others) if others else ""
        rest = named if len(others) <= NAMED else f"{len(others)} others"
        return _in_words(column, first) + (f", or {rest}" if rest else "")
    servers = [one for one in column.entries if one.rank != "reference"]
    known = [one for one in servers if one.value is not None]
    if not known:
        return "no server but the baseline has a number"
    if known[0].few:
        return f"undecided: fewer than {stats.LEAST_ROUNDS} rounds"
    said = _in_words(column, known[0])
    if len(servers) == 1:
        return said
    return f"undecided; by the mean {said}" if len(known) > 1 else f"undecided; measured only: {said}"


def _in_words(column: Column, one: Entry) -> str:
    """`netty 24,100 (22,900–25,000) messages/s`; of a lower bound, `netty ≥ 24,100 messages/s`; with the word of its trials if that
    is SUSPECT."""
    between = f" ({one.interval})" if one.interval and not one.bound else ""
    number = f"{column.campaign.results.label(one.server)} {one.text}{between} {column.unit}".strip()
    return f"{number} (SUSPECT)" if one.verdict == "SUSPECT" else number


def rows(found: list[Column]) -> list[str]:
    """Every server that is in a column, by name."""
    return sorted({one.server for column in found for one in column.entries})


def machines(found: list[Column]) -> list[str]:
    """The machines of the campaigns in the order of their first use, in words: after its name, if there are several."""
    on, names = _machines(found), {one.campaign.id: one.machine for one in found}
    known = {said: names[campaign] for campaign, said in on.items()}
    return [f"{name}: {said}" if name else said for said, name in known.items()]


def _machines(found: list[Column]) -> dict[str, str]:
    """By campaign what distinguishes its machine, the first used first.

    An older record lacks the CPU's id: it takes that of the same CPU and kernel if only one is known.
    """
    used = sorted(found, key=lambda one: one.campaign.created)
    on = {one.campaign.id: machine for one in used if (machine := one.campaign.results.machine) is not None}
    ids: dict[str, set[str]] = {}
    for machine in on.values():
        ids.setdefault(_said(machine, None), set()).update({machine.cpu_id} - {None})
    alone = {said: next(iter(known)) for said, known in ids.items() if len(known) == 1}
    return {campaign: _said(machine, machine.cpu_id or alone.get(_said(machine, None))) for campaign, machine in on.items()}


def _said(machine: MachineRecord, cpu_id: str | None) -> str:
    """What distinguishes machines: `2 CPUs (AMD EPYC), Linux 6.18.44-fc-v595`."""
    model = ", ".join(part for part in (machine.cpu_model, cpu_id) if part)
    return f"{wording.count(machine.cpus, 'CPU')} ({model or 'unknown model'}), Linux {machine.kernel}"

"""A campaign as the report shows it: every trial with its metrics and verdict, and queries over all trials.

`reading.load` creates a `Results` from a campaign's records and its data set. All numbers come from metrics, verdict and stats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wsbench import metrics
from wsbench.analysis import stats
from wsbench.analysis.as_written import Experiment
from wsbench.analysis.blocks import Blocks
from wsbench.analysis.curves import Curve, curve_points
from wsbench.analysis.dataset import (
    ENGINE_LIMIT,
    MOST_ALLOWED,
    Cell,
    Columns,
    DataSet,
    TrialResult,
    connection_per_request,
    sortable,
)
from wsbench.engine.histogram import Histogram
from wsbench.experiments.experiment import Climb
from wsbench.records import contained
from wsbench.records.engine_files import Doc, Idle, Plan, Push
from wsbench.records.hosts import HostRow, MachineRecord
from wsbench.records.rundir import CONTROL, CampaignRecord, CellValue, RunFolder, ServerRow, TrialOrder

DELIVERED = "pushes_per_s"
REACHED = "connections_reached"
REFERENCE = "reference"  # the server that does the least work: a baseline, not ranked


@dataclass(frozen=True)
class Results:
    """All data of the report."""

    folder: RunFolder
    campaign: CampaignRecord
    machine: MachineRecord | None
    machine_after: MachineRecord | None
    hosts: list[HostRow]  # empty: one machine
    servers: list[ServerRow]
    order: list[TrialOrder]
    experiment: Experiment
    data: DataSet
    #: The same without the trials after the rounds (`order` likewise); and what ladders are to find, if there are some.
    of_rounds: DataSet
    climb: Climb | None = None

    @cached_property
    def trials(self) -> list[TrialResult]:
        """The finished trials of the rounds, without the control's."""
        return [trial for trial in self.every_trial if not trial.record.control]

    @property
    def every_trial(self) -> list[TrialResult]:
        """The same with the control's, by number."""
        return self.of_rounds.trials

    @cached_property
    def turns(self) -> tuple[int, int]:
        """Turns of slices that the host disturbed, which were left out, and all turns."""
        heats: dict[int | None, tuple[int, int]] = {}  # the trials of a heat have the same turns
        for trial in self.every_trial:
            counts = trial.value("turns_disturbed"), trial.value("turns")
            if None not in counts:
                heats[trial.record.heat] = counts
        return sum(left_out for left_out, _ in heats.values()), sum(every for _, every in heats.values())

    @property
    def columns(self) -> Columns:
        """All numbers of `every_trial`, one row each."""
        return self.of_rounds.columns

    def pooled(self, name: str, cell: Cell, tag: str | None = None) -> Histogram | None:
        """Latencies of a server in a cell over its counted trials; by default those that describe the experiment."""
        found = self.data.latencies.get((name, cell, tag or self.latency.removesuffix("_us")))
        return None if found is None else found.histogram

    @cached_property
    def curves(self) -> dict[tuple[str, Cell], Curve]:
        """The pooled latencies as curves, by server and cell."""
        tag = self.latency.removesuffix("_us")
        return {
            (name, cell): Curve(one.histogram.count, curve_points(one.histogram), one.log)
            for (name, cell, of), one in self.data.latencies.items()
            if of == tag
        }

    @cached_property
    def plans(self) -> list[Plan]:
        """Every distinct plan."""
        return list({id(trial.plan): trial.plan for trial in self.trials if trial.plan is not None}.values())

    @cached_property
    def doc(self) -> bool:
        return bool(self.plans) and all(isinstance(plan.scenario, Doc) for plan in self.plans)

    @cached_property
    def push(self) -> bool:
        return bool(self.plans) and all(isinstance(plan.scenario, Push) for plan in self.plans)

    @cached_property
    def held(self) -> bool:
        """True if connections are held, for broadcasts or for nothing: the rate of messages says nothing about the server."""
        return bool(self.plans) and all(isinstance(plan.scenario, Push | Idle) for plan in self.plans)

    @cached_property
    def per_request(self) -> bool:
        return bool(self.plans) and all(map(connection_per_request, self.plans))

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell, sorted; numbers in numeric order."""
        seen = dict.fromkeys(tuple(planned.cell.items()) for planned in self.order)
        return sorted(seen, key=lambda cell: [sortable(value) for _, value in cell])

    @cached_property
    def swept(self) -> list[str]:
        """The keys whose value differs between cells."""
        keys = dict.fromkeys(key for cell in self.cells for key, _ in cell)
        return [key for key in keys if len({dict(cell).get(key) for cell in self.cells}) > 1]

    @cached_property
    def numeric_key(self) -> str | None:
        """The x axis of charts: of the swept keys whose values are all numbers, the one with the most values."""
        of = {key: {dict(cell).get(key) for cell in self.cells} for key in self.swept}
        numeric = [key for key, found in of.items() if all(type(value) in (int, float) for value in found)]
        return max(numeric, key=lambda key: len(of[key]), default=None)

    @cached_property
    def names(self) -> list[str]:
        """The planned servers, `server@variant`, in the campaign's order, without the A/A control."""
        rows = sorted(self.order, key=lambda row: (row.round, row.name))
        return list(dict.fromkeys(planned.name for planned in rows if not planned.control))

    @cached_property
    def control(self) -> str | None:
        """The name of the A/A control, a server's second series; None if the campaign has none."""
        return next((planned.name for planned in self.order if planned.control), None)

    @cached_property
    def margin(self) -> float:
        """Smaller differences do not matter, as a share."""
        return self.experiment.keys.get("margin", stats.MARGIN)

    def against_itself(self, cell: Cell, metric: str) -> stats.Decision | None:
        """The control compared with its own server, two identical series. None without a control, or if they cannot be compared."""
        if self.control is None:
            return None
        twins = stats.Two(self.control, self.control.removesuffix(CONTROL))
        return next(iter(self.decide(cell, metric, twins, as_seen=True).decisions), None)

    def label(self, name: str) -> str:
        """A server's name in charts: without its variant if the campaign has only one and its runtime was not chosen."""
        server, _, variant = name.rpartition("@")
        return server if "+" not in variant and sum(other.rpartition("@")[0] == server for other in self.names) == 1 else name

    @cached_property
    def machine_changes(self) -> list[str] | None:
        """Properties of the machine that had changed after the last trial; None if it was not read again."""
        if self.machine is None or self.machine_after is None:
            return None
        return self.machine.changes(self.machine_after)

    @cached_property
    def throughput(self) -> str:
        """What is counted in a second: in rooms, if the experiment asks for it, what reaches the members."""
        if self.experiment.headline == DELIVERED:
            return DELIVERED
        return "requests_per_s" if self.doc else "messages_per_s"

    @cached_property
    def latency(self) -> str:
        """The prefix of the latency metrics that describe this experiment."""
        return "push_us" if self.push else "request_us" if self.per_request else "service_us"

    @cached_property
    def headline(self) -> str:
        """The experiment's headline metric; p99 by default."""
        return self.experiment.headline or f"{self.latency}_p99"

    @cached_property
    def leading(self) -> str:
        """The metric that the answer is about.

        In a closed loop it is throughput: latencies alone cannot be compared there. If the load is given (open loop, users with
        think time, idle connections), every server gets the same load, and the experiment's headline distinguishes servers. If no
        trial of held connections has a usable headline, it is the connections reached, where servers differ in them, or else the
        first metric by which the experiment compares servers.
        """
        if self.climb is not None:
            return self.headline
        loops = [plan.loop for plan in self.plans]
        given = not any(loop.kind == "closed" and loop.think is None for loop in loops)
        tells = metrics.METRICS[self.headline].direction != "neither" and self.has(self.headline)
        if given and tells:
            return self.headline
        if not (given and self.held and self.has(REACHED)):
            return self.throughput
        reached = self.columns.of(REACHED, self.counted_rows(REACHED))
        return REACHED if np.nanmax(reached) > np.nanmin(reached) else next(filter(self.has, self.experiment.compares), REACHED)

    @cached_property
    def second(self) -> str | None:
        """The metric drawn next to the leading one."""
        wanted = (self.headline, f"{self.latency}_p99", self.throughput)
        return next((name for name in wanted if name in metrics.METRICS and name != self.leading and self.has(name)), None)

    def has(self, metric: str) -> bool:
        """True if any server has a mean of it in any cell."""
        return any(self.estimate(name, cell, metric).mean is not None for cell in self.cells for name in self.names)

    @cached_property
    def usable(self) -> bool:
        """Whether at least one trial has a number of the leading metric or the headline that counts."""
        wanted = (self.leading, self.headline)
        return any(one.value(metric) is not None for metric in wanted for one in self.trials if one.counts_for(metric))

    def why_not(self, metric: str) -> str:
        """Why no server has a mean: the first trial's reason."""
        found = self.columns.of(metric, self.counted_rows(metric))
        if len(known := found[~np.isnan(found)]):
            return "0 in every trial" if not known.any() else "no mean: a value is zero or negative"
        if any(trial.counts_for(metric) for trial in self.trials):
            return next(trial.reason(metric) for trial in self.trials if trial.counts_for(metric))
        because = (one for trial in self.trials for one in trial.verdict.because(metrics.METRICS[metric].family))
        return next((one.text for one in because), "no counted trial")

    @cached_property
    def missing(self) -> list[TrialOrder]:
        """Planned trials without an outcome."""
        done = {trial.record.number for trial in self.every_trial}
        return [planned for planned in self.order if planned.number not in done]

    @cached_property
    def rows(self) -> list[int]:
        """Of `trials` in `columns`."""
        return [row for row, trial in enumerate(self.every_trial) if not trial.record.control]

    def counted_rows(self, metric: str) -> list[int]:
        """The rows in `columns` of the trials that count for a metric, without the control's."""
        return [row for row in self.rows if self.every_trial[row].counts_for(metric)]

    def group(self, name: str, cell: Cell) -> list[TrialResult]:
        return self._groups.get((name, cell), [])

    @cached_property
    def _groups(self) -> dict[tuple[str, Cell], list[TrialResult]]:
        groups: dict[tuple[str, Cell], list[TrialResult]] = {}
        for trial in self.every_trial:
            groups.setdefault((trial.record.name, trial.cell), []).append(trial)
        return groups

    def counted(self, name: str, cell: Cell, metric: str) -> list[TrialResult]:
        """The trials that count for a metric, one per block: a rerun replaces the trial that it repeats if both count."""
        found = {self.block(trial): trial for trial in self.group(name, cell) if trial.counts_for(metric)}
        return list(found.values())

    def block(self, trial: TrialResult) -> int:
        return self._blocks.of(trial.record)

    @cached_property
    def _blocks(self) -> Blocks:
        return Blocks(self.order)

    def estimate(self, name: str, cell: Cell, metric: str) -> stats.Estimate:
        """Estimate over the counted repeats; if none has the number, with the first one's reason."""
        if (name, cell, metric) not in self._estimates:
            self._estimates[name, cell, metric] = contained.part(
                f"mean of {metric}",
                lambda: self._estimate(name, cell, metric),
                lambda reason: stats.Estimate((), None, None, None, reason),
            )
        return self._estimates[name, cell, metric]

    @cached_property
    def _estimates(self) -> dict[tuple[str, Cell, str], stats.Estimate]:
        return {}

    def _estimate(self, name: str, cell: Cell, metric: str) -> stats.Estimate:
        counted, by_round = self.counted(name, cell, metric), self.by_round(name, cell, metric)
        until = self.campaign.until
        # Rounds that end when an interval is narrow are more likely to end when it is so by chance.
        level = stats.LEVEL if until is None or until.within is None else stats.STOPPED_LEVEL
        found = stats.estimate(list(by_round.values()), level)
        if found.values:
            return replace(found, at_least=isinstance(by_round, stats.AtLeast))
        if counted:
            return replace(found, reason=counted[0].reason(metric))
        because = [one for trial in self.group(name, cell) for one in trial.verdict.because(metrics.METRICS[metric].family)]
        return replace(found, reason=because[0].text) if because else found

    def by_round(self, name: str, cell: Cell, metric: str) -> dict[int, float | None]:
        """Block → the value of the trial that counts for this metric. A block is a round, or one of its heats (`block`)."""
        counted = self.counted(name, cell, metric)
        found = {self.block(trial): trial.value(metric) for trial in counted}
        bounds = any(trial.is_bound(metric) for trial in counted)
        if not bounds:
            return found
        most = self.climb and self.climb.most
        allowed = most is not None and all(value is None or value >= most for value in found.values())
        return stats.AtLeast(found, MOST_ALLOWED if allowed else ENGINE_LIMIT)

    def lost(self, name: str, cell: Cell, metric: str) -> frozenset[int]:
        """The rounds in which the server's own failure left it without a usable value of this metric (`lost_by_server`).

        A decision may let the server lose them. A round whose value the host or the engine made unusable is in neither this set nor
        `by_round`: it is missing, and says nothing about the server.
        """
        known = {number for number, value in self.by_round(name, cell, metric).items() if value is not None}
        failed = {self.block(trial) for trial in self.group(name, cell) if trial.lost_by_server(metric)}
        return frozenset(failed - known)

    def decide(self, cell: Cell | None, metric: str, ask: stats.Ask, as_seen: bool = False) -> stats.Decided:
        """The answer to one question in a cell; over all cells together if `cell` is None."""
        return contained.part(
            f"decision on {metric}",
            lambda: self._decide(cell, metric, ask, as_seen),
            lambda reason: stats.Decided((), (), (), {}, reason),
        )

    def _decide(self, cell: Cell | None, metric: str, ask: stats.Ask, as_seen: bool) -> stats.Decided:
        if cell is None:
            series = stats.overall([self._series(one, metric) for one in self.cells])
            lost = {name: {at for one in self.cells for at in self.lost(name, one, metric)} for name in series}
            return stats.decide(series, ask, self.rules(metric), lost)
        series = stats.as_seen(self._series(cell, metric)) if as_seen else self._series(cell, metric)
        lost = {name: self.lost(name, cell, metric) for name in self._everyone}
        return stats.decide(series, ask, self.rules(metric), lost, self.prior(metric))

    def rules(self, metric: str) -> stats.Rules:
        """The campaign's margin, the better direction of a metric, and the looks if rounds went on until decided."""
        return stats.Rules(self.margin, metrics.METRICS[metric].better, looks=self.looks)

    @cached_property
    def looks(self) -> stats.Looks | None:
        """If rounds went on until decided, every number of blocks at which the campaign could have ended."""
        if self.campaign.until is None or self.campaign.until.within is not None:
            return None
        return stats.Looks(self.campaign.until.planned * self._blocks.of_a_round)

    @cached_property
    def error(self) -> float:
        """The error of a family of comparisons; that of the last look if rounds went on until decided."""
        if self.looks is None:
            return stats.ERROR
        blocks: dict[Cell, set[int]] = {}
        for trial in self.every_trial:
            blocks.setdefault(trial.cell, set()).add(self.block(trial))
        return self.looks.error(max(map(len, blocks.values()), default=0), stats.ERROR)

    @property
    def claimed(self) -> stats.Rules:
        """The margin and the error of a comparison in a claim."""
        return stats.Rules(self.margin, error=self.error)

    def prior(self, metric: str) -> stats.Prior:
        """The common variance of a metric over all servers and cells."""
        if metric not in self._priors:
            self._priors[metric] = stats.common_variance([self._series(cell, metric) for cell in self.cells])
        return self._priors[metric]

    @cached_property
    def _priors(self) -> dict[str, stats.Prior]:
        return {}

    @property
    def _everyone(self) -> list[str]:
        """The control helps to fit what the rounds share."""
        return [*self.names, *([self.control] if self.control else [])]

    def _series(self, cell: Cell, metric: str) -> dict[str, dict[int, float | None]]:
        return {name: self.by_round(name, cell, metric) for name in self._everyone}

    @cached_property
    def contenders(self) -> tuple[str, ...]:
        """The servers that can be the best: all but the reference, unless nothing else ran."""
        return tuple(name for name in self.names if name not in self.references) or tuple(self.names)

    def best(self, cell: Cell | None, metric: str) -> stats.Decided:
        """Who may be the best of the contenders, and how far the others are behind; over all cells if `cell` is None."""
        if (cell, metric) not in self._best:
            self._best[cell, metric] = self.decide(cell, metric, stats.Best(self.contenders))
        return self._best[cell, metric]

    @cached_property
    def _best(self) -> dict[tuple[Cell | None, str], stats.Decided]:
        return {}

    def pairs(self, cell: Cell, metric: str) -> stats.Decided:
        """All servers of a cell with each other, the reference included. Its letters are the tiers."""
        return self.decide(cell, metric, stats.Pairs(tuple(self.names)))

    @cached_property
    def references(self) -> tuple[str, ...]:
        """The baseline in all its variants; they are not ranked."""
        return tuple(name for name in self.names if name.rpartition("@")[0] == REFERENCE)

    @property
    def reference(self) -> str | None:
        """The variant that others are compared with."""
        return next(iter(self.references), None)

    def cell_text(self, cell: Cell, without: Iterable[str] = ()) -> str:
        """The swept values of a cell in words; empty if nothing is swept."""
        shown = [key for key in self.swept if key not in without]
        return ", ".join(f"{key.replace('_', ' ')} {_value(value)}" for key, value in cell if key in shown)


def _value(value: CellValue) -> str:
    return f"{value:,}" if type(value) is int else str(value)

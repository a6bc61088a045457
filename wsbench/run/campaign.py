"""A campaign: all trials of an experiment in one run folder, in rounds of fresh random order.

No result is ever lost: a finished trial is on disk, and `resume` reruns an unfinished one. A server that fails is recorded
as a row, and the campaign continues. The campaign evaluates one thing only: whether the machine disturbed a trial, which
it then reruns. If its rounds go on until decided, `deciding` says after each whether another one follows.
"""

from __future__ import annotations

import random
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

from wsbench import __version__
from wsbench.experiments import experiment
from wsbench.experiments.duration import estimate_s
from wsbench.host import machine, places
from wsbench.metrics import verdict
from wsbench.metrics.trial_data import TrialData
from wsbench.records import contained, lock, sums
from wsbench.records.errors import NothingUsable, UserError
from wsbench.records.files import is_plain, new_folder, read_file
from wsbench.records.frozen import json_of
from wsbench.records.goals import Until
from wsbench.records.hosts import HostRow
from wsbench.records.packing import ARCHIVE, CHECKSUM, DATA_SET
from wsbench.records.rundir import CampaignRecord, RunFolder, ServerRow, TrialFolder, TrialOrder, TrialRecord
from wsbench.run import heat, host_limits, ordering, preparing, request, same, trial
from wsbench.run.request import Request
from wsbench.run.testbed import Testbed
from wsbench.servers import catalogue
from wsbench.servers.catalogue import Variant

if TYPE_CHECKING:
    from wsbench.analysis.until import Standing
    from wsbench.run.climbing import Ladders
    from wsbench.run.deciding import Referee


class Watcher(Protocol):
    """Receives the progress of a campaign."""

    def say(self, line: str) -> None: ...
    def trials_begin(self, orders: list[TrialOrder], done: int, total: int, left_s: float) -> None: ...
    def trial_runs(self, folder: TrialFolder) -> None: ...
    def trial_ends(self, trial: TrialData) -> None: ...
    def round_ends(self, standing: Standing) -> None: ...


def begin(asked: Request, runs: Path, testbed: Testbed, port: int | None, watcher: Watcher) -> RunFolder:
    """Builds and checks the servers, creates a new campaign and runs it to its end. UserError if no server can run,
    NothingUsable if one was tried."""
    if testbed.roster and asked.experiment.arrangement != "trials":
        asked = request.one_after_another(asked)
    loads = [asked.experiment.load_of(cell) for cell in asked.experiment.cells()]
    if testbed.roster and any(load.content != "letters" for load in loads):
        raise UserError("'load.content' needs one machine: the hosts of a cluster do not have its file")
    for departure in asked.departures:
        watcher.say(f"override: {departure}")
    rows = _prepare(asked, testbed, port, watcher)
    variants = [variant for variant, row in rows if row.skipped is None]
    lacking = [row for _, row in rows if row.skipped is not None]
    if lacking and (not variants or (asked.until is not None and asked.until.pair)):
        raise _lacking(lacking)("; ".join(row.why_skipped for row in lacking))
    for row in lacking:
        watcher.say(f"skipped {row.why_skipped}")
    for line in preparing.cells_left_out(asked.experiment, variants):
        watcher.say(line)
    rounds = asked.experiment.timing.rounds if asked.until is None else ordering.LEAST_PLANNED
    control = ordering.control_of(rounds, variants, asked.control)
    if control is not None:
        watcher.say(f"A/A control: {control.name} runs twice in every round")
    most = host_limits.most_alive(variants, max(load.most_connections for load in loads))
    if asked.until is None:
        until, order = None, ordering.order_of(asked.experiment, variants, asked.seed, control, most)
    else:
        order = ordering.round_of(1, 1, asked.experiment, variants, asked.seed, control, most)
        # Where precision ends the rounds, no error is divided among them.
        by_time = ordering.planned_rounds(asked.until.budget_s, estimate_s(asked.experiment, len(order)))
        planned = by_time if asked.until.within is None else ordering.MOST_PLANNED
        until, rounds = Until(**asked.until.model_dump(), planned=planned, alive=most), 1
    placed = places.of(runs)
    stamp = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    run = RunFolder(new_folder(runs, f"{stamp}-{asked.name}"))
    experiment_toml, own = asked.file.read_bytes(), {}
    if asked.own is not None:
        shutil.copytree(asked.own, run.own_servers)
        files = [file for file in sorted(run.own_servers.rglob("*")) if is_plain(file)]
        own = {str(file.relative_to(run.path)): file.read_bytes() for file in files}
    record = CampaignRecord(
        wsbench=__version__,
        experiment=asked.name,
        command=placed.in_text(asked.command),
        created_unix_s=time.time(),
        seed=asked.seed,
        rounds=rounds,
        scale=asked.scale,
        time_scale=asked.time_scale,
        arrangement=asked.arrangement,
        sweep=asked.sweep,
        departures=asked.departures,
        tags=asked.tags,
        engines=asked.engines,
        server_processes=asked.server_processes,
        again=asked.again,
        until=until,
        servers=[variant.name for variant in variants],
        skipped=[row.name for _, row in rows if row.skipped is not None],
        began=same.began(experiment_toml.decode(), rows, asked.experiment.runtime, testbed),
    )
    own_files = own | {"experiment.toml": experiment_toml} | _machines(testbed, "")
    own_files |= {"servers.json": json_of([placed.in_value(row) for _, row in rows]), "order.json": json_of(order)}
    # campaign.json last: from here on the campaign can be resumed.
    run.write(own_files | {"campaign.json": json_of(record)})
    with _alone(run):
        _run_missing(run, testbed, port, watcher, [])
    return run


def _lacking(rows: list[ServerRow]) -> type[UserError]:
    """The error of a campaign without these servers: NothingUsable if one of them was started or sent something for its checks."""
    return NothingUsable if any(row.was_checked for row in rows) else UserError


def resume(
    run: RunFolder,
    testbed: Testbed,
    port: int | None,
    watcher: Watcher,
    again: int | None = None,
    anyway: bool = False,
    within: float | None = None,
    budget_s: float | None = None,
) -> RunFolder:
    """Runs every trial without an outcome, then reruns disturbed ones, up to `again` times (None: as the campaign says). Rounds
    that end by precision go on to their end, or to another one: `within` this half width, or after this time.

    UserError if another process runs the campaign, if its trials are in an archive, if it was started on another testbed or, unless
    `anyway`, if the experiment's file, a server, the engine or the machine is not that of the trials so far.
    """
    if run.packed:
        raise UserError(
            f"{run.path} is packed, so new trials would not be in its archive. Unpack its trials, then resume: "
            f"tar -xJf {run.path / ARCHIVE} -C {run.path} && rm {run.path / ARCHIVE}"
        )
    if is_plain(run.path / CHECKSUM):
        raise UserError(
            f"{run.path}: its trials were published apart, and all would be run again. Unpack them, then resume: "
            f"tar -xJf {ARCHIVE} -C {run.path} && rm {run.path / CHECKSUM}"
        )
    with _alone(run):
        _require_same(run.hosts, testbed)
        sums.verify(run.path, f"{run.own_servers.name}/")
        differences = same.differences(run, testbed)
        if differences and not anyway:
            raise UserError(
                f"{run.path}: its trials would not be comparable: {'; '.join(differences)}. Begin another campaign, or resume with "
                "--anyway, which is recorded in every further trial"
            )
        if differences:
            _accept(run, differences)
        if again is not None and again != run.campaign.again:
            run.write_json("campaign.json", run.campaign.model_copy(update={"again": again}))
        if within is not None or budget_s is not None:
            run.write_json("campaign.json", request.resumed(run, within, budget_s))
        _run_missing(run, testbed, port, watcher, differences)
    return run


@contextmanager
def _alone(run: RunFolder) -> Iterator[None]:
    """No other wsbench runs this campaign meanwhile. An interrupt says how to go on."""
    with lock.holding(run.lock, f"another wsbench is running {run.path}; wait for it, or stop it"):
        try:
            yield
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"go on with: wsbench run --resume {shlex.quote(str(run.path))}")
            raise


def _accept(run: RunFolder, differences: list[str]) -> None:
    """Goes on in spite of differences: the campaign says so, and the experiment's file is the changed one from now on."""
    record = run.campaign
    said = [f"resumed in spite of a difference: {one}" for one in differences]
    departures = list(dict.fromkeys([*(record.departures or []), *said]))
    changed = json_of(record.model_copy(update={"departures": departures}))
    run.write({"experiment.toml": read_file(run.experiment_toml), "campaign.json": changed})


def _run_missing(run: RunFolder, testbed: Testbed, port: int | None, watcher: Watcher, anyway: list[str]) -> None:
    record, order = run.campaign, run.order
    run.read("experiment.toml")
    written, sizes = experiment.read(run.experiment_toml), (record.rounds, record.scale, record.time_scale, record.arrangement)
    setting = trial.Setting(
        experiment=request.sized(written, *sizes, record.sweep),
        seed=record.seed,
        testbed=testbed,
        port=port,
        engines=record.engines,
        server_processes=record.server_processes,
        anyway=anyway,
    )
    finished = run.finished_numbers()
    missing = [planned for planned in order if planned.number not in finished]
    if missing:
        # A data set that was written earlier may have numbers of a trial that is run again.
        for name in DATA_SET:
            (run.path / name).unlink(missing_ok=True)
    rows, table = catalogue.with_own(run.own_servers), setting.experiment.runtime
    variants = {planned.variant_name: catalogue.named(planned.variant_name, rows, table) for planned in order}
    goes_on = record.until is not None
    wanted = order if goes_on else missing
    gone = sorted({planned.variant_name for planned in wanted if variants[planned.variant_name] is None})
    if len(missing) < len(order):
        rest = "".join(f"; {departure}" for departure in record.departures or [])
        watcher.say(
            f"resuming: {len(order) - len(missing)} of {len(order)} trials in {request.rounds_text(record.rounds)} are done{rest}"
        )
    if gone:
        raise UserError(f"the catalogue no longer has {', '.join(gone)}, which this campaign needs")
    for line in _shapes(setting, missing, variants):
        watcher.say(line)
    referee, ladders = None, None
    # Their statistics are not part of every installation.
    if record.until is not None:
        from wsbench.run import deciding

        referee = deciding.Referee(run)
    if setting.experiment.ladder is not None:
        from wsbench.run import climbing

        ladders = climbing.Ladders(run, setting.experiment, record.seed)
    course = _Course(run, list(order), setting, variants, watcher, referee, ladders)
    for number in sorted({planned.round for planned in order}):
        course.finish(number)
    if referee is not None:
        # Without a decision the rounds end, and what they measured is kept.
        while contained.part("decision after a round", lambda: referee.goes_on(watcher.round_ends), lambda _: False):
            course.finish(course.begin_round(record.until.alive))
    if record.until is not None and record.until.within is not None:
        course.follow_up()
    testbed.be_whole(watcher.say)
    run.write(_machines(testbed, "-after"))


class _Course:
    """The trials of a campaign, one after another. `judge` is told each when it has ended, and decides how the campaign goes on.
    `ladders` says which rates the next one tries."""

    def __init__(
        self,
        run: RunFolder,
        order: list[TrialOrder],
        setting: trial.Setting,
        variants: dict[str, Variant | None],
        watcher: Watcher,
        judge: Referee | None,
        ladders: Ladders | None = None,
    ) -> None:
        self._judge, self._ladders = judge, ladders
        self._run, self._order, self._setting, self._variants, self._watcher = run, order, setting, variants, watcher
        self._again, self._seed = run.campaign.again, run.campaign.seed
        self._left = {planned.number for planned in order} - run.finished_numbers()
        self._took_s: list[float] = []

    def finish(self, number: int) -> None:
        """Runs what a round lacks, and reruns its disturbed trials."""
        due = [planned for planned in self._order if planned.round == number and planned.number in self._left]
        due = due or self.once_more(number)
        while due:
            for group in ordering.groups(due, self._order):
                self.take(group)
            due = self.once_more(number)

    def begin_round(self, most: int | None) -> int:
        """Plans another round of the same servers; its number. `most`: servers of a heat."""
        number = max(planned.round for planned in self._order) + 1
        again = next((planned.variant_name for planned in self._order if planned.control), None)
        control = None if again is None else self._variants[again]
        # The order of the request: the random order depends on it.
        servers = [self._variants[name] for name in self._run.campaign.servers]
        experiment = self._setting.experiment
        planned = ordering.round_of(number, len(self._order) + 1, experiment, servers, self._seed, control, most)
        self._order += planned
        self._left |= {one.number for one in planned}
        rounds = self._run.campaign.model_copy(update={"rounds": number})
        self._run.write({"order.json": json_of(self._order), "campaign.json": json_of(rounds)})
        return number

    def follow_up(self) -> None:
        """Runs what follows the rounds of ladders: confirmations and recoveries."""
        from wsbench.run import climbing

        planned = contained.part("trials after the rounds", lambda: climbing.following(self._run, self._order), lambda _: [])
        self._order += planned
        self._left |= {one.number for one in planned}
        self._run.write_json("order.json", self._order)
        for one in [one for one in self._order if one.follow_up is not None and one.number in self._left]:
            self.take([one])

    def take(self, group: list[TrialOrder]) -> None:
        """Runs one trial, or all trials of a heat; their outcomes are then on disk."""
        if self._ladders is not None:
            group = [self._ladders.planned(one) for one in group]
            planned = {one.number: one for one in group}
            self._order = [planned.get(one.number, one) for one in self._order]
            self._run.write_json("order.json", self._order)
        total, left, began = len(self._order), len(self._left), time.monotonic()
        # The duration of a trial that ends by count is known only from finished trials.
        left_s = left * fmean(self._took_s) if self._took_s else estimate_s(self._setting.experiment, left)
        self._watcher.trials_begin(group, total - left, total, left_s)
        self._setting.testbed.be_whole(self._watcher.say)
        folders = [self._run.trial(planned.number) for planned in group]
        for folder in folders:
            # Files of an interrupted trial are not a result.
            shutil.rmtree(folder.path, ignore_errors=True)
            folder.path.mkdir()
        for folder, ended in zip(folders, self._carried_out(group, folders), strict=True):
            data = TrialData(folder, ended)
            self._watcher.trial_ends(data)
            if self._ladders is not None:
                contained.part("reading a ladder", lambda data=data: self._ladders.add(data), lambda _: None)
            if self._judge is not None:
                contained.part("judging a trial", lambda data=data: self._judge.add(data), lambda _: None)
        self._left -= {planned.number for planned in group}
        self._took_s.append((time.monotonic() - began) / len(group))

    def _carried_out(self, group: list[TrialOrder], folders: list[TrialFolder]) -> list[TrialRecord]:
        of = zip(group, folders, strict=True)
        if group[0].heat is None:
            ((planned, folder),) = of
            variant = self._variants[planned.variant_name]
            return [trial.carry_out(planned, variant, self._setting, folder, self._watcher.trial_runs)]
        attempts = [trial.Attempt(planned, self._variants[planned.variant_name], self._setting, folder) for planned, folder in of]
        return heat.carry_out(attempts, lambda: self._watcher.trial_runs(folders[-1]))

    def once_more(self, number: int) -> list[TrialOrder]:
        """Plans reruns of the disturbed trials of a round, in random order. Trials already rerun `again` times are left out."""
        again_of = {planned.number: planned.again_of for planned in self._order}
        repeated = set(again_of.values())
        last = [one for one in self._order if one.round == number and one.number not in repeated]
        found = [one for one in last if _attempts(one, again_of) <= self._again and self._disturbed(one)]
        # The trials of a heat ran at the same time, so the same disturbed them all.
        heats = {one.heat for one in found if one.heat is not None}
        found += [one for one in last if one.heat in heats and one not in found]
        if not found:
            return []
        random.Random(f"{self._seed} {number} {len(self._order)}").shuffle(found)
        planned_again = ordering.again(found, len(self._order) + 1)
        self._order += planned_again
        self._run.write_json("order.json", self._order)
        self._left |= {planned.number for planned in planned_again}
        trials = "a trial" if len(found) == 1 else f"{len(found)} trials"
        self._watcher.say(f"rerunning {trials} of round {number} disturbed by the host, under new numbers")
        return planned_again

    def _disturbed(self, planned: TrialOrder) -> bool:
        folder = self._run.trial(planned.number)
        known = self._variants[planned.variant_name] is not None
        return known and verdict.disturbed(TrialData(folder, folder.record)) is not None


def _attempts(planned: TrialOrder, again_of: dict[int, int | None]) -> int:
    """The number of runs of this trial, including the ones it repeats."""
    before, attempts = planned.again_of, 1
    while before is not None:
        before, attempts = again_of[before], attempts + 1
    return attempts


def _machines(testbed: Testbed, moment: str) -> dict[str, bytes]:
    """The files about the machine, and about the hosts of a cluster, read now."""
    serves, hosts = testbed.machines()
    return {f"machine{moment}.json": json_of(serves)} | ({f"hosts{moment}.json": json_of(hosts)} if hosts else {})


def _require_same(began: list[HostRow], testbed: Testbed) -> None:
    """UserError if the campaign was started on another testbed."""
    if [one.key for one in began] != testbed.roster:
        names = ", ".join(one.key.name for one in began)
        where = f"on the hosts {names}: give --cluster with the same" if began else "on one machine: omit --cluster"
        raise UserError(f"this campaign was started {where}")


def _shapes(setting: trial.Setting, missing: list[TrialOrder], variants: dict[str, Variant]) -> list[str]:
    """One line per number of connections that needs several processes on a side, or that the file limit rules out."""
    limit = machine.file_limit()
    why = "" if limit is None or setting.testbed.roster else f" (the file limit here is {limit:,} per process)"
    lines = {}
    for planned in missing:
        load = setting.experiment.load_of(planned.cell)
        try:
            shape = trial.shape_of(setting, load, trial.is_started(variants[planned.variant_name]))
            shared = shape.servers > 1 and "heap" in setting.experiment.scales
            said = shape.words + (", which share the heap" if shared else "")
        except UserError as error:
            said = str(error)
        if said:
            lines[load.connections] = f"{load.connections:,} connections: {said}{why}"
    return list(lines.values())


def _prepare(asked: Request, testbed: Testbed, port: int | None, watcher: Watcher) -> list[tuple[Variant, ServerRow]]:
    """One row per chosen variant. The row of a variant that cannot run has the reason."""
    reasons = request.left_out(asked)
    serving = [variant for variant in asked.variants if variant.name not in reasons]
    wanted = [preparing.wanted(asked.experiment, variant, own=_is_own(variant, asked)) for variant in serving]
    prepared = testbed.prepare(wanted, asked.experiment.runtime, port, watcher.say)
    found = {row.name: row for row in prepared}
    rows = []
    for variant in asked.variants:
        row = found.get(variant.name) or preparing.left_out(variant, reasons[variant.name])
        rows.append((variant, row))
    return rows


def _is_own(variant: Variant, asked: Request) -> bool:
    return asked.own is not None and variant.sources.is_relative_to(asked.own)
